"""The gain to expect: every query ranked by a ranker that was trained without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from countersample.errors import DataError
from countersample.evaluation import estimate, estimate_gain
from countersample.evaluation.held_out import HeldOut

if TYPE_CHECKING:
    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.evaluation import Estimate
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.fitting.shown import Matched
    from countersample.rankers import ClickRanker

    Stage = tuple[int, Floats]  # steps, and the scores of all items after them

PARTS = 5  # that queries are cut into
CURVE_BOOTSTRAP = 200  # draws for each point of the learning curve


def held_out_scores(
    ranker: ClickRanker,
    dataset: RankingDataset,
    shown: ClickLog,
    *,
    metric: str,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[Floats, list[Stage]]:
    """Score each item by a copy of the ranker that is trained without its query, (n_items,).

    The score is 0 for the items of queries that were never shown. The stages are the scores in the
    course of training, where the kind of ranker has ``staged_predict``.
    """
    n_clicked = len(np.unique(shown.query[shown.clicks > 0]))
    if n_clicked < 2:
        raise DataError(
            "the log has clicks on one query only, expected at least two: a ranker is judged by "
            "queries that it was not trained on"
        )
    n_parts = min(PARTS, n_clicked)
    held_out = HeldOut(dataset, shown, metric, holdout=1 / n_parts, least_queries=None, rng=rng)
    trained = []
    for fold in held_out.folds:
        part = progress.part(1 / n_parts)
        copy = clone(ranker).set_params(random_state=int(rng.integers(2**31)))
        trained.append(
            copy.fit_log(
                dataset, fold.train, progress=lambda _, share, part=part: part.update(share)
            )
        )
    if not hasattr(ranker, "staged_predict"):
        return held_out.scores(trained), []
    by_fold = [
        each.staged_predict(fold.validation)
        for each, fold in zip(trained, held_out.folds, strict=True)
    ]
    stages = [
        (of_stage[0][0], held_out.scores([scores for _, scores in of_stage]))
        for of_stage in zip(*by_fold, strict=True)
    ]
    return stages[-1][1], stages


def learning_curve(
    stages: list[Stage], shown: ClickLog, dataset: RankingDataset, *, metric: str, seed: int
) -> tuple[tuple[int, Estimate], ...]:
    """Return the value after each stage; the same draws for each, so that the curve is smooth."""
    return tuple(
        (steps, estimate(scores, shown, dataset, metric=metric, n_bootstrap=CURVE_BOOTSTRAP,
                         rng=seed))
        for steps, scores in stages
    )  # fmt: skip


def gain_at_ends(
    scores: Floats, matched: Matched, source: PropensitySource, *, metric: str
) -> tuple[float, float] | None:
    """Return the relative gain with all propensities at the ends of their intervals."""
    curve, dataset = source.curve, matched.table.dataset
    if curve is None or not curve.low.all():
        return None
    ends = []
    for values in (curve.low, curve.high):
        shown, _ = matched.shown(values / max(1.0, values.max()))
        gain = estimate_gain(scores, shown, dataset, metric=metric, n_bootstrap=1, rng=0)
        ends.append(gain.relative)
    return ends[0], ends[1]
