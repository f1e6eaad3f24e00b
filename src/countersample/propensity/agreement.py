"""Compare all estimators that a log supports: `cross_check` reports whether their curves agree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._frames import Tabular
from countersample.errors import DataError
from countersample.propensity.cells import positions_text
from countersample.propensity.curves import stack_columns
from countersample.propensity.estimation import needs_features, resample, supported
from countersample.propensity.estimators import METHODS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.logs import PositionCounts
    from countersample.propensity.curves import Propensities

_ROUNDING = 1 + 1e-3  # a factor on the ends of intervals: iterative estimators stop early


@dataclass(frozen=True, eq=False)
class CrossCheck(Tabular):
    """The estimates of all methods that a log supports, made by `cross_check`."""

    estimates: dict[str, Propensities]  # by method
    unsupported: dict[str, str]  # why this log does not support a method, by method
    is_agreed: bool  # whether one falling curve is within all intervals of all methods
    sentence: str  # the same in words

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the curves of all methods below each other, with their intervals."""
        return stack_columns("method", self.estimates)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        estimates = {name: curve.to_dict() for name, curve in self.estimates.items()}
        return vars(self) | {"estimates": estimates}


def cross_check(
    counts: PositionCounts,
    *,
    features: ArrayLike | None = None,
    n_bootstrap: int = 200,
    confidence: float = 0.999,
    rng: np.random.Generator | int | None = None,
    depth: int | None = None,
) -> CrossCheck:
    """Estimate by all methods that the log supports, and report whether they agree.

    They agree if one falling curve is within all intervals: with a_k the largest lower end at
    position k and b_k the smallest upper end (and 0.1 %), a_k ≤ min(b_1..b_k) for all k. A flat
    curve must not be within them: min b < max a. A log that supports no method raises `DataError`.

    The intervals are value·exp(±z·s), with s the standard deviation of log p over resamples, so
    that few resamples suffice for a high confidence.

    Parameters
    ----------
    counts : PositionCounts
    features : float array (n_pairs, n_features), optional
        For regression-em: one row per query-item pair, in the order of `pair_ids`.
    confidence : float
        The confidence of each interval. Some fifty are compared, so it is higher than usual: at
        0.95, correct methods would often be reported as different.
    n_bootstrap, rng, depth
        As in `estimate`; all methods see the same resampled logs.

    Examples
    --------
    >>> from countersample.logs import PositionCounts
    >>> from countersample.propensity import cross_check
    >>> counts = PositionCounts.from_columns(
    ...     query_id=["a"] * 4 + ["b"] * 4, item_id=[7, 7, 8, 8] * 2, position=[1, 2] * 4,
    ...     click=[60, 30, 20, 10] * 2, impressions=[100] * 8,
    ... )
    >>> check = cross_check(counts, rng=0)
    >>> check.sentence
    'The 6 methods agree: one falling curve is within all their intervals.'
    >>> check.unsupported["regression-em"][:29]
    'regression-em needs features='
    """
    support = supported(counts, depth=depth, features=features)
    support = {name: support[name] for name in METHODS}
    if not any(each.is_supported for each in support.values()):
        reason = support["all-pairs"].reason
        raise DataError(f"this log supports no estimator of propensities: {reason}")
    # Drawn once, so that every method sees the same resampled logs.
    seed = np.random.default_rng(rng).integers(2**63)
    estimates, unsupported = {}, {}
    for name, each in support.items():
        if each.reason is not None:
            unsupported[name] = each.reason
            continue
        options: dict[str, Any] = {"features": features} if needs_features(name) else {}
        curve, resamples = resample(
            counts, method=name, n_bootstrap=n_bootstrap, confidence=confidence,
            rng=np.random.default_rng(seed), depth=depth, **options,
        )  # fmt: skip
        estimates[name] = _with_normal_ends(curve, resamples)
    return CrossCheck(estimates, unsupported, *_verdict(estimates))


def _with_normal_ends(curve: Propensities, resamples: Floats) -> Propensities:
    """Return an estimate with the intervals of a normal distribution of log p."""
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.nanstd(np.where(resamples > 0, np.log(resamples), np.nan), axis=0, ddof=1)
    width = NormalDist().inv_cdf((1 + curve.confidence) / 2) * spread
    low, high = curve.value * np.exp(-width), curve.value * np.exp(width)
    return replace(curve, low=low, high=high)


def _verdict(estimates: dict[str, Propensities]) -> tuple[bool, str]:
    """Return whether one falling curve is within all intervals, and a sentence about it."""
    names = list(estimates)
    low = np.stack([curve.low for curve in estimates.values()])
    high = np.stack([curve.high for curve in estimates.values()])
    floor, ceiling = low.max(axis=0), high.min(axis=0) * _ROUNDING
    is_apart = floor > ceiling
    if is_apart.any():
        worst = int((floor / np.maximum(ceiling, 1e-300)).argmax())
        pair = [names[low[:, worst].argmax()], names[high[:, worst].argmin()]]
        first, second = (
            f"{name} ({estimates[name].low[worst]:.3g} to {estimates[name].high[worst]:.3g})"
            for name in pair
        )
        notes = "".join(f" {name}: {note}." for name in pair for note in estimates[name].notes)
        return False, (
            f"The {len(names)} methods do not agree at {positions_text(np.flatnonzero(is_apart))}: "
            f"at position {worst + 1}, {first} and {second} have no value in common.{notes}"
        )
    overlap = f"The intervals of the {len(names)} methods overlap at every position, but"
    if len(names) == 1:
        overlap = f"There is one method only ({names[0]}), and"
    lowest = np.minimum.accumulate(ceiling)
    is_rising = floor > lowest
    if is_rising.any():
        index = int(is_rising.argmax())
        above = int(lowest[:index].argmin())
        return False, (
            f"{overlap} no falling curve is within all intervals: position {index + 1} is examined "
            f"more ({floor[index]:.3g} or more) than position {above + 1} ({ceiling[above]:.3g} or "
            "less)."
        )
    if floor.max() <= ceiling.min():
        return False, (
            f"{overlap} a flat curve is within all intervals, too: the log is too short to show "
            "that positions matter, or they do not."
        )
    if len(names) == 1:
        return True, (
            f"The one method ({names[0]}) has a falling curve within its intervals; there is no "
            "other to compare with."
        )
    return True, f"The {len(names)} methods agree: one falling curve is within all their intervals."
