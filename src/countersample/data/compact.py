"""Features in 8 or 16 bits: codes, with a scale and an offset for each feature.

Training reads features and does little else, so that what it reads decides how fast it is. A code
takes a quarter, or half, of the memory of a float32 number.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._frames import Tabular
from countersample.data._arrays import first_nan, has_nan
from countersample.data.columns import ends, moments, row_blocks
from countersample.data.heavy_tails import (
    MOST_ROOTS,
    SHARE,
    RootScale,
    choose_roots,
    rooted,
    share_lost,
    unrooted,
)
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats

    Codes = NDArray[Any]  # uint8 or uint16

TYPES: dict[int, type[np.unsignedinteger[Any]]] = {8: np.uint8, 16: np.uint16}


@dataclass(frozen=True, eq=False)
class CompactFeatures:
    """x = offset + scale · code, feature by feature.

    It stands where a float32 matrix (n_items, n_features) does: an index gives float32 numbers.

    With roots, offset + scale · code is a feature's value on a root scale, and x is that value
    times its size, as often as there were roots (`countersample.data.heavy_tails`).

    Attributes
    ----------
    codes : uint8 or uint16 (n_items, n_features), C-contiguous
    scale, offset : float64 (n_features,)
    roots : tuple of int, one a feature; None where no feature takes any

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
    roots: tuple[int, ...] | None = None

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
        if self.roots is not None and not (
            len(self.roots) == self.codes.shape[1]
            and all(times in range(MOST_ROOTS + 1) for times in self.roots)
        ):
            raise DataError(
                f"roots of codes are {reprlib.repr(self.roots)}, expected {self.codes.shape[1]} "
                f"whole numbers of 0 to {MOST_ROOTS}: one for each feature"
            )

    @classmethod
    def of(
        cls,
        features: NDArray[np.float32],
        *,
        bits: int,
        roots: tuple[int, ...] | None = None,
        out: Codes | None = None,
    ) -> CompactFeatures:
        """Encode: the smallest value of a feature is 0, the largest 2^bits − 1, between them even.

        With roots that is on the root scale. A feature with one value only has a scale of 0. `out`
        takes the codes, such as a file.
        """
        low, high = _ends(features)
        if roots is not None:
            low, high = rooted(low, roots), rooted(high, roots)
        scale = (high - low) / (2**bits - 1)
        factor = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        codes = np.empty(features.shape, TYPES[bits]) if out is None else out
        for rows in row_blocks(features):
            block = features[rows] if roots is None else rooted(features[rows], roots)
            codes[rows] = np.rint((block - low) * factor)
        return cls(codes, scale, low, roots)

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
        if self.roots is not None:
            numbers = unrooted(numbers, np.array(self.roots)[columns])
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
        return CompactFeatures(self.codes[np.asarray(rows)], self.scale, self.offset, self.roots)

    def select(self, columns: list[int]) -> CompactFeatures:
        """Return these columns."""
        codes = np.ascontiguousarray(self.codes[:, columns])
        roots = None if self.roots is None else tuple(self.roots[column] for column in columns)
        return CompactFeatures(codes, self.scale[columns], self.offset[columns], roots)

    @property
    def linear(self) -> CompactFeatures:
        """The same codes, of the values on the root scale, which are linear in them."""
        return self if self.roots is None else CompactFeatures(self.codes, self.scale, self.offset)

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """All that is kept: codes, scale and offset, and roots where there are any."""
        roots = [] if self.roots is None else [np.array(self.roots, np.int64)]
        return [self.codes, self.scale, self.offset, *roots]

    def scaled(self, shift: Floats, factor: Floats) -> CompactFeatures:
        """(x − shift) · factor, of the same codes, which are without roots."""
        return CompactFeatures(self.codes, self.scale * factor, (self.offset - shift) * factor)

    def recoded(self, growing: Callable[[NDArray[np.float32]], Floats]) -> CompactFeatures:
        """Return new codes, of as many bits, of a function that grows with each feature."""
        most = 2**self.bits - 1
        ends_of_codes = np.array([[0], [most]], self.codes.dtype).repeat(self.shape[1], axis=1)
        ends_of_values = CompactFeatures(ends_of_codes, self.scale, self.offset, self.roots)[:]
        low, high = growing(ends_of_values).astype(np.float64)
        scale = (high - low) / most
        factor = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        codes = np.empty_like(self.codes)
        for rows in row_blocks(self):
            codes[rows] = np.rint(np.clip((growing(self[rows]) - low) * factor, 0, most))
        return CompactFeatures(codes, scale, low)

    def scores(self, weights: Floats) -> NDArray[np.float32]:
        """W·xᵀ, (n_weights, n_items) float32: Σ code·(scale·w) + Σ offset·w, without roots."""
        if self.roots is not None:
            parts = [np.asarray(weights, np.float32) @ self[rows].T for rows in row_blocks(self)]
            return np.concatenate([np.zeros((len(weights), 0), np.float32), *parts], axis=1)
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
    roots : tuple of int
        How often the square root is taken of the feature before it is encoded.
    error : tuple of float
        The most that a value can be off, on that scale: half of the step from code to code.
    share : tuple of float
        That as a share of the standard deviation of the feature, on that scale; 0 where it is
        constant.
    with_roots : bool
        Whether heavy tails were to be put on a root scale.
    """

    bits: int
    feature: tuple[str, ...]
    roots: tuple[int, ...]
    error: tuple[float, ...]
    share: tuple[float, ...]
    with_roots: bool = False

    @property
    def worst(self) -> float:
        """The largest share."""
        return max(self.share, default=0.0)

    @property
    def roots_taken(self) -> tuple[int, ...] | None:
        """The roots; None where no feature takes any."""
        return self.roots if any(self.roots) else None

    @property
    def heavy(self) -> tuple[int, ...]:
        """The positions of features of which more than a twentieth of the deviation is lost."""
        return tuple(index for index, share in enumerate(self.share) if share > SHARE)

    @property
    def sentence(self) -> str:
        """What is lost, in words, and what to do where it is much."""
        n_rooted = sum(times > 0 for times in self.roots)
        where = f" ({n_rooted:,} of them on a root scale)" if n_rooted else ""
        told = (
            f"{self.bits} bits a feature{where}: no value is off by more than {self.worst:.2g} of "
            "the standard deviation of its feature"
        )
        if not self.heavy:
            return f"{told}."
        names = [self.feature[index] for index in self.heavy]
        named = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        ways = ["16 bits"] if self.bits == 8 else []
        if not self.with_roots:
            ways.append("a root scale (roots=True, --roots)")
        advice = f"take {', or '.join(ways)}" if ways else "transform them yourself"
        return (
            f"{told}; of {len(names)} with heavy tails ({named}) by more than {SHARE:g}: {advice}."
        )

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: a row for each feature."""
        return {name: list(getattr(self, name)) for name in ("feature", "roots", "error", "share")}


