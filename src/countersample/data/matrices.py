"""Feature matrices: checks of their values, and statistics of columns, computed block by block.

A matrix may be a memory map larger than memory, or codes (`CompactFeatures`), so every function
reads it in blocks of rows of about 1 MB. NaN is a missing value; infinity is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.data.dataset import RankingDataset

BLOCK_VALUES = 2**18  # 1 MB of float32: a block is read from memory once and stays in cache


def row_blocks(features: Any) -> Iterator[slice]:  # noqa: ANN401 (array or codes)
    """Yield slices of rows, about 1 MB of float32 each, that cover the matrix in order.

    Examples
    --------
    >>> [rows.stop - rows.start for rows in row_blocks(np.empty((100_000, 5), np.float32))]
    [52428, 47572]
    """
    n_rows, n_features = features.shape
    step = max(1, BLOCK_VALUES // max(1, n_features))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def query_blocks(offsets: NDArray[np.int64], n_features: int) -> Iterator[tuple[int, int]]:
    """Yield the first query, and the one after the last, of blocks of about 1 MB of float32."""
    step = max(1, BLOCK_VALUES // max(1, n_features))
    first = 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + step, side="right")) - 1
        yield first, max(last, first + 1)
        first = max(last, first + 1)


# -- Statistics of columns -------------------------------------------------------------------------


def column_ranges(features: Any) -> tuple[Floats, Floats]:  # noqa: ANN401 (array or codes)
    """Return column minima and maxima, float64 (n_features,); 0 for a column without values."""
    low = high = np.asarray(features[0])
    for rows in row_blocks(features):
        block = features[rows]
        low = np.fmin(low, np.fmin.reduce(block))
        high = np.fmax(high, np.fmax.reduce(block))
    is_empty = np.isnan(low)
    return (
        np.where(is_empty, 0, low).astype(np.float64),
        np.where(is_empty, 0, high).astype(np.float64),
    )


def column_moments(
    features: Any,  # noqa: ANN401 (array or codes)
    function: Callable[[Any], Any] = np.asarray,
) -> tuple[Floats, Floats]:
    """Return column means and standard deviations, √(Σ(x − mean)² / n), float64 (n_features,).

    Statistics of blocks are merged as by Chan, Golub and LeVeque (1983). The first value is
    subtracted before, so that a constant column has a deviation of exactly 0. Missing values do not
    count. `function` is applied to the rows first.
    """
    first = _first_values(features, function)
    count = np.zeros(len(first), np.int64)
    mean, squares = np.zeros_like(first), np.zeros_like(first)
    for rows in row_blocks(features):
        block = function(features[rows])
        is_missing = np.isnan(block)
        block, block_count = block - first, np.full_like(count, len(block))
        if is_missing.any():
            block_count -= is_missing.sum(axis=0)
            block_mean = np.where(is_missing, 0, block).sum(axis=0) / np.maximum(block_count, 1)
            block = np.where(is_missing, 0, block - block_mean)
        else:
            block_mean = block.mean(axis=0)
            block -= block_mean
        delta = block_mean - mean
        total = np.maximum(count + block_count, 1)
        between = delta**2 * (count * block_count / total)
        squares += np.square(block, out=block).sum(axis=0) + between
        mean += delta * (block_count / total)
        count += block_count
    return first + mean, np.sqrt(squares / np.maximum(count, 1))


def _first_values(features: Any, function: Callable[[Any], Any]) -> Floats:  # noqa: ANN401
    """Return the first value of each column that is not missing; 0 for a column without values."""
    first: Floats = function(features[:1])[0].astype(np.float64)
    for rows in row_blocks(features):
        if not np.isnan(first).any():
            break
        block = function(features[rows])
        candidates = np.take_along_axis(block, (~np.isnan(block)).argmax(axis=0)[None], axis=0)[0]
        first = np.where(np.isnan(first), candidates, first)
    return np.nan_to_num(first, posinf=np.inf, neginf=-np.inf)


# -- Checks ----------------------------------------------------------------------------------------


def as_numbers(values: ArrayLike, name: str) -> NDArray[np.float32]:
    """Return float32 numbers; reject values of other types."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{name} must be an array of numbers ({error})") from error
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} is of type {array.dtype}, expected numbers")
    with np.errstate(over="ignore"):  # an overflow becomes infinity, which is rejected later
        return array.astype(np.float32, copy=False)


def check_matrix(features: Any) -> int:  # noqa: ANN401 (array or codes)
    """Return the number of rows of a float32 matrix; codes check themselves."""
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
    """Reject offsets, unless they start queries of at least one item and end with `n_items`."""
    if offsets.ndim != 1 or offsets.dtype != np.int64 or len(offsets) == 0:
        raise DataError("offsets must be an int64 vector of length n_queries + 1")
    if offsets[0] != 0 or offsets[-1] != n_items:
        raise DataError(
            f"offsets run from {offsets[0]} to {offsets[-1]}, expected 0 to {n_items}, the number "
            "of rows"
        )
    if len(offsets) > 1 and np.diff(offsets).min() < 1:
        query = int(np.diff(offsets).argmin())
        raise DataError(f"query {query} has no items, expected at least one per query")


def has_nan(values: Any) -> bool:  # noqa: ANN401 (array or codes, which have none)
    """Return whether a value is missing (NaN)."""
    return isinstance(values, np.ndarray) and _find(values, np.isnan) is not None


def first_nan(values: Any) -> tuple[int, int]:  # noqa: ANN401 (array or codes)
    """Return the row and column of the first missing value; there must be one."""
    place = _find(values, np.isnan)
    assert place is not None  # noqa: S101 (as the docstring says)
    return place


def check_features(values: Any, name: str) -> None:  # noqa: ANN401 (array or codes)
    """Reject infinity in features, with its row and column; NaN is a missing value."""
    place = _find(values, np.isinf) if isinstance(values, np.ndarray) else None
    if place is not None:
        raise DataError(
            f"{name} has {values[place]} in row {place[0]}, column {place[1]} (both counted from "
            "0), expected finite float32 numbers, or NaN for a missing value: replace or drop such "
            "rows"
        )


def check_no_missing(dataset: RankingDataset) -> None:
    """Reject missing values, for training that does not fill them in."""
    if dataset.has_missing:
        row, column = first_nan(dataset.features)
        raise DataError(
            f"the features have NaN in row {row}, column {column} (both counted from 0), expected "
            "finite numbers: fill in missing values with countersample.data.preprocessing.Imputer, "
            "or train a ranker, which does"
        )


def check_finite(values: NDArray[np.float32], name: str) -> None:
    """Reject a vector with a value that is not finite."""
    is_finite = np.isfinite(values)
    if not is_finite.all():
        row = int(is_finite.argmin())
        raise DataError(
            f"{name} has {values[row]} at row {row}, expected finite float32 numbers: replace or "
            "drop such rows"
        )


def _find(values: NDArray[Any], is_bad: Callable[[Any], Any]) -> tuple[int, int] | None:
    """Return the row and column of the first bad number, such as NaN; None if there is none.

    The minimum and the maximum of a block with NaN are NaN: two fast reductions skip most blocks.
    """
    for rows in row_blocks(values):
        block = values[rows]
        if block.size and not (np.isfinite(block.min()) and np.isfinite(block.max())):
            places = np.argwhere(is_bad(block))
            if len(places):
                return rows.start + int(places[0][0]), int(places[0][1])
    return None
