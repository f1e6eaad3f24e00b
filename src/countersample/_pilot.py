"""The choice of steps and learning rate from clicks alone: what theory says, then a pilot.

Theory gives η₀ = B / (m·G·√T), which is safe rather than good. The pilot trains with rates around
it on four fifths of the clicked queries, and takes the one whose ranker does best on the clicks of
the others; on a small log it does so with every fifth left out in turn. It takes as many steps as
the training to come, since the best rate falls with their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks import ClickLog
from countersample.plans import Examples, make_plan
from countersample.theory import gradient_bounds, step_size
from countersample.training import train_many

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from countersample.data import RankingDataset

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

PARTS = 5  # of the clicked queries; one of them is held out at a time
JUDGED = 1_000  # queries: so many parts are held out in turn that there are as many
SAMPLED = 200  # queries in which the longest gradient is looked for
PER_DECADE = 2
AT_ONCE = 8  # rates of a pass: as many as training serves with one pass over memory
MOST_PASSES = 3

DRAWS_PER_EXAMPLE = 3
FEWEST_DRAWS = 30_000
MOST_DRAWS = 1_000_000


@dataclass(frozen=True)
class Pilot:
    """The learning rates that were tried, and how each one did.

    Attributes
    ----------
    learning_rates : float64 (n,)
        Rising.
    scores : float64 (n,)
        The mean `click_dcg` on held-out queries; −inf for a run that diverged.
    best : float
        The rate of the largest score.
    """

    learning_rates: Floats
    scores: Floats
    best: float


def ranks_of(scores: Floats, offsets: Ints) -> Ints:
    """Return the rank of each row within its query, int64 (n_rows,), from 1; ties in row order.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample._pilot import ranks_of
    >>> ranks_of(np.array([0.1, 0.9, 0.9, 0.5]), np.array([0, 3, 4]))
    array([3, 1, 2, 1])
    """
    from countersample._kernels.metrics import rank  # noqa: PLC0415 (imports numba)

    sizes = np.diff(offsets)
    order = rank(scores, scores, offsets, int(sizes.max(initial=1)), 0)
    ranks = np.empty(len(scores), np.int64)
    ranks[order] = np.arange(1, len(scores) + 1) - np.repeat(offsets[:-1], sizes)
    return ranks


def click_dcg(ranks: Ints, weights: Floats) -> float:
    """Σ v / log2(1 + rank) / Σ v over clicked items, with v = clicks / propensity; at most 1.

    This is the self-normalised estimate, from clicks, of what DCG a relevant item gains a ranking.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample._pilot import click_dcg
    >>> click_dcg(np.array([1, 3]), np.array([1.0, 3.0]))  # (1/1 + 3/2) / 4
    0.625
    """
    return float((weights / np.log2(1 + ranks)).sum() / weights.sum())


def number_of_steps(log: ClickLog, *, unit: str, batch_size: int) -> int:
    """T = ⌈min(max(3·n, 30,000), 1,000,000) / batch_size⌉, with n the number of examples.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample._pilot import number_of_steps
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.25])
    >>> number_of_steps(log, unit="query", batch_size=10)
    3000
    """
    draws = DRAWS_PER_EXAMPLE * len(Examples.of(log, unit))
    return -(-min(max(draws, FEWEST_DRAWS), MOST_DRAWS) // max(1, batch_size))


def choose_learning_rate(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    rng: np.random.Generator,
    options: Mapping[str, Any],
    report: Callable[[int, int], None] | None = None,
) -> Pilot:
    """Try η₀·10^(k/2), k = −2 … 5, and further on while the best is the first or the last.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
    rng : numpy Generator
    options : mapping
        Those of `countersample.training.train`, steps, method and unit among them.
    report : function of (steps done, steps in all), optional
        Called now and then, for each pass anew.

    Returns
    -------
    Pilot

    Examples
    --------
    >>> import numpy as np
    >>> from countersample import ClickLog, synthetic
    >>> from countersample._pilot import choose_learning_rate
    >>> data = synthetic("tiny", rng=0)
    >>> options = {"steps": 1000, "method": "countersample", "unit": "query"}
    >>> log = ClickLog.from_labels(data)
    >>> pilot = choose_learning_rate(data, log, rng=np.random.default_rng(0), options=options)
    >>> bool(pilot.best == pilot.learning_rates[pilot.scores.argmax()])
    True
    """
    folds = _folds(log, rng)
    centre = _theoretical_rate(dataset, log, rng, options)
    seed = int(rng.integers(2**63))
    scores: dict[int, float] = {}
    tried = range(-2, AT_ONCE - 2)
    for _ in range(MOST_PASSES):
        rates = [_rate(centre, k) for k in tried]
        judged = [_try(dataset, *fold, rates, seed, options, report) for fold in folds]
        scores |= dict(zip(tried, np.mean(judged, axis=0).tolist(), strict=True))
        best = max(scores, key=lambda k: (scores[k], -abs(k)))  # of equals, that nearest to theory
        if best == min(scores):
            tried = range(best - AT_ONCE, best)
        elif best == max(scores):
            tried = range(best + 1, best + 1 + AT_ONCE)
        else:
            break
    rising = sorted(scores)
    return Pilot(
        learning_rates=np.array([_rate(centre, k) for k in rising]),
        scores=np.array([scores[k] for k in rising]),
        best=_rate(centre, best),
    )


def _rate(centre: float, k: int) -> float:
    return float(centre * 10 ** (k / PER_DECADE))


def _theoretical_rate(
    dataset: RankingDataset,
    log: ClickLog,
    rng: np.random.Generator,
    options: Mapping[str, Any],
) -> float:
    """η₀ = B / (m·G·√T), B being the radius or 1; an adaptive optimizer divides by m·G itself."""
    size = 1.0
    if options.get("optimizer", "sgd") == "sgd":
        scale = make_plan(options["method"], Examples.of(log, options["unit"])).scale
        queries = rng.permutation(np.unique(log.query))[:SAMPLED]
        sampled = Examples.of(_of_queries(log, queries), options["unit"])
        objective = options.get("objective", "rank")
        longest = gradient_bounds(dataset, sampled, objective=objective).max()
        size = scale * float(longest) or 1.0
    radius = options.get("radius", np.inf)
    return step_size(
        scale=1.0,
        gradient_bound=size,
        radius=radius if np.isfinite(radius) else 1.0,
        steps=options["steps"],
    )


def _folds(log: ClickLog, rng: np.random.Generator) -> list[tuple[ClickLog, ClickLog]]:
    """Return pairs of logs, to learn from and to judge by, that have no query in common.

    A log of fewer queries than parts is judged by what was learned from.
    """
    clicked = rng.permutation(np.unique(log.query))
    if len(clicked) < PARTS:
        return [(log, log)]
    parts = np.array_split(clicked, PARTS)
    n_folds = min(PARTS, -(-JUDGED // len(parts[0])))
    return [(_of_queries(log, part, are_left_out=True), _of_queries(log, part))
            for part in parts[:n_folds]]  # fmt: skip


def _try(
    dataset: RankingDataset,
    learned: ClickLog,
    held_out: ClickLog,
    rates: list[float],
    seed: int,
    options: Mapping[str, Any],
    report: Callable[[int, int], None] | None,
) -> list[float]:
    """Return the score of each rate on the log held out."""
    options = {"checkpoints": 0, **options}
    methods = [options.pop("method")]
    results = train_many(
        dataset, learned, learning_rates=rates, methods=methods, seeds=[seed], report=report,
        **options,
    )  # fmt: skip
    queries, position = np.unique(held_out.query, return_inverse=True)
    judged = dataset.subset(queries)
    rows = judged.offsets[position] + held_out.item
    scores = []
    for result in results:
        by_item = (judged.features @ result.weights.astype(np.float32)).astype(np.float64)
        ranks = ranks_of(by_item, judged.offsets)[rows]
        is_sound = result.diverged_at is None
        scores.append(click_dcg(ranks, held_out.weights) if is_sound else -np.inf)
    return scores


def _of_queries(
    log: ClickLog, queries: NDArray[np.int32], *, are_left_out: bool = False
) -> ClickLog:
    rows = np.isin(log.query, queries, invert=are_left_out)
    return ClickLog(log.query[rows], log.item[rows], log.propensity[rows], log.clicks[rows])
