"""What the arrays of a dataset must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.data.columns import row_blocks
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from countersample.data.dataset import RankingDataset


def as_numbers(values: ArrayLike, name: str) -> NDArray[np.float32]:
    """Return float32 numbers; refuse what is none."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{name} must be an array of numbers ({error})") from error
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} is of type {array.dtype}, expected numbers")
    with np.errstate(over="ignore"):  # what overflows is found, and said, as not finite
        return array.astype(np.float32, copy=False)


def check_matrix(features: Any) -> int:  # noqa: ANN401 (array or codes)
    """Return the number of rows of a float32 matrix; refuse anything else.

    Codes are checked where they are made: see `countersample.data.compact`.
    """
    if not isinstance(features, np.ndarray):
        return int(features.shape[0])
    if features.ndim != 2 or features.dtype != np.float32:
        raise DataError(
            f"features are {features.dtype} of shape {features.shape}, expected a float32 matrix "
            "(n_items, n_features)"
        )
    if not features.flags.c_contiguous:
        raise DataError("features are not C-contiguous: pass numpy.ascontiguousarray(features)")
    return int(features.shape[0])


def check_offsets(offsets: NDArray[Any], n_items: int) -> None:
    """Refuse offsets that do not start queries of at least one item."""
    if offsets.ndim != 1 or offsets.dtype != np.int64 or len(offsets) == 0:
        raise DataError("offsets must be an int64 vector of length n_queries + 1")
    if offsets[0] != 0 or offsets[-1] != n_items:
        raise DataError(f"offsets run from {offsets[0]} to {offsets[-1]}, expected 0 to {n_items}")
    if len(offsets) > 1 and np.diff(offsets).min() < 1:
        query = int(np.diff(offsets).argmin())
        raise DataError(f"query {query} has no items, expected at least one a query")


def has_nan(values: Any) -> bool:  # noqa: ANN401 (array or codes, which have none)
    """Tell whether a number is NaN: in features, a value that is missing."""
    if not isinstance(values, np.ndarray):
        return False
    return any(np.isnan(values[rows]).any() for rows in _suspicious(values))


def check_features(values: Any, name: str) -> None:  # noqa: ANN401 (as above)
    """Refuse infinity in features, with where it is; NaN is a value that is missing.

    This is the one place that says what features may be, and codes have nothing else.
    """
    if not isinstance(values, np.ndarray):
        return
    for rows in _suspicious(values):
        is_bad = np.isinf(values[rows])
        if is_bad.any():
            row, column = np.argwhere(is_bad)[0]
            raise DataError(
                f"{name} has {values[rows][row, column]} in row {rows.start + row}, column "
                f"{column} (both counted from 0), expected finite float32 numbers, or NaN for what "
                "is missing: replace or drop such rows"
            )


def first_nan(values: Any) -> tuple[int, int]:  # noqa: ANN401 (as above)
    """Return the row and column of the first value that is missing; there is one."""
    rows = next(rows for rows in _suspicious(values) if np.isnan(values[rows]).any())
    row, column = np.argwhere(np.isnan(values[rows]))[0]
    return rows.start + int(row), int(column)


def refuse_missing(dataset: RankingDataset) -> None:
    """Refuse NaN where nobody fills it in."""
    if dataset.has_missing:
        row, column = first_nan(dataset.features)
        raise DataError(
            f"the features have NaN in row {row}, column {column} (both counted from 0), expected "
            "finite numbers: fill in what is missing with countersample.data.imputing.Imputer, or "
            "train a ranker, which does"
        )


def _suspicious(values: NDArray[Any]) -> Iterator[slice]:
    """Yield blocks of rows with a number that is not finite: NaN is both the least and the most."""
    for rows in row_blocks(values):
        block = values[rows]
        if block.size and not (np.isfinite(block.min()) and np.isfinite(block.max())):
            yield rows


def check_finite(values: NDArray[np.float32], name: str) -> None:
    """Refuse a value that is not finite, with where it is."""
    # A sum is finite unless a member is not (or it overflows): one cheap pass for the usual case.
    if np.isfinite(np.sum(values, dtype=np.float64)):
        return
    bad = np.argwhere(~np.isfinite(values))[0]
    where = f"row {bad[0]}" + (f", column {bad[1]}" if len(bad) > 1 else "")
    raise DataError(
        f"{name} has {values[tuple(bad)]} at {where}, expected finite float32 numbers: "
        "replace or drop such rows"
    )
