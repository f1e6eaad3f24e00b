"""Transforms of features before scaling: logarithms, roots and quantiles, learned from data.

A linear ranker adds up its features, so it matters whether the tenth sale counts as much as the
thousandth. Each transform preserves the order of a feature's values and changes their distances. It
is learned per feature, from finite values. A feature with one or two values is left alone, and a
missing value (NaN) stays missing.

============  ==================================================  ===========================
transform     numbers of a feature                                t(x)
============  ==================================================  ===========================
``root``      r, a whole number up to 5; 0: unchanged             sign(x)·√|x|, r times
``log``       s > 0; 0: unchanged                                 sign(x)·ln(1 + |x|/s)
``quantile``  knots ((x₁, …, x_m), (y₁, …, y_m)), both rising,    linear between knots; y₁ below
              2 ≤ m ≤ 32, y in [0, 1]; (): unchanged              the first, y_m above the last
============  ==================================================  ===========================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample.data.compact import HEAVY_SHARE, rounding_error
from countersample.data.matrices import column_moments, column_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats

    Knots = tuple[tuple[tuple[float, ...], ...], ...]  # per feature: () or (values, shares)

MAX_ROOTS = 5  # the 32nd root of the largest float32 is 16: no heavy tail is left
MAX_KNOTS = 32  # per feature: 5 comparisons find the two knots around a value
SAMPLE_VALUES = 2**24  # values of the sample that logs and knots are learned from
MIN_SAMPLE_ROWS = 10_000


@dataclass(frozen=True, eq=False)
class TransformedColumns:
    """Columns of features after a function: an index of rows gives float64 numbers."""

    features: Any  # NDArray[np.float32] | CompactFeatures
    function: Callable[[Any], Floats]
    n_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """(n_items, n_columns)."""
        return self.features.shape[0], self.n_columns

    def __getitem__(self, rows: int | slice) -> Floats:
        return self.function(self.features[rows])


# -- Roots -----------------------------------------------------------------------------------------


def take_roots(values: ArrayLike, roots: ArrayLike) -> Floats:
    """sign(x)·√|x|, `roots` times, column by column: float64 (…, n_features).

    A square root preserves the order of values and is rounded the same way by every CPU.

    Examples
    --------
    >>> take_roots([[16.0, -16.0, 16.0]], roots=[0, 1, 2])
    array([[16., -4.,  2.]])
    """
    out, times = np.array(values, np.float64), np.asarray(roots)
    for round_ in range(times.max(initial=0)):
        columns = times > round_
        selection = out[..., columns]
        out[..., columns] = np.copysign(np.sqrt(np.abs(selection)), selection)
    return out


def undo_roots(values: ArrayLike, roots: ArrayLike) -> Floats:
    """x·|x|, `roots` times: the inverse of `take_roots`.

    Examples
    --------
    >>> undo_roots([[16.0, -4.0, 2.0]], roots=[0, 1, 2])
    array([[ 16., -16.,  16.]])
    """
    out, times = np.array(values, np.float64), np.asarray(roots)
    for round_ in range(times.max(initial=0)):
        columns = times > round_
        out[..., columns] *= np.abs(out[..., columns])
    return out


def choose_roots(features: Any) -> tuple[int, ...] | None:  # noqa: ANN401 (array or codes)
    """Return the number of square roots for each feature, 0 to 5; None if no feature needs any.

    A tail is heavy if rounding to 8 bits loses more than a twentieth of a feature's standard
    deviation. A feature takes the fewest roots that end this. If five are not enough, it takes five
    if they halve the loss, else none: roots do not help rare values that are not large. Each round
    reads the columns with heavy tails once more, block by block.

    Examples
    --------
    >>> even = np.arange(1.0, 10_001.0)
    >>> choose_roots(np.stack([even, 10_000 / even, even == 1], axis=1).astype(np.float32))
    (0, 2, 0)
    """
    low, high = column_ranges(features)
    _, loss = rounding_error(low, high, column_moments(features)[1], bits=8)
    roots = np.zeros(len(loss), np.int64)
    columns = np.flatnonzero(loss > HEAVY_SHARE)  # the columns without a decision
    for n_roots in range(1, MAX_ROOTS + 1):
        if not len(columns):
            break
        times = np.full(len(columns), n_roots)

        def take(block: Any, columns: Any = columns, times: Any = times) -> Floats:  # noqa: ANN401
            return take_roots(block[..., columns], times)

        _, deviation = column_moments(TransformedColumns(features, take, len(columns)))
        _, new_loss = rounding_error(take(low), take(high), deviation, bits=8)
        is_enough = new_loss <= HEAVY_SHARE
        if n_roots == MAX_ROOTS:
            is_enough |= new_loss <= loss[columns] / 2
        roots[columns[is_enough]] = n_roots
        columns = columns[~is_enough]
    return tuple(roots.tolist()) if roots.any() else None


# -- Logarithms ------------------------------------------------------------------------------------


def take_logs(values: ArrayLike, logs: ArrayLike) -> Floats:
    """sign(x)·ln(1 + |x|/s), column by column, with s in `logs`; s = 0 leaves x unchanged.

    Float64 (…, n_features). About linear below s and logarithmic above; 0 and the sign are
    preserved, so it applies to any feature.

    Examples
    --------
    >>> take_logs([[7.0, -7.0, 7.0]], logs=[0.0, 1.0, 7.0]).round(3)
    array([[ 7.   , -2.079,  0.693]])
    """
    out, scales = np.array(values, np.float64), np.asarray(logs, np.float64)
    columns = scales > 0
    selection = out[..., columns]
    out[..., columns] = np.copysign(np.log(1 + np.abs(selection) / scales[columns]), selection)
    return out


def undo_logs(values: ArrayLike, logs: ArrayLike) -> Floats:
    """sign(x)·s·(exp(|x|) − 1): the inverse of `take_logs`.

    Examples
    --------
    >>> undo_logs(take_logs([[7.0, -7.0]], [0.0, 2.0]), [0.0, 2.0]).round(9)
    array([[ 7., -7.]])
    """
    out, scales = np.array(values, np.float64), np.asarray(logs, np.float64)
    columns = scales > 0
    selection = out[..., columns]
    out[..., columns] = np.copysign(scales[columns] * np.expm1(np.abs(selection)), selection)
    return out


def choose_logs(features: Any) -> tuple[float, ...] | None:  # noqa: ANN401 (array or codes)
    """Return s of each feature for `take_logs`: the median size of its values that are not 0.

    So half of the values are in the linear part, whatever their unit. 0 for a feature with one or
    two values; None if all features are like that.

    Examples
    --------
    >>> sales = np.array([[0, 1], [1, 0], [10, 1], [1000, 0]], np.float32)
    >>> choose_logs(sales)
    (10.0, 0.0)
    """
    logs = []
    for values in _sample_columns(features):
        sizes = np.abs(values[values != 0]) if _has_three_values(values) else np.zeros(1)
        logs.append(float(np.quantile(sizes, 0.5, method="lower")))
    return tuple(logs) if any(logs) else None


# -- Quantiles -------------------------------------------------------------------------------------


class KnotTable(NamedTuple):
    """The knots of all features that have some, one row per feature, padded with ∞.

    A value between knots i and i + 1 becomes share_i + slope_i·(value − knot_i), at most
    share_{i+1}. A value before the first or after the last knot becomes the share of that knot.
    """

    columns: NDArray[np.int64]  # the features
    knots: Floats  # (n_columns, MAX_KNOTS)
    shares: Floats
    slopes: Floats
    above: Floats  # share_{i+1}

    @classmethod
    def of(cls, knots: Knots) -> KnotTable:
        """Lay out the knots of all features."""
        columns = np.array([k for k, each in enumerate(knots) if each], np.int64)
        table = np.full((2, len(columns), MAX_KNOTS), np.inf)
        for row, column in enumerate(columns):
            table[:, row, : len(knots[column][0])] = knots[column]
        x, y = table
        above = np.append(y[:, 1:], np.full((len(y), 1), np.inf), axis=1)
        is_last = np.isfinite(y) & ~np.isfinite(above)
        above = np.where(is_last, y, above)
        with np.errstate(invalid="ignore"):  # in the padding
            run = np.append(np.diff(x, axis=1), np.full((len(x), 1), np.inf), axis=1)
            slopes = np.where(is_last, 0.0, (above - y) / run)
        return cls(columns, x, y, slopes, above)

    @property
    def steps(self) -> list[int]:
        """The step sizes of the binary search for a knot."""
        return [2**k for k in reversed(range(MAX_KNOTS.bit_length() - 1))]

    @property
    def starts(self) -> NDArray[np.int64]:
        """The index of each column's first knot in the flat table."""
        return MAX_KNOTS * np.arange(len(self.columns))

    def share_of(self, values: Floats) -> Floats:
        """Return the shares of values, (…, n_columns)."""
        bounded = np.maximum(values, self.knots[:, 0])
        at = np.broadcast_to(self.starts, values.shape)
        for step in self.steps:
            at = np.where(bounded >= self.knots.take(at + step), at + step, at)
        share = self.shares.take(at) + self.slopes.take(at) * (bounded - self.knots.take(at))
        return np.minimum(share, self.above.take(at))


