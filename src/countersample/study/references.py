"""The two rankers that a study starts from, and the choice of learning rates.

Both rankers are trained on labels: w* on all labels of the training data, the logging policy on the
labels of a few queries. The learning rates of w* come from a grid that is open at both ends, those
of methods from a setting.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample._environment import available_cores
from countersample._progress import Progress, Show
from countersample.clicks import ClickLog
from countersample.data.compact import linear_scores
from countersample.data.preprocessing import fill_missing
from countersample.errors import ParameterError
from countersample.metrics import get_metric
from countersample.plans import Examples
from countersample.rankers import load_ranker
from countersample.theory import gradient_bounds, step_size
from countersample.training import TrainingOptions, train, train_many

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from countersample._arrays import Bools, Floats
    from countersample.data import RankingDataset
    from countersample.options import SimulationOptions

METRIC = "ndcg@10"
POLICY_FRACTION = 0.001  # of the queries, that a logging policy is trained on by default
# The gain of an item, and the objective: the data decides which combination is better.
WAYS = tuple(product(("linear", "exponential"), ("rank", "log-rank")))
SAMPLED_QUERIES = 200  # whose gradients bound the longest one
RATES_PER_DECADE = 2
FIRST = range(-2, 6)  # exponents tried first: as many as training serves with one pass over memory
EQUAL = 1e-4  # a difference of a metric that tables do not show


def steps_of(n_queries: int) -> int:
    """Return the number of steps in which w* converges: by query, many passes over the queries."""
    return int(np.clip(20 * n_queries, 20_000, 300_000))


def supervised(
    dataset: RankingDataset,
    vali: RankingDataset,
    *,
    steps: int,
    seed: int,
    progress: Progress | Show | None = None,
) -> Floats:
    """Return w*: trained on all labels, tuned on validation data.

    An item counts its label, or 2^label − 1 as in nDCG; the objective is its rank, or the
    logarithm of it. Each of these four ways is trained at learning rates around the rate of the
    theorems. The grid grows until the best rate by nDCG@10 on validation data is not at its end.
    w* is the mean of the best way and of all ways within a standard error of it, each divided by
    the standard deviation of its scores. Choosing one of them would follow noise.
    """
    parts = Progress.of(progress).side_by_side(len(WAYS))
    threads = min(len(WAYS), available_cores())

    def tune(way: tuple[str, str], part: Progress) -> Floats:
        return _train_tuned(dataset, vali, *way, steps=steps, seed=seed, progress=part)

    with ThreadPoolExecutor(threads) as pool:
        weights = list(pool.map(tune, WAYS, parts))
    values = np.array([_by_query(each, vali) for each in weights])
    behind = values[values.mean(axis=1).argmax()] - values
    errors = behind.std(axis=1) / np.sqrt(behind.shape[1])
    alike = np.flatnonzero(behind.mean(axis=1) <= errors)
    mean: Floats = np.mean([weights[k] / _scale(weights[k], dataset) for k in alike], axis=0)
    return mean


def _scale(weights: Floats, dataset: RankingDataset) -> float:
    """Return the standard deviation of the scores, or 1 if all are the same."""
    return float(linear_scores(weights[None], dataset.features).std()) or 1.0


def _train_tuned(
    dataset: RankingDataset,
    vali: RankingDataset,
    gain: str,
    objective: str,
    *,
    steps: int,
    seed: int,
    progress: Progress,
) -> Floats:
    """Return weights trained one way, at the learning rate that is best on validation data."""
    log = ClickLog.from_labels(dataset, gain=gain)
    options = TrainingOptions(objective=objective, unit="query", steps=steps)
    centre = theoretical_rate(dataset, log, options, seed)
    if objective == "log-rank":
        # Its slope is 1/rank, and ranks begin in the middle of a list, not at 1.
        centre *= float(dataset.query_sizes.mean())
    weights: dict[int, Floats] = {}
    values: dict[int, float] = {}
    exponents = FIRST
    while exponents:
        rates = [float(centre * 10 ** (k / RATES_PER_DECADE)) for k in exponents]
        runs = train_many(
            dataset, log, learning_rates=rates, seeds=[seed], workers=1, progress=progress,
            options=options,
        )  # fmt: skip
        for k, run in zip(exponents, runs, strict=True):
            is_finite = run.diverged_at is None
            weights[k] = run.average_coef if is_finite else np.zeros(dataset.n_features)
            values[k] = float(_by_query(weights[k], vali).mean()) if is_finite else -np.inf
        exponents = next_exponents(values)
    return weights[max(values, key=lambda k: values[k])]


def _by_query(weights: Floats, dataset: RankingDataset) -> Floats:
    """Return nDCG@10 of each query that has a relevant item."""
    scores = linear_scores(weights[None], dataset.features)[0]
    metric = get_metric(METRIC, no_relevant="skip")
    values: Floats = metric(dataset.labels, scores, dataset.offsets)
    return values[~np.isnan(values)]


def score_policies(
    dataset: RankingDataset, options: SimulationOptions, seed: int
) -> dict[str, ArrayLike]:
    """Return the scores of each logging policy of a simulation, by its name."""
    saved = options.policy
    fractions = options.policy_fraction or (() if saved else (POLICY_FRACTION,))
    names = [*(path.stem for path in saved), *(f"trained-{fraction:g}" for fraction in fractions)]
    for name in names:
        if names.count(name) > 1:
            raise ParameterError(f"two policies are called {name}, expected different names")
    scores: dict[str, ArrayLike] = {path.stem: load_ranker(path).predict(dataset) for path in saved}
    normalized = fill_missing(dataset).normalized("query-minmax") if fractions else dataset
    for fraction in fractions:
        weights = logging_policy(normalized, fraction=fraction, seed=seed)
        scores[f"trained-{fraction:g}"] = linear_scores(weights[None], normalized.features)[0]
    return scores


def logging_policy(dataset: RankingDataset, *, fraction: float, seed: int) -> Floats:
    """Return the weights of a ranker trained on the labels of a small share of the queries."""
    rng = np.random.default_rng(seed)
    has_relevant = np.maximum.reduceat(dataset.labels, dataset.offsets[:-1]) > 0
    queries = np.flatnonzero(has_relevant)
    n_queries = max(2, round(fraction * dataset.n_queries))
    few = dataset.subset(np.sort(rng.choice(queries, min(n_queries, len(queries)), replace=False)))
    log = ClickLog.from_labels(few)
    return train(few, log, learning_rate=1e-3, unit="query", steps=5000, rng=rng).average_coef


# -- learning rates -------------------------------------------------------------------------------


def next_exponents(values: Mapping[int, float]) -> range:
    """Return the k of the rates η₀·10^(k/2) to try next; none if the best is not at an end."""
    best = max(values, key=lambda k: (values[k], -abs(k)))  # among equals the nearest to theory
    if values[best] == -np.inf or best == min(values):
        return range(min(values) - len(FIRST), min(values))
    if best == max(values):
        return range(best + 1, best + 1 + len(FIRST))
    return range(0)


def theoretical_rate(
    dataset: RankingDataset, log: ClickLog, options: TrainingOptions, seed: int
) -> float:
    """η₀ = 1 / (m·G·√T), for SGD."""
    plan = options.plan(Examples.of(log, options.unit))
    queries = np.random.default_rng(seed).permutation(np.unique(log.query))[:SAMPLED_QUERIES]
    sampled = Examples.of(log.of_queries(queries), options.unit)
    longest = float(gradient_bounds(dataset, sampled, objective=options.objective).max())
    return step_size(
        max_multiplier=1.0, gradient_bound=plan.max_multiplier * longest or 1.0, radius=1.0,
        steps=options.n_steps(log.n_rows),
    )  # fmt: skip


class RateChoice(NamedTuple):
    """The index of the chosen rate, and of the first and the last rate like it."""

    rate: int
    first: int
    last: int


def choose(values: Floats, usable: Bools) -> RateChoice:
    """Choose a rate by the values of each query, (n_rates, n_queries).

    The best rate has the highest mean. Its neighbours are *equal* if their mean is within 0.0001,
    and the middle of the equal ones is chosen: very small rates change only the length of the
    weights, so the rankings are the same. They are *alike* if the mean difference by query is
    within its standard error.

    >>> import numpy as np
    >>> values = np.array([[0.1, 0.3], [0.5, 0.7], [0.5, 0.7], [0.5, 0.7], [0.5, 0.6]])
    >>> choose(values, np.ones(5, bool))
    RateChoice(rate=2, first=1, last=3)
    """
    means = np.where(usable, values.mean(axis=1), -np.inf)
    best = int(means.argmax())
    behind = values[best] - values
    errors = behind.std(axis=1) / np.sqrt(behind.shape[1])
    first, last = _around(best, usable & (means >= means[best] - EQUAL))
    alike = usable & (behind.mean(axis=1) <= np.maximum(errors, EQUAL))
    return RateChoice((first + last) // 2, *_around(best, alike))


def _around(index: int, holds: Bools) -> tuple[int, int]:
    """Return the first and the last index of the run of true values around `index`."""
    gaps = np.flatnonzero(~holds)
    before, after = gaps[gaps < index], gaps[gaps > index]
    first = int(before[-1]) + 1 if len(before) else 0
    return first, int(after[0]) - 1 if len(after) else len(holds) - 1
