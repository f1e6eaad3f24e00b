"""Which rows of a dataset: those of a query side by side, of some queries, of some items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.data.compact import CompactFeatures
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def rows_of(features: Any, rows: NDArray[np.int64]) -> Any:  # noqa: ANN401 (array or codes)
    """Return these rows of features; codes stay codes."""
    return features.take(rows) if isinstance(features, CompactFeatures) else features[rows]


def group_rows(
    ids: NDArray[Any],
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64], NDArray[Any]]:
    """Gather rows by query id, queries in first-seen order; return order, offsets and query ids.

    The order, (n,), is that of the rows; None where those of each query are adjacent already.
    """
    if ids.dtype.kind in "OUT":
        ids = np.asarray(ids.astype(str))
    elif ids.dtype.kind in "iu":
        ids = ids.astype(np.int64)
    else:
        raise DataError(f"query ids are of type {ids.dtype}, expected integers or strings")
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    _, first_run, query_of_run = np.unique(ids[starts], return_index=True, return_inverse=True)
    if len(first_run) == len(starts):
        return None, np.append(starts, len(ids)).astype(np.int64), ids[starts]
    seen = np.sort(first_run)
    rank = np.empty(len(first_run), np.int64)
    rank[np.argsort(first_run)] = np.arange(len(first_run))
    query = np.repeat(rank[query_of_run], np.diff(np.append(starts, len(ids))))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(query))]).astype(np.int64)
    return np.argsort(query, kind="stable"), offsets, ids[starts[seen]]


def query_positions(queries: ArrayLike, n_queries: int) -> NDArray[np.int64]:
    """Return the positions of the queries that are asked for by position or by a mask."""
    chosen = np.asarray(queries)
    if chosen.dtype == bool:
        if chosen.shape != (n_queries,):
            raise ParameterError(
                f"a mask of shape {chosen.shape}, expected ({n_queries},): one a query"
            )
        return np.flatnonzero(chosen)
    if chosen.size == 0:
        return np.zeros(0, np.int64)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        raise ParameterError("queries are positions: a list of integers, or a mask of bools")
    if chosen.min() < -n_queries or chosen.max() >= n_queries:
        worst = chosen.max() if chosen.max() >= n_queries else chosen.min()
        raise ParameterError(f"query {worst} of a dataset with {n_queries} queries")
    return chosen.astype(np.int64) % n_queries
