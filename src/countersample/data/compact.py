"""Features in 8 or 16 bits: codes, with a scale and an offset for each feature.

Training reads features and does little else, so that what it reads decides how fast it is. A code
takes a quarter, or half, of the memory of a float32 number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._frames import Tabular
from countersample.data.normalize import METHODS, row_blocks
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats

    Codes = NDArray[Any]  # uint8 or uint16

TYPES: dict[int, type[np.unsignedinteger[Any]]] = {8: np.uint8, 16: np.uint16}
#: "auto" takes the fewest bits with which no value is off by more than this share of the standard
#: deviation of its feature: rounding then adds less than a thousandth to its variance.
SHARE = 0.05


@dataclass(frozen=True, eq=False)
class CompactFeatures:
    """x = offset + scale · code, feature by feature.

    It stands where a float32 matrix (n_items, n_features) does: an index gives float32 numbers.

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
    >>> x.scores(np.array([[1.0, 2.0]]))  # of a weight of 1 and one of 2
    array([[14.      , 15.019608, 24.      ]], dtype=float32)
    """

    codes: Codes
    scale: Floats
    offset: Floats

    def __post_init__(self) -> None:
        if self.codes.dtype not in (np.uint8, np.uint16) or self.codes.ndim != 2:
            raise DataError(
                f"codes are {self.codes.dtype} of shape {self.codes.shape}, expected a uint8 or "
                "uint16 matrix (n_items, n_features)"
            )
        if not self.codes.flags.c_contiguous:
            raise DataError("codes are not C-contiguous: pass numpy.ascontiguousarray(codes)")
        for name in ("scale", "offset"):
            column = getattr(self, name)
            if column.shape != (self.codes.shape[1],) or not np.isfinite(column).all():
                raise DataError(
                    f"{name} of codes has shape {column.shape}, expected ({self.codes.shape[1]},) "
                    "finite numbers: one for each feature"
                )

    @classmethod
    def of(
        cls, features: NDArray[np.float32], *, bits: int, out: Codes | None = None
    ) -> CompactFeatures:
        """Encode: the smallest value of a feature is 0, the largest 2^bits − 1, between them even.

        A feature with one value only has a scale of 0. `out` takes the codes, such as a file.
        """
        low, high = _ends(features)
        most = 2**bits - 1
        scale = (high - low) / most
        factor = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        codes = np.empty(features.shape, TYPES[bits]) if out is None else out
        for rows in row_blocks(features):
            codes[rows] = np.rint((features[rows] - low) * factor)
        return cls(codes, scale, low)

    # -- as a matrix

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
        """Of a code: 8 or 16."""
        return 8 * self.codes.itemsize

    ndim = 2
    dtype = np.dtype(np.float32)  # of what an index gives

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
        given = np.asarray(weights, np.float64)
        return self.scores(given[None])[0] if given.ndim == 1 else self.scores(given.T).T

    # -- what stays codes

    def take(self, rows: ArrayLike) -> CompactFeatures:
        """Return these rows."""
        return CompactFeatures(self.codes[np.asarray(rows)], self.scale, self.offset)

    def select(self, columns: list[int]) -> CompactFeatures:
        """Return these columns."""
        codes = np.ascontiguousarray(self.codes[:, columns])
        return CompactFeatures(codes, self.scale[columns], self.offset[columns])

    def scaled(self, shift: Floats, factor: Floats) -> CompactFeatures:
        """(x − shift) · factor, of the same codes."""
        return CompactFeatures(self.codes, self.scale * factor, (self.offset - shift) * factor)

    def scores(self, weights: Floats) -> NDArray[np.float32]:
        """W·xᵀ, (n_weights, n_items) float32: Σ code·(scale·w) + Σ offset·w."""
        folded = (weights * self.scale).astype(np.float32)
        constant = (weights @ self.offset).astype(np.float32)[:, None]
        scores = np.empty((len(weights), len(self)), np.float32)
        for rows in row_blocks(self):  # a block of numbers stays in cache
            np.matmul(folded, self.codes[rows].astype(np.float32).T, out=scores[:, rows])
        scores += constant
        return scores


@dataclass(frozen=True)
class CompactReport(Tabular):
    """What is lost by codes of so many bits, feature by feature.

    Attributes
    ----------
    bits : int
    feature : tuple of str
    error : tuple of float
        The most that a value can be off: half of the scale.
    share : tuple of float
        That as a share of the standard deviation of the feature; 0 where it is constant.
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
    def sentence(self) -> str:
        """What is lost, in words."""
        over = [name for name, share in zip(self.feature, self.share, strict=True) if share > SHARE]
        told = (
            f"{self.bits} bits a feature: no value is off by more than {self.worst:.2g} of the "
            "standard deviation of its feature"
        )
        if not over:
            return f"{told}."
        named = ", ".join(over[:5]) + (f" and {len(over) - 5} more" if len(over) > 5 else "")
        more = "take 16 bits" if self.bits == 8 else "take logarithms of them, or clip them"
        return f"{told}; of {len(over)} with long tails ({named}) by more than {SHARE:g}: {more}."

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: a row for each feature."""
        return {name: list(getattr(self, name)) for name in ("feature", "error", "share")}


def compact_report(
    features: NDArray[np.float32] | CompactFeatures, names: tuple[str, ...], bits: int
) -> CompactReport:
    """Return what codes of so many bits lose of these features.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.data.compact import compact_report
    >>> column = np.array([[0.0], [255.0]], np.float32)  # a standard deviation of 127.5
    >>> compact_report(column, ("length",), 8).error
    (0.5,)
    """
    low, high = _ends(features)
    deviation = _deviations(features)
    error = (high - low) / (2**bits - 1) / 2
    share = np.divide(error, deviation, out=np.zeros_like(error), where=deviation > 0)
    return CompactReport(bits, names, tuple(error.tolist()), tuple(share.tolist()))


def choose_bits(
    features: NDArray[np.float32], names: tuple[str, ...], bits: int | str
) -> CompactReport:
    """Return the report of the bits that are asked for; of "auto" the fewest that lose little.

    Raises
    ------
    ParameterError
        For bits other than 8, 16 and "auto".
    """
    if check_bits(bits) == "auto":
        report = compact_report(features, names, 8)
        return report if report.worst <= SHARE else compact_report(features, names, 16)
    return compact_report(features, names, int(bits))


def check_bits(bits: int | str) -> int | str:
    """Return 8, 16 or "auto"; refuse anything else."""
    if bits == "auto":
        return "auto"
    if isinstance(bits, bool) or bits not in TYPES:
        raise ParameterError(f"bits is {bits!r}, expected 8, 16 or 'auto'")
    return int(bits)


def _ends(features: NDArray[np.float32] | CompactFeatures) -> tuple[Floats, Floats]:
    """Return the smallest and the largest value of each feature."""
    low = high = np.asarray(features[0])
    for rows in row_blocks(features):
        block = features[rows]
        low = np.minimum(low, block.min(axis=0))
        high = np.maximum(high, block.max(axis=0))
    if not (np.isfinite(low) & np.isfinite(high)).all():
        column = int((np.isfinite(low) & np.isfinite(high)).argmin())
        raise DataError(
            f"column {column} of the features has a value that is not finite, expected finite "
            "numbers: replace or drop such rows"
        )
    return low.astype(np.float64), high.astype(np.float64)


def _deviations(features: NDArray[np.float32] | CompactFeatures) -> Floats:
    standard = METHODS["standard"]
    assert standard is not None  # noqa: S101 (of the registry)
    deviation: Floats = standard(features)[1]  # type: ignore[arg-type] # read by blocks
    return deviation
