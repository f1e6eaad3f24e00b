"""Features in 8 or 16 bits: codes, with a scale and an offset for each feature.

Training mostly reads features, so their size decides its speed. A code takes a quarter, or half, of
the memory of a float32 number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._frames import Tabular
from countersample.data.matrices import (
    column_moments,
    column_ranges,
    first_nan,
    has_nan,
    row_blocks,
)
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.data.dataset import RankingDataset

    Codes = NDArray[Any]  # uint8 or uint16

CODE_TYPES: dict[int, type[np.unsignedinteger[Any]]] = {8: np.uint8, 16: np.uint16}
#: A tail is heavy if codes can be off by more than this share of the feature's standard deviation.
#: Below it, rounding adds less than a thousandth to the variance.
HEAVY_SHARE = 0.05


@dataclass(frozen=True, eq=False)
class CompactFeatures:
    """x = offset + scale · code, feature by feature.

    It replaces a float32 matrix (n_items, n_features): an index gives float32 numbers.

    Attributes
    ----------
    codes : uint8 or uint16 (n_items, n_features), C-contiguous
    scale, offset : float64 (n_features,)

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.data.compact import CompactFeatures
    >>> x = CompactFeatures.of(np.array([[0.0, 7.0], [1.0, 7.0], [10.0, 7.0]], np.float32), bits=8)
    >>> x.codes.tolist()
    [[0, 0], [26, 0], [255, 0]]
    >>> x[1]
    array([1.0196079, 7.       ], dtype=float32)
    >>> x.scores(np.array([[1.0, 2.0]]))  # with a weight of 1 and one of 2
    array([[14.      , 15.019608, 24.      ]], dtype=float32)
    """

    codes: Codes
    scale: Floats
    offset: Floats

    def __post_init__(self) -> None:
        codes = self.codes
        is_matrix = codes.dtype in (np.uint8, np.uint16) and codes.ndim == 2
        if not is_matrix or not codes.flags.c_contiguous:
            raise DataError(
                f"codes are {codes.dtype} of shape {codes.shape}, expected a C-contiguous uint8 or "
                "uint16 matrix (n_items, n_features)"
            )
        for name, column in (("scale", self.scale), ("offset", self.offset)):
            if column.shape != (codes.shape[1],) or not np.isfinite(column).all():
                raise DataError(
                    f"{name} of codes has shape {column.shape}, expected ({codes.shape[1]},) "
                    "finite numbers: one for each feature"
                )

    @classmethod
    def of(cls, features: NDArray[np.float32], *, bits: int) -> CompactFeatures:
        """Encode evenly: a feature's smallest value becomes 0, its largest 2^bits − 1.

        A feature with one value has a scale of 0.
        """
        low, high = _finite_ranges(features)
        return cls._encode(features, np.asarray, low, high, bits)

    @classmethod
    def _encode(
        cls,
        features: Any,  # noqa: ANN401 (array or codes)
        function: Callable[[Any], Any],
        low: Floats,
        high: Floats,
        bits: int,
    ) -> CompactFeatures:
        """Encode `function` of features, which ranges from low to high, block by block."""
        max_code = 2**bits - 1
        scale = (high - low) / max_code
        factor = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        codes = np.empty(features.shape, CODE_TYPES[bits])
        for rows in row_blocks(features):
            numbers = (function(features[rows]) - low) * factor
            codes[rows] = np.rint(np.clip(numbers, 0, max_code))
        return cls(codes, scale, low)

    # -- The interface of a matrix

    @property
    def shape(self) -> tuple[int, int]:
        """(n_items, n_features)."""
        return self.codes.shape[0], self.codes.shape[1]

    @property
    def size(self) -> int:
        """The number of values."""
        return self.codes.size

    @property
    def nbytes(self) -> int:
        """The memory of the codes."""
        return self.codes.nbytes

    @property
    def bits(self) -> int:
        """The bits of a code: 8 or 16."""
        return 8 * self.codes.itemsize

    ndim = 2
    dtype = np.dtype(np.float32)  # of the numbers that an index gives

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> NDArray[np.float32]:  # noqa: ANN401 (as of an array)
        """Return the numbers of these rows, or of these rows and columns."""
        columns = index[1] if isinstance(index, tuple) and len(index) > 1 else slice(None)
        numbers = self.codes[index] * self.scale[columns] + self.offset[columns]
        return np.asarray(numbers, np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401
        """Return all numbers: four times, or twice, the memory of the codes."""
        numbers = np.empty(self.shape, np.float32)
        for rows in row_blocks(self):
            numbers[rows] = self[rows]
        return numbers if dtype is None else numbers.astype(dtype, copy=False)

    def __matmul__(self, weights: Floats) -> NDArray[np.float32]:
        """x·w, (n_items,), or x·W, (n_items, n), from the codes."""
        matrix = np.asarray(weights, np.float64)
        return self.scores(matrix[None])[0] if matrix.ndim == 1 else self.scores(matrix.T).T

    # -- New codes

    def take(self, rows: ArrayLike) -> CompactFeatures:
        """Return these rows."""
        return CompactFeatures(self.codes[np.asarray(rows)], self.scale, self.offset)

    def select(self, columns: list[int]) -> CompactFeatures:
        """Return these columns."""
        codes = np.ascontiguousarray(self.codes[:, columns])
        return CompactFeatures(codes, self.scale[columns], self.offset[columns])

    def scaled(self, shift: Floats, factor: Floats) -> CompactFeatures:
        """Return (x − shift) · factor, as the same codes with another scale."""
        return CompactFeatures(self.codes, self.scale * factor, (self.offset - shift) * factor)

    def recoded(self, function: Callable[[NDArray[np.float32]], Floats]) -> CompactFeatures:
        """Return new codes, of as many bits, of a function that increases with each feature."""
        max_code = 2**self.bits - 1
        end_codes = np.array([[0], [max_code]], self.codes.dtype).repeat(self.shape[1], axis=1)
        end_values = CompactFeatures(end_codes, self.scale, self.offset)[:]
        low, high = function(end_values).astype(np.float64)
        return self._encode(self, function, low, high, self.bits)

    def scores(self, weights: Floats) -> NDArray[np.float32]:
        """W·xᵀ, (n_weights, n_items) float32: Σ code·(scale·w) + Σ offset·w."""
        weights_of_codes = (weights * self.scale).astype(np.float32)
        constant = (weights @ self.offset).astype(np.float32)[:, None]
        scores = np.empty((len(weights), len(self)), np.float32)
        for rows in row_blocks(self):  # a block of numbers stays in cache
            np.matmul(weights_of_codes, self.codes[rows].astype(np.float32).T, out=scores[:, rows])
        scores += constant
        return scores


def linear_scores(weights: NDArray[Any], features: Any) -> NDArray[np.float32]:  # noqa: ANN401 (array or codes)
    """W·xᵀ, float32 (n_weights, n_items), of weights (n_weights, n_features)."""
    if isinstance(features, CompactFeatures):
        return features.scores(np.asarray(weights, np.float64))
    with np.errstate(invalid="ignore"):  # OpenBLAS reads memory beside narrow matrices, too
        product: NDArray[np.float32] = np.asarray(weights, np.float32) @ features.T
    return product


# -- Precision -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompactReport(Tabular):
    """The precision of codes, feature by feature.

    `error` has the largest rounding error of each feature, half of the distance between two codes;
    `share` has it as a share of the feature's standard deviation (0 for a constant feature).
    """

    bits: int
    feature: tuple[str, ...]
    error: tuple[float, ...]
    share: tuple[float, ...]

    @property
    def worst(self) -> float:
        """The largest share."""
        return max(self.share, default=0.0)

    @property
    def heavy(self) -> tuple[int, ...]:
        """The positions of features that lose more than a twentieth of their deviation."""
        return tuple(index for index, share in enumerate(self.share) if share > HEAVY_SHARE)

    @property
    def sentence(self) -> str:
        """The loss in words, and what to do about it."""
        sentence = (
            f"{self.bits} bits a feature: no value is off by more than {self.worst:.2g} of "
            "the standard deviation of its feature"
        )
        if not self.heavy:
            return f"{sentence}."
        names = [self.feature[index] for index in self.heavy]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        advice = "use 16 bits, or square roots (normalize='root-minmax')"
        return (
            f"{sentence}; {len(names)} with heavy tails ({', '.join(names[:5])}{more}) by more "
            f"than {HEAVY_SHARE:g}: {advice if self.bits == 8 else 'transform them before'}."
        )

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: one row per feature."""
        return {"feature": list(self.feature), "error": list(self.error), "share": list(self.share)}


