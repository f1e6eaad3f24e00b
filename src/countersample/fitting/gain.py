"""Estimate the gain over the logging policy from clicks that the evaluated ranker has not seen.

Either each fold of the queries is scored by a ranker trained on the other folds
(`hold_out_queries`), or the last days are scored by a ranker trained on the days before, with
propensities of the days before (`hold_out_days`). `estimate_holdout_gain` compares these scores
with the logged positions by the same clicks. `fit`, `train` and `compare` choose their estimator
here, and draw the intervals of `fit` and `compare` by `EvaluationClicks`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import DataError
from countersample.evaluation import estimate, estimate_gain
from countersample.evaluation.doubly_robust import fit_relevance
from countersample.evaluation.holdout import HeldOut
from countersample.fitting.propensity_draws import N_DRAWS, Units, draw_values
from countersample.fitting.summaries import LEFT_OUT
from countersample.fitting.weighted_log import as_sentence, join_log
from countersample.logs.joins import RowPropensities
from countersample.logs.tally import tally
from countersample.propensity.cells import QueryDraws
from countersample.rankers.task import make_untrained

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from countersample._arrays import Floats, Ints
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.evaluation import Estimate, Gain
    from countersample.fitting.summaries import Warnings
    from countersample.fitting.weighted_log import JoinedLog, WeightedLog
    from countersample.logs import FeatureTable, Impressions
    from countersample.options import EvaluationOptions, PropensityOptions
    from countersample.rankers import ClickRanker

    Stage = tuple[int, Floats]  # steps, and the scores of all items after them

GAIN_ESTIMATORS = ("ips", "snips", "dr")
DRAWN_ESTIMATORS = ("ips", "dr")  # whose intervals can include the uncertainty of propensities
MAX_UNSEEN = 0.01  # of the ranker's rewards: less does not need a model of relevance
CURVE_BOOTSTRAP = 200  # draws per point of the learning curve
MIN_QUERIES = 2  # with a click, to train and to evaluate on


@dataclass(frozen=True)
class Holdout:
    """The clicks that evaluate a ranker, and the population of the interval."""

    by: str
    """``queries`` or ``time``: whether queries or the last days are held out."""
    since: date | None
    """The first day that is held out."""
    n_clicks: int
    share: float
    """The share of the queries, or of the impressions, that the evaluated ranker did not see."""
    population: str
    """The population that the interval is about."""
    method: str
    """How clicks are held out, as a sentence."""
    limit: str = ""
    """What the interval does not cover, and why, as a sentence."""

    @property
    def sentence(self) -> str:
        """All of it in words."""
        population = f"The interval is about {self.population}."
        return " ".join(filter(None, [self.method, population, self.limit]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"since": None if self.since is None else self.since.isoformat()}


@dataclass(frozen=True)
class EstimatorChoice:
    """The estimator of the gain, and the reason for it."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class EvaluationClicks:
    """Clicks that evaluate rankings, and the units that are drawn for intervals.

    Without units, queries are drawn with fixed propensities. Without curves, the units are drawn
    with fixed propensities; otherwise with the propensities of each draw, by context.
    """

    log: JoinedLog
    units: Units | None
    curves: dict[str, Floats] | None

    @classmethod
    def from_queries(cls, log: JoinedLog) -> EvaluationClicks:
        """Draw the queries of a log, with the propensities that are estimated from each draw."""
        draws = log.source.draws
        if draws is None:
            return cls(log, None, None)
        return cls(log, Units.of_queries(log.matched.counts, draws.queries), draws.curves)

    def _find_units(self, estimator: str, rng: np.random.Generator) -> Units | None:
        """Return what to draw; None if the estimate draws rows itself.

        The uncertainty of a relevance model needs units even if propensities are known.
        """
        source = self.log.source
        if estimator not in DRAWN_ESTIMATORS:
            return None
        can_draw = source.trust is None and not isinstance(source.propensities, RowPropensities)
        if self.units is None and estimator == "dr" and can_draw:
            return _query_units(self.log, rng)
        return self.units

    def draw(
        self,
        scores: Floats,
        estimator: str,
        *,
        metric: str,
        exposure: str,
        rng: np.random.Generator,
    ) -> tuple[Floats | None, Floats | None]:
        """Return r̂ of a doubly robust estimate, and the values of k rankings per draw, (n, k + 1).

        Each is None if the estimator has no such thing.
        """
        matched, relevance = self.log.matched, None
        if estimator == "dr":
            relevance = fit_relevance(self.log.shown, matched.dataset, rng=rng)
        propensities, units = self.log.source.propensities, self._find_units(estimator, rng)
        if units is None:
            return None if relevance is None else relevance.relevance, None
        assert not isinstance(propensities, RowPropensities)  # noqa: S101 (which have no units)
        values = draw_values(
            scores, matched, propensities, self.curves, units, metric=metric,
            exposure=exposure, relevance=relevance, rng=rng,
        )  # fmt: skip
        return None if relevance is None else relevance.relevance, values