def take_quantiles(values: ArrayLike, knots: Knots) -> Floats:
    """share_i + slope_i·(x − knot_i) between knots i and i + 1: the share of values below x.

    Float64 (…, n_features). A feature without knots is unchanged.

    Examples
    --------
    >>> knots = ((), ((1.0, 10.0, 1000.0), (0.0, 0.5, 1.0)))
    >>> take_quantiles([[7.0, 1.0], [7.0, 5.5], [7.0, 505.0], [7.0, 5000.0]], knots)
    array([[7.  , 0.  ],
           [7.  , 0.25],
           [7.  , 0.75],
           [7.  , 1.  ]])
    """
    out, table = np.array(values, np.float64), KnotTable.of(knots)
    out[..., table.columns] = table.share_of(out[..., table.columns])
    return out


def undo_quantiles(values: ArrayLike, knots: Knots) -> Floats:
    """Return values that `take_quantiles` maps to these shares.

    Examples
    --------
    >>> undo_quantiles([[0.75]], (((1.0, 10.0, 1000.0), (0.0, 0.5, 1.0)),))
    array([[505.]])
    """
    out = np.array(values, np.float64)
    for column, each in enumerate(knots):
        if each:
            out[..., column] = np.interp(out[..., column], each[1], each[0])
    return out


