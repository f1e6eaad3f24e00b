"""Groups that an engine has counted, as they arrive, put together: Arrow in, arrays out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks.impressions.columns import INTEGER
from countersample.clicks.impressions.counts import PositionCounts, row_keys
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from numpy.typing import NDArray

# The id of what stands for all items that were never clicked: no item of a log has it.
NEVER_CLICKED = "(never clicked)"
NEVER_CLICKED_INTEGER = np.iinfo(np.int64).min


def assemble(
    batches: Iterable[pa.RecordBatch],
    *,
    has_text_ids: bool,
    has_text_items: bool,
    sessions: pa.Table | None = None,
    n_sessions: int | None = None,
) -> PositionCounts:
    """Make counts of groups; `sessions` are those of each query, where the log has ids of them.

    Ids that came as text may mean numbers; `has_text_items` says so of items, as not all of them
    may be here: groups without ``item_id``, which come last, are of items that were never clicked.
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    coded: dict[str, list[Any]] = {}
    for batch in batches:
        for name in batch.schema.names:
            column = batch[name]
            if name in {"query_id", "item_id", "context"}:
                coded.setdefault(name, []).append(as_ids(column))
            elif name == "value":
                coded.setdefault(name, []).append(column.cast(pa.float64()).to_numpy())
            else:
                is_narrow = pa.types.is_integer(column.type)
                whole = column if is_narrow else column.cast(pa.int64())
                coded.setdefault(name, []).append(whole.to_numpy())
    ids: dict[str, tuple[NDArray[np.int32], NDArray[Any]]] = {}
    for name in ("query_id", "item_id", "context"):
        if coded.get(name):
            text = {"query_id": has_text_ids, "item_id": has_text_items}.get(name, False)
            ids[name] = encode(pa.chunked_array(coded.pop(name)), has_text_ids=text)
    query, query_ids = ids["query_id"]
    nothing = np.zeros(0, np.int32), np.zeros(0, np.int64)  # where nothing was clicked
    item, item_ids = ids.get("item_id", nothing)
    item, item_ids, rest = _with_rest(item, item_ids, len(query))
    context, context_ids = ids.get("context", (None, None))
    numbers = {name: np.concatenate(coded.pop(name)) for name in list(coded)}
    if not np.isfinite(numbers.get("value", 0.0)).all():
        raise DataError("values of clicks add up to more than a number can say: make them smaller")
    return PositionCounts.from_codes(
        query,
        item,
        numbers["position"],
        numbers["impressions"],
        numbers["clicks"],
        query_ids,
        item_ids,
        context=context,
        context_ids=context_ids,
        value=numbers.get("value"),
        sessions=None if sessions is None else _in_order(sessions, has_text_ids=has_text_ids),
        n_sessions=n_sessions,
        rest=rest,
    )


def as_ids(column: pa.Array | pa.ChunkedArray) -> Any:  # noqa: ANN401 (as it came)
    """Return a column of ids as 64-bit integers or text."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    return column.cast(pa.int64() if pa.types.is_integer(column.type) else pa.large_string())


def encode(
    column: pa.ChunkedArray, *, has_text_ids: bool
) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return ids as positions in their sorted distinct values, and those.

    Ids of a text file become integers where all of them are written as such ("7", not "07").
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import compute  # noqa: PLC0415

    column = as_ids(column).dictionary_encode()  # with one dictionary for all pieces
    if not len(column):
        is_text = not pa.types.is_integer(column.type.value_type)
        return np.zeros(0, np.int32), np.zeros(0, np.str_ if is_text else np.int64)
    distinct = column.chunk(0).dictionary
    is_text = not pa.types.is_integer(distinct.type)
    is_written = compute.match_substring_regex(distinct, INTEGER) if has_text_ids else None
    if is_written is not None and compute.all(is_written).as_py():
        distinct, is_text = distinct.cast(pa.int64()), False
    order = compute.array_sort_indices(distinct)
    rank = np.empty(len(order), np.int32)
    rank[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    if is_text and compute.any(compute.ends_with(distinct, "\0")).as_py():
        raise DataError(
            "an id, or a context, ends with the character NUL, which arrays of text do not keep: "
            "take it off, or write ids in another way"
        )
    ids = distinct.take(order).to_numpy(zero_copy_only=False)
    code = [rank[chunk.indices.to_numpy()] for chunk in column.chunks]
    return np.concatenate(code), ids.astype(np.str_) if is_text else ids


def integers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return whole numbers of any Arrow type as int64."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    whole: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return whole


def rows_of(table: pa.Table, counts: PositionCounts, *, has_text_ids: bool) -> NDArray[np.int64]:
    """Return the row of `counts` that each group of the same log is."""
    found = []
    for name, known in (("query_id", counts.query_ids), ("item_id", counts.item_ids)):
        code, ids = encode(table[name], has_text_ids=has_text_ids and known.dtype.kind == "i")
        found.append(np.searchsorted(known, ids)[code])
    found.append(table["position"].to_numpy().astype(np.int64))
    own = [counts.query, counts.item, counts.position]
    if "context" in table.column_names:
        code, ids = encode(table["context"], has_text_ids=False)
        found.append(np.searchsorted(counts.context_ids, ids)[code])
        own.append(counts.context)
    both = [np.concatenate([column, more]) for column, more in zip(own, found, strict=True)]
    keys = row_keys(*both)
    return np.searchsorted(keys[: len(counts)], keys[len(counts) :])


def _with_rest(
    item: NDArray[np.int32], ids: NDArray[Any], n_groups: int
) -> tuple[NDArray[np.int32], NDArray[Any], int | None]:
    """Give the groups that have no item one, where there are any; return its place, too."""
    if len(item) == n_groups:
        return item, ids, None
    at = 0
    if ids.dtype.kind == "U":
        longest = max(ids.dtype.itemsize // 4, len(NEVER_CLICKED))
        at = int(np.searchsorted(ids, NEVER_CLICKED))
        ids = np.insert(ids.astype(f"<U{longest}"), at, NEVER_CLICKED)
    else:
        ids = np.insert(ids, 0, NEVER_CLICKED_INTEGER)
    own = np.full(n_groups, at, np.int32)
    own[: len(item)] = item + (item >= at)
    return own, ids, at


def _in_order(sessions: pa.Table, *, has_text_ids: bool) -> NDArray[np.float64]:
    """Return the sessions of each query in the order of the sorted ids, (n_queries,)."""
    query, query_ids = encode(sessions["query_id"], has_text_ids=has_text_ids)
    in_order = np.empty(len(query_ids))
    in_order[query] = integers(sessions["sessions"])
    return in_order