@dataclass(frozen=True, eq=False)
class HoldoutScores:
    """Scores by rankers that have not seen the clicks that evaluate them, and these clicks."""

    holdout: Holdout
    scores: Floats  # (n_items,)
    stages: list[Stage]  # the scores in the course of training
    clicks: EvaluationClicks
    training: ClickLog | None = None  # the log of the days before, if later days evaluate
    is_complete: bool = True  # whether both logs have all items that were shown
    warnings: Warnings = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class GainEstimate:
    """The gain, and how it was estimated."""

    gain: Gain
    """Over the logging policy, by clicks that the evaluated ranker has not seen."""
    estimator: EstimatorChoice
    """The estimator of the gain, and the reason for it."""
    is_joint: bool
    """Whether the interval of the gain includes the uncertainty of the propensities: they were
    estimated again from each draw of queries."""
    gain_at_ends: tuple[float, float] | None
    """The relative gain with all propensities at the lower, or upper, ends of their intervals, if
    the interval of the gain does not include their uncertainty."""
    learning_curve: tuple[tuple[int, Estimate], ...]
    """The value in the course of training; empty if the ranker has no checkpoints."""


# -- what is held out -----------------------------------------------------------------------------


def hold_out_queries(
    ranker: ClickRanker,
    log: WeightedLog,
    *,
    limit: str,
    n_folds: int,
    rng: np.random.Generator,
    progress: Progress,
) -> HoldoutScores:
    """Score each fold of the queries by a ranker that is trained on the other folds."""
    folds = split_queries(log.shown, n_folds, rng)
    scores, stages = train_folds(
        ranker, folds, log.matched.dataset, log.examples, metric=log.metric, rng=rng,
        progress=progress.part(1.0, "evaluating held-out queries"),
    )  # fmt: skip
    holdout = Holdout(
        "queries", None, _count_clicks(log.shown), 1 / len(folds), "queries like those of the log",
        "Each query is ranked by a ranker that was trained without its fold of the queries.", limit,
    )  # fmt: skip
    return HoldoutScores(holdout, scores, stages, EvaluationClicks.from_queries(log))


def split_queries(shown: ClickLog, n_folds: int, rng: np.random.Generator) -> list[Ints]:
    """Split the queries into the folds that are held out in turn."""
    n_clicked = len(np.unique(shown.query[shown.clicks > 0]))
    if n_clicked < MIN_QUERIES:
        raise DataError(
            "the log has clicks on one query only, expected at least two: a ranker is evaluated on "
            "queries that it was not trained on"
        )
    return HeldOut.split(shown, min(n_folds, n_clicked), rng)


