"""The two rankers a study starts from, both trained on labels: w* and the logging policy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from countersample._cores import available_cores
from countersample._progress import Progress
from countersample.clicks import ClickLog
from countersample.data.scoring import linear_scores
from countersample.metrics import get_metric
from countersample.study.running.rates import FIRST, RateGrid, theoretical_rate
from countersample.training import TrainingOptions, train, train_many

if TYPE_CHECKING:
    from countersample._arrays import Floats
    from countersample._progress import Show
    from countersample.data import RankingDataset

METRIC = "ndcg@10"
# What an item counts, and the objective of a clicked item: which is better for nDCG, the data says.
WAYS = tuple(product(("linear", "exponential"), ("rank", "log-rank")))


def supervised(
    dataset: RankingDataset,
    vali: RankingDataset,
    *,
    steps: int,
    seed: int,
    progress: Progress | Show | None = None,
) -> Floats:
    """Return w*: trained on all labels, tuned on validation data.

    An item counts its label, or 2^label − 1, as it does in nDCG; the objective is its rank, or the
    logarithm of it. Each of these four ways is tried at learning rates around the theorems' one,
    and further until the best by nDCG@10 on validation data is none of the ends. w* is the mean of
    the best way and of those that validation data does not tell from it (they are behind by less
    than a standard error of the difference), each on the scale of its scores: choosing one of them
    would be choosing noise.
    """
    parts = Progress.of(progress).side_by_side(len(WAYS))
    threads = min(len(WAYS), available_cores())

    def tune(way: tuple[str, str], part: Progress) -> Floats:
        return _tuned(dataset, vali, *way, steps=steps, seed=seed, progress=part)

    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(tune, WAYS, parts))
    values = np.array([_by_query(weights, vali) for weights in found])
    behind = values[values.mean(axis=1).argmax()] - values
    errors = behind.std(axis=1) / np.sqrt(behind.shape[1])
    alike = np.flatnonzero(behind.mean(axis=1) <= errors)
    mean: Floats = np.mean([found[k] / _scale(found[k], dataset) for k in alike], axis=0)
    return mean


def _scale(weights: Floats, dataset: RankingDataset) -> float:
    """Return the standard deviation of the scores, or 1 where all are the same."""
    return float(linear_scores(weights[None], dataset.features).std()) or 1.0


def _tuned(
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
    grid = RateGrid(centre)
    found: dict[int, Floats] = {}
    values: dict[int, float] = {}
    wanted = FIRST
    while wanted:
        runs = train_many(
            dataset, log, learning_rates=[grid.rate(k) for k in wanted], seeds=[seed], workers=1,
            progress=progress, options=options,
        )  # fmt: skip
        for k, run in zip(wanted, runs, strict=True):
            sound = run.diverged_at is None
            found[k] = run.average_coef if sound else np.zeros(dataset.n_features)
            values[k] = float(_by_query(found[k], vali).mean()) if sound else -np.inf
        wanted = grid.more(values)
    return found[max(values, key=lambda k: values[k])]


def _by_query(weights: Floats, dataset: RankingDataset) -> Floats:
    """Return nDCG@10 of each query that has a relevant item."""
    scores = linear_scores(weights[None], dataset.features)[0]
    metric = get_metric(METRIC, no_relevant="skip")
    values: Floats = metric(dataset.labels, scores, dataset.offsets)
    return values[~np.isnan(values)]


def logging_policy(dataset: RankingDataset, *, fraction: float, seed: int) -> Floats:
    """Return the weights of a ranker trained on the labels of a small share of the queries."""
    rng = np.random.default_rng(seed)
    has_relevant = np.maximum.reduceat(dataset.labels, dataset.offsets[:-1]) > 0
    queries = np.flatnonzero(has_relevant)
    n_queries = max(2, round(fraction * dataset.n_queries))
    few = dataset.subset(np.sort(rng.choice(queries, min(n_queries, len(queries)), replace=False)))
    log = ClickLog.from_labels(few)
    return train(few, log, learning_rate=1e-3, unit="query", steps=5000, rng=rng).average_coef