def choose_knots(features: Any) -> Knots | None:  # noqa: ANN401 (array or codes)
    """Return the knots of each feature for `take_quantiles`: at most 32 values and their shares.

    A value that more than one row in thirty has is a knot, such as the 0 of a count; the other
    knots are evenly spaced quantiles of the other values. The share of a knot is the share of
    values below it, plus half of the values equal to it. The smallest and the largest value are
    knots. () for a feature with one or two values; None if all features are like that.

    Examples
    --------
    >>> choose_knots(np.array([[0, 1], [0, 0], [1, 1], [9, 0]], np.float32))
    (((0.0, 1.0, 9.0), (0.25, 0.625, 0.875)), ())
    """
    low, high = column_ranges(features)
    knots = tuple(
        _knots_of(values, float(first), float(last)) if _has_three_values(values) else ()
        for values, first, last in zip(_sample_columns(features), low, high, strict=True)
    )
    return knots if any(knots) else None


def _knots_of(values: Floats, low: float, high: float) -> tuple[tuple[float, ...], ...]:
    """Return the knots of sorted sample values, for a feature that ranges from low to high."""
    n, n_inner = len(values), MAX_KNOTS - 2  # without both ends
    evenly = np.linspace(0, 1, n_inner)
    knots, times = np.unique(np.quantile(values, evenly, method="nearest"), return_counts=True)
    common = knots[times > 1]
    others = values[~np.isin(values, common)]
    if len(common) and len(others):
        evenly = np.linspace(0, 1, n_inner - len(common))
        knots = np.union1d(common, np.quantile(others, evenly, method="nearest"))
    shares = (values.searchsorted(knots) + values.searchsorted(knots, side="right")) / (2 * n)
    if low < knots[0]:
        knots, shares = np.append(low, knots), np.append(0.0, shares)
    if high > knots[-1]:
        knots, shares = np.append(knots, high), np.append(shares, 1.0)
    return tuple(knots.tolist()), tuple(shares.tolist())


def _has_three_values(values: Floats) -> bool:
    """Return whether sorted values have at least three distinct ones."""
    return len(values) > 0 and bool(((values > values[0]) & (values < values[-1])).any())


def _sample_columns(features: Any) -> Iterator[Floats]:  # noqa: ANN401 (array or codes)
    """Yield the finite values of each feature, sorted; a fixed sample of rows if there are many."""
    n_rows, n_features = features.shape
    n_sample = max(MIN_SAMPLE_ROWS, SAMPLE_VALUES // max(1, n_features))
    if n_rows > n_sample:
        rows = np.sort(np.random.default_rng(0).choice(n_rows, n_sample, replace=False))
        sample = features[rows]
    else:
        sample = features[:]
    for column in range(n_features):
        values = np.sort(np.asarray(sample[:, column], np.float64))
        yield values[np.isfinite(values)]


# -- The registry ----------------------------------------------------------------------------------


class Transform(NamedTuple):
    """A transform: the field of `Normalizer` with its numbers, and its functions."""

    field: str
    learn: Callable[[Any], Any]  # None if no feature needs it
    apply: Callable[[ArrayLike, Any], Floats]
    invert: Callable[[ArrayLike, Any], Floats]


TRANSFORMS: dict[str, Transform] = {
    "log": Transform("logs", choose_logs, take_logs, undo_logs),
    "root": Transform("roots", choose_roots, take_roots, undo_roots),
    "quantile": Transform("knots", choose_knots, take_quantiles, undo_quantiles),
}
# The candidates of feature_transform="auto": the first of equally good ones is chosen.
CANDIDATES: tuple[str | None, ...] = (None, *TRANSFORMS)
