"""What training starts from: nothing, or the scores of a linear scorer, at the size that fits.

Only the order of its items is known of what was served. How far apart their scores are decides how
much training has to do to change that order, and the clicks that are trained on decide it: if what
was served explains them well, its scores are far apart; if it explains nothing, they are nearly the
same, and training starts all but from zero.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from countersample.errors import DataError
from countersample.objectives import score_space
from countersample.plans import Examples
from countersample.scorers import LinearScorer

if TYPE_CHECKING:
    from countersample._arrays import Floats
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.evaluation.held_out import Fold
    from countersample.objectives.losses import AnyLoss
    from countersample.rankers._task import Task
    from countersample.rankers.served import Served
    from countersample.scorers import Scorer

SIZES = np.geomspace(0.03, 10, 18)  # standard deviations of scores within a query


def starts_of(
    start: str, served: Served | None, *, is_judged: bool, previous: Scorer | None = None
) -> tuple[str, ...]:
    """Return the starts to try: for "auto" what was served, where it is known, and zero.

    Where nothing is held out to judge them, that is zero. Whatever goes on from a ranker starts
    there.
    """
    if previous is not None:
        return ("previous",)
    if start == "auto":
        return ("zero",) if served is None or not is_judged else ("served", "zero")
    if start == "served" and served is None:
        raise DataError(
            "start is 'served', and nothing tells what was served, expected positions in the log "
            "or a baseline"
        )
    return (start,)


def without_fold(task: Task, fold: Fold, clicks: ClickLog) -> Task:
    """Return the task without the queries of a fold, of which these clicks are left to learn from.

    They are as `Task.held_out` gives them, doubly robust already where that is asked for.
    """
    if clicks is task.clicks:  # of one query, none of which is held out
        return task
    whole_log = task.whole_log.of_queries(fold.queries, exclude=True)
    return replace(task, log=clicks, whole_log=whole_log, robust=None)


def trained_on(clicks: ClickLog, *, clip: float | None, temper: float) -> ClickLog:
    """Return clicks with the weights that they are trained with."""
    if clip is not None:
        clicks = clicks.clip(clip)
    return clicks.temper(temper)


def sized(base: Floats, dataset: RankingDataset, log: ClickLog, *, objective: AnyLoss) -> Floats:
    """c·base, with c = argmin Σ_clicks f(c·base·x) / p over `SIZES` of scores within queries.

    Parameters
    ----------
    base : float64 (n_features,)
    dataset : RankingDataset
    log : ClickLog
        The clicks that are trained on, with the weights that they have there; no other rows.
    objective : str, Objective or Loss
        f, as `countersample.objectives.score_space` takes it.

    Returns
    -------
    float64 (n_features,)

    Examples
    --------
    All clicks are on the item with the larger x, or half of them:

    >>> import numpy as np
    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.rankers._starting import sized
    >>> data = RankingDataset.from_arrays(X=[[1], [-1]], y=[0, 0], qid=[7, 7])
    >>> for clicked in ([0, 0], [0, 1]):
    ...     log = ClickLog(query=[0, 0], item=clicked, propensity=[1.0, 1.0])
    ...     print(sized(np.array([1.0]), data, log, objective="smooth-rank").round(2))
    [10.]
    [0.03]
    """
    queries, index = np.unique(log.query, return_inverse=True)
    judged = dataset.subset(queries)
    scores = LinearScorer(base).predict(judged.features)
    middle = np.add.reduceat(scores, judged.offsets[:-1]) / judged.query_sizes
    spread = float(np.std(scores - np.repeat(middle, judged.query_sizes)))
    if spread == 0:
        return base
    examples = Examples.of(log.replace(query=index, fingerprint=None), "query")

    def risk(size: float) -> float:
        found = score_space(
            scores * (size / spread), judged.offsets, examples.starts, examples.item,
            examples.weight, objective=objective,
        )  # fmt: skip
        return float(found.values.sum())

    return base * float(min(SIZES, key=risk) / spread)
