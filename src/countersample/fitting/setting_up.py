"""A raw log made ready to judge by or to learn from: checked, weighted, joined to features."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from countersample._logging import get_logger
from countersample.clicks.impressions.joining import Matched
from countersample.clicks.impressions.weighting import weighted
from countersample.data import RankingDataset
from countersample.errors import DataError, ParameterError
from countersample.evaluation.ranking import parse_additive
from countersample.fitting.propensity_source import LOGGED, find_propensities
from countersample.options import CONFIDENCE, METRIC

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample._arrays import Ints
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.clicks.impressions import (
        FeatureTable,
        Impressions,
        JoinReport,
        LogCheck,
        PositionCounts,
    )
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.options import EvaluationOptions, PropensityOptions

logger = get_logger(__name__)
WITHOUT_FEATURES = 0.01  # of the pairs that were shown: more is worth a warning
_NO_ITEMS = RankingDataset(
    np.zeros((0, 0), np.float32), np.zeros(0, np.float32), np.zeros(1, np.int64), np.zeros(0)
)


@dataclass(frozen=True, eq=False)
class SetUp:
    """A log with its propensities and features."""

    check: LogCheck
    matched: Matched
    source: PropensitySource
    shown: ClickLog  # everything that was shown and has features
    learned: ClickLog  # the same, with recent days weighted as asked for
    join: JoinReport
    rows: Ints  # of the counts, that each row of `shown` is
    metric: str
    warnings: tuple[str, ...]


def set_up(
    impressions: Impressions,
    features: FeatureTable,
    propensities: PropensityOptions,
    evaluation: EvaluationOptions,
    *,
    rng: np.random.Generator,
    progress: Progress,
) -> SetUp:
    """Check a log, estimate its propensities, and join it to the features."""
    missing, exposure = propensities.missing, propensities.exposure
    progress.part(0.4, "checking the log").update(0.0)
    since = time.perf_counter()
    check = impressions.check(randomized=propensities.randomized)
    _check_log(check, missing)
    _log_counts(check.counts, features.dataset, time.perf_counter() - since)
    last_position = int(check.counts.position.max())
    metric = _metric_of(evaluation, last_position)
    matched = Matched.of(check.counts, features.dataset, features.item_ids)
    progress.part(0.6, "estimating propensities").update(0.0)
    weighed = replace(matched, counts=weighted(impressions, check.counts))
    source = find_propensities(
        impressions, weighed, propensities, confidence=evaluation.confidence, rng=rng
    )
    logger.info("propensities: %s", source.source, extra={"source": source.source})
    told = source.of_every_impression(impressions, matched.counts)
    shown, join, rows = matched.shown(told, exposure=exposure)
    learned = shown
    if impressions.half_life is not None:
        learned = weighed.shown(source.propensities, exposure=exposure)[0]
    _check_join(join, missing)
    warnings = (
        *features.warnings, *check.warnings,
        *([sentence(join.sentence())] if join.n_skipped else []),
        *_of_features(join), *source.warnings, *_of_metric(metric, last_position),
    )  # fmt: skip
    return SetUp(check, matched, source, shown, learned, join, rows, metric, warnings)


def _metric_of(evaluation: EvaluationOptions, last_position: int) -> str:
    """Return the metric, by default limited to the positions that a page shows."""
    if evaluation.metric is not None:
        return evaluation.metric
    name, _, cut_off = METRIC.partition("@")
    return f"{name}@{min(int(cut_off), last_position)}"


def _log_counts(counts: PositionCounts, dataset: RankingDataset, seconds: float) -> None:
    n_queries = len(counts.query_ids)
    logger.info(
        "log counted in %.1f s: %d impressions, %d clicks, %d queries; features of %d items",
        seconds, counts.n_impressions, counts.n_clicks, n_queries, dataset.n_items,
        extra={
            "seconds": round(seconds, 3), "n_impressions": counts.n_impressions,
            "n_clicks": counts.n_clicks, "n_queries": n_queries, "n_items": dataset.n_items,
            "n_features": dataset.n_features,
        },
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _WithoutFeatures(Matched):
    """Counts of a log of whose items no features are given."""

    def with_features(self) -> tuple[PositionCounts, NDArray[np.float32]]:
        raise DataError("regression-em needs the features of items: give them (--features)")


def propensities_of(
    impressions: Impressions,
    features: FeatureTable | None,
    options: PropensityOptions,
    *,
    confidence: float = CONFIDENCE,
    rng: np.random.Generator,
) -> tuple[LogCheck, PropensitySource]:
    """Check a log and estimate its propensities, unless they are known.

    Features are optional, and needed by regression-em only.
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
    check = impressions.check(randomized=options.randomized)
    _check_log(check, options.missing)
    if features is None:
        none = np.full(len(check.counts), -1, np.int64)
        matched: Matched = _WithoutFeatures(check.counts, _NO_ITEMS, none, none)
    else:
        matched = Matched.of(check.counts, features.dataset, features.item_ids)
    source = find_propensities(impressions, matched, options, confidence=confidence, rng=rng)
    return check, source


def _check_log(check: LogCheck, missing: str) -> None:
    wrong = check.problems.sentence(has_impressions="impressions" in check.columns)
    if wrong is not None and missing == "error":
        raise DataError(
            f"{check.source}: {wrong}; correct them, or leave those rows out with missing='skip' "
            "(--missing skip)"
        )
    if not check.counts.n_clicks:
        raise DataError(f"{check.source}: the log has no click, so there is nothing to learn from")


def _check_join(join: JoinReport, missing: str) -> None:
    if join.n_skipped and missing == "error":
        raise DataError(
            f"{join.sentence()}; add them, or leave those clicks out with missing='skip' "
            "(--missing skip)"
        )


def _of_features(join: JoinReport) -> list[str]:
    share = join.n_pairs_without_features / join.n_pairs
    if share <= WITHOUT_FEATURES:
        return []
    told = (
        f"{share:.0%} of the query-item pairs that were shown have no features: the new ranking "
        "leaves them out, and ranks what is below them higher than a page with them would."
    )
    return [told]


def _of_metric(metric: str, last_position: int) -> list[str]:
    cut_off = parse_additive(metric)[1]
    if cut_off is None or cut_off <= last_position:
        return []
    told = (
        f"The log shows no more than {last_position} items, and {metric} counts more ranks: what a "
        "longer page would add is in the gain."
    )
    return [told]


def sentence(text: str) -> str:
    """Return a text as a sentence."""
    return f"{text[0].upper()}{text[1:]}."
