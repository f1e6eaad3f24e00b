"""Prepare a raw log for training or evaluation: check it, weight its clicks, join the features."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from countersample._progress import get_logger
from countersample.data import RankingDataset
from countersample.errors import DataError, ParameterError
from countersample.fitting.propensity_source import LOGGED, find_propensities
from countersample.logs.days import weighted
from countersample.logs.joins import Matched
from countersample.metrics import parse_additive
from countersample.options import CONFIDENCE, METRIC

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample._arrays import Ints
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.logs import FeatureTable, Impressions, JoinReport, LogCheck, PositionCounts
    from countersample.options import EvaluationOptions, PropensityOptions

logger = get_logger(__name__)
MAX_WITHOUT_FEATURES = 0.01  # of the pairs that were shown: more is worth a warning


@dataclass(frozen=True, eq=False)
class WeightedLog:
    """A log with its propensities and features.

    Attributes
    ----------
    check : LogCheck
    matched : Matched
        Its counts, matched with the rows of the dataset.
    source : PropensitySource
    shown : ClickLog
        Everything that was shown and has features.
    training : ClickLog
        The same, with recent days weighted by the half-life.
    join : JoinReport
    rows : int array
        The row of the counts that each row of `shown` comes from.
    metric : str
        By default limited to the positions that a page shows.
    warnings : tuple of str
    """

    check: LogCheck
    matched: Matched
    source: PropensitySource
    shown: ClickLog
    training: ClickLog
    join: JoinReport
    rows: Ints
    metric: str
    warnings: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether items that were shown and never clicked are counted one by one."""
        return self.matched.counts.rest is None


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
    missing, exposure = propensities.missing, propensities.exposure
    progress.part(0.4, "checking the log").update(0.0)
    start = time.perf_counter()
    check = impressions.check(randomized=propensities.randomized)
    _check_log(check, missing)
    _log_counts(check.counts, features.dataset, time.perf_counter() - start)
    last_position = int(check.counts.position.max())
    name, _, cut_off = METRIC.partition("@")
    metric = evaluation.metric or f"{name}@{min(int(cut_off), last_position)}"
    matched = Matched.of(check.counts, features.dataset, features.item_ids)
    progress.part(0.6, "estimating propensities").update(0.0)
    recent = replace(matched, counts=weighted(impressions, check.counts))
    source = find_propensities(
        impressions, recent, propensities, confidence=evaluation.confidence, rng=rng
    )
    logger.info("propensities: %s", source.source, extra={"source": source.source})
    unaged = source.without_half_life(impressions, matched.counts)
    shown, join, rows = matched.shown(unaged, exposure=exposure)
    training = shown
    if impressions.half_life is not None:
        training = recent.shown(source.propensities, exposure=exposure)[0]
    if join.n_skipped and missing == "error":
        raise DataError(
            f"{join.sentence()}; add them, or leave those clicks out with missing='skip' "
            "(--missing skip)"
        )
    warnings = (
        *features.warnings, *check.warnings,
        *([as_sentence(join.sentence())] if join.n_skipped else []),
        *_warn_if_unmatched(join), *source.warnings, *_warn_if_too_deep(metric, last_position),
    )  # fmt: skip
    return WeightedLog(check, matched, source, shown, training, join, rows, metric, warnings)


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
    check = impressions.check(randomized=options.randomized)
    _check_log(check, options.missing)
    if features is None:
        no_items = RankingDataset(
            np.zeros((0, 0), np.float32), np.zeros(0, np.float32), np.zeros(1, np.int64),
            np.zeros(0),
        )  # fmt: skip
        unmatched = np.full(len(check.counts), -1, np.int64)
        matched: Matched = _Featureless(check.counts, no_items, unmatched, unmatched)
    else:
        matched = Matched.of(check.counts, features.dataset, features.item_ids)
    source = find_propensities(impressions, matched, options, confidence=confidence, rng=rng)
    return check, source


@dataclass(frozen=True, eq=False)
class _Featureless(Matched):
    """Counts of a log whose items have no features."""

    def with_features(self) -> tuple[PositionCounts, NDArray[np.float32]]:
        raise DataError("regression-em needs the features of items: give them (--features)")


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


def _check_log(check: LogCheck, missing: str) -> None:
    problem = check.problems.sentence(has_impressions="impressions" in check.columns)
    if problem is not None and missing == "error":
        raise DataError(
            f"{check.source}: {problem}; correct them, or leave those rows out with missing='skip' "
            "(--missing skip)"
        )
    if not check.counts.n_clicks:
        raise DataError(f"{check.source}: the log has no click, so there is nothing to learn from")


def _warn_if_unmatched(join: JoinReport) -> list[str]:
    share = join.n_pairs_without_features / join.n_pairs
    if share <= MAX_WITHOUT_FEATURES:
        return []
    warning = (
        f"{share:.0%} of the query-item pairs that were shown have no features: the new ranking "
        "leaves them out, and ranks the items below them higher than a page with them would."
    )
    return [warning]


def _warn_if_too_deep(metric: str, last_position: int) -> list[str]:
    cut_off = parse_additive(metric)[1]
    if cut_off is None or cut_off <= last_position:
        return []
    warning = (
        f"The log shows no more than {last_position} items, and {metric} counts more ranks: the "
        "gain includes what a longer page would add."
    )
    return [warning]


def as_sentence(text: str) -> str:
    """Return a text with a capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}."
