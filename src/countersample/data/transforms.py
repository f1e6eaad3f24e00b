"""Features made even before they are scaled: logarithms, roots and quantiles that data taught.

A linear ranker adds up its features, so it matters whether the tenth sale counts as much as the
thousandth. Each transform keeps the order of the values of a feature; what it changes is how far
apart they are. It is learned feature by feature, from finite values only, and leaves a feature
alone that has one or two values: there is nothing to bend. A value that is missing (NaN) stays so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample.data.columns import ends
from countersample.data.heavy_tails import choose_roots, rooted, unrooted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Logs = tuple[float, ...]
    Knots = tuple[tuple[tuple[float, ...], ...], ...]  # of each feature: () or (values, shares)

MOST_KNOTS = 32  # of a feature: 5 questions find the two that a value is between
SAMPLED_VALUES = 2**24  # of features, that quantiles are taken of
FEWEST_ROWS = 10_000  # that they are taken of, if there are as many


def logged(values: ArrayLike, logs: ArrayLike) -> Floats:
    """sign(x)·ln(1 + |x|/s), column by column, s of each in `logs`, 0 for x as it is.

    Float64 (…, n_features). About linear below s, and logarithmic above; 0 stays 0, and the sign
    stays, so that any feature can take it.

    Examples
    --------
    >>> logged([[7.0, -7.0, 7.0]], logs=[0.0, 1.0, 7.0]).round(3)
    array([[ 7.   , -2.079,  0.693]])
    """
    out, scales = np.array(values, np.float64), np.asarray(logs, np.float64)
    columns = scales > 0
    chosen = out[..., columns]
    out[..., columns] = np.copysign(np.log(1 + np.abs(chosen) / scales[columns]), chosen)
    return out


def unlogged(values: ArrayLike, logs: ArrayLike) -> Floats:
    """sign(x)·s·(exp(|x|) − 1): the way back from `logged`.

    Examples
    --------
    >>> unlogged(logged([[7.0, -7.0]], [0.0, 2.0]), [0.0, 2.0]).round(9)
    array([[ 7., -7.]])
    """
    out, scales = np.array(values, np.float64), np.asarray(logs, np.float64)
    columns = scales > 0
    chosen = out[..., columns]
    out[..., columns] = np.copysign(scales[columns] * np.expm1(np.abs(chosen)), chosen)
    return out


class KnotTable(NamedTuple):
    """The knots of the features that have any, a row each, filled up with ∞.

    A value between knots i and i + 1 becomes share_i + slope_i·(value − knot_i), at most
    share_{i+1}; one before the first, or after the last, the share of that.
    """

    columns: NDArray[np.int64]  # the features
    knots: Floats  # (n_columns, MOST_KNOTS)
    shares: Floats
    slopes: Floats
    above: Floats  # share_{i+1}

    @classmethod
    def of(cls, knots: Knots) -> KnotTable:
        """Lay out the knots of all features."""
        columns = np.array([k for k, each in enumerate(knots) if each], np.int64)
        table = np.full((2, len(columns), MOST_KNOTS), np.inf)
        for row, column in enumerate(columns):
            table[:, row, : len(knots[column][0])] = knots[column]
        x, y = table
        above = np.append(y[:, 1:], np.full((len(y), 1), np.inf), axis=1)
        is_last = np.isfinite(y) & ~np.isfinite(above)
        above = np.where(is_last, y, above)
        with np.errstate(invalid="ignore"):  # beyond the last
            run = np.append(np.diff(x, axis=1), np.full((len(x), 1), np.inf), axis=1)
            slopes = np.where(is_last, 0.0, (above - y) / run)
        return cls(columns, x, y, slopes, above)

    @property
    def steps(self) -> list[int]:
        """How far the search for a knot goes, time after time."""
        return [2**k for k in reversed(range(MOST_KNOTS.bit_length() - 1))]

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where the knots of each column start, in all of them one after the other."""
        return MOST_KNOTS * np.arange(len(self.columns))

    def share_of(self, values: Floats) -> Floats:
        """Return what becomes of values, (…, n_columns)."""
        first = np.maximum(values, self.knots[:, 0])
        at = np.broadcast_to(self.starts, values.shape)
        for step in self.steps:
            at = np.where(first >= self.knots.take(at + step), at + step, at)
        share = self.shares.take(at) + self.slopes.take(at) * (first - self.knots.take(at))
        return np.minimum(share, self.above.take(at))


def quantiled(values: ArrayLike, knots: Knots) -> Floats:
    """share_i + slope_i·(x − knot_i) between knots i and i + 1: the share of values below x.

    Float64 (…, n_features). A feature without knots stays as it is; beyond the first and the last
    knot the share is that of the knot.

    Examples
    --------
    >>> knots = ((), ((1.0, 10.0, 1000.0), (0.0, 0.5, 1.0)))
    >>> quantiled([[7.0, 1.0], [7.0, 5.5], [7.0, 505.0], [7.0, 5000.0]], knots)
    array([[7.  , 0.  ],
           [7.  , 0.25],
           [7.  , 0.75],
           [7.  , 1.  ]])
    """
    out, table = np.array(values, np.float64), KnotTable.of(knots)
    out[..., table.columns] = table.share_of(out[..., table.columns])
    return out


