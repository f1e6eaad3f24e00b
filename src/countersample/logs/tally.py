"""Count a log in its engine: group its rows once, describe the groups, and fetch them as arrays.

Ids arrive as Arrow columns and become positions in their sorted distinct values.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals as nw
import numpy as np

from countersample.errors import DataError
from countersample.logs import aggregation
from countersample.logs.aggregation import Problems
from countersample.logs.columns import INTEGER
from countersample.logs.counts import PositionCounts, row_keys
from countersample.logs.engines import find_engine

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from numpy.typing import NDArray

    from countersample._arrays import Floats, Ints
    from countersample.logs.impressions import Impressions

#: With more groups, items that were never clicked are counted together per query.
MAX_GROUPS = 5_000_000
#: With more visits, sessions are not fetched one by one.
MAX_VISITS = 5_000_000
# The id that stands for all items that were never clicked: no item of a log has it.
_NEVER_CLICKED = "(never clicked)"
_NEVER_CLICKED_INTEGER = np.iinfo(np.int64).min


class Tally(NamedTuple):
    """The counts of a log.

    ``counts`` are of possible rows, None if there are none. ``pairs``, if requested, has the
    numbers of items (``n_items``), query-item pairs (``n_pairs``), pairs seen at several positions
    (``n_moved``), and pairs shown more often than their query has sessions (``n_repeated``).
    """

    problems: Problems
    counts: PositionCounts | None
    pairs: dict[str, int] | None


def tally(
    log: Impressions,
    *,
    n_sessions: int | None = None,
    with_pairs: bool = False,
    max_groups: int = MAX_GROUPS,
) -> Tally:
    """Count the possible rows of a log, and describe the others.

    The sessions of each query come from ids of sessions, or from the column ``sessions`` of an
    aggregated log; without either they are the impressions of the first position.
    """
    check_sessions(log)
    engine = find_engine(log.engine)
    with ExitStack() as stack:
        groups = stack.enter_context(engine.store(aggregation.group(log.frame), log.source))
        problems = find_problems(log, groups)
        if problems.n_rows == problems.n_invalid:
            return Tally(problems, None, None)
        sessions = find_sessions(log)
        if sessions is not None:
            sessions = stack.enter_context(engine.store(sessions, log.source))
        pairs = _describe_pairs(log, groups, sessions) if with_pairs else None
        parts: tuple[nw.LazyFrame[Any], ...] = (groups,)
        has_text_items = log.has_text_ids
        if _count_rows(log, groups) > max_groups:
            clicked = engine.store(aggregation.clicked_pairs(groups), log.source)
            parts = aggregation.split_unclicked(groups, stack.enter_context(clicked))
            if has_text_items:  # the ids of all items decide, not only of those that are fetched
                is_name = ~nw.col("item_id").str.contains(INTEGER)
                has_text_items = not _count_rows(log, groups.filter(is_name))
        counts = _assemble(
            chain.from_iterable(engine.batches(part, log.source) for part in parts),
            has_text_ids=log.has_text_ids,
            has_text_items=has_text_items,
            sessions=None if sessions is None else log.collect(sessions),
            n_sessions=n_sessions,
        )
        return Tally(problems, counts, pairs)


def check_sessions(log: Impressions) -> None:
    """Reject an aggregated log with impossible sessions."""
    if "sessions" not in log.columns:
        return
    n_bad = log.collect(aggregation.count_bad_sessions(log.frame))["bad"][0].as_py()
    if n_bad:
        raise DataError(
            f"{log.source}: sessions is not a whole number from 1 in {n_bad:,} rows, expected the "
            "sessions of the query on that day, or nothing"
        )


def find_problems(log: Impressions, groups: nw.LazyFrame[Any]) -> Problems:
    """Count impossible rows, and describe them if there are any."""
    if not log.is_aggregated:  # a row is one impression, and the groups count possible rows
        n_rows = _count_rows(log, log.frame)
        total = log.collect(groups.select(nw.col("impressions").cast(nw.Int64).sum()))
        if n_rows == int(integers(total["impressions"].fill_null(0))[0]):
            return Problems(n_rows, 0, 0, 0, 0, 0)
    return aggregation.read_problems(log.collect(aggregation.describe_rows(log.frame)))


def find_sessions(log: Impressions) -> nw.LazyFrame[Any] | None:
    """Return S_q, the sessions of each query, lazily; None if the log has none."""
    has_ids = "session" in log.columns and not log.is_aggregated
    if not has_ids and "sessions" not in log.columns:
        return None
    return aggregation.group_sessions(log.frame)


def _describe_pairs(
    log: Impressions, groups: nw.LazyFrame[Any], sessions: nw.LazyFrame[Any] | None
) -> dict[str, int]:
    totals = log.collect(aggregation.describe_pairs(groups, sessions))
    pairs = {name: int(integers(totals[name])[0]) for name in totals.column_names}
    return {"n_items": _count_rows(log, groups.select("item_id").unique()), **pairs}


def _count_rows(log: Impressions, frame: nw.LazyFrame[Any]) -> int:
    return int(integers(log.collect(frame.select(nw.len().alias("rows")))["rows"])[0])


# -- groups as arrays


def _assemble(
    batches: Iterable[pa.RecordBatch],
    *,
    has_text_ids: bool,
    has_text_items: bool,
    sessions: pa.Table | None,
    n_sessions: int | None,
) -> PositionCounts:
    """Make counts of groups; groups without ``item_id`` come last, and were never clicked."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    chunks: dict[str, list[Any]] = {}
    for batch in batches:
        for name in batch.schema.names:
            column = batch[name]
            if name in {"query_id", "item_id", "context"}:
                column = _as_ids(column)
            elif name == "value":
                column = column.cast(pa.float64()).to_numpy()
            else:
                is_integer = pa.types.is_integer(column.type)
                column = (column if is_integer else column.cast(pa.int64())).to_numpy()
            chunks.setdefault(name, []).append(column)
    ids: dict[str, tuple[NDArray[np.int32], NDArray[Any]]] = {}
    for name, is_text in (
        ("query_id", has_text_ids), ("item_id", has_text_items), ("context", False)
    ):  # fmt: skip
        if chunks.get(name):
            ids[name] = encode(pa.chunked_array(chunks.pop(name)), has_text_ids=is_text)
    query, query_ids = ids["query_id"]
    no_items = np.zeros(0, np.int32), np.zeros(0, np.int64)  # if nothing was clicked
    item, item_ids, rest = _add_rest(*ids.get("item_id", no_items), len(query))
    context, context_ids = ids.get("context", (None, None))
    numbers = {name: np.concatenate(columns) for name, columns in chunks.items()}
    if not np.isfinite(numbers.get("value", 0.0)).all():
        raise DataError("values of clicks add up to infinity: make them smaller")
    if sessions is not None:
        code, ids_of_sessions = encode(sessions["query_id"], has_text_ids=has_text_ids)
        per_query = np.empty(len(ids_of_sessions))
        per_query[code] = integers(sessions["sessions"])
    return PositionCounts.from_codes(
        query, item, numbers["position"], numbers["impressions"], numbers["clicks"],
        query_ids, item_ids, context=context, context_ids=context_ids, value=numbers.get("value"),
        sessions=None if sessions is None else per_query, n_sessions=n_sessions, rest=rest,
    )  # fmt: skip


