"""All estimators that a log supports, side by side, and whether they tell the same curve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._frames import Tabular
from countersample.errors import DataError
from countersample.pages.drawing import new_axes, save_picture, write_csv
from countersample.plotting import plot_propensities
from countersample.propensity.connections import positions_text
from countersample.propensity.estimation import resample
from countersample.propensity.methods import METHODS, needs_features
from countersample.propensity.support import supported

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.clicks.impressions import PositionCounts
    from countersample.propensity.curve import Propensities

_NEAR = 1 + 1e-3  # ends of intervals this close meet: the estimators that iterate stop somewhere


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
        That, in words.
    """

    estimates: dict[str, Propensities]
    unsupported: dict[str, str]
    is_agreed: bool
    sentence: str

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the curves of all methods below each other, with their intervals."""
        tables = [curve.columns_of_frame() for curve in self.estimates.values()]
        sizes = [len(curve.value) for curve in self.estimates.values()]
        return {"method": np.repeat(list(self.estimates), sizes)} | {
            name: np.concatenate([table[name] for table in tables]) for name in tables[0]
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        estimates = {name: curve.to_dict() for name, curve in self.estimates.items()}
        return vars(self) | {"estimates": estimates}

    def save(self, folder: str | PathLike[str]) -> None:
        """Write ``propensities.csv`` and ``propensities.png`` into a folder."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.write_csv(Path(folder) / "propensities.csv")
        self.draw(Path(folder) / "propensities.png")

    def write_csv(self, path: str | PathLike[str]) -> None:
        """Write a row a method and position."""
        columns = self.columns_of_frame()
        values = [np.asarray(column).tolist() for column in columns.values()]
        write_csv(path, list(columns), zip(*values, strict=True))

    def draw(self, path: str | PathLike[str]) -> None:
        """Draw all curves with their intervals, on a logarithmic scale, as PNG, SVG or PDF."""
        figure, axes = new_axes(8, 4.5)
        plot_propensities(self.estimates, log=True, ax=axes)
        save_picture(figure, path)


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
    """Estimate by all methods that the log supports, and say whether they agree.

    They agree if one falling curve is within all intervals: with a_k the largest lower end at
    position k and b_k the smallest upper end (and 0.1 %), a_k ≤ min(b_1..b_k) for all k. A flat
    curve must not be within them: min b < max a.

    The intervals are value·exp(±z·s), with s the standard deviation of log p over resamples, so
    that few of them tell a high confidence.

    Parameters
    ----------
    counts : PositionCounts
    features : float array (n_pairs, n_features), optional
        For regression-em: of each query-item pair, in the order of `pair_ids`.
    confidence : float
        Of each interval. Some fifty are compared, so it is higher than usual: at 0.95 methods that
        are all right would often be called at odds.
    n_bootstrap, rng, reference, depth
        As in `estimate`; all methods see the same resampled logs.

    Raises
    ------
    DataError
        Where no method is supported.

    Examples
    --------
    >>> from countersample.clicks.impressions import PositionCounts
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
        told = support["all-pairs"].reason
        raise DataError(f"this log supports no estimator of propensities: {told}")
    # Read once, so that every method is given the same draws.
    seed = np.random.default_rng(rng).integers(2**63)
    estimates, unsupported = {}, {}
    for name, each in support.items():
        if each.reason is not None:
            unsupported[name] = each.reason
            continue
        options: dict[str, Any] = {"features": features} if needs_features(name) else {}
        found, resamples = resample(
            counts, method=name, n_bootstrap=n_bootstrap, confidence=confidence,
            rng=np.random.default_rng(seed), reference=reference, depth=depth, **options,
        )  # fmt: skip
        estimates[name] = _with_normal_ends(found, resamples)
    return CrossCheck(estimates, unsupported, *_verdict(estimates))


def _with_normal_ends(found: Propensities, resamples: Floats) -> Propensities:
    """Return an estimate with intervals as those of a normal distribution of log p."""
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.nanstd(np.where(resamples > 0, np.log(resamples), np.nan), axis=0, ddof=1)
    width = NormalDist().inv_cdf((1 + found.confidence) / 2) * spread
    low, high = found.value * np.exp(-width), found.value * np.exp(width)
    return replace(found, low=low, high=high)


def _verdict(estimates: dict[str, Propensities]) -> tuple[bool, str]:
    """Return whether one falling curve is within all intervals, and a sentence that says so."""
    names = list(estimates)
    low = np.stack([curve.low for curve in estimates.values()])
    high = np.stack([curve.high for curve in estimates.values()])
    floor, ceiling = low.max(axis=0), high.min(axis=0) * _NEAR
    many = f"The {len(names)} methods" if len(names) > 1 else f"The one method ({names[0]})"
    apart = floor > ceiling
    if apart.any():
        worst = int((floor / np.maximum(ceiling, 1e-300)).argmax())
        upper, lower = int(low[:, worst].argmax()), int(high[:, worst].argmin())
        return False, (
            f"{many} do not agree at {positions_text(np.flatnonzero(apart))}: at position "
            f"{worst + 1}, {_told(estimates, names[upper], worst)} and "
            f"{_told(estimates, names[lower], worst)} have no value in common."
            f"{_notes(estimates, names[upper])}{_notes(estimates, names[lower])}"
        )
    rises = floor > np.minimum.accumulate(ceiling)
    if rises.any():
        index = int(rises.argmax())
        above = int(np.minimum.accumulate(ceiling)[:index].argmin())
        return False, (
            f"{_agreed(names)} no falling curve is within all intervals: position {index + 1} is "
            f"examined more ({floor[index]:.3g} or more) than position {above + 1} "
            f"({ceiling[above]:.3g} or less)."
        )
    if floor.max() <= ceiling.min():
        return False, (
            f"{_agreed(names)} a flat curve is within all intervals, too: the log is too short to "
            "show that positions matter, or they do not."
        )
    if len(names) == 1:
        return True, (
            f"{many} tells a falling curve within its intervals; there is no other to check it by."
        )
    return True, f"{many} agree: one falling curve is within all their intervals."


def _agreed(names: list[str]) -> str:
    if len(names) == 1:
        return f"There is one method only ({names[0]}), and"
    return f"The intervals of the {len(names)} methods overlap at every position, but"


def _notes(estimates: dict[str, Propensities], name: str) -> str:
    return "".join(f" Of {name}: {note}." for note in estimates[name].notes)


def _told(estimates: dict[str, Propensities], name: str, index: int) -> str:
    curve = estimates[name]
    return f"{name} ({curve.low[index]:.3g} to {curve.high[index]:.3g})"
