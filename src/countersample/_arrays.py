"""Types of arrays for annotations, and checks of columns that a user passes as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from countersample.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def as_indices(values: ArrayLike, name: str) -> NDArray[np.int32]:
    """Return whole numbers from 0 as int32, (n_rows,)."""
    array = as_column(values, name)
    if array.size and array.dtype.kind not in "iu":
        raise DataError(f"{name} is of type {array.dtype}, expected integers")
    check_rows(array, name, "an index, counted from 0", (array >= 0) & (array < 2**31))
    return array.astype(np.int32, copy=False)


def as_codes(values: ArrayLike, name: str) -> NDArray[np.int64]:
    """Return integers as they are, and text as codes; int64, (n_rows,)."""
    array = as_column(values, name)
    if array.dtype.kind in "iu":
        return array.astype(np.int64, copy=False)
    if array.size and array.dtype.kind not in "OUTS":
        raise DataError(f"{name} is of type {array.dtype}, expected integers or strings")
    try:
        return np.unique(array.astype(str), return_inverse=True)[1].astype(np.int64)
    except ValueError as error:  # lists
        raise DataError(f"{name} must be integers or strings ({error})") from error


def as_numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return numbers as float64, (n_rows,)."""
    array = as_column(values, name)
    if array.size and array.dtype.kind not in "fiub":
        raise DataError(f"{name} is of type {array.dtype}, expected numbers")
    return array.astype(np.float64, copy=False)


def as_column(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return an array of one dimension."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{name} must be a column ({error})") from error
    if array.ndim != 1:
        raise DataError(f"{name} has shape {array.shape}, expected a column (n_rows,)")
    return array


def check_rows(column: NDArray[Any], name: str, expected: str, is_valid: NDArray[np.bool_]) -> None:
    """Reject the first row that is not valid, with its number."""
    if not is_valid.all():
        row = int(is_valid.argmin())
        raise DataError(f"{name} is {column[row]} in row {row}, expected {expected}")
