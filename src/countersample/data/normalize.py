"""Features brought to a common scale: `Normalizer`."""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import choice
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

    from countersample.data.dataset import RankingDataset

    Columns = tuple[NDArray[np.float64], NDArray[np.float64]]

_VERSION = 1
_FARTHEST = 1e3  # shift / scale up to which float32 keeps four digits of a normalised feature
_BLOCK_VALUES = 2**18  # 1 MB of float32: a block is read from memory once and stays in cache


@dataclass(frozen=True, repr=False)
class Normalizer:
    """x ↦ (x − shift) / scale, feature by feature; 0 where scale is 0.

    ================  ===================  ===================  =================================
    how               shift                scale                taken over
    ================  ===================  ===================  =================================
    ``query-minmax``  min                  max − min            the items of each query by itself
    ``minmax``        min                  max − min            all items that `fit` saw
    ``standard``      mean                 standard deviation   all items that `fit` saw
    ================  ===================  ===================  =================================

    What was fitted is a small value: keep it with a ranker (`to_dict`) and apply it to whatever
    the ranker is to score. Values outside the fitted range are not clipped. A feature that was
    constant when fitted becomes 0 for any value: the ranker cannot have learned from it.

    Parameters
    ----------
    how : {"query-minmax", "minmax", "standard"}
    n_features : int
    shift, scale : tuple of float, one a feature; None for ``query-minmax``

    Examples
    --------
    >>> import numpy as np
    >>> from countersample import RankingDataset
    >>> from countersample.data.normalize import Normalizer
    >>> data = RankingDataset.from_arrays(X=[[1, 5], [3, 5], [9, 5]], y=[0, 1, 0], qid=[1, 1, 2])
    >>> Normalizer.fit(data, "query-minmax")(data).features
    array([[0., 0.],
           [1., 0.],
           [0., 0.]], dtype=float32)
    >>> normalizer = Normalizer.fit(data, "minmax")
    >>> normalizer.transform(np.array([[5.0, 5.0], [17.0, 6.0]]))
    array([[0.5, 0. ],
           [2. , 0. ]], dtype=float32)
    >>> Normalizer.from_dict(normalizer.to_dict()) == normalizer
    True
    """

    how: str
    n_features: int
    shift: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None

    @classmethod
    def fit(cls, dataset: RankingDataset, how: str) -> Normalizer:
        """Learn shift and scale in one pass over the features, block by block.

        Sums are kept in float64, and a dataset larger than memory is fine.

        Raises
        ------
        DataError
            For a dataset without items, or with a value that is not finite.
        """
        fit_columns = METHODS[choice("how", how, METHODS)]
        if fit_columns is None:
            return cls(how, dataset.n_features)
        if dataset.n_items == 0:
            raise DataError(f"cannot fit {how!r} on a dataset without items")
        with np.errstate(invalid="ignore"):  # infinities: reported below
            shift, scale = fit_columns(dataset.features)
        if not np.isfinite(scale).all():
            raise DataError(
                f"column {np.isfinite(scale).argmin()} of the features has a value that is not "
                "finite, expected finite numbers: replace or drop such rows"
            )
        return cls(how, dataset.n_features, tuple(shift.tolist()), tuple(scale.tolist()))

    def __call__(self, dataset: RankingDataset) -> RankingDataset:
        """Return the dataset with normalised features; labels, queries and names stay."""
        return dataset.with_features(self.features(dataset.features, dataset.offsets))

    def features(self, features: Any, offsets: ArrayLike) -> Any:  # noqa: ANN401 (array or codes)
        """Return normalised features: `transform`, and of codes codes.

        They are the same codes with another scale, or by query new ones of as many bits.
        """
        if isinstance(features, np.ndarray):
            return self.transform(features, offsets)
        if self.shift is not None and self.scale is not None:
            shift, scale = np.array(self.shift), np.array(self.scale)
            factor = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
            return features.scaled(shift, factor)
        most, ends = 2**features.bits - 1, np.asarray(offsets, np.int64)
        codes = np.empty_like(features.codes)
        for first, last in _query_blocks(ends, self.n_features):
            rows = slice(ends[first], ends[last])
            numbers = self.transform(features[rows], ends[first : last + 1] - ends[first])
            codes[rows] = np.rint(numbers * most)
        none = np.zeros(self.n_features)
        return type(features)(codes, none + 1 / most, none)

    def transform(
        self, features: NDArray[Any], offsets: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Return (x − shift) / scale, computed in float64, as float32 (n_items, n_features).

        Parameters
        ----------
        features : array (n_items, n_features)
        offsets : int array (n_queries + 1,), optional
            Where each query's rows start, and the number of rows; ``query-minmax`` needs them,
            the other methods do without.

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
        if features.ndim != 2 or features.shape[1] != self.n_features:
            raise DataError(
                f"features have shape {features.shape}, expected (n_items, {self.n_features}): "
                f"this normalizer is for {self.n_features} features"
            )
        out = np.empty_like(features)
        if self.shift is None or self.scale is None:
            from countersample._kernels.normalize import query_minmax  # noqa: PLC0415 (numba)

            query_minmax(features, _check_offsets(offsets, len(features)), out)
            return out
        shift, scale = np.array(self.shift), np.array(self.scale)
        factor = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        for rows in row_blocks(features):
            out[rows] = (features[rows] - shift) * factor
        return out

    def foldable_scale(self) -> NDArray[np.float64] | None:
        """Return 1/scale (0 for a scale of 0), where it can be folded into a linear ranker.

        Within a query a shift changes no difference of scores, so w·((x − shift)/scale) ranks as
        (w/scale)·x. None where scales are by query, and where a feature is so far from 0 for its
        range (a thousand times) that its digits would drown those of the others in float32.

        Examples
        --------
        >>> Normalizer("minmax", 2, shift=(0.0, 1.0), scale=(4.0, 0.5)).foldable_scale()
        array([0.25, 2.  ])
        >>> Normalizer("minmax", 1, shift=(1e9,), scale=(1.0,)).foldable_scale()
        """
        if self.shift is None or self.scale is None:
            return None
        shift, scale = np.array(self.shift), np.array(self.scale)
        if (np.abs(shift[scale > 0]) > _FARTHEST * scale[scale > 0]).any():
            return None
        factor: NDArray[np.float64] = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        return factor

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON keeps exactly; `from_dict` is the way back.

        Examples
        --------
        >>> Normalizer("query-minmax", n_features=2).to_dict()
        {'version': 1, 'how': 'query-minmax', 'n_features': 2, 'shift': None, 'scale': None}
        """
        return {
            "version": _VERSION,
            "how": self.how,
            "n_features": self.n_features,
            "shift": None if self.shift is None else list(self.shift),
            "scale": None if self.scale is None else list(self.scale),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Normalizer:
        """Make the normalizer that `to_dict` wrote; anything else is refused."""
        _take(values, "version", f"{_VERSION}", lambda version: version == _VERSION)
        how = _take(
            values, "how", f"one of {', '.join(METHODS)}", lambda how: how in tuple(METHODS)
        )
        n = _take(values, "n_features", "a count", lambda n: type(n) is int and n >= 0)
        if METHODS[how] is None:
            return cls(how, n)
        shift = _take(values, "shift", f"{n} numbers", lambda x: _are_numbers(x, n))
        scale = _take(values, "scale", f"{n} numbers >= 0", lambda x: _are_numbers(x, n, least=0))
        return cls(how, n, tuple(map(float, shift)), tuple(map(float, scale)))

    def __repr__(self) -> str:
        return f"Normalizer(how={self.how!r}, n_features={self.n_features})"


def row_blocks(features: Any) -> Iterator[slice]:  # noqa: ANN401 (array or codes)
    """Slices of rows, about 1 MB of float32 each, that cover the matrix in order.

    Examples
    --------
    >>> [rows.stop - rows.start for rows in row_blocks(np.empty((100_000, 5), np.float32))]
    [52428, 47572]
    """
    n_rows, n_features = features.shape
    step = max(1, _BLOCK_VALUES // max(1, n_features))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def _query_blocks(offsets: NDArray[np.int64], n_features: int) -> Iterator[tuple[int, int]]:
    """Yield the first query, and the one after the last, of blocks of about 1 MB of float32."""
    step = max(1, _BLOCK_VALUES // max(1, n_features))
    first = 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + step, side="right")) - 1
        yield first, max(last, first + 1)
        first = max(last, first + 1)


def _minmax(features: NDArray[np.float32]) -> Columns:
    """Column minima, and maxima − minima."""
    low = high = features[0]
    for rows in row_blocks(features):
        low = np.minimum(low, features[rows].min(axis=0))
        high = np.maximum(high, features[rows].max(axis=0))
    shift = low.astype(np.float64)
    return shift, high - shift


def _standard(features: NDArray[np.float32]) -> Columns:
    """Column means and standard deviations, √(Σ(x − mean)² / n), by merging those of blocks.

    Blocks are merged as by Chan, Golub and LeVeque (1983). The first row is taken off before, so
    that a constant column has deviations of exactly 0.
    """
    first = features[0].astype(np.float64)
    count, mean, squares = 0, np.zeros_like(first), np.zeros_like(first)
    for rows in row_blocks(features):
        block = features[rows] - first
        block_mean = block.mean(axis=0)
        block -= block_mean
        delta = block_mean - mean
        total = count + len(block)
        squares += np.square(block, out=block).sum(axis=0) + delta**2 * (count * len(block) / total)
        mean += delta * (len(block) / total)
        count = total
    return first + mean, np.sqrt(squares / count)


# How shift and scale are found; None: by query, when the normalizer is applied.
METHODS: dict[str, Callable[[NDArray[np.float32]], Columns] | None] = {
    "query-minmax": None,
    "minmax": _minmax,
    "standard": _standard,
}


def _check_offsets(offsets: ArrayLike | None, n_items: int) -> NDArray[np.int64]:
    if offsets is None:
        raise ParameterError(
            "'query-minmax' needs offsets, where each query's rows start, and the number of rows: "
            f"pass offsets=[0, {n_items}] if all rows are of one query"
        )
    checked = np.asarray(offsets, dtype=np.int64)
    ends = checked.ndim == 1 and len(checked) > 0 and checked[0] == 0 and checked[-1] == n_items
    if not ends or (np.diff(checked) < 1).any():
        raise DataError(
            f"offsets must increase from 0 to {n_items}, the number of rows: one where each "
            "query's rows start, then the number of rows"
        )
    return checked


def _take(
    values: Mapping[str, Any], name: str, expected: str, is_valid: Callable[[Any], bool]
) -> Any:  # noqa: ANN401 (JSON)
    value = values.get(name)
    if not is_valid(value):
        raise DataError(
            f"{name} of a saved normalizer is {reprlib.repr(value)}, expected {expected}: save it "
            "with Normalizer.to_dict"
        )
    return value


def _are_numbers(values: Any, count: int, least: float = -np.inf) -> bool:  # noqa: ANN401 (JSON)
    return (
        isinstance(values, list | tuple)
        and len(values) == count
        and all(isinstance(x, int | float) and math.isfinite(x) and x >= least for x in values)
    )
