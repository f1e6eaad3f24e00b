"""Features brought to a common scale: `Normalizer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import choice
from countersample.data import _saved_normalizer as saved
from countersample.data.columns import ends, moments, query_blocks, row_blocks
from countersample.data.transforms import TRANSFORMS, Transformed
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from countersample.data.dataset import RankingDataset
    from countersample.data.transforms import Knots

    Floats = NDArray[np.float64]

_FARTHEST = 1e3  # shift / scale up to which float32 keeps four digits of a normalised feature


@dataclass(frozen=True, repr=False)
class Normalizer:
    """x ↦ (t(x) − shift) / scale, feature by feature; 0 where scale is 0.

    ================  ===================  ===================  =================================
    how               shift                scale                taken over
    ================  ===================  ===================  =================================
    ``query-minmax``  min                  max − min            the items of each query by itself
    ``minmax``        min                  max − min            all items that `fit` saw
    ``root-minmax``   min                  max − min            as ``minmax``, after square roots
    ``standard``      mean                 standard deviation   all items that `fit` saw
    ``none``          0                    1                    nothing: a transform alone
    ================  ===================  ===================  =================================

    t is the transform, x as it is where there is none. At most one of three fields has its numbers,
    one for each feature:

    ============  =========  =====================================  =============  ================
    transform     field      of a feature                           as it is       t(x)
    ============  =========  =====================================  =============  ================
    ``root``      ``roots``  r, a whole number up to 5              0              sign(x)·√|x|, r
                                                                                   times
    ``log``       ``logs``   s > 0                                  0.0            sign(x)·ln(1 +
                                                                                   |x|/s)
    ``quantile``  ``knots``  ((x₁, …, x_m), (y₁, …, y_m)), both     ()             straight lines
                             rising, m of 2 to 32, y in [0, 1]                     between knots; y₁
                                                                                   before the first,
                                                                                   y_m after the
                                                                                   last
    ============  =========  =====================================  =============  ================

    `countersample.data.transforms` has how logs and knots are learned,
    `countersample.data.heavy_tails.choose_roots` has it for roots. ``root-minmax`` is ``minmax``
    after ``root``.

    What was fitted is a small value: keep it with a ranker (`to_dict`) and apply it to whatever
    the ranker is to score. Values outside the fitted range are not clipped, but by quantiles. A
    feature that was constant when fitted becomes 0 for any value: the ranker cannot have learned
    from it. What is missing (NaN) does not count when it is fitted, and stays missing.

    Parameters
    ----------
    how : {"query-minmax", "minmax", "root-minmax", "standard", "none"}
    n_features : int
    shift, scale : tuple of float, one a feature; None for ``query-minmax``
    roots, logs, knots : tuple, one a feature; None where no feature takes any

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
    >>> Normalizer.fit(data, "minmax", transform="log").logs
    (3.0, 0.0)
    """

    how: str
    n_features: int
    shift: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    roots: tuple[int, ...] | None = None
    logs: tuple[float, ...] | None = None
    knots: Knots | None = None

    @classmethod
    def fit(
        cls, dataset: RankingDataset, how: str | None, transform: str | None = None
    ) -> Normalizer:
        """Learn a transform, shift and scale, block by block.

        Without a transform that is one pass over the features. Sums are kept in float64, and a
        dataset larger than memory is fine.

        Parameters
        ----------
        dataset : RankingDataset
        how : {"query-minmax", "minmax", "root-minmax", "standard"} or None
            None for the transform alone.
        transform : {"log", "root", "quantile"}, optional

        Raises
        ------
        DataError
            For a dataset without items, or with a value that is infinite.
        """
        how, transform = named_how(how, transform)
        n, features = dataset.n_features, dataset.features
        learned: dict[str, Any] = {}
        if dataset.n_items == 0 and (how, transform) != ("query-minmax", None):
            raise DataError(f"cannot fit {how!r} on a dataset without items")
        with np.errstate(invalid="ignore"):  # infinities: reported below
            if transform is not None:
                taught = TRANSFORMS[transform]
                learned = {taught.field: taught.learn(features)}
            unscaled = cls(how, n, **learned)
            fit_columns = _EVERY[how]
            if fit_columns is None:
                return unscaled
            shift, scale = fit_columns(features, unscaled)
        if not np.isfinite(scale).all():
            raise DataError(
                f"column {np.isfinite(scale).argmin()} of the features has a value that is not "
                "finite, expected finite numbers: replace or drop such rows"
            )
        return cls(how, n, tuple(shift.tolist()), tuple(scale.tolist()), **learned)

    @property
    def transform_name(self) -> str | None:
        """What is done before scaling: log, root, quantile, or None."""
        taken = (name for name, each in TRANSFORMS.items() if getattr(self, each.field) is not None)
        return next(taken, None)

    @property
    def label(self) -> str:
        """What it does, in a few words.

        Examples
        --------
        >>> Normalizer("minmax", 1, (0.0,), (1.0,), logs=(2.0,)).label
        'log, then minmax'
        """
        name = self.transform_name
        if name is None or self.how == "root-minmax":
            return self.how
        return name if self.how == "none" else f"{name}, then {self.how}"

    def transformed(self, values: ArrayLike, *, back: bool = False) -> Floats:
        """Return t(x), float64 (…, n_features), or, the way back, x of which t makes these values.

        Examples
        --------
        >>> Normalizer("none", 1, (0.0,), (1.0,), logs=(1.0,)).transformed([[1.0]]).round(3)
        array([[0.693]])
        """
        if self.transform_name is None:
            return np.asarray(values, np.float64)
        transform = TRANSFORMS[self.transform_name]
        apply = transform.back if back else transform.forth
        return apply(values, getattr(self, transform.field))

    def take(self, columns: Sequence[int]) -> Normalizer:
        """Return the normalizer of these features, in this order; one may come more than once."""
        numbers = {
            name: None if every is None else tuple(every[column] for column in columns)
            for name in ("shift", "scale", "roots", "logs", "knots")
            if (every := getattr(self, name)) is not None
        }
        return Normalizer(self.how, len(columns), **numbers)

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
            if not self._reads(features):
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
        """Return (t(x) − shift) / scale, computed in float64, as float32 (n_items, n_features).

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

            ends_of_queries = _check_offsets(offsets, len(features))
            if self.transform_name is not None:
                for rows in row_blocks(features):
                    out[rows] = self.transformed(features[rows])
                features = out.copy()
            query_minmax(features, ends_of_queries, out)
            return out
        shift, scale = np.array(self.shift), np.array(self.scale)
        factor = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        for rows in row_blocks(features):
            block = features[rows]
            if self.transform_name is not None:
                block = self.transformed(block)
            out[rows] = (block - shift) * factor
        return out

    def foldable_scale(self, features: Any = None) -> NDArray[np.float64] | None:  # noqa: ANN401
        """Return 1/scale (0 for a scale of 0), where it can be folded into a linear ranker.

        Within a query a shift changes no difference of scores, so w·((x − shift)/scale) ranks as
        (w/scale)·x. None where scales are by query, and where a feature is so far from 0 for its
        range (a thousand times) that its digits would drown those of the others in float32. With
        roots only codes that are on the same root scale can be read as they are, and with another
        transform nothing can.

        Examples
        --------
        >>> Normalizer("minmax", 2, shift=(0.0, 1.0), scale=(4.0, 0.5)).foldable_scale()
        array([0.25, 2.  ])
        >>> Normalizer("minmax", 1, shift=(1e9,), scale=(1.0,)).foldable_scale()
        """
        if self.shift is None or self.scale is None:
            return None
        if not self._reads(features):
            return None
        shift, scale = np.array(self.shift), np.array(self.scale)
        if (np.abs(shift[scale > 0]) > _FARTHEST * scale[scale > 0]).any():
            return None
        factor: NDArray[np.float64] = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        return factor

    def _reads(self, features: Any) -> bool:  # noqa: ANN401 (array, codes or None)
        """Whether features are on the scale that is linear for this normalizer."""
        own = getattr(features, "roots", None)
        return own == self.roots and self.logs is None and self.knots is None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON keeps exactly; `from_dict` is the way back.

        Examples
        --------
        >>> Normalizer("query-minmax", n_features=2).to_dict()
        {'version': 1, 'how': 'query-minmax', 'n_features': 2, 'shift': None, 'scale': None}
        """
        numbers = {each.field: getattr(self, each.field) for each in TRANSFORMS.values()}
        return {
            "version": saved.VERSION,
            "how": self.how,
            "n_features": self.n_features,
            "shift": None if self.shift is None else list(self.shift),
            "scale": None if self.scale is None else list(self.scale),
            **{name: list(every) for name, every in numbers.items() if every is not None},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Normalizer:
        """Return the normalizer that `to_dict` wrote; anything else raises an error."""
        return cls(**saved.checked_fields(values, [*METHODS]))

    def __repr__(self) -> str:
        return f"Normalizer(how={self.how!r}, n_features={self.n_features})"


def named_how(how: str | None, transform: str | None) -> tuple[str, str | None]:
    """Return how and the transform by their names; root-minmax is minmax after the transform root.

    Examples
    --------
    >>> named_how("minmax", "root"), named_how("root-minmax", None), named_how(None, "log")
    (('root-minmax', 'root'), ('root-minmax', 'root'), ('none', 'log'))
    """
    if transform is not None:
        choice("transform", transform, TRANSFORMS)
    if how is None and transform is not None:
        return "none", transform
    choice("how", how, METHODS)
    if how == "root-minmax":
        if transform not in {None, "root"}:
            raise ParameterError(
                f"normalize is 'root-minmax' with the transform {transform!r}, expected 'minmax', "
                "'standard', 'query-minmax' or None: 'root-minmax' is 'minmax' after the transform "
                "'root'"
            )
        return "root-minmax", "root"
    return ("root-minmax" if (how, transform) == ("minmax", "root") else str(how)), transform


def _minmax(features: Any, of: Normalizer) -> tuple[Floats, Floats]:  # noqa: ANN401 (array, codes)
    """Column minima, and maxima − minima, of t(x)."""
    if of.roots is not None and of._reads(features):  # noqa: SLF001 (codes on that scale)
        low, high = ends(features.linear)
    else:
        low, high = map(of.transformed, ends(features))
    return low, high - low


def _standard(features: Any, of: Normalizer) -> tuple[Floats, Floats]:  # noqa: ANN401 (as above)
    """Column means and standard deviations of t(x)."""
    if of.transform_name is None:
        return moments(features)
    return moments(Transformed(features, of.transformed))


def _none(_features: Any, of: Normalizer) -> tuple[Floats, Floats]:  # noqa: ANN401 (as above)
    """Return 0 and 1."""
    return np.zeros(of.n_features), np.ones(of.n_features)


# How shift and scale are found; None: by query, when the normalizer is applied.
METHODS: dict[str, Callable[[Any, Normalizer], tuple[Floats, Floats]] | None] = {
    "query-minmax": None,
    "minmax": _minmax,
    "root-minmax": _minmax,
    "standard": _standard,
}
_EVERY = METHODS | {"none": _none}


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