def unquantiled(values: ArrayLike, knots: Knots) -> Floats:
    """Return a value of which `quantiled` makes this share.

    Examples
    --------
    >>> unquantiled([[0.75]], (((1.0, 10.0, 1000.0), (0.0, 0.5, 1.0)),))
    array([[505.]])
    """
    out = np.array(values, np.float64)
    for column, each in enumerate(knots):
        if each:
            out[..., column] = np.interp(out[..., column], each[1], each[0])
    return out


def choose_logs(features: Any) -> Logs | None:  # noqa: ANN401 (array or codes)
    """Return s of each feature for `logged`: its median size, of the values that are not 0.

    0 for a feature with one or two values; None where all are like that. So half of the values are
    where the logarithm is about straight, and half where it is not, in whatever unit they come.

    Examples
    --------
    >>> sales = np.array([[0, 1], [1, 0], [10, 1], [1000, 0]], np.float32)
    >>> choose_logs(sales)
    (10.0, 0.0)
    """
    logs = []
    for values in _finite_columns(features):
        sizes = np.abs(values[values != 0]) if _bends(values) else np.zeros(1)
        logs.append(float(np.quantile(sizes, 0.5, method="lower")))
    return tuple(logs) if any(logs) else None


def choose_knots(features: Any) -> Knots | None:  # noqa: ANN401 (array or codes)
    """Return the knots of each feature for `quantiled`: at most 32, values and shares.

    A value that more than one in thirty have is a knot, such as the 0 of a count; the others are
    quantiles, evenly, of the values that are left. The share of a knot is that of the values below
    it, and half of those that are equal. The smallest and the largest value of all are knots.
    () for a feature with one or two values; None where all are like that.

    Examples
    --------
    >>> choose_knots(np.array([[0, 1], [0, 0], [1, 1], [9, 0]], np.float32))
    (((0.0, 1.0, 9.0), (0.25, 0.625, 0.875)), ())
    """
    low, high = ends(features)
    found = tuple(
        _knots_of(values, float(first), float(last)) if _bends(values) else ()
        for values, first, last in zip(_finite_columns(features), low, high, strict=True)
    )
    return found if any(found) else None


def _knots_of(values: Floats, low: float, high: float) -> tuple[tuple[float, ...], ...]:
    """Return the knots of sorted values, of a feature whose ends are given."""
    n, most = len(values), MOST_KNOTS - 2  # the ends
    evenly = np.linspace(0, 1, most)
    knots, times = np.unique(np.quantile(values, evenly, method="nearest"), return_counts=True)
    common = knots[times > 1]
    others = values[~np.isin(values, common)]
    if len(common) and len(others):
        evenly = np.linspace(0, 1, most - len(common))
        knots = np.union1d(common, np.quantile(others, evenly, method="nearest"))
    shares = (values.searchsorted(knots) + values.searchsorted(knots, side="right")) / (2 * n)
    if low < knots[0]:
        knots, shares = np.append(low, knots), np.append(0.0, shares)
    if high > knots[-1]:
        knots, shares = np.append(knots, high), np.append(shares, 1.0)
    return tuple(knots.tolist()), tuple(shares.tolist())


def _bends(values: Floats) -> bool:
    """Whether sorted values are more than two."""
    return len(values) > 0 and bool(((values > values[0]) & (values < values[-1])).any())


def _finite_columns(features: Any) -> Iterator[Floats]:  # noqa: ANN401 (array or codes)
    """Yield the finite values of each feature, sorted, of rows that are drawn where there are many.

    The rows are the same every time.
    """
    n_rows, n_features = features.shape
    most = max(FEWEST_ROWS, SAMPLED_VALUES // max(1, n_features))
    if n_rows > most:
        rows = np.sort(np.random.default_rng(0).choice(n_rows, most, replace=False))
        sample = features[rows]
    else:
        sample = features[:]
    for column in range(n_features):
        values = np.sort(np.asarray(sample[:, column], np.float64))
        yield values[np.isfinite(values)]


@dataclass(frozen=True, eq=False)
class Transformed:
    """Features after a transform: an index of rows gives float64 numbers."""

    features: Any  # NDArray[np.float32] | CompactFeatures
    function: Callable[[ArrayLike], Floats]

    @property
    def shape(self) -> tuple[int, int]:
        """(n_items, n_features)."""
        n_items, n_features = self.features.shape
        return n_items, n_features

    def __getitem__(self, rows: int | slice) -> Floats:
        return self.function(self.features[rows])


class Transform(NamedTuple):
    """What the numbers of a transform are called in a `Normalizer`, and what is done with them."""

    field: str
    learn: Callable[[Any], Any]  # None where no feature takes it
    forth: Callable[[ArrayLike, Any], Floats]
    back: Callable[[ArrayLike, Any], Floats]


def _own_or_chosen_roots(features: Any) -> Any:  # noqa: ANN401 (array or codes)
    """Return the roots of codes that are on a root scale already; else choose."""
    own = getattr(features, "roots", None)
    return choose_roots(features) if own is None else own


TRANSFORMS: dict[str, Transform] = {
    "log": Transform("logs", choose_logs, logged, unlogged),
    "root": Transform("roots", _own_or_chosen_roots, rooted, unrooted),
    "quantile": Transform("knots", choose_knots, quantiled, unquantiled),
}
# What transform="auto" chooses among: the first of those that are as good.
CANDIDATES: tuple[str | None, ...] = (None, *TRANSFORMS)
