"""What scorers are made of and what they are given: shapes and numbers, checked before they count.

A file may say anything. An index that is not checked here would be read from whatever memory is
beside an array.
"""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


def entry(values: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 (JSON)
    """Return the entry of this name."""
    if not isinstance(values, dict) or name not in values:
        raise DataError(f"a scorer has no {name}, expected one")
    return values[name]


def numbers(
    name: str,
    values: Any,  # noqa: ANN401 (JSON)
    dtype: type[np.floating[Any]] = np.float64,
    *,
    ndim: int = 1,
    infinite: bool = False,
) -> NDArray[Any]:
    """Return numbers of so many dimensions; NaN is refused, and infinity unless it is allowed."""
    given = _array(name, values, "fiu", ndim, "numbers")
    with np.errstate(over="ignore"):  # what is too large for the type is infinite, and told so
        found = given.astype(dtype)
    if np.isnan(found).any() or not (infinite or np.isfinite(found).all()):
        raise DataError(
            f"{name} of a scorer has a value that is not finite, expected {found.dtype} numbers"
        )
    return found


def whole_numbers(name: str, values: Any) -> NDArray[np.int32]:  # noqa: ANN401 (JSON)
    """Return whole numbers, int32 (n,)."""
    found = _array(name, values, "iu", 1, "whole numbers")
    is_good = (found >= -(2**31)) & (found < 2**31)
    if not is_good.all():
        raise DataError(
            f"{name} of a scorer has {found[is_good.argmin()]} at {is_good.argmin()}, expected "
            "whole numbers within int32"
        )
    return found.astype(np.int32)


def yes_or_no(name: str, values: Any) -> NDArray[np.bool_]:  # noqa: ANN401 (JSON)
    """Return True and False, bool (n,)."""
    return _array(name, values, "b", 1, "true and false").astype(np.bool_)


def check_width(features: Any, n_features: int) -> None:  # noqa: ANN401 (array or codes)
    """Refuse rows that do not have the features of a scorer."""
    shape = tuple(features.shape)
    if len(shape) != 2 or shape[1] != n_features:
        raise DataError(f"features have shape {shape}, expected (n_rows, {n_features})")


def _array(name: str, values: Any, kinds: str, ndim: int, expected: str) -> NDArray[Any]:  # noqa: ANN401 (JSON)
    try:
        found = np.array(values)
    except (ValueError, OverflowError):  # rows of different lengths
        found = np.array(None)
    if found.ndim != ndim or (found.size and found.dtype.kind not in kinds):
        shape = "a list" if ndim == 1 else "rows of equal length"
        raise DataError(
            f"{name} of a scorer is {reprlib.repr(values)}, expected {shape} of {expected}"
        )
    return found
