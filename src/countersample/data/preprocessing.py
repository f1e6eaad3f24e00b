"""Preprocessing: the steps from a table to the features that a scorer sees.

A ranker scores ``scorer(normalizer(imputer(encoder(table))))``. `Preprocessing` holds the three
steps, each of which may be absent:

1. the encoder (`countersample.data.encoder`): numbers, ages of dates, indicators of categories;
2. the imputer: fills in missing values, and adds indicators of them;
3. the normalizer: a transform, then a shift and a scale.

All steps are learned once, from training data, and are plain numbers afterwards. The dataclasses
are their own file schema, and check their numbers on construction.

A linear ranker adds up its features, so it matters whether the tenth sale counts as much as the
thousandth. A transform preserves the order of a feature's values and changes their distances. It is
learned per feature, from finite values. A feature with one or two values is left alone, and a
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

import reprlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from countersample._json import Count, Finite, Float32, NotNegative, check_schema
from countersample._params import choice
from countersample.data.compact import HEAVY_SHARE, CompactFeatures, rounding_error
from countersample.data.dataset import RankingDataset
from countersample.data.encoder import FeatureEncoder  # noqa: TC001 (msgspec reads it)
from countersample.data.matrices import (
    check_offsets,
    column_moments,
    column_ranges,
    has_nan,
    query_blocks,
    row_blocks,
)
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats

    Knots = tuple[tuple[tuple[float, ...], ...], ...]  # per feature: () or (values, shares)

IMPUTATIONS = ("median-indicator", "median", "zero")
REJECT_MISSING = "error"  # not an imputation: missing values raise an error
MAX_ROOTS = 5  # the 32nd root of the largest float32 is 16: no heavy tail is left
MAX_KNOTS = 32  # per feature: 5 comparisons find the two knots around a value
_MEDIAN_VALUES = 2**23  # values whose medians are computed together: 64 MB
_SAMPLE_VALUES = 2**24  # values of the sample that logs and knots are learned from
_MIN_SAMPLE_ROWS = 10_000
_MAX_SHIFT = 1e3  # in scales: up to here float32 keeps four digits of a normalised feature
_MAX_SCALE = 1e30  # of features as they are: sums and 1/scale stay within float32


# -- Missing values --------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Imputer:
    """x ↦ (x, or fill if it is missing; 1 if a feature with an indicator is missing, else 0).

    ====================  ==================================  ====================================
    how                   fill                                indicators
    ====================  ==================================  ====================================
    ``median-indicator``  the median of the feature's values  for features with missing values
    ``median``            the same                            none
    ``zero``              0                                   none
    ====================  ==================================  ====================================

    An indicator lets a ranker learn what a missing value means. A feature without any value is
    filled with 0 and has no indicator, because the indicator would be constant.

    Parameters
    ----------
    fill : tuple of float, one per feature
        The replacements of missing values, float32 numbers.
    indicators : tuple of int
        The features with an indicator, ascending. Indicators are columns after all features.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample import RankingDataset
    >>> from countersample.data.preprocessing import Imputer
    >>> data = RankingDataset.from_arrays(
    ...     X=[[1, 5], [3, np.nan], [9, 7]], y=[0, 1, 0], qid=[1, 1, 2]
    ... )
    >>> imputer = Imputer.fit(data)
    >>> imputer
    Imputer(fill=(3.0, 6.0), indicators=(1,))
    >>> imputer.transform(np.array([[np.nan, np.nan], [2, 4]], np.float32))
    array([[3., 6., 1.],
           [2., 4., 0.]], dtype=float32)
    """

    fill: tuple[Float32, ...]
    indicators: tuple[Count, ...] = ()

    def __post_init__(self) -> None:
        n, indicators = self.n_features, self.indicators
        is_valid = all(k < n for k in indicators) and sorted(set(indicators)) == [*indicators]
        _check("indicators", indicators, is_valid, f"different features of {n}, ascending")

    @classmethod
    def fit(cls, data: Any, how: str = "median-indicator") -> Imputer:  # noqa: ANN401
        """Learn the replacements from a dataset or a matrix, some columns at a time."""
        choice("how", how, IMPUTATIONS)
        features = data.features if isinstance(data, RankingDataset) else data
        n_items, n_features = features.shape
        if how == "zero":
            return cls((0.0,) * n_features)
        fill, n_missing = np.zeros(n_features, np.float32), np.zeros(n_features, np.int64)
        step = max(1, _MEDIAN_VALUES // max(1, n_items))
        for start in range(0, n_features, step):
            part = slice(start, start + step)
            columns = np.array(features[:, part], np.float64)  # float32 sums may overflow
            n_missing[part] = np.isnan(columns).sum(axis=0)
            columns[:, n_missing[part] == n_items] = 0
            fill[part] = np.nanmedian(columns, axis=0) if n_items else 0
        has_indicator = (n_missing > 0) & (n_missing < n_items) & (how == "median-indicator")
        return cls(tuple(fill.tolist()), tuple(np.flatnonzero(has_indicator).tolist()))

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.fill)

    @property
    def n_outputs(self) -> int:
        """The number of output columns: the features, then the indicators."""
        return self.n_features + len(self.indicators)

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the output columns, from the names of the features."""
        return (*names, *(f"{names[index]} is missing" for index in self.indicators))

    def __call__(self, dataset: RankingDataset) -> RankingDataset:
        """Return the dataset without missing values; labels and queries stay."""
        names = None if dataset.feature_names is None else self.names(dataset.feature_names)
        features = self.features(dataset.features)
        return RankingDataset(features, dataset.labels, dataset.offsets, dataset.query_ids, names)

    def features(self, features: Any) -> Any:  # noqa: ANN401 (array or codes)
        """Return `transform` of a matrix; codes have no missing values and stay codes."""
        if isinstance(features, np.ndarray):
            return self.transform(features)
        n = features.shape[1]
        wide = features.select([*range(n), *self.indicators])
        wide.codes[:, n:] = 0
        wide.scale[n:] = wide.offset[n:] = 0.0
        return wide

    def transform(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """Return the features without missing values, then the indicators: (n_items, n_outputs)."""
        _check_shape(features, self.n_features, "imputer")
        fill, indicators = np.array(self.fill, np.float32), list(self.indicators)
        out = np.empty((len(features), self.n_outputs), np.float32)
        for rows in row_blocks(features):
            block = np.asarray(features[rows], np.float32)
            is_missing = np.isnan(block)
            out[rows, : self.n_features] = np.where(is_missing, fill, block)
            out[rows, self.n_features :] = is_missing[:, indicators]
        return out

    def unfold(self, weights: Floats) -> tuple[Floats, Floats]:
        """w·(filled x, indicators) = Σ_j u_j·x_j, or m_j if x_j is missing: return u and m."""
        by_feature = weights[: self.n_features]
        if_missing = by_feature * np.array(self.fill)
        if_missing[list(self.indicators)] += weights[self.n_features :]
        return by_feature, if_missing

    def __repr__(self) -> str:
        return (
            f"Imputer(fill={reprlib.repr(self.fill)}, indicators={reprlib.repr(self.indicators)})"
        )


def fill_missing(data: Any) -> Any:  # noqa: ANN401 (dataset or matrix)
    """Return a dataset or matrix without missing values: medians and indicators are its own.

    For auxiliary models, such as models of relevance, which are not served.
    """
    if isinstance(data, RankingDataset):
        return Imputer.fit(data)(data) if data.has_missing else data
    return Imputer.fit(data).transform(data) if has_nan(data) else data


# -- Transforms ------------------------------------------------------------------------------------


def take_roots(values: ArrayLike, roots: ArrayLike) -> Floats:
    """sign(x)·√|x|, `roots` times, column by column: float64 (…, n_features).

    A square root preserves the order of values and is rounded the same way by every CPU.
    """
    out, times = np.array(values, np.float64), np.asarray(roots)
    for n_taken in range(times.max(initial=0)):
        columns = times > n_taken
        selection = out[..., columns]
        out[..., columns] = np.copysign(np.sqrt(np.abs(selection)), selection)
    return out


def choose_roots(features: Any) -> tuple[int, ...] | None:  # noqa: ANN401 (array or codes)
    """Return the number of square roots for each feature, 0 to 5; None if no feature needs any.

    A tail is heavy if rounding to 8 bits loses more than a twentieth of a feature's standard
    deviation. A feature takes the fewest roots that end this. If five are not enough, it takes five
    if they halve the loss, else none: roots do not help rare values that are not large. Each round
    reads the columns with heavy tails again, block by block.
    """
    low, high = column_ranges(features)
    _, loss = rounding_error(low, high, column_moments(features)[1], bits=8)
    roots = np.zeros(len(loss), np.int64)
    columns = np.flatnonzero(loss > HEAVY_SHARE)  # the columns without a decision
    for n_roots in range(1, MAX_ROOTS + 1):
        if not len(columns):
            break

        def take(block: Any, columns: Any = columns, n_roots: int = n_roots) -> Floats:  # noqa: ANN401
            return take_roots(block[..., columns], np.full(len(columns), n_roots))

        _, deviation = column_moments(features, take)
        _, new_loss = rounding_error(take(low), take(high), deviation, bits=8)
        is_enough = new_loss <= HEAVY_SHARE
        if n_roots == MAX_ROOTS:
            is_enough |= new_loss <= loss[columns] / 2
        roots[columns[is_enough]] = n_roots
        columns = columns[~is_enough]
    return tuple(roots.tolist()) if roots.any() else None


def take_logs(values: ArrayLike, logs: ArrayLike) -> Floats:
    """sign(x)·ln(1 + |x|/s), column by column, with s in `logs`; s = 0 leaves x unchanged.

    Float64 (…, n_features). About linear below s and logarithmic above; 0 and the sign are
    preserved, so it applies to any feature.
    """
    out, scales = np.array(values, np.float64), np.asarray(logs, np.float64)
    columns = scales > 0
    selection = out[..., columns]
    out[..., columns] = np.copysign(np.log(1 + np.abs(selection) / scales[columns]), selection)
    return out


def choose_logs(features: Any) -> tuple[float, ...] | None:  # noqa: ANN401 (array or codes)
    """Return s of each feature for `take_logs`: the median size of its values that are not 0.

    So half of the values are in the linear part, whatever their unit. 0 for a feature with one or
    two values; None if all features are like that.
    """
    logs = []
    for values in _sample_columns(features):
        sizes = np.abs(values[values != 0]) if _has_three_values(values) else np.zeros(1)
        logs.append(float(np.quantile(sizes, 0.5, method="lower")))
    return tuple(logs) if any(logs) else None


class KnotTable(NamedTuple):
    """The knots of all features that have some, one row per feature, padded to 32.

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
        x = np.full((len(columns), MAX_KNOTS), np.inf)
        y = np.zeros_like(x)
        for row, column in enumerate(columns):
            values, shares = knots[column]
            x[row, : len(values)] = values
            y[row] = np.pad(shares, (0, MAX_KNOTS - len(shares)), mode="edge")
        above = np.append(y[:, 1:], y[:, -1:], axis=1)
        with np.errstate(invalid="ignore"):  # in the padding
            slopes = np.nan_to_num((above - y) / np.diff(x, axis=1, append=np.inf))
        return cls(columns, x, y, slopes, above)

    @property
    def steps(self) -> list[int]:
        """The step sizes of the binary search for a knot."""
        return [2**k for k in reversed(range(MAX_KNOTS.bit_length() - 1))]

    @property
    def starts(self) -> NDArray[np.int64]:
        """The index of each column's first knot in the flat table."""
        return MAX_KNOTS * np.arange(len(self.columns))


def take_quantiles(values: ArrayLike, knots: Knots) -> Floats:
    """share_i + slope_i·(x − knot_i) between knots i and i + 1: the share of values below x.

    Float64 (…, n_features). A feature without knots is unchanged.
    """
    out, table = np.array(values, np.float64), KnotTable.of(knots)
    inputs = np.maximum(out[..., table.columns], table.knots[:, 0])
    at = np.broadcast_to(table.starts, inputs.shape)
    for step in table.steps:
        at = np.where(inputs >= table.knots.take(at + step), at + step, at)
    share = table.shares.take(at) + table.slopes.take(at) * (inputs - table.knots.take(at))
    out[..., table.columns] = np.minimum(share, table.above.take(at))
    return out


def choose_knots(features: Any, *, max_rows: int | None = None) -> Knots | None:  # noqa: ANN401 (array or codes)
    """Return the knots of each feature for `take_quantiles`: at most 32 values and their shares.

    A value that more than one row in thirty has is a knot, such as the 0 of a count; the other
    knots are evenly spaced quantiles of the other values. The share of a knot is the share of
    values below it, plus half of the values equal to it. The smallest and the largest value are
    knots. () for a feature with one or two values; None if all features are like that. At most
    `max_rows` rows are used.

    Examples
    --------
    >>> choose_knots(np.array([[0, 1], [0, 0], [1, 1], [9, 0]], np.float32))
    (((0.0, 1.0, 9.0), (0.25, 0.625, 0.875)), ())
    """
    low, high = column_ranges(features)
    columns = _sample_columns(features, max_rows)
    knots = tuple(
        _knots_of(values, float(first), float(last)) if _has_three_values(values) else ()
        for values, first, last in zip(columns, low, high, strict=True)
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


def _sample_columns(features: Any, max_rows: int | None = None) -> Iterator[Floats]:  # noqa: ANN401
    """Yield the finite values of each feature, sorted; a fixed sample of rows if there are many."""
    n_rows, n_features = features.shape
    n_sample = max_rows or max(_MIN_SAMPLE_ROWS, _SAMPLE_VALUES // max(1, n_features))
    rows: Any = slice(None)
    if n_rows > n_sample:
        rows = np.sort(np.random.default_rng(0).choice(n_rows, n_sample, replace=False))
    sample = features[rows]
    for column in range(n_features):
        values = np.sort(np.asarray(sample[:, column], np.float64))
        yield values[np.isfinite(values)]


class Transform(NamedTuple):
    """A transform: the field of `Normalizer` with its numbers, and its functions."""

    field: str
    learn: Callable[[Any], Any]  # None if no feature needs it
    apply: Callable[[ArrayLike, Any], Floats]


TRANSFORMS: dict[str, Transform] = {
    "log": Transform("logs", choose_logs, take_logs),
    "root": Transform("roots", choose_roots, take_roots),
    "quantile": Transform("knots", choose_knots, take_quantiles),
}
# The candidates of feature_transform="auto": the first of equally good ones is chosen.
CANDIDATES: tuple[str | None, ...] = (None, *TRANSFORMS)


# -- Scale -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Normalizer:
    """x ↦ (t(x) − shift) / scale, feature by feature; 0 if scale is 0.

    ================  ===================  ===================  =================================
    how               shift                scale                computed over
    ================  ===================  ===================  =================================
    ``query-minmax``  min                  max − min            the items of each query
    ``minmax``        min                  max − min            all items of the training data
    ``root-minmax``   min                  max − min            as ``minmax``, after square roots
    ``standard``      mean                 standard deviation   all items of the training data
    ``none``          0                    1                    nothing: a transform alone
    ================  ===================  ===================  =================================

    t is a transform, or x itself. At most one of roots, logs and knots is set. ``root-minmax`` is
    ``minmax`` after the transform ``root``.

    Values outside the training range are not clipped, except by quantiles. A feature that was
    constant in training becomes 0 for any value, because the ranker cannot have learned from it.
    Missing values (NaN) do not count in `fit`, and stay missing.

    Parameters
    ----------
    how : {"query-minmax", "minmax", "root-minmax", "standard", "none"}
    n_features : int
    shift, scale : tuple of float, one per feature; None for ``query-minmax``
    roots, logs, knots : tuple, one entry per feature; None if no feature is transformed by it

    Examples
    --------
    >>> import numpy as np
    >>> from countersample import RankingDataset
    >>> from countersample.data.preprocessing import Normalizer
    >>> data = RankingDataset.from_arrays(X=[[1, 5], [3, 5], [9, 5]], y=[0, 1, 0], qid=[1, 1, 2])
    >>> Normalizer.fit(data, "query-minmax")(data).features
    array([[0., 0.],
           [1., 0.],
           [0., 0.]], dtype=float32)
    >>> Normalizer.fit(data, "minmax").transform(np.array([[5.0, 5.0], [17.0, 6.0]]))
    array([[0.5, 0. ],
           [2. , 0. ]], dtype=float32)
    """

    how: str
    n_features: Count
    shift: tuple[Finite, ...] | None = field(default=None, repr=False)
    scale: tuple[NotNegative, ...] | None = field(default=None, repr=False)
    roots: tuple[Annotated[int, Meta(ge=0, le=MAX_ROOTS)], ...] | None = field(
        default=None, repr=False
    )
    logs: tuple[NotNegative, ...] | None = field(default=None, repr=False)
    knots: tuple[tuple[tuple[Float32, ...], ...], ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        methods, n = [*SCALINGS, "none"], self.n_features
        _check("how", self.how, self.how in methods, f"one of {', '.join(methods)}")
        fields = [t.field for t in TRANSFORMS.values() if getattr(self, t.field) is not None]
        allowed = 0 if self.how == "root-minmax" and fields != ["roots"] else 1
        _check("transforms", fields, len(fields) <= allowed, "at most one that fits to how")
        for name in (*fields, *(() if self.is_by_query else ("shift", "scale"))):
            values = getattr(self, name)
            is_valid = values is not None and len(values) == n
            _check(name, values, is_valid, f"{n} entries, one per feature")
        _check("logs", self.logs, _are_float32(self.logs or ()), "float32 numbers")
        for pair in self.knots or ():
            _check("knots", pair, not pair or _are_knots(pair), _KNOTS)

    @classmethod
    def fit(
        cls, dataset: RankingDataset, how: str | None, transform: str | None = None
    ) -> Normalizer:
        """Learn a transform, shift and scale, block by block, in float64.

        Parameters
        ----------
        dataset : RankingDataset
        how : {"query-minmax", "minmax", "root-minmax", "standard"} or None
            None for the transform alone.
        transform : {"log", "root", "quantile"}, optional

        Raises
        ------
        DataError
            For a dataset without items, or with an infinite value.
        """
        how, transform = check_scaling(how, transform)
        features, n, numbers = dataset.features, dataset.n_features, {}
        if dataset.n_items == 0 and (how, transform) != ("query-minmax", None):
            raise DataError(f"cannot fit {how!r} on a dataset without items")
        with np.errstate(invalid="ignore"):  # infinite values are reported below
            if transform is not None:
                learner = TRANSFORMS[transform]
                numbers = {learner.field: learner.learn(features)}
            if how == "query-minmax":
                return cls(how, n, **numbers)
            unscaled = cls(how, n, (0.0,) * n, (1.0,) * n, **numbers)
            if how == "none":
                return unscaled
            if how == "standard":
                shift, scale = column_moments(features, unscaled.apply_transform)
            else:  # a transform increases with x
                low, high = map(unscaled.apply_transform, column_ranges(features))
                shift, scale = low, high - low
        if not np.isfinite(scale).all():
            raise DataError(
                f"column {np.isfinite(scale).argmin()} of the features has a value that is not "
                "finite, expected finite numbers: replace or drop such rows"
            )
        return replace(unscaled, shift=tuple(shift.tolist()), scale=tuple(scale.tolist()))

    @property
    def transform_name(self) -> str | None:
        """The transform before scaling: log, root, quantile, or None."""
        names = (name for name, each in TRANSFORMS.items() if getattr(self, each.field) is not None)
        return next(names, None)

    @property
    def is_by_query(self) -> bool:
        """Whether shift and scale are computed per query, when it is applied."""
        return self.how == "query-minmax"

    @property
    def label(self) -> str:
        """A description in a few words, such as "log, then minmax"."""
        name = self.transform_name
        if name is None or self.how == "root-minmax":
            return self.how
        return name if self.how == "none" else f"{name}, then {self.how}"

    def apply_transform(self, values: ArrayLike) -> Floats:
        """Return t(x), float64 (…, n_features)."""
        if self.transform_name is None:
            return np.asarray(values, np.float64)
        transform = TRANSFORMS[self.transform_name]
        return transform.apply(values, getattr(self, transform.field))

    def take(self, columns: Sequence[int]) -> Normalizer:
        """Return the normalizer of these features, in this order; one may occur repeatedly."""
        numbers = {
            name: tuple(values[column] for column in columns)
            for name in ("shift", "scale", "roots", "logs", "knots")
            if (values := getattr(self, name)) is not None
        }
        return Normalizer(self.how, len(columns), **numbers)

    def __call__(self, dataset: RankingDataset) -> RankingDataset:
        """Return the dataset with normalised features; labels, queries and names stay."""
        return dataset.with_features(self.features(dataset.features, dataset.offsets))

    def features(self, features: Any, offsets: ArrayLike) -> Any:  # noqa: ANN401 (array or codes)
        """Return `transform` of a matrix, or new codes of codes.

        A shift and a scale only change the scale of the codes. After a transform, and by query,
        the values are rounded to new codes with as many bits.
        """
        if isinstance(features, np.ndarray):
            return self.transform(features, offsets)
        if self.shift is not None and self.scale is not None:
            if self.transform_name is not None:
                return features.recoded(self.transform)
            return features.scaled(np.array(self.shift), _inverse(self.scale))
        max_code, starts = 2**features.bits - 1, np.asarray(offsets, np.int64)
        codes = np.empty_like(features.codes)
        for first, last in query_blocks(starts, self.n_features):
            rows = slice(starts[first], starts[last])
            numbers = self.transform(features[rows], starts[first : last + 1] - starts[first])
            codes[rows] = np.rint(numbers * max_code)
        zeros = np.zeros(self.n_features)
        return CompactFeatures(codes, zeros + 1 / max_code, zeros)

    def transform(
        self, features: NDArray[Any], offsets: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Return (t(x) − shift) / scale, computed in float64, as float32 (n_items, n_features).

        Parameters
        ----------
        features : array (n_items, n_features)
        offsets : int array (n_queries + 1,), optional
            The first row of each query, then the number of rows. Only ``query-minmax`` needs them.

        Examples
        --------
        >>> normalizer = Normalizer("query-minmax", n_features=1)
        >>> normalizer.transform(np.array([[2.0], [6.0], [3.0], [1.0]]), offsets=[0, 3, 4]).ravel()
        array([0.  , 1.  , 0.25, 0.  ], dtype=float32)
        """
        features = np.ascontiguousarray(features, dtype=np.float32)
        _check_shape(features, self.n_features, "normalizer")
        out = np.empty_like(features)
        has_transform = self.transform_name is not None
        if self.shift is None or self.scale is None:
            from countersample._kernels.features import query_minmax  # noqa: PLC0415 (numba)

            if offsets is None:
                raise ParameterError(
                    "'query-minmax' needs offsets, the first row of each query and the number of "
                    f"rows: pass offsets=[0, {len(features)}] if all rows are of one query"
                )
            starts = np.asarray(offsets, dtype=np.int64)
            check_offsets(starts, len(features))
            if has_transform:
                for rows in row_blocks(features):
                    out[rows] = self.apply_transform(features[rows])
                features = out.copy()
            query_minmax(features, starts, out)
            return out
        shift, factor = np.array(self.shift), _inverse(self.scale)
        for rows in row_blocks(features):
            block = self.apply_transform(features[rows]) if has_transform else features[rows]
            out[rows] = (block - shift) * factor
        return out

    def foldable_scale(self) -> Floats | None:
        """Return 1/scale (0 for a scale of 0), if it can be folded into a linear ranker's weights.

        Within a query a shift changes no difference of scores, so w·((x − shift)/scale) ranks as
        (w/scale)·x. None if scales are per query, after a transform, and if a feature's shift is
        more than a thousand times its scale: its rounding errors would hide the other features.
        None, too, if a feature is so large or so small that its differences, or 1/scale, may exceed
        what float32 holds.
        """
        if self.shift is None or self.scale is None or self.transform_name is not None:
            return None
        varies = np.array(self.scale) > 0
        shift, scale = np.array(self.shift)[varies], np.array(self.scale)[varies]
        if (np.abs(shift) > _MAX_SHIFT * scale).any():
            return None
        if ((scale < 1 / _MAX_SCALE) | (scale > _MAX_SCALE)).any():
            return None
        return _inverse(self.scale)


def check_scaling(how: str | None, transform: str | None) -> tuple[str, str | None]:
    """Return the names of a scaling and a transform; reject pairs that do not fit.

    "root-minmax" is "minmax" after the transform "root"; "none" is a transform alone.
    """
    if transform is not None:
        choice("transform", transform, TRANSFORMS)
        if how is None:
            return "none", transform
    name = choice("how", how, SCALINGS)
    if name == "root-minmax" and transform not in {None, "root"}:
        raise ParameterError(
            f"normalize is 'root-minmax' with the transform {transform!r}, expected 'minmax', "
            "'standard', 'query-minmax' or None: 'root-minmax' is 'minmax' after the transform "
            "'root'"
        )
    if name == "root-minmax" or (name, transform) == ("minmax", "root"):
        return "root-minmax", "root"
    return name, transform


SCALINGS = ("query-minmax", "minmax", "root-minmax", "standard")


def _inverse(scale: Sequence[float]) -> Floats:
    """Return 1/scale, and 0 for a scale of 0."""
    divisor = np.array(scale)
    factor: Floats = np.divide(1, divisor, out=np.zeros_like(divisor), where=divisor > 0)
    return factor


# -- All steps -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preprocessing:
    """The steps before a scorer: encoder, imputer, normalizer; an absent step is None.

    Examples
    --------
    >>> from countersample.data.preprocessing import Imputer, Normalizer, Preprocessing
    >>> steps = Preprocessing(
    ...     imputer=Imputer((3.0,), (0,)),
    ...     normalizer=Normalizer("minmax", 2, shift=(1.0, 0.0), scale=(4.0, 1.0)),
    ... )
    >>> steps.features(np.array([[5.0], [np.nan]], np.float32), offsets=[0, 2])
    array([[1. , 0. ],
           [0.5, 1. ]], dtype=float32)
    >>> Preprocessing.from_dict(steps.to_dict()) == steps
    True
    """

    encoder: FeatureEncoder | None = None
    imputer: Imputer | None = None
    normalizer: Normalizer | None = None

    @property
    def is_by_query(self) -> bool:
        """Whether the features of an item depend on the other items of its query."""
        return self.normalizer is not None and self.normalizer.is_by_query

    @property
    def transform_name(self) -> str | None:
        """The transform before scaling: log, root, quantile, or None."""
        return None if self.normalizer is None else self.normalizer.transform_name

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the scorer's features, from the names of the encoded features."""
        return tuple(names) if self.imputer is None else self.imputer.names(names)

    def features(self, features: Any, offsets: ArrayLike) -> Any:  # noqa: ANN401 (array or codes)
        """Return normalizer(imputer(x)) of encoded features; codes stay codes."""
        if self.imputer is not None:
            features = self.imputer.features(features)
        if self.normalizer is not None:
            features = self.normalizer.features(features, offsets)
        return features

    def check_widths(
        self, n_features: int, feature_names: tuple[str, ...] | None, n_scored: int
    ) -> None:
        """Reject steps that do not fit to each other, to the features, or to the scorer."""
        n_outputs = n_features if self.imputer is None else self.imputer.n_outputs
        widths = {"scorer": (n_scored, n_outputs)}
        if self.imputer is not None:
            widths["imputer"] = self.imputer.n_features, n_features
        if self.normalizer is not None:
            widths["normalizer"] = self.normalizer.n_features, n_outputs
        if feature_names is not None:
            widths["list of feature names"] = len(feature_names), n_features
        for step, (width, expected) in widths.items():
            if width != expected:
                raise DataError(f"its {step} is for {width} features, expected {expected}")
        if self.encoder is not None and self.encoder.feature_names != feature_names:
            raise DataError("its encoder has other features than its list of feature names")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; `from_dict` is the inverse."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preprocessing:
        """Return the steps that `to_dict` wrote; other values raise an error."""
        return check_schema(values, cls, "the preprocessing")


_KNOTS = f"2 to {MAX_KNOTS} float32 numbers and as many shares of at most 1, both rising"


def _are_knots(rows: tuple[tuple[float, ...], ...]) -> bool:
    if len(rows) != 2 or len(rows[0]) != len(rows[1]) or not 2 <= len(rows[0]) <= MAX_KNOTS:
        return False
    is_rising = bool((np.diff(rows, axis=1) > 0).all())
    return is_rising and _are_float32(rows[0]) and rows[1][0] >= 0 and rows[1][-1] <= 1


def _are_float32(values: Sequence[float]) -> bool:
    with np.errstate(over="ignore"):
        return bool((np.array(values, np.float32) == np.array(values, np.float64)).all())


def _check(name: str, value: object, is_valid: bool, expected: str) -> None:
    if not is_valid:
        raise DataError(
            f"{name} of the preprocessing is {reprlib.repr(value)}, expected {expected}"
        )


def _check_shape(features: NDArray[Any], n_features: int, step: str) -> None:
    if features.ndim != 2 or features.shape[1] != n_features:
        raise DataError(
            f"features have shape {features.shape}, expected (n_items, {n_features}): this {step} "
            f"is for {n_features} features"
        )
