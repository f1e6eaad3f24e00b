"""Missing values filled in: `Imputer`. In features NaN is a value that is missing."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import choice
from countersample.data._arrays import has_nan
from countersample.data.columns import row_blocks
from countersample.data.compact import CompactFeatures
from countersample.data.dataset import RankingDataset
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from countersample._arrays import Floats

METHODS = ("median-indicator", "median", "zero")
REFUSE = "error"  # no method: missing values are refused
_VERSION = 1
_VALUES_AT_ONCE = 2**23  # of the columns whose medians are found together: 32 MB


@dataclass(frozen=True, repr=False)
class Imputer:
    """x ↦ (x, or fill where it is missing; 1 where a feature with an indicator is, else 0).

    ====================  ===========================  ======================================
    how                   fill                         indicators
    ====================  ===========================  ======================================
    ``median-indicator``  the median of what is there  of features that were missing at times
    ``median``            the same                     none
    ``zero``              0                            none
    ====================  ===========================  ======================================

    An indicator lets a ranker learn what it means that a value is missing. A feature that was
    missing in every row is filled with 0 and has none: there was nothing to tell it from.

    Parameters
    ----------
    n_features : int
    fill : tuple of float, one a feature
        What a missing value of it becomes, a float32 number.
    indicators : tuple of int
        The features that have an indicator, ascending: a column each, after those of all features.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample import RankingDataset
    >>> from countersample.data.imputing import Imputer
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
    >>> Imputer.from_dict(imputer.to_dict()) == imputer
    True
    """

    n_features: int
    fill: tuple[float, ...]
    indicators: tuple[int, ...] = ()

    @classmethod
    def fit(cls, dataset: RankingDataset, how: str = "median-indicator") -> Imputer:
        """Learn what missing values become, some columns at a time.

        Raises
        ------
        ParameterError
            For another `how`.
        """
        return cls.fit_table(dataset.features, how)

    @classmethod
    def fit_table(cls, features: Any, how: str = "median-indicator") -> Imputer:  # noqa: ANN401
        """Learn the same from a matrix, or codes, (n_items, n_features)."""
        choice("how", how, METHODS)
        n_items, n_features = features.shape
        if how == "zero":
            return cls(n_features, (0.0,) * n_features)
        fill, indicators = [], []
        step = max(1, _VALUES_AT_ONCE // max(1, n_items))
        for start in range(0, n_features, step):
            columns = np.array(features[:, start : start + step].T, order="C")
            for index, column in enumerate(columns, start):
                present = column[~np.isnan(column)]
                fill.append(float(np.float32(_median(present))) if len(present) else 0.0)
                if 0 < len(present) < n_items:
                    indicators.append(index)
        return cls(n_features, tuple(fill), tuple(indicators) if how == METHODS[0] else ())

    @property
    def n_outputs(self) -> int:
        """The number of columns it makes: the features, then the indicators."""
        return self.n_features + len(self.indicators)

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the columns that it makes of features of these names."""
        return (*names, *(f"{names[index]} is missing" for index in self.indicators))

    def __call__(self, dataset: RankingDataset) -> RankingDataset:
        """Return the dataset without missing values; labels and queries stay."""
        names = None if dataset.feature_names is None else self.names(dataset.feature_names)
        return RankingDataset(
            self.features(dataset.features), dataset.labels, dataset.offsets, dataset.query_ids,
            names,
        )  # fmt: skip

    def features(self, features: Any) -> Any:  # noqa: ANN401 (array or codes)
        """Return filled features: `transform`, and of codes, which miss nothing, codes."""
        if not isinstance(features, CompactFeatures):
            return self.transform(features)
        columns = (*range(features.shape[1]), *self.indicators)
        wide = features.select(list(columns))
        wide.codes[:, features.shape[1] :] = 0
        wide.scale[features.shape[1] :] = wide.offset[features.shape[1] :] = 0.0
        return wide

    def transform(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """Return filled features and their indicators, float32 (n_items, n_outputs).

        Parameters
        ----------
        features : array (n_items, n_features)
        """
        if features.ndim != 2 or features.shape[1] != self.n_features:
            raise DataError(
                f"features have shape {features.shape}, expected (n_items, {self.n_features}): "
                f"this imputer is for {self.n_features} features"
            )
        fill, indicators = np.array(self.fill, np.float32), list(self.indicators)
        out = np.empty((len(features), self.n_outputs), np.float32)
        for rows in row_blocks(features):
            block = np.asarray(features[rows], np.float32)
            is_missing = np.isnan(block)
            out[rows, : self.n_features] = np.where(is_missing, fill, block)
            out[rows, self.n_features :] = is_missing[:, indicators]
        return out

    def unfolded(self, weights: Floats) -> tuple[Floats, Floats]:
        """w·(filled x, indicators) = Σ_j u_j·x_j, or m_j where x_j is missing: return u and m.

        Parameters
        ----------
        weights : float64 (n_outputs,)

        Examples
        --------
        >>> Imputer(2, (3.0, 6.0), (1,)).unfolded(np.array([1.0, 2.0, 10.0]))
        (array([1., 2.]), array([ 3., 22.]))
        """
        own = weights[: self.n_features]
        missing = own * np.array(self.fill)
        missing[list(self.indicators)] += weights[self.n_features :]
        return own, missing

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON keeps exactly; `from_dict` is the way back.

        Examples
        --------
        >>> Imputer(2, (3.0, 6.0), (1,)).to_dict()
        {'version': 1, 'n_features': 2, 'fill': [3.0, 6.0], 'indicators': [1]}
        """
        return {
            "version": _VERSION,
            "n_features": self.n_features,
            "fill": list(self.fill),
            "indicators": list(self.indicators),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Imputer:
        """Make the imputer that `to_dict` wrote; anything else is refused."""
        _take(values, "version", f"{_VERSION}", lambda v: type(v) is int and v == _VERSION)
        n = _take(values, "n_features", "a count", lambda n: type(n) is int and n >= 0)
        fill = _take(values, "fill", f"{n} float32 numbers", lambda x: _are_numbers(x, n))
        indicators = _take(
            values, "indicators", f"different features of {n}, ascending",
            lambda x: _are_features(x, n),
        )  # fmt: skip
        return cls(n, tuple(float(np.float32(x)) for x in fill), tuple(indicators))

    def __repr__(self) -> str:
        fill, indicators = reprlib.repr(self.fill), reprlib.repr(self.indicators)
        return f"Imputer(n_features={self.n_features}, fill={fill}, indicators={indicators})"


def filled(dataset: RankingDataset) -> RankingDataset:
    """Return a dataset without missing values: medians and indicators of its own, where it has any.

    For models that a ranker's features are only a help to, such as those of relevance.

    Examples
    --------
    >>> from countersample import RankingDataset
    >>> data = RankingDataset.from_arrays(X=[[1.0], [float("nan")]], y=[0, 1], qid=[7, 7])
    >>> filled(data).features
    array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    return Imputer.fit(dataset)(dataset) if dataset.has_missing else dataset


def filled_table(features: NDArray[Any]) -> NDArray[Any]:
    """Return a matrix without missing values, as `filled` does."""
    return Imputer.fit_table(features).transform(features) if has_nan(features) else features


def _median(values: NDArray[np.float32]) -> float:
    """Return the middle, in float64: the mean of two float32 numbers may be none."""
    middle = np.unique([(len(values) - 1) // 2, len(values) // 2])
    return float(np.partition(values, middle)[middle].mean(dtype=np.float64))


def _take(
    values: Mapping[str, Any], name: str, expected: str, is_valid: Callable[[Any], bool]
) -> Any:  # noqa: ANN401 (JSON)
    value = values.get(name) if isinstance(values, dict) else None
    if not is_valid(value):
        raise DataError(
            f"{name} of a saved imputer is {reprlib.repr(value)}, expected {expected}: save it "
            "with Imputer.to_dict"
        )
    return value


def _are_numbers(values: Any, count: int) -> bool:  # noqa: ANN401 (JSON)
    most = float(np.finfo(np.float32).max)
    return (
        isinstance(values, list | tuple)
        and len(values) == count
        and all(type(x) in {int, float} and abs(x) <= most for x in values)
    )


def _are_features(values: Any, count: int) -> bool:  # noqa: ANN401 (JSON)
    return (
        isinstance(values, list | tuple)
        and all(type(index) is int and 0 <= index < count for index in values)
        and sorted(set(values)) == list(values)
    )
