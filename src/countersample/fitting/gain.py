"""The gain to expect: every query ranked by a ranker that was trained without it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import DataError
from countersample.evaluation import estimate, estimate_gain
from countersample.evaluation.held_out import HeldOut
from countersample.rankers._warm import untrained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Floats, Ints
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.clicks.impressions.joining import Matched
    from countersample.data import RankingDataset
    from countersample.evaluation import Estimate, Gain
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.rankers import ClickRanker

    Stage = tuple[int, Floats]  # steps, and the scores of all items after them

ESTIMATORS_OF_GAIN = ("ips", "snips", "dr")
UNSEEN = 0.01  # of the ranker's rewards: less does not call for a model
CURVE_BOOTSTRAP = 200  # draws for each point of the learning curve


def cut_queries(shown: ClickLog, n_folds: int, rng: np.random.Generator) -> list[Ints]:
    """Split the queries into the folds that are held out in turn."""
    n_clicked = len(np.unique(shown.query[shown.clicks > 0]))
    if n_clicked < 2:
        raise DataError(
            "the log has clicks on one query only, expected at least two: a ranker is judged by "
            "queries that it was not trained on"
        )
    return HeldOut.cut(shown, min(n_folds, n_clicked), rng)


def to_learn_from(shown: ClickLog, *, knows_all: bool) -> ClickLog:
    """Return what a ranker learns from: all that was shown, or the clicks if that is not known."""
    if knows_all and shown.examination is not None:
        return shown
    return shown.weighted().replace(impressions=None)


def held_out_scores(
    ranker: ClickRanker,
    parts: Sequence[Ints],
    dataset: RankingDataset,
    shown: ClickLog,
    *,
    metric: str,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[Floats, list[Stage]]:
    """Score each item by a ranker that is trained without its part of the queries, (n_items,).

    All that a ranker finds from clicks is found anew, without the part that it scores. The score is
    0 for the items of queries that were never shown. The stages are the scores in the course of
    training, where the kind of ranker has ``staged_predict``; their steps are the mean over parts.
    """
    held_out = HeldOut(dataset, shown, metric, parts=parts, rng=rng)
    trained = []
    for fold in held_out.folds:
        part = progress.part(1 / len(parts))
        copy = untrained(ranker).set_params(random_state=int(rng.integers(2**31)))
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
    n_stages = max(map(len, by_fold))
    padded = [[*each, *each[-1:] * (n_stages - len(each))] for each in by_fold]
    stages = [
        (
            round(np.mean([steps for steps, _ in of_stage])),
            held_out.scores([scores for _, scores in of_stage]),
        )
        for of_stage in zip(*padded, strict=True)
    ]
    return stages[-1][1], stages


@dataclass(frozen=True)
class ChosenEstimator:
    """The estimator of the gain, and why it is this one."""

    name: str
    reason: str


def choose_estimator(
    asked: str,
    scores: Floats,
    shown: ClickLog,
    dataset: RankingDataset,
    *,
    metric: str,
    exposure: str,
    knows_all: bool,
) -> ChosenEstimator:
    """Take the estimator that the log supports: ``dr`` where clicks alone do not tell enough.

    `knows_all` is whether items that were shown and never clicked are among those of `shown`.
    """
    if asked == "dr" and shown.examination is None:
        raise DataError(
            "estimator 'dr' needs to know how likely each item is examined where it was shown, "
            "which the log's own propensities do not tell: take 'ips', or estimate propensities "
            "from the log (--propensity-method all-pairs)"
        )
    if asked == "dr" and not knows_all:
        raise DataError(
            "estimator 'dr' needs each item that was shown, and the log has so many that those "
            "without a click are counted together: take 'ips', or a part of the log"
        )
    if asked != "auto":
        return ChosenEstimator(asked, "as asked for")
    if not knows_all:
        return ChosenEstimator("ips", "the log is too large to tell each item without a click")
    if exposure == "position-only":
        return ChosenEstimator(
            "ips", "position-only weights do not ask how often an item was shown"
        )
    found = estimate(scores, shown, dataset, metric=metric, n_bootstrap=1, rng=0)
    unseen = found.never_shown or 0.0
    if unseen <= UNSEEN:
        rest = f", but for {unseen:.1%} of its rewards" if unseen else ""
        return ChosenEstimator("ips", f"the log showed all that the ranker ranks high{rest}")
    rests = f"{unseen:.0%} of the ranker's rewards are of items that the log never showed"
    if shown.examination is not None and not shown.examination.all():
        rests += ", or only where no propensity is known"
    if shown.examination is None:
        return ChosenEstimator(
            "ips", f"{rests}, and the log's own propensities do not tell how often others were"
        )
    return ChosenEstimator("dr", f"{rests}: of these a model of relevance speaks")


def by_clicked_alone(gain: Gain) -> Gain:
    """Return the gain of a log of which only clicked items are known one by one.

    How much of a ranking was never shown is not known then.
    """
    new = gain.new
    told = tuple(text for text in new.warnings if "never shown" not in text)
    return replace(gain, new=replace(new, never_shown=None, warnings=told))


def learning_curve(
    stages: list[Stage],
    shown: ClickLog,
    dataset: RankingDataset,
    *,
    metric: str,
    estimator: str,
    relevance: Floats | None,
    confidence: float,
    seed: int,
) -> tuple[tuple[int, Estimate], ...]:
    """Return the value after each stage; the same draws for each, so that the curve is smooth."""
    return tuple(
        (steps, estimate(scores, shown, dataset, metric=metric, estimator=estimator,
                         baseline=relevance, confidence=confidence,
                         n_bootstrap=CURVE_BOOTSTRAP, rng=seed))
        for steps, scores in stages
    )  # fmt: skip


def gain_at_ends(
    scores: Floats,
    matched: Matched,
    source: PropensitySource,
    *,
    metric: str,
    estimator: str,
    exposure: str,
) -> tuple[float, float] | None:
    """Return the relative gain with all propensities at the ends of their intervals."""
    ends = []
    for propensities in source.at_ends():
        shown, *_ = matched.shown(propensities, exposure=exposure)
        gain = estimate_gain(
            scores, shown, matched.dataset, metric=metric, estimator=estimator, n_bootstrap=1, rng=0
        )
        ends.append(gain.relative)
    return (ends[0], ends[1]) if ends else None


def gain_in_figures(gain: Gain) -> str:
    """Return the relative gain and its interval, in words."""
    return (
        f"{gain.relative:+.1%} {gain.new.metric} over what was logged "
        f"({gain.new.confidence:.0%} interval {gain.relative_low:+.1%} to "
        f"{gain.relative_high:+.1%})"
    )


def gain_in_words(gain: Gain) -> str:
    """Return what a gain says of a ranker: better, worse, or not shown to be better."""
    told = gain_in_figures(gain)
    if gain.low > 0:
        return f"The ranker is better: {told}."
    if gain.high < 0:
        return f"The ranker is worse: {told}. Do not use it."
    return (
        f"Not shown to be better: {told}, and that includes 0. A longer log would narrow the "
        "interval."
    )


def gain_on_card(gain: Gain, *, is_identified: bool) -> dict[str, Any]:
    """Return what a ranker's file and its card keep of a gain."""
    return {
        "metric": gain.new.metric,
        "estimator": gain.new.estimator,
        "per": gain.new.per,
        "relative": gain.relative,
        "relative_low": gain.relative_low,
        "relative_high": gain.relative_high,
        "confidence": gain.new.confidence,
        "is_identified": is_identified,
        "logged": gain.logged.value,
        "new": gain.new.value,
    }
