"""Features brought to a common scale: `Normalizer`."""

from __future__ import annotations

import reprlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import choice
from countersample.data.columns import ends, moments, query_blocks, row_blocks
from countersample.data.heavy_tails import MOST_ROOTS, choose_roots, rooted
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from countersample.data.dataset import RankingDataset

    Columns = tuple[NDArray[np.float64], NDArray[np.float64], tuple[int, ...] | None]

_VERSION = 1
_WITH_ROOTS = 2  # the version of those with roots, which releases before could not read
_FARTHEST = 1e3  # shift / scale up to which float32 keeps four digits of a normalised feature


@dataclass(frozen=True, repr=False)
class Normalizer:
    """x ↦ (x − shift) / scale, feature by feature; 0 where scale is 0.

    ================  ===================  ===================  =================================
    how               shift                scale                taken over
    ================  ===================  ===================  =================================
    ``query-minmax``  min                  max − min            the items of each query by itself
    ``minmax``        min                  max − min            all items that `fit` saw
    ``root-minmax``   min                  max − min            as ``minmax``, after square roots
    ``standard``      mean                 standard deviation   all items that `fit` saw
    ================  ===================  ===================  =================================

    ``root-minmax`` takes sign(x)·√|x| of features with heavy tails before, up to five times:
    `countersample.data.heavy_tails.choose_roots` has the rule.

    What was fitted is a small value: keep it with a ranker (`to_dict`) and apply it to whatever
    the ranker is to score. Values outside the fitted range are not clipped. A feature that was
    constant when fitted becomes 0 for any value: the ranker cannot have learned from it. What is
    missing (NaN) does not count when it is fitted, and stays missing.

    Parameters
    ----------
    how : {"query-minmax", "minmax", "root-minmax", "standard"}
    n_features : int
    shift, scale : tuple of float, one a feature; None for ``query-minmax``
    roots : tuple of int, one a feature; None where no feature takes any

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
    roots: tuple[int, ...] | None = None

    @classmethod
    def fit(cls, dataset: RankingDataset, how: str) -> Normalizer:
        """Learn shift and scale in one pass over the features, block by block; roots take more.

        Sums are kept in float64, and a dataset larger than memory is fine.

        Raises
        ------
        DataError
            For a dataset without items, or with a value that is infinite.
        """
        fit_columns = METHODS[choice("how", how, METHODS)]
        if fit_columns is None:
            return cls(how, dataset.n_features)
        if dataset.n_items == 0:
            raise DataError(f"cannot fit {how!r} on a dataset without items")
        with np.errstate(invalid="ignore"):  # infinities: reported below
            shift, scale, roots = fit_columns(dataset.features)
        if not np.isfinite(scale).all():
            raise DataError(
                f"column {np.isfinite(scale).argmin()} of the features has a value that is not "
                "finite, expected finite numbers: replace or drop such rows"
            )
        return cls(how, dataset.n_features, tuple(shift.tolist()), tuple(scale.tolist()), roots)

    def __call__(self, dataset: RankingDataset) -> RankingDataset:
        """Return the dataset with normalised features; labels, queries and names stay."""
        return dataset.with_features(self.features(dataset.features, dataset.offsets))

    def features(self, features: Any, offsets: ArrayLike) -> Any:  # noqa: ANN401 (array or codes)
        """Return normalised features: `transform`, and of codes codes.

        They are the same codes with another scale; by query, and where codes and normalizer are not
        on the same root scale, new ones of as many bits.
        """
        if isinstance(features, np.ndarray):
            return self.transform(features, offsets)
        if self.shift is not None and self.scale is not None:
            if features.roots != self.roots:
                return features.recoded(self.transform)
            shift, scale = np.array(self.shift), np.array(self.scale)
            factor = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
            return features.linear.scaled(shift, factor)
        most, ends = 2**features.bits - 1, np.asarray(offsets, np.int64)
        codes = np.empty_like(features.codes)
        for first, last in query_blocks(ends, self.n_features):
            rows = slice(ends[first], ends[last])
            numbers = self.transform(features[rows], ends[first : last + 1] - ends[first])
            codes[rows] = np.rint(numbers * most)
        none = np.zeros(self.n_features)
        return type(features)(codes, none + 1 / most, none)

    def transform(
        self, features: NDArray[Any], offsets: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Return (x − shift) / scale, computed in float64, as float32 (n_items, n_features).

        x is on the root scale, where there is one.

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
            block = features[rows] if self.roots is None else rooted(features[rows], self.roots)
            out[rows] = (block - shift) * factor
        return out

    def foldable_scale(self, features: Any = None) -> NDArray[np.float64] | None:  # noqa: ANN401
        """Return 1/scale (0 for a scale of 0), where it can be folded into a linear ranker.

        Within a query a shift changes no difference of scores, so w·((x − shift)/scale) ranks as
        (w/scale)·x. None where scales are by query, and where a feature is so far from 0 for its
        range (a thousand times) that its digits would drown those of the others in float32. With
        roots only codes that are on the same root scale can be read as they are.

        Examples
        --------
        >>> Normalizer("minmax", 2, shift=(0.0, 1.0), scale=(4.0, 0.5)).foldable_scale()
        array([0.25, 2.  ])
        >>> Normalizer("minmax", 1, shift=(1e9,), scale=(1.0,)).foldable_scale()
        """
        if self.shift is None or self.scale is None:
            return None
        if getattr(features, "roots", None) != self.roots:
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
            "version": _VERSION if self.roots is None else _WITH_ROOTS,
            "how": self.how,
            "n_features": self.n_features,
            "shift": None if self.shift is None else list(self.shift),
            "scale": None if self.scale is None else list(self.scale),
            **({} if self.roots is None else {"roots": list(self.roots)}),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Normalizer:
        """Make the normalizer that `to_dict` wrote; anything else is refused."""
        version = _take(
            values, "version", f"{_VERSION} or {_WITH_ROOTS}",
            lambda version: type(version) is int and version in (_VERSION, _WITH_ROOTS),
        )  # fmt: skip
        known = tuple(METHODS) if version == _VERSION else ("root-minmax",)
        how = _take(values, "how", f"one of {', '.join(known)}", lambda how: how in known)
        n = _take(values, "n_features", "a count", lambda n: type(n) is int and n >= 0)
        if METHODS[how] is None:
            return cls(how, n)
        shift = _take(values, "shift", f"{n} numbers", lambda x: _are_numbers(x, n))
        scale = _take(values, "scale", f"{n} numbers >= 0", lambda x: _are_numbers(x, n, least=0))
        roots = None
        if version == _WITH_ROOTS:
            expected = f"{n} whole numbers of 0 to {MOST_ROOTS}, not all 0"
            roots = tuple(_take(values, "roots", expected, lambda x: _are_roots(x, n)))
        return cls(how, n, tuple(map(float, shift)), tuple(map(float, scale)), roots)

    def __repr__(self) -> str:
        return f"Normalizer(how={self.how!r}, n_features={self.n_features})"


def _minmax(features: Any) -> Columns:  # noqa: ANN401 (array or codes)
    """Column minima, and maxima − minima."""
    low, high = ends(features)
    return low, high - low, None


def _root_minmax(features: Any) -> Columns:  # noqa: ANN401 (array or codes)
    """Choose roots; minima, and maxima − minima, on their scale. Codes on a root scale keep it."""
    roots = getattr(features, "roots", None)
    if roots is not None:
        return *_minmax(features.linear)[:2], roots
    roots = choose_roots(features)
    low, high = ends(features)
    if roots is not None:
        low, high = rooted(low, roots), rooted(high, roots)
    return low, high - low, roots


def _standard(features: Any) -> Columns:  # noqa: ANN401 (array or codes)
    """Column means and standard deviations."""
    return *moments(features), None


# How shift, scale and roots are found; None: by query, when the normalizer is applied.
METHODS: dict[str, Callable[[Any], Columns] | None] = {
    "query-minmax": None,
    "minmax": _minmax,
    "root-minmax": _root_minmax,
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
    value = values.get(name) if isinstance(values, dict) else None
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
        and all(isinstance(x, int | float) and abs(x) <= sys.float_info.max for x in values)
        and all(x >= least for x in values)
    )


def _are_roots(values: Any, count: int) -> bool:  # noqa: ANN401 (JSON)
    return (
        isinstance(values, list | tuple)
        and len(values) == count
        and all(type(x) is int and 0 <= x <= MOST_ROOTS for x in values)
        and any(values)
    )
