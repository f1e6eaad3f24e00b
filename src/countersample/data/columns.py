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
    """Return column minima and maxima, float64 (n_features,)."""
    low = high = np.asarray(features[0])
    for rows in row_blocks(features):
        block = features[rows]
        low = np.minimum(low, block.min(axis=0))
        high = np.maximum(high, block.max(axis=0))
    return low.astype(np.float64), high.astype(np.float64)


def moments(features: Any) -> Pair:  # noqa: ANN401 (as above)
    """Column means and standard deviations, √(Σ(x − mean)² / n), by merging those of blocks.

    Blocks are merged as by Chan, Golub and LeVeque (1983). The first row is taken off before, so
    that a constant column has deviations of exactly 0.
    """
    first = features[0].astype(np.float64)
    count, mean, squares = 0, np.zeros_like(first), np.zeros_like(first)
    for rows in row_blocks(features):
        block = features[rows] - first
        block_mean = block.mean(axis=0)
        block -= block_mean
        delta = block_mean - mean
        total = count + len(block)
        squares += np.square(block, out=block).sum(axis=0) + delta**2 * (count * len(block) / total)
        mean += delta * (len(block) / total)
        count = total
    return first + mean, np.sqrt(squares / count)
