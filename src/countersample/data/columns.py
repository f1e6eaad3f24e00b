"""Features read block by block: ends, means and standard deviations of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Pair = tuple[NDArray[np.float64], NDArray[np.float64]]

_BLOCK_VALUES = 2**18  # 1 MB of float32: a block is read from memory once and stays in cache


def row_blocks(features: Any) -> Iterator[slice]:  # noqa: ANN401 (array or codes)
    """Slices of rows, about 1 MB of float32 each, that cover the matrix in order.

    Examples
    --------
    >>> [rows.stop - rows.start for rows in row_blocks(np.empty((100_000, 5), np.float32))]
    [52428, 47572]
    """
    n_rows, n_features = features.shape
    step = max(1, _BLOCK_VALUES // max(1, n_features))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def query_blocks(offsets: NDArray[np.int64], n_features: int) -> Iterator[tuple[int, int]]:
    """Yield the first query, and the one after the last, of blocks of about 1 MB of float32."""
    step = max(1, _BLOCK_VALUES // max(1, n_features))
    first = 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + step, side="right")) - 1
        yield first, max(last, first + 1)
        first = max(last, first + 1)


def ends(features: Any) -> Pair:  # noqa: ANN401 (as above)
    """Return column minima and maxima of what is there, float64 (n_features,); 0 of nothing."""
    low = high = np.asarray(features[0])
    for rows in row_blocks(features):
        block = features[rows]
        low = np.fmin(low, np.fmin.reduce(block))
        high = np.fmax(high, np.fmax.reduce(block))
    nothing = np.isnan(low)
    return tuple(np.where(nothing, 0, end).astype(np.float64) for end in (low, high))  # type: ignore[return-value] # of two


def moments(features: Any) -> Pair:  # noqa: ANN401 (as above)
    """Column means and standard deviations, √(Σ(x − mean)² / n), by merging those of blocks.

    Blocks are merged as by Chan, Golub and LeVeque (1983). The first row is taken off before, so
    that a constant column has deviations of exactly 0. What is missing does not count.
    """
    first = _first_there(features)
    count, mean, squares = (
        np.zeros(len(first), np.int64),
        np.zeros_like(first),
        np.zeros_like(first),
    )
    for rows in row_blocks(features):
        block = features[rows]
        is_missing = np.isnan(block)
        block, added = block - first, np.full_like(count, len(block))
        if is_missing.any():
            added -= is_missing.sum(axis=0)
            block_mean = np.where(is_missing, 0, block).sum(axis=0) / np.maximum(added, 1)
            block = np.where(is_missing, 0, block - block_mean)
        else:
            block_mean = block.mean(axis=0)
            block -= block_mean
        delta = block_mean - mean
        total = np.maximum(count + added, 1)
        squares += np.square(block, out=block).sum(axis=0) + delta**2 * (count * added / total)
        mean += delta * (added / total)
        count += added
    return first + mean, np.sqrt(squares / np.maximum(count, 1))


def _first_there(features: Any) -> NDArray[np.float64]:  # noqa: ANN401 (as above)
    """Return the first value of each column that is not missing; 0 of nothing."""
    first: NDArray[np.float64] = features[0].astype(np.float64)
    for rows in row_blocks(features):
        if not np.isnan(first).any():
            break
        block = features[rows]
        is_there = ~np.isnan(block)
        found = np.take_along_axis(block, is_there.argmax(axis=0)[None], axis=0)[0]
        first = np.where(np.isnan(first), found, first)
    return np.nan_to_num(first, posinf=np.inf, neginf=-np.inf)
