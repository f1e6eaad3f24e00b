"""Compare all estimators that a log supports: `cross_check` reports whether their curves agree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._frames import Tabular
from countersample.errors import DataError
from countersample.pages.charts import new_axes, save_picture, write_csv
from countersample.plotting import plot_propensities
from countersample.propensity.cells import positions_text
from countersample.propensity.curves import stack_columns
from countersample.propensity.estimation import resample
from countersample.propensity.estimators import METHODS
from countersample.propensity.support import needs_features, supported

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.logs import PositionCounts
    from countersample.propensity.curves import Propensities

_ROUNDING = 1 + 1e-3  # a factor on the ends of intervals: iterative estimators stop early


@dataclass(frozen=True, eq=False)
class CrossCheck(Tabular):
    """The estimates of all methods that a log supports, made by `cross_check`.

    Attributes
    ----------
    estimates : dict of Propensities, by method
    unsupported : dict of str, by method
        Why this log does not support a method.
    is_agreed : bool
        Whether one falling curve is within all intervals of all methods.
    sentence : str
        The same in words.
    """

    estimates: dict[str, Propensities]
    unsupported: dict[str, str]
    is_agreed: bool
    sentence: str

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the curves of all methods below each other, with their intervals."""
        return stack_columns("method", self.estimates)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        estimates = {name: curve.to_dict() for name, curve in self.estimates.items()}
        return vars(self) | {"estimates": estimates}

    def save(self, folder: str | PathLike[str]) -> None:
        """Write ``propensities.csv`` and ``propensities.png`` into a folder."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        columns = self.columns_of_frame()
        rows = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
        write_csv(Path(folder) / "propensities.csv", list(columns), rows)
        figure, axes = new_axes(8, 4.5)
        plot_propensities(self.estimates, log=True, ax=axes)
        save_picture(figure, Path(folder) / "propensities.png")


def cross_check(
    counts: PositionCounts,
    *,
    features: ArrayLike | None = None,
    n_bootstrap: int = 200,
    confidence: float = 0.999,
    rng: np.random.Generator | int | None = None,
    reference: int = 1,
    depth: int | None = None,
) -> CrossCheck:
    """Estimate by all methods that the log supports, and report whether they agree.

    They agree if one falling curve is within all intervals: with a_k the largest lower end at
    position k and b_k the smallest upper end (and 0.1 %), a_k ≤ min(b_1..b_k) for all k. A flat
    curve must not be within them: min b < max a.

    The intervals are value·exp(±z·s), with s the standard deviation of log p over resamples, so
    that few resamples suffice for a high confidence.

    Parameters
    ----------
    counts : PositionCounts
    features : float array (n_pairs, n_features), optional
        For regression-em: one row per query-item pair, in the order of `pair_ids`.
    confidence : float
        Of each interval. Some fifty are compared, so it is higher than usual: at 0.95, correct
        methods would often be reported as different.
    n_bootstrap, rng, reference, depth
        As in `estimate`; all methods see the same resampled logs.

    Raises
    ------
    DataError
        If no method is supported.

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
    support = supported(counts, reference=reference, depth=depth, features=features)
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
            rng=np.random.default_rng(seed), reference=reference, depth=depth, **options,
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
    many = f"The {len(names)} methods" if len(names) > 1 else f"The one method ({names[0]})"
    is_apart = floor > ceiling
    if is_apart.any():
        worst = int((floor / np.maximum(ceiling, 1e-300)).argmax())
        upper, lower = int(low[:, worst].argmax()), int(high[:, worst].argmin())
        return False, (
            f"{many} do not agree at {positions_text(np.flatnonzero(is_apart))}: at position "
            f"{worst + 1}, {_interval_text(estimates, names[upper], worst)} and "
            f"{_interval_text(estimates, names[lower], worst)} have no value in common."
            f"{_notes_text(estimates, names[upper])}{_notes_text(estimates, names[lower])}"
        )
    is_rising = floor > np.minimum.accumulate(ceiling)
    if is_rising.any():
        index = int(is_rising.argmax())
        above = int(np.minimum.accumulate(ceiling)[:index].argmin())
        return False, (
            f"{_overlap_text(names)} no falling curve is within all intervals: position "
            f"{index + 1} is examined more ({floor[index]:.3g} or more) than position {above + 1} "
            f"({ceiling[above]:.3g} or less)."
        )
    if floor.max() <= ceiling.min():
        return False, (
            f"{_overlap_text(names)} a flat curve is within all intervals, too: the log is too "
            "short to show that positions matter, or they do not."
        )
    if len(names) == 1:
        return True, (
            f"{many} has a falling curve within its intervals; there is no other to compare with."
        )
    return True, f"{many} agree: one falling curve is within all their intervals."


def _overlap_text(names: list[str]) -> str:
    if len(names) == 1:
        return f"There is one method only ({names[0]}), and"
    return f"The intervals of the {len(names)} methods overlap at every position, but"


def _notes_text(estimates: dict[str, Propensities], name: str) -> str:
    return "".join(f" {name}: {note}." for note in estimates[name].notes)


def _interval_text(estimates: dict[str, Propensities], name: str, index: int) -> str:
    curve = estimates[name]
    return f"{name} ({curve.low[index]:.3g} to {curve.high[index]:.3g})"
