"""Who judges the ranker: clicks that it has not seen, of other queries or of later days."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks.impressions.joining import Matched, RowPropensities
from countersample.clicks.impressions.tallying import tally
from countersample.clicks.impressions.weighting import weighted
from countersample.errors import DataError
from countersample.evaluation import estimate_gain
from countersample.evaluation.doubly_robust import relevance_model
from countersample.fitting.gain import (
    by_clicked_alone,
    choose_estimator,
    cut_queries,
    gain_at_ends,
    held_out_scores,
    to_learn_from,
)
from countersample.fitting.intervals import Units, values_of_draws
from countersample.fitting.propensity_source import N_DRAWS, find_propensities
from countersample.fitting.setting_up import sentence
from countersample.propensity.cells import QueryDraws
from countersample.rankers._warm import untrained

if TYPE_CHECKING:
    from datetime import date

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.clicks.impressions import FeatureTable, Impressions
    from countersample.evaluation import Gain
    from countersample.fitting.gain import ChosenEstimator, Stage
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.options import EvaluationOptions, PropensityOptions
    from countersample.rankers import ClickRanker

FEWEST_QUERIES = 2  # with a click, to learn from and to judge by
UNSEEN = "how later days differ from those of the log is not seen"


@dataclass(frozen=True)
class JudgedBy:
    """Whose clicks judge, and of whom the interval of the gain speaks.

    Attributes
    ----------
    way : {"queries", "time"}
        Whether a ranker is judged by queries that it has not learned from, or by later days.
    since : date, optional
        The first day that judges.
    n_clicks : int
        The clicks that judge.
    population : str
        What the interval speaks of.
    reason : str
        Why it is judged so, and what that cannot see.
    """

    way: str
    since: date | None
    n_clicks: int
    population: str
    reason: str

    @property
    def sentence(self) -> str:
        """All of it, in words."""
        return f"The interval speaks of {self.population}. Judged by {self.way}: {self.reason}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"since": None if self.since is None else self.since.isoformat()}


@dataclass(frozen=True, eq=False)
class Judgement:
    """Scores of rankers, and the clicks that judge them."""

    by: JudgedBy
    scores: Floats  # of each item, by a ranker that has not seen what judges it
    stages: list[Stage]
    matched: Matched
    shown: ClickLog
    learned: ClickLog | None  # what was learned from, where it is of other days
    source: PropensitySource
    units: Units | None  # what is drawn for the interval; None: queries, with propensities as told
    curves: dict[str, Floats] | None  # propensities of each draw, by context; None: as they are
    is_whole: bool = True  # whether items that were shown and never clicked are known one by one
    warnings: tuple[str, ...] = ()  # what is of the judging alone


@dataclass(frozen=True, eq=False)
class JudgedGain:
    """The gain, and how it was estimated."""

    gain: Gain
    estimator: ChosenEstimator
    relevance: Floats | None  # r̂ of `dr`
    is_joint: bool  # whether its interval has in it that propensities are estimates
    at_ends: tuple[float, float] | None


def judge_by_queries(
    ranker: ClickRanker,
    matched: Matched,
    shown: ClickLog,
    learned: ClickLog,
    source: PropensitySource,
    *,
    reason: str,
    metric: str,
    n_folds: int,
    rng: np.random.Generator,
    progress: Progress,
) -> Judgement:
    """Hold out each part of the queries in turn: all that is learned is from the other parts.

    What is `learned` from is what was `shown`, with recent days weighted as asked for.
    """
    parts = cut_queries(shown, n_folds, rng)
    log = to_learn_from(learned, knows_all=matched.counts.rest is None)
    scores, stages = held_out_scores(
        ranker, parts, matched.dataset, log, metric=metric, rng=rng,
        progress=progress.part(1.0, "judging held-out queries"),
    )  # fmt: skip
    draws = source.draws
    by = JudgedBy(
        "queries", None, _n_clicks(shown), "queries like those of the log",
        f"each by a ranker that was trained without its part of the queries; {reason}",
    )  # fmt: skip
    return Judgement(
        by, scores, stages, matched, shown, None, source,
        units=None if draws is None else Units.of_queries(matched.counts, draws.queries),
        curves=None if draws is None else draws.curves,
    )  # fmt: skip


def judge_by_time(
    ranker: ClickRanker,
    impressions: Impressions,
    features: FeatureTable,
    since: date,
    propensities: PropensityOptions,
    evaluation: EvaluationOptions,
    *,
    rng: np.random.Generator,
    progress: Progress,
) -> Judgement:
    """Learn from the days before one, propensities too, and judge by that day and later ones.

    Clicks of the judging days that cannot be used are an error, or with ``missing="skip"`` a
    warning.
    """
    exposure = propensities.exposure
    dataset, item_ids = features.dataset, features.item_ids
    before = impressions.of_days(until=since)
    after = replace(impressions.of_days(since=since), half_life=None)
    learned, judged = (
        Matched.of(_counts(log, since), dataset, item_ids) for log in (before, after)
    )
    weighed = replace(learned, counts=weighted(before, learned.counts))
    source = find_propensities(
        before, weighed, propensities, confidence=evaluation.confidence, rng=rng, is_checked=False
    )
    own = source
    if isinstance(source.propensities, RowPropensities):  # each row has its own
        own = find_propensities(
            after, judged, propensities, confidence=evaluation.confidence, rng=rng, is_checked=False
        )
    told = source.of_every_impression(before, learned.counts)
    to_learn, _, _ = learned.shown(told, exposure=exposure)
    shown, report, _ = judged.shown(own.propensities, exposure=exposure)
    lost = f"of the days from {since} on, {report.sentence()}"
    if report.n_skipped and propensities.missing == "error":
        raise DataError(lost)
    for log, what in ((to_learn, "before"), (shown, "from")):
        if len(np.unique(log.query[log.clicks > 0])) < FEWEST_QUERIES:
            raise DataError(
                f"fewer than {FEWEST_QUERIES} queries have clicks {what} {since}, which is too few "
                "to judge by time"
            )
    part = progress.part(1.0, "learning from earlier days")
    trained = untrained(ranker).fit_log(
        dataset,
        to_learn_from(
            to_learn
            if before.half_life is None
            else weighed.shown(source.propensities, exposure=exposure)[0],
            knows_all=learned.counts.rest is None,
        ),
        progress=lambda _, share: part.update(share),
    )
    stages = trained.staged_predict(dataset) if hasattr(trained, "staged_predict") else []
    units, drawn = None, "queries"
    is_drawn_here = (
        own.trust is None
        and not isinstance(own.propensities, RowPropensities)
        and evaluation.estimator != "snips"
    )
    if is_drawn_here:
        visits = after.visits(judged.counts)
        if visits is not None:
            units, drawn = Units.of_sessions(judged.counts, visits, N_DRAWS, rng), "sessions"
        else:
            shows = np.bincount(judged.counts.query, minlength=len(judged.counts.query_ids)) > 0
            draws = QueryDraws(shows, N_DRAWS, int(rng.integers(2**63)))
            units = Units.of_queries(judged.counts, draws)
    by = JudgedBy(
        "time", since, _n_clicks(shown), f"{drawn} like those from {since} on",
        "the ranker that is judged was trained on the days before, and the one that is written on "
        "all days",
    )  # fmt: skip
    return Judgement(
        by, np.asarray(trained.predict(dataset), np.float64), stages, judged, shown, to_learn, own,
        units,
        curves=None if own.draws is None or not is_drawn_here else own.draws.curves,
        is_whole=learned.counts.rest is None and judged.counts.rest is None,
        warnings=(
            *(f"Of the days before {since}: {told}" for told in own.warnings),
            *([sentence(lost)] if report.n_skipped else []),
        ),
    )  # fmt: skip


def judged_gain(
    judgement: Judgement,
    evaluation: EvaluationOptions,
    *,
    metric: str,
    exposure: str,
    rng: np.random.Generator,
) -> JudgedGain:
    """Estimate the gain over the logging policy, with its interval."""
    scores, shown, matched, dataset = (
        judgement.scores, judgement.shown, judgement.matched, judgement.matched.dataset,
    )  # fmt: skip
    knows_all = matched.counts.rest is None
    chosen = choose_estimator(
        evaluation.estimator, scores, shown, dataset, metric=metric, exposure=exposure,
        knows_all=knows_all,
    )  # fmt: skip
    relevance = relevance_model(shown, dataset, rng=rng) if chosen.name == "dr" else None
    drawn, told = None, judgement.source.propensities
    if judgement.units is not None and chosen.name != "snips":
        assert not isinstance(told, RowPropensities)  # noqa: S101 (of which nothing is drawn)
        drawn = values_of_draws(
            scores, matched, told, judgement.curves, judgement.units,
            metric=metric, exposure=exposure, relevance=relevance,
        )  # fmt: skip
    gain = estimate_gain(
        scores, shown, dataset, metric=metric, estimator=chosen.name, baseline=relevance,
        confidence=evaluation.confidence, drawn=drawn, rng=rng,
    )  # fmt: skip
    gain = _of_the_written(gain, evaluation.holdout)
    is_joint = drawn is not None and judgement.curves is not None
    ends = None
    if not is_joint:
        ends = gain_at_ends(
            scores, matched, judgement.source, metric=metric, estimator=chosen.name,
            exposure=exposure,
        )  # fmt: skip
    return JudgedGain(
        gain if knows_all else by_clicked_alone(gain), chosen, relevance, is_joint, ends
    )


def _of_the_written(gain: Gain, holdout: float) -> Gain:
    """Widen the interval on the log scale: the saved ranker is trained on more data.

    It has learned from more clicks than the ranker that is evaluated, and from other ones. The
    factor √(1 + held-out share) was chosen by experiment: see benchmarks/quality/verdicts.
    """
    factor = sqrt(1 + holdout)
    if not -1 < gain.relative_low <= gain.relative_high:  # of a handful of clicks
        return gain
    centre = np.log1p(gain.relative)
    low, high = (
        float(np.expm1(centre + factor * (np.log1p(end) - centre)))
        for end in (gain.relative_low, gain.relative_high)
    )
    logged = gain.logged.value
    return replace(gain, low=low * logged, high=high * logged, relative_low=low, relative_high=high)


def _counts(log: Impressions, since: date) -> Any:  # noqa: ANN401 (PositionCounts)
    counts = tally(log).counts
    if counts is None:
        raise DataError(f"{log.source}: nothing to learn from before {since}, or to judge by after")
    return counts


def _n_clicks(shown: ClickLog) -> int:
    return round(float((shown.clicks if shown.events is None else shown.events).sum()))
