"""Prepare a raw log for training or evaluation: check it, weight its clicks, join the features."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from countersample._progress import get_logger
from countersample.defaults import CONFIDENCE, METRIC
from countersample.errors import DataError, ParameterError
from countersample.fitting.propensity_source import LOGGED, find_propensities
from countersample.fitting.summaries import (
    COLUMNS,
    EVALUATION,
    LEFT_OUT,
    POSITION_BIAS,
    ROWS,
    group_warnings,
)
from countersample.logs.days import weighted
from countersample.logs.joins import Matched
from countersample.metrics import parse_additive

if TYPE_CHECKING:
    from datetime import date

    import numpy as np

    from countersample._arrays import Ints
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.fitting.summaries import Warnings
    from countersample.logs import FeatureTable, Impressions, JoinReport, LogCheck, PositionCounts
    from countersample.options import EvaluationOptions, PropensityOptions

logger = get_logger(__name__)
MAX_WITHOUT_FEATURES = 0.01  # of the pairs that were shown: more is worth a warning


@dataclass(frozen=True, eq=False)
class JoinedLog:
    """Counts of a log with their propensities and features."""

    matched: Matched  # the counts, matched with the rows of the dataset
    source: PropensitySource
    shown: ClickLog  # everything that was shown and has features
    training: ClickLog  # the same, with recent days weighted by the half-life
    join: JoinReport
    rows: Ints  # the row of the counts that each row of `shown` comes from

    @property
    def is_complete(self) -> bool:
        """Whether items that were shown and never clicked are counted one by one."""
        return self.matched.counts.rest is None

    @property
    def examples(self) -> ClickLog:
        """What a ranker is trained on: everything shown, or clicks if that is not known."""
        if self.is_complete and self.training.examination is not None:
            return self.training
        return self.training.weighted().replace(impressions=None)


@dataclass(frozen=True, eq=False)
class WeightedLog(JoinedLog):
    """A log that is checked and joined, and the metric that it can estimate."""

    check: LogCheck
    metric: str  # by default limited to the positions that a page shows
    warnings: Warnings


def join_log(
    impressions: Impressions,
    counts: PositionCounts,
    features: FeatureTable,
    propensities: PropensityOptions,
    *,
    source: PropensitySource | None = None,
    **settings: Any,  # noqa: ANN401 (of find_propensities)
) -> JoinedLog:
    """Join the counts of a log to features and propensities, which by default are estimated."""
    exposure = propensities.exposure
    matched = Matched.of(counts, features.dataset, features.item_ids)
    recent = replace(matched, counts=weighted(impressions, counts))
    if source is None:
        source = find_propensities(
            impressions, recent.counts, propensities, with_features=recent.with_features,
            **settings,
        )  # fmt: skip
    unaged = source.without_half_life(impressions, counts)
    shown, join, rows = matched.shown(unaged, exposure=exposure)
    training = shown
    if impressions.half_life is not None:
        training = recent.shown(source.propensities, exposure=exposure)[0]
    return JoinedLog(matched, source, shown, training, join, rows)


def weight_log(
    impressions: Impressions,
    features: FeatureTable,
    propensities: PropensityOptions,
    evaluation: EvaluationOptions,
    *,
    rng: np.random.Generator,
    progress: Progress,
) -> WeightedLog:
    """Check a log, estimate its propensities, and join it to the features."""
    progress.part(0.4, "checking the log").update(0.0)
    check = _check_log(impressions, propensities)
    last_position = int(check.counts.position.max())
    name, _, cut_off = METRIC.partition("@")
    metric = evaluation.metric or f"{name}@{min(int(cut_off), last_position)}"
    progress.part(0.6, "estimating propensities").update(0.0)
    log = join_log(
        impressions, check.counts, features, propensities, confidence=evaluation.confidence,
        rng=rng,
    )  # fmt: skip
    join, source = log.join, log.source
    logger.info("propensities: %s", source.source, extra={"source": source.source})
    if join.n_skipped and propensities.missing == "error":
        raise DataError(
            f"{join.sentence()}; add them, or leave those clicks out with missing='skip' "
            "(--missing skip)"
        )
    left_out, depth = [], parse_additive(metric)[1]
    if join.n_skipped:
        left_out.append(as_sentence(join.sentence()))
    share = join.n_pairs_without_features / join.n_pairs
    if share > MAX_WITHOUT_FEATURES:
        left_out.append(
            f"{share:.0%} of the query-item pairs that were shown have no features: the new "
            "ranking leaves them out, and ranks the items below them higher than a page with them "
            "would."
        )
    is_deeper = depth is not None and depth > last_position
    longer_page = (
        f"The log shows no more than {last_position} items, and {metric} counts more ranks: the "
        "gain includes what a longer page would add."
    )
    warnings = group_warnings({
        ROWS: check.warnings, POSITION_BIAS: source.warnings, LEFT_OUT: left_out,
        EVALUATION: [longer_page] if is_deeper else [], COLUMNS: features.warnings,
    })  # fmt: skip
    return WeightedLog(**vars(log), check=check, metric=metric, warnings=warnings)


def estimate_propensities(
    impressions: Impressions,
    features: FeatureTable | None,
    options: PropensityOptions,
    *,
    confidence: float = CONFIDENCE,
    rng: np.random.Generator,
) -> tuple[LogCheck, PropensitySource]:
    """Check a log and estimate its propensities, unless they are known.

    Features are optional: only regression-em needs them.
    """
    if options.exposure != "policy-aware":
        raise ParameterError(
            f"exposure is {options.exposure!r}, which weights clicks in training and evaluation, "
            "and changes no propensity: leave it out"
        )
    if options.method == LOGGED:
        raise ParameterError(f"method is {LOGGED!r}, which estimates nothing: name another")
    takes_logged = options.method == "auto" and options.randomized is None
    if takes_logged and options.is_estimated and "propensity" in impressions.columns:
        raise DataError(
            f"{impressions.source}: the log has a column 'propensity', which fit takes as it is: "
            "to estimate them name a method, such as all-pairs"
        )
    check = _check_log(impressions, options)
    with_features = None
    if features is not None:
        with_features = Matched.of(check.counts, features.dataset, features.item_ids).with_features
    source = find_propensities(
        impressions, check.counts, options, with_features=with_features, confidence=confidence,
        rng=rng,
    )  # fmt: skip
    return check, source


def _check_log(impressions: Impressions, options: PropensityOptions) -> LogCheck:
    """Count a log; raise an error if rows are impossible, or if it has no clicks."""
    start = time.perf_counter()
    check = impressions.check(randomized=options.randomized)
    problem = check.problems.sentence(has_impressions="impressions" in check.columns)
    if problem is not None and options.missing == "error":
        raise DataError(
            f"{check.source}: {problem}; correct them, or leave those rows out with missing='skip' "
            "(--missing skip)"
        )
    counts = check.counts
    if not counts.n_clicks:
        raise DataError(f"{check.source}: the log has no click, so there is nothing to learn from")
    numbers = {
        "seconds": round(time.perf_counter() - start, 3), "n_impressions": counts.n_impressions,
        "n_clicks": counts.n_clicks, "n_queries": len(counts.query_ids),
    }  # fmt: skip
    text = "log counted in %.1f s: %d impressions, %d clicks, %d queries"
    logger.info(text, *numbers.values(), extra=numbers)
    return check


def list_days(impressions: Impressions) -> tuple[date, ...]:
    """Return the days of a log; none if its timestamps are missing or not usable."""
    if "timestamp" not in impressions.columns:
        return ()
    try:
        return impressions.days().days
    except DataError:
        return ()


def as_sentence(text: str) -> str:
    """Return a text with a capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}."