def rounding_error(
    low: Floats, high: Floats, deviation: Floats, *, bits: int
) -> tuple[Floats, Floats]:
    """Return the largest error of codes, (high − low) / (2^bits − 1) / 2, and error / deviation.

    The second is 0 for a constant feature. All arrays are (n_features,).
    """
    error = (high - low) / (2**bits - 1) / 2
    return error, np.divide(error, deviation, out=np.zeros_like(error), where=deviation > 0)


def compact_report(
    features: NDArray[np.float32] | CompactFeatures, names: tuple[str, ...], bits: int | str
) -> CompactReport:
    """Return the precision of codes with 8 or 16 bits; "auto" is 8 unless a tail is heavy."""
    low, high = _finite_ranges(features)
    deviation = column_moments(features)[1]

    n_bits = 8 if check_bits(bits) == "auto" else int(bits)
    error, share = rounding_error(low, high, deviation, bits=n_bits)
    if bits == "auto" and (share > HEAVY_SHARE).any():
        return compact_report(features, names, 16)
    return CompactReport(n_bits, names, tuple(error.tolist()), tuple(share.tolist()))


def loss_reports(dataset: RankingDataset) -> list[CompactReport]:
    """Return the precision of a dataset's codes, or of 8 bits for float32 features.

    Empty if values are missing: codes cannot store them.
    """
    return [] if dataset.has_missing else [dataset.compact_report(dataset.bits or 8)]


def check_bits(bits: int | str) -> int | str:
    """Return 8, 16 or "auto"; reject other values."""
    if bits == "auto":
        return "auto"
    if isinstance(bits, bool) or bits not in CODE_TYPES:
        raise ParameterError(f"bits is {bits!r}, expected 8, 16 or 'auto'")
    return int(bits)


def _finite_ranges(features: NDArray[np.float32] | CompactFeatures) -> tuple[Floats, Floats]:
    """Return column minima and maxima; reject missing and infinite values."""
    if has_nan(features):
        row, column = first_nan(features)
        raise DataError(
            f"column {column} of the features is missing (NaN) in row {row}, and codes cannot "
            "store missing values: leave out bits (--bits), or fill them in before "
            "(countersample.data.preprocessing.Imputer)"
        )
    low, high = column_ranges(features)
    is_finite = np.isfinite(low) & np.isfinite(high)
    if not is_finite.all():
        raise DataError(
            f"column {int(is_finite.argmin())} of the features has a value that is not finite, "
            "expected finite numbers: replace or drop such rows"
        )
    return low, high