def train_folds(
    ranker: ClickRanker,
    folds: Sequence[Ints],
    dataset: RankingDataset,
    log: ClickLog,
    *,
    metric: str,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[Floats, list[Stage]]:
    """Score each item by a ranker that is trained without its fold of the queries, (n_items,).

    Everything that a ranker learns from clicks is learned again without the fold. Items of queries
    that were never shown score 0. The stages are the scores in the course of training, if the
    ranker has ``staged_predict``; their steps are the mean over folds.
    """
    held_out = HeldOut(dataset, log, metric, parts=folds, rng=rng)
    rankers = []
    for fold in held_out.folds:
        part = progress.part(1 / len(folds))
        copy = make_untrained(ranker).set_params(random_state=int(rng.integers(2**31)))
        rankers.append(
            copy.fit_log(
                dataset, fold.train, progress=lambda _, share, part=part: part.update(share)
            )
        )
    if not hasattr(ranker, "staged_predict"):
        return held_out.scores(rankers), []
    by_fold = [
        each.staged_predict(fold.validation)
        for each, fold in zip(rankers, held_out.folds, strict=True)
    ]
    n_stages = max(map(len, by_fold))
    padded = [[*each, *each[-1:] * (n_stages - len(each))] for each in by_fold]
    stages = []
    for stage in zip(*padded, strict=True):
        steps = round(np.mean([steps for steps, _ in stage]))
        stages.append((steps, held_out.scores([scores for _, scores in stage])))
    return stages[-1][1], stages


def hold_out_days(
    ranker: ClickRanker,
    impressions: Impressions,
    features: FeatureTable,
    since: date,
    propensities: PropensityOptions,
    evaluation: EvaluationOptions,
    *,
    rng: np.random.Generator,
    progress: Progress,
) -> HoldoutScores:
    """Train on the days before `since`, propensities included, and score the later days.

    Clicks of the later days that cannot be used are an error, or with ``missing="skip"`` a warning.
    """
    before = impressions.of_days(until=since)
    after = replace(impressions.of_days(since=since), half_life=None)
    early, late = tally(before).counts, tally(after).counts
    if early is None or late is None:
        raise DataError(f"{impressions.source}: no rows are possible before {since}, or after")
    settings: dict[str, Any] = {
        "confidence": evaluation.confidence, "rng": rng, "is_checked": False,
    }  # fmt: skip
    train = join_log(before, early, features, propensities, **settings)
    # The log's own propensities are of each row, and not of positions.
    is_of_rows = isinstance(train.source.propensities, RowPropensities)
    source = None if is_of_rows else train.source
    test = join_log(after, late, features, propensities, source=source, **settings)
    problem = f"on the days from {since} on, {test.join.sentence()}"
    if test.join.n_skipped and propensities.missing == "error":
        raise DataError(problem)
    for shown, when in ((train.shown, "before"), (test.shown, "from")):
        if len(np.unique(shown.query[shown.clicks > 0])) < MIN_QUERIES:
            raise DataError(
                f"fewer than {MIN_QUERIES} queries have clicks {when} {since}, which is too few "
                "to evaluate by time"
            )
    part, dataset = progress.part(1.0, "learning from earlier days"), features.dataset
    trained = make_untrained(ranker).fit_log(
        dataset, train.examples, progress=lambda _, share: part.update(share)
    )
    units, unit_name, draws = None, "queries", test.source.draws
    can_draw = test.source.trust is None and not is_of_rows
    if evaluation.estimator != "snips" and can_draw:
        units, unit_name = _draw_units(after, test, rng)
    share = late.n_impressions / (early.n_impressions + late.n_impressions)
    holdout = Holdout(
        "time", since, _count_clicks(test.shown), share, f"{unit_name} like those from {since} on",
        "The evaluated ranker was trained on the days before, and the saved one on all days.",
    )  # fmt: skip
    warnings: Warnings = {LEFT_OUT: (as_sentence(problem),)} if test.join.n_skipped else {}
    return HoldoutScores(
        holdout,
        np.asarray(trained.predict(dataset), np.float64),
        trained.staged_predict(dataset) if hasattr(trained, "staged_predict") else [],
        EvaluationClicks(test, units, None if draws is None or units is None else draws.curves),
        train.shown,
        is_complete=train.is_complete and test.is_complete,
        warnings=warnings,
    )


def _draw_units(log: Impressions, joined: JoinedLog, rng: np.random.Generator) -> tuple[Units, str]:
    """Return the sessions of a log as units, or its queries if it has no sessions."""
    counts = joined.matched.counts
    visits = log.visits(counts)
    if visits is not None:
        return Units.of_sessions(counts, visits, N_DRAWS, rng), "sessions"
    return _query_units(joined, rng), "queries"


def _query_units(joined: JoinedLog, rng: np.random.Generator) -> Units:
    counts = joined.matched.counts
    is_shown = np.bincount(counts.query, minlength=len(counts.query_ids)) > 0
    return Units.of_queries(counts, QueryDraws(is_shown, N_DRAWS, int(rng.integers(2**63))))


def _count_clicks(shown: ClickLog) -> int:
    return round(float((shown.clicks if shown.events is None else shown.events).sum()))


# -- the gain -------------------------------------------------------------------------------------


def estimate_holdout_gain(
    held_out: HoldoutScores,
    evaluation: EvaluationOptions,
    *,
    metric: str,
    exposure: str,
    rng: np.random.Generator,
    curve_seed: int,
) -> GainEstimate:
    """Estimate the gain over the logging policy, with its interval, and the learning curve."""
    scores, clicks, log = held_out.scores, held_out.clicks, held_out.clicks.log
    dataset, shown = log.matched.dataset, log.shown
    choice = choose_estimator(
        evaluation.estimator, [scores], shown, dataset, metric=metric, exposure=exposure,
        is_complete=log.is_complete,
    )  # fmt: skip
    relevance, draws = clicks.draw(scores, choice.name, metric=metric, exposure=exposure, rng=rng)
    settings: dict[str, Any] = {
        "metric": metric, "estimator": choice.name, "confidence": evaluation.confidence,
    }  # fmt: skip
    gain = estimate_gain(
        scores, shown, dataset, baseline=relevance, draws=draws, rng=rng, **settings
    )
    gain = widen_interval(gain, held_out.holdout.share)
    is_joint = draws is not None and clicks.curves is not None
    ends = []
    for propensities in [] if is_joint else log.source.at_ends():
        moved, *_ = log.matched.shown(propensities, exposure=exposure)
        at_end = estimate_gain(scores, moved, dataset, n_bootstrap=1, rng=0, **settings)
        ends.append(at_end.relative)
    if not log.is_complete:
        gain = replace(gain, new=drop_unseen(gain.new))
    # The same draws at each stage, so that the curve is smooth.
    curve = [
        (steps, estimate(stage, shown, dataset, baseline=relevance, n_bootstrap=CURVE_BOOTSTRAP,
                         rng=curve_seed, **settings))
        for steps, stage in held_out.stages
    ]  # fmt: skip
    at_ends = (ends[0], ends[1]) if ends else None
    return GainEstimate(gain, choice, is_joint, at_ends, tuple(curve))


def choose_estimator(
    estimator: str,
    rankings: Sequence[Floats],
    shown: ClickLog,
    dataset: RankingDataset,
    *,
    metric: str,
    exposure: str,
    is_complete: bool,
) -> EstimatorChoice:
    """Choose the estimator that the log supports: ``dr`` if clicks do not cover some ranking.

    `is_complete` is whether `shown` has items that were shown and never clicked.
    """
    if estimator == "dr" and shown.examination is None:
        raise DataError(
            "estimator 'dr' needs the probability that each item is examined where it was shown, "
            "which the log's own propensities do not give: take 'ips', or estimate propensities "
            "from the log (--propensity-method all-pairs)"
        )
    if estimator == "dr" and not is_complete:
        raise DataError(
            "estimator 'dr' needs each item that was shown, and the log has so many that those "
            "without a click are counted together: take 'ips', or a part of the log"
        )
    if estimator != "auto":
        return EstimatorChoice(estimator, "as the options say")
    if not is_complete:
        return EstimatorChoice("ips", "the log is too large to count items without a click")
    if exposure == "position-only":
        return EstimatorChoice("ips", "position-only weights do not use exposure")
    shares = [
        estimate(scores, shown, dataset, metric=metric, n_bootstrap=1, rng=0).never_shown or 0.0
        for scores in rankings
    ]
    unseen = next((share for share in shares if share > MAX_UNSEEN), shares[0])
    if unseen <= MAX_UNSEEN:
        rest = f", but for {unseen:.1%} of its rewards" if unseen else ""
        return EstimatorChoice("ips", f"the log showed all that the ranker ranks high{rest}")
    reason = f"{unseen:.0%} of the ranker's rewards are of items that the log never showed"
    if shown.examination is None:
        return EstimatorChoice("ips", f"{reason}, and the log has propensities of clicks only")
    if not shown.examination.all():
        reason += ", or only where no propensity is known"
    return EstimatorChoice("dr", f"{reason}: a model of relevance estimates these")


def widen_interval(gain: Gain, share: float) -> Gain:
    """Widen the interval on the log scale: the saved ranker is trained on more data.

    It has learned from more clicks than the evaluated ranker, and from other ones. The factor
    √(1 + held-out share) was chosen by experiment: see benchmarks/quality/verdicts.
    """
    factor = sqrt(1 + share)
    if not -1 < gain.relative_low <= gain.relative_high:  # of a handful of clicks
        return gain
    centre = (np.log1p(gain.relative_low) + np.log1p(gain.relative_high)) / 2
    low, high = (
        float(np.expm1(centre + factor * (np.log1p(end) - centre)))
        for end in (gain.relative_low, gain.relative_high)
    )
    logged = gain.logged.value
    return replace(gain, low=low * logged, high=high * logged, relative_low=low, relative_high=high)


def drop_unseen(value: Estimate) -> Estimate:
    """Return an estimate without its share of items never shown, which clicks cannot give."""
    warnings = tuple(text for text in value.warnings if "never shown" not in text)
    return replace(value, never_shown=None, warnings=warnings)
