"""Preprocessing: the steps from a table to the features that a scorer sees.

A ranker scores ``scorer(normalizer(imputer(encoder(table))))``. `Preprocessing` holds the three
steps, each of which may be absent:

1. the encoder (`countersample.data.encoder`): numbers, ages of dates, indicators of categories;
2. the imputer: fills in missing values, and adds indicators of them;
3. the normalizer: a transform (`countersample.data.transforms`), then a shift and a scale.

All steps are learned once, from training data, and are plain numbers afterwards. The dataclasses
are their own file schema: `Preprocessing.to_dict` gives plain values, `from_dict` checks them. The
exports translate the same numbers.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from countersample._json import Count, Finite, Float32, NotNegative, check_schema
from countersample._params import choice
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
from countersample.data.transforms import MAX_KNOTS, MAX_ROOTS, TRANSFORMS, TransformedColumns
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats

IMPUTATIONS = ("median-indicator", "median", "zero")
REJECT_MISSING = "error"  # not an imputation: missing values raise an error
_IMPUTER_VALUES = 2**23  # values whose medians are computed together: 32 MB
_MAX_SHIFT = 1e3  # in scales: up to here float32 keeps four digits of a normalised feature


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
    n_features : int
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
    Imputer(n_features=2, fill=(3.0, 6.0), indicators=(1,))
    >>> imputer.transform(np.array([[np.nan, np.nan], [2, 4]], np.float32))
    array([[3., 6., 1.],
           [2., 4., 0.]], dtype=float32)
    >>> imputer.names(["price", "rating"])
    ('price', 'rating', 'rating is missing')
    """

    n_features: Count
    fill: tuple[Float32, ...]
    indicators: tuple[Count, ...] = ()

    @classmethod
    def fit(cls, dataset: RankingDataset, how: str = "median-indicator") -> Imputer:
        """Learn the replacements from a dataset, some columns at a time."""
        return cls.fit_matrix(dataset.features, how)

    @classmethod
    def fit_matrix(cls, features: Any, how: str = "median-indicator") -> Imputer:  # noqa: ANN401
        """Learn the replacements from a matrix, or codes, (n_items, n_features)."""
        choice("how", how, IMPUTATIONS)
        n_items, n_features = features.shape
        if how == "zero":
            return cls(n_features, (0.0,) * n_features)
        fill, indicators = [], []
        step = max(1, _IMPUTER_VALUES // max(1, n_items))
        for start in range(0, n_features, step):
            columns = np.array(features[:, start : start + step].T, order="C")
            for index, column in enumerate(columns, start):
                present = column[~np.isnan(column)]
                # In float64: the sum of two float32 numbers may overflow.
                median = np.median(present.astype(np.float64)) if len(present) else 0.0
                fill.append(float(np.float32(median)))
                if 0 < len(present) < n_items:
                    indicators.append(index)
        return cls(n_features, tuple(fill), tuple(indicators) if how == IMPUTATIONS[0] else ())

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
        """Return the features without missing values, then the indicators.

        Parameters
        ----------
        features : array (n_items, n_features)

        Returns
        -------
        float32 (n_items, n_outputs)
        """
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
        """w·(filled x, indicators) = Σ_j u_j·x_j, or m_j if x_j is missing: return u and m.

        Parameters
        ----------
        weights : float64 (n_outputs,)

        Examples
        --------
        >>> Imputer(2, (3.0, 6.0), (1,)).unfold(np.array([1.0, 2.0, 10.0]))
        (array([1., 2.]), array([ 3., 22.]))
        """
        by_feature = weights[: self.n_features]
        if_missing = by_feature * np.array(self.fill)
        if_missing[list(self.indicators)] += weights[self.n_features :]
        return by_feature, if_missing

    def check(self) -> None:
        """Reject numbers that `fit` never learns, such as from a file."""
        n, indicators = self.n_features, self.indicators
        _check("fill", self.fill, len(self.fill) == n, f"{n} numbers, one per feature")
        is_valid = all(k < n for k in indicators) and sorted(set(indicators)) == [*indicators]
        _check("indicators", indicators, is_valid, f"different features of {n}, ascending")

    def __repr__(self) -> str:
        fill, indicators = reprlib.repr(self.fill), reprlib.repr(self.indicators)
        return f"Imputer(n_features={self.n_features}, fill={fill}, indicators={indicators})"


def fill_missing(dataset: RankingDataset) -> RankingDataset:
    """Return a dataset without missing values: medians and indicators are learned from itself.

    For auxiliary models, such as models of relevance, which are not served.

    Examples
    --------
    >>> from countersample import RankingDataset
    >>> data = RankingDataset.from_arrays(X=[[1.0], [float("nan")]], y=[0, 1], qid=[7, 7])
    >>> fill_missing(data).features
    array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    return Imputer.fit(dataset)(dataset) if dataset.has_missing else dataset


def fill_missing_matrix(features: NDArray[Any]) -> NDArray[Any]:
    """Return a matrix without missing values, as `fill_missing` does for a dataset."""
    return Imputer.fit_matrix(features).transform(features) if has_nan(features) else features


# -- Scale -----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
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

    t is a transform (`countersample.data.transforms`), or x itself. At most one of roots, logs and
    knots is set. ``root-minmax`` is ``minmax`` after the transform ``root``.

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
    >>> Normalizer.fit(data, "minmax", transform="log").logs
    (3.0, 0.0)
    """

    how: str
    n_features: Count
    shift: tuple[Finite, ...] | None = None
    scale: tuple[NotNegative, ...] | None = None
    roots: tuple[Annotated[int, Meta(ge=0, le=MAX_ROOTS)], ...] | None = None
    logs: tuple[NotNegative, ...] | None = None
    knots: tuple[tuple[tuple[Float32, ...], ...], ...] | None = None

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
        features, numbers = dataset.features, {}
        if dataset.n_items == 0 and (how, transform) != ("query-minmax", None):
            raise DataError(f"cannot fit {how!r} on a dataset without items")
        with np.errstate(invalid="ignore"):  # infinite values are reported below
            if transform is not None:
                learner = TRANSFORMS[transform]
                numbers = {learner.field: learner.learn(features)}
            unscaled = cls(how, dataset.n_features, **numbers)
            learn_scale = SCALINGS.get(how, _no_scale)
            if learn_scale is None:
                return unscaled
            shift, scale = learn_scale(features, unscaled)
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
        """A description in a few words.

        Examples
        --------
        >>> Normalizer("minmax", 1, (0.0,), (1.0,), logs=(2.0,)).label
        'log, then minmax'
        """
        name = self.transform_name
        if name is None or self.how == "root-minmax":
            return self.how
        return name if self.how == "none" else f"{name}, then {self.how}"

    def apply_transform(self, values: ArrayLike, *, invert: bool = False) -> Floats:
        """Return t(x), float64 (…, n_features); or x with t(x) = values, if `invert`.

        Examples
        --------
        >>> Normalizer("none", 1, (0.0,), (1.0,), logs=(1.0,)).apply_transform([[1.0]]).round(3)
        array([[0.693]])
        """
        if self.transform_name is None:
            return np.asarray(values, np.float64)
        transform = TRANSFORMS[self.transform_name]
        function = transform.invert if invert else transform.apply
        return function(values, getattr(self, transform.field))

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
        return type(features)(codes, zeros + 1 / max_code, zeros)

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
        >>> normalizer.transform(np.array([[2.0], [6.0], [3.0], [1.0], [0.0]]), offsets=[0, 3, 5])
        array([[0.  ],
               [1.  ],
               [0.25],
               [1.  ],
               [0.  ]], dtype=float32)
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
        more than a thousand times its scale: its digits would drown those of the others in float32.

        Examples
        --------
        >>> Normalizer("minmax", 2, shift=(0.0, 1.0), scale=(4.0, 0.5)).foldable_scale()
        array([0.25, 2.  ])
        >>> Normalizer("minmax", 1, shift=(1e9,), scale=(1.0,)).foldable_scale()
        """
        if self.shift is None or self.scale is None or self.transform_name is not None:
            return None
        shift, scale = np.array(self.shift), np.array(self.scale)
        if (np.abs(shift[scale > 0]) > _MAX_SHIFT * scale[scale > 0]).any():
            return None
        return _inverse(self.scale)

    def check(self) -> None:
        """Reject numbers that `fit` never learns, such as from a file."""
        methods, n = [*SCALINGS, "none"], self.n_features
        _check("how", self.how, self.how in methods, f"one of {', '.join(methods)}")
        fields = [t.field for t in TRANSFORMS.values() if getattr(self, t.field) is not None]
        if len(fields) > 1:
            raise DataError(f"{fields[1]} of the preprocessing is beside {fields[0]}, expected one")
        if self.how == "root-minmax":
            _check("how", self.how, not {*fields} - {"roots"}, "roots as its only transform")
        for name in (*fields, *(() if self.is_by_query else ("shift", "scale"))):
            values = getattr(self, name)
            is_valid = values is not None and len(values) == n
            _check(name, values, is_valid, f"{n} entries, one per feature")
        for value in self.logs or ():
            _check("logs", value, _is_float32(value), "float32 numbers")
        for pair in self.knots or ():
            _check("knots", pair, not pair or _are_knots(pair), _KNOTS)

    def __repr__(self) -> str:
        return f"Normalizer(how={self.how!r}, n_features={self.n_features})"


def check_scaling(how: str | None, transform: str | None) -> tuple[str, str | None]:
    """Return the names of a scaling and a transform; reject pairs that do not fit.

    Examples
    --------
    >>> check_scaling("minmax", "root"), check_scaling("root-minmax", None)
    (('root-minmax', 'root'), ('root-minmax', 'root'))
    >>> check_scaling(None, "log")
    ('none', 'log')
    """
    if transform is not None:
        choice("transform", transform, TRANSFORMS)
    if how is None and transform is not None:
        return "none", transform
    choice("how", how, SCALINGS)
    if how == "root-minmax":
        if transform not in {None, "root"}:
            raise ParameterError(
                f"normalize is 'root-minmax' with the transform {transform!r}, expected 'minmax', "
                "'standard', 'query-minmax' or None: 'root-minmax' is 'minmax' after the transform "
                "'root'"
            )
        return "root-minmax", "root"
    return ("root-minmax" if (how, transform) == ("minmax", "root") else str(how)), transform


def _minmax(features: Any, normalizer: Normalizer) -> tuple[Floats, Floats]:  # noqa: ANN401
    """Return column minima, and maxima − minima, of t(x), which increases with x."""
    low, high = map(normalizer.apply_transform, column_ranges(features))
    return low, high - low


def _standard(features: Any, normalizer: Normalizer) -> tuple[Floats, Floats]:  # noqa: ANN401
    """Return column means and standard deviations of t(x)."""
    if normalizer.transform_name is not None:
        features = TransformedColumns(features, normalizer.apply_transform, normalizer.n_features)
    return column_moments(features)


def _no_scale(_features: Any, normalizer: Normalizer) -> tuple[Floats, Floats]:  # noqa: ANN401
    return np.zeros(normalizer.n_features), np.ones(normalizer.n_features)


# Functions that learn shift and scale; None: computed per query, when the normalizer is applied.
SCALINGS: dict[str, Callable[[Any, Normalizer], tuple[Floats, Floats]] | None] = {
    "query-minmax": None,
    "minmax": _minmax,
    "root-minmax": _minmax,
    "standard": _standard,
}


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
    ...     imputer=Imputer(1, (3.0,), (0,)),
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
        steps = check_schema(values, cls, "the preprocessing")
        for step in (steps.encoder, steps.imputer, steps.normalizer):
            if step is not None:
                step.check()
        return steps


_KNOTS = f"2 to {MAX_KNOTS} float32 numbers and as many shares of at most 1, both rising"


def _are_knots(rows: tuple[tuple[float, ...], ...]) -> bool:
    return (
        len(rows) == 2
        and 2 <= len(rows[0]) == len(rows[1]) <= MAX_KNOTS
        and all(map(_is_float32, rows[0]))
        and all(low < high for row in rows for low, high in pairwise(row))
        and rows[1][0] >= 0
        and rows[1][-1] <= 1
    )


def _is_float32(value: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float32(value)) == value


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