def compact_report(
    features: NDArray[np.float32] | CompactFeatures,
    names: tuple[str, ...],
    bits: int,
    *,
    roots: bool = False,
) -> CompactReport:
    """Return what codes of so many bits lose of these features; of codes, on the scale they are on.

    Parameters
    ----------
    features, names, bits
    roots : bool
        Whether features with heavy tails are put on a root scale before (`choose_roots`).

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.data.compact import compact_report
    >>> column = np.array([[0.0], [255.0]], np.float32)  # a standard deviation of 127.5
    >>> compact_report(column, ("length",), 8).error
    (0.5,)
    """
    low, high = _ends(features)
    if isinstance(features, CompactFeatures):
        chosen, roots = features.roots, features.roots is not None
    else:
        chosen = choose_roots(features) if roots else None
    deviation = moments(features)[1]
    if chosen is not None:
        low, high, columns = rooted(low, chosen), rooted(high, chosen), np.flatnonzero(chosen)
        view = RootScale(features, np.array(chosen)[columns], columns)
        deviation[columns] = moments(view)[1]
    error, share = (each.tolist() for each in share_lost(low, high, deviation, bits))
    times = (0,) * features.shape[1] if chosen is None else chosen
    return CompactReport(bits, names, times, tuple(error), tuple(share), roots)


def choose_bits(
    features: NDArray[np.float32], names: tuple[str, ...], bits: int | str, *, roots: bool = False
) -> CompactReport:
    """Return the report of the bits that are asked for; of "auto" the fewest that lose little.

    Raises
    ------
    ParameterError
        For bits other than 8, 16 and "auto".
    """
    if check_bits(bits) == "auto":
        report = compact_report(features, names, 8, roots=roots)
        if not report.heavy:
            return report
        return compact_report(features, names, 16, roots=roots)
    return compact_report(features, names, int(bits), roots=roots)


def check_bits(bits: int | str) -> int | str:
    """Return 8, 16 or "auto"; refuse anything else."""
    if bits == "auto":
        return "auto"
    if isinstance(bits, bool) or bits not in TYPES:
        raise ParameterError(f"bits is {bits!r}, expected 8, 16 or 'auto'")
    return int(bits)


def _ends(features: NDArray[np.float32] | CompactFeatures) -> tuple[Floats, Floats]:
    """Return the smallest and the largest value of each feature, which have to be finite."""
    if has_nan(features):
        row, column = first_nan(features)
        raise DataError(
            f"column {column} of the features is missing (NaN) in row {row}, and codes have no "
            "room for what is missing: leave out bits (--bits), or fill it in before "
            "(countersample.data.imputing.Imputer)"
        )
    low, high = ends(features)
    if not (np.isfinite(low) & np.isfinite(high)).all():
        column = int((np.isfinite(low) & np.isfinite(high)).argmin())
        raise DataError(
            f"column {column} of the features has a value that is not finite, expected finite "
            "numbers: replace or drop such rows"
        )
    return low, high