def _add_rest(
    item: NDArray[np.int32], ids: NDArray[Any], n_groups: int
) -> tuple[NDArray[np.int32], NDArray[Any], int | None]:
    """Give groups without an item the id that stands for them; return its position, too."""
    if len(item) == n_groups:
        return item, ids, None
    rest = 0
    if ids.dtype.kind == "U":
        width = max(ids.dtype.itemsize // 4, len(_NEVER_CLICKED))
        rest = int(np.searchsorted(ids, _NEVER_CLICKED))
        ids = np.insert(ids.astype(f"<U{width}"), rest, _NEVER_CLICKED)
    else:
        ids = np.insert(ids, 0, _NEVER_CLICKED_INTEGER)
    codes = np.full(n_groups, rest, np.int32)
    codes[: len(item)] = item + (item >= rest)
    return codes, ids, rest


def _as_ids(column: pa.Array | pa.ChunkedArray) -> Any:  # noqa: ANN401 (of the same class)
    """Return a column of ids as 64-bit integers or text."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    return column.cast(pa.int64() if pa.types.is_integer(column.type) else pa.large_string())


def encode(
    column: pa.ChunkedArray, *, has_text_ids: bool
) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return ids as positions in their sorted distinct values, and these values.

    Ids of a text file become integers if all of them are written as integers ("7", not "07").
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import compute  # noqa: PLC0415

    column = _as_ids(column).dictionary_encode()  # one dictionary for all chunks
    if not len(column):
        is_text = not pa.types.is_integer(column.type.value_type)
        return np.zeros(0, np.int32), np.zeros(0, np.str_ if is_text else np.int64)
    distinct = column.chunk(0).dictionary
    is_text = not pa.types.is_integer(distinct.type)
    is_integer = compute.match_substring_regex(distinct, INTEGER) if has_text_ids else None
    if is_integer is not None and compute.all(is_integer).as_py():
        distinct, is_text = distinct.cast(pa.int64()), False
    order = compute.array_sort_indices(distinct)
    rank = np.empty(len(order), np.int32)
    rank[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    if is_text and compute.any(compute.ends_with(distinct, "\0")).as_py():
        raise DataError(
            "an id, or a context, ends with the character NUL, which arrays of text do not store: "
            "remove it, or write ids in another way"
        )
    ids = distinct.take(order).to_numpy(zero_copy_only=False)
    code = [rank[chunk.indices.to_numpy()] for chunk in column.chunks]
    return np.concatenate(code), ids.astype(np.str_) if is_text else ids


def integers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return whole numbers of any Arrow type as int64."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    array: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return array


def find_rows(table: pa.Table, counts: PositionCounts, *, has_text_ids: bool) -> NDArray[np.int64]:
    """Return the row of `counts` of each group of the same log."""
    keys = [counts.query, counts.item, counts.position]
    codes = []
    for name, ids in (("query_id", counts.query_ids), ("item_id", counts.item_ids)):
        code, distinct = encode(table[name], has_text_ids=has_text_ids and ids.dtype.kind == "i")
        codes.append(np.searchsorted(ids, distinct)[code])
    codes.append(table["position"].to_numpy().astype(np.int64))
    if "context" in table.column_names:
        code, distinct = encode(table["context"], has_text_ids=False)
        codes.append(np.searchsorted(counts.context_ids, distinct)[code])
        keys.append(counts.context)
    both = row_keys(*(np.concatenate(columns) for columns in zip(keys, codes, strict=True)))
    return np.searchsorted(both[: len(counts)], both[len(counts) :])


# -- sessions one by one


@dataclass(frozen=True, eq=False)
class Visits:
    """Sessions with their queries and clicks: a visit is a session and one of its queries.

    Attributes
    ----------
    n_sessions : int
    session, query : int arrays (n_visits,)
        The session of each visit, and its query as the counts number it.
    clicking, row : int arrays (n_clicks,)
        The session of each click, and its row of the counts.
    value : float array (n_clicks,)
        The value of each click.
    """

    n_sessions: int
    session: Ints
    query: Ints
    clicking: Ints
    row: Ints
    value: Floats


def find_visits(log: Impressions, counts: PositionCounts) -> Visits | None:
    """Return the sessions of a log, given its counts.

    None if the log is aggregated, if some rows have no session, or if there are more than
    `MAX_VISITS`.
    """
    if "session" not in log.columns or log.is_aggregated:
        return None
    visits = aggregation.visits(log.frame)
    is_missing = aggregation.mark(nw.col("session").is_null())
    size = log.collect(
        visits.select(missing=is_missing).select(nw.len().alias("n"), nw.col("missing").sum())
    )
    if integers(size["n"])[0] > MAX_VISITS or integers(size["missing"])[0]:
        return None
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    seen = log.collect(visits)
    clicks = log.collect(aggregation.clicks_of_sessions(log.frame))
    both = pa.chunked_array([*seen["session"].chunks, *clicks["session"].chunks])
    session, ids = encode(both.cast(pa.large_string()), has_text_ids=False)
    code, query_ids = encode(
        seen["query_id"], has_text_ids=log.has_text_ids and counts.query_ids.dtype.kind == "i"
    )
    return Visits(
        n_sessions=len(ids),
        session=session[: len(seen)].astype(np.int64),
        query=np.searchsorted(counts.query_ids, query_ids)[code],
        clicking=session[len(seen) :].astype(np.int64),
        row=find_rows(clicks, counts, has_text_ids=log.has_text_ids),
        value=clicks["value"].to_numpy().astype(np.float64),
    )
