"""Count a log in its engine: group its rows once, describe the groups, and fetch them as arrays.

The expressions are in `aggregation`, the result in `counts`. Ids arrive as Arrow columns and become
positions in their sorted distinct values.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals as nw
import numpy as np
import pyarrow as pa
from pyarrow import compute

from countersample.errors import DataError
from countersample.logs import aggregation
from countersample.logs.aggregation import Problems
from countersample.logs.columns import INTEGER
from countersample.logs.counts import PositionCounts, find_ids
from countersample.logs.engines import find_engine

if TYPE_CHECKING:
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
        pairs = None
        if with_pairs:
            n_items = groups.select("item_id").unique().select(n_items=nw.len())
            totals = (n_items, aggregation.describe_pairs(groups, sessions))
            pairs = {name: n for frame in totals for name, n in _read_totals(log, frame).items()}
        has_text_items = log.has_text_ids
        table = None
        if _count_rows(log, groups) > max_groups:
            clicked = engine.store(aggregation.clicked_pairs(groups), log.source)
            parts = aggregation.split_unclicked(groups, stack.enter_context(clicked))
            table = pa.concat_tables(map(log.collect, parts), promote_options="permissive")
            if has_text_items:  # the ids of all items decide, not only of those that are fetched
                is_name = ~nw.col("item_id").str.contains(INTEGER)
                has_text_items = not _count_rows(log, groups.filter(is_name))
        counts = _make_counts(
            log.collect(groups) if table is None else table,
            None if sessions is None else log.collect(sessions),
            n_sessions=n_sessions,
            has_text_ids=log.has_text_ids,
            has_text_items=has_text_items,
        )
        return Tally(problems, counts, pairs)


def check_sessions(log: Impressions) -> None:
    """Reject an aggregated log with impossible sessions."""
    if "sessions" not in log.columns:
        return
    n_bad = _read_totals(log, aggregation.count_bad_sessions(log.frame))["bad"]
    if n_bad:
        raise DataError(
            f"{log.source}: sessions is not a whole number from 1 in {n_bad:,} rows, expected the "
            "sessions of the query on that day, or nothing"
        )


def find_problems(log: Impressions, groups: nw.LazyFrame[Any]) -> Problems:
    """Count impossible rows, and describe them if there are any."""
    if not log.is_aggregated:  # a row is one impression, and the groups count possible rows
        n_rows = _count_rows(log, log.frame)
        total = groups.select(nw.col("impressions").cast(nw.Int64).sum())
        if n_rows == _read_totals(log, total)["impressions"]:
            return Problems(n_rows, 0, 0, 0, 0, 0)
    return Problems.of(log.collect(aggregation.describe_rows(log.frame)))


def find_sessions(log: Impressions) -> nw.LazyFrame[Any] | None:
    """Return S_q, the sessions of each query, lazily; None if the log has none."""
    has_ids = "session" in log.columns and not log.is_aggregated
    if not has_ids and "sessions" not in log.columns:
        return None
    return aggregation.group_sessions(log.frame)


def _count_rows(log: Impressions, frame: nw.LazyFrame[Any]) -> int:
    return _read_totals(log, frame.select(rows=nw.len()))["rows"]


def _read_totals(log: Impressions, frame: nw.LazyFrame[Any]) -> dict[str, int]:
    """Return the whole numbers of a frame with one row, 0 if they are null."""
    (row,) = log.collect(frame).to_pylist()
    return {name: int(value or 0) for name, value in row.items()}


# -- groups as arrays


def _make_counts(
    table: pa.Table,
    sessions: pa.Table | None,
    *,
    n_sessions: int | None,
    has_text_ids: bool,
    has_text_items: bool,
) -> PositionCounts:
    """Make counts of groups; groups whose ``item_id`` is null come last: never clicked."""
    query, query_ids = encode(table["query_id"], has_text_ids=has_text_ids)
    item, item_ids = encode(table["item_id"].drop_null(), has_text_ids=has_text_items)
    item, item_ids, rest = _add_rest(item, item_ids, len(query))
    columns: dict[str, NDArray[Any]] = {"query": query, "item": item}
    columns |= {name: integers(table[name]) for name in ("position", "impressions", "clicks")}
    context_ids = per_query = None
    if "context" in table.column_names:
        columns["context"], context_ids = encode(table["context"], has_text_ids=False)
    if "value" in table.column_names:
        columns["value"] = table["value"].cast(pa.float64()).to_numpy()
        if not np.isfinite(columns["value"]).all():
            raise DataError("values of clicks add up to infinity: make them smaller")
    if sessions is not None:
        code, ids = encode(sessions["query_id"], has_text_ids=has_text_ids)
        per_query = np.empty(len(ids))
        per_query[code] = integers(sessions["sessions"])
    return PositionCounts.from_codes(
        columns, query_ids, item_ids, context_ids,
        sessions=per_query, n_sessions=n_sessions, rest=rest,
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


def encode(
    column: pa.ChunkedArray, *, has_text_ids: bool
) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return ids as positions in their sorted distinct values, and these values.

    Ids of a text file become integers if all of them are written as integers ("7", not "07").
    """
    code, distinct = _rank(column, has_text_ids=has_text_ids)
    ids = distinct.to_numpy(zero_copy_only=False)
    return code, ids if pa.types.is_integer(distinct.type) else ids.astype(np.str_)


def _rank(column: pa.ChunkedArray, *, has_text_ids: bool) -> tuple[NDArray[np.int32], pa.Array]:
    """Return what `encode` does, with the values in Arrow: these may be of any length."""
    dtype = pa.int64() if pa.types.is_integer(column.type) else pa.large_string()
    column = column.cast(dtype).dictionary_encode()  # one dictionary for all chunks
    if not len(column):
        return np.zeros(0, np.int32), pa.array([], dtype)
    distinct = column.chunk(0).dictionary
    if has_text_ids and dtype != pa.int64():
        is_integer = compute.match_substring_regex(distinct, INTEGER)
        distinct = distinct.cast(pa.int64()) if compute.all(is_integer).as_py() else distinct
    order = compute.array_sort_indices(distinct)
    rank = np.empty(len(order), np.int32)
    rank[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    code = [rank[chunk.indices.to_numpy()] for chunk in column.chunks]
    return np.concatenate(code), distinct.take(order)


def integers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return whole numbers of any Arrow type as int64."""
    array: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return array


def find_codes(
    column: pa.ChunkedArray, known: NDArray[Any], *, has_text_ids: bool
) -> NDArray[np.int64]:
    """Return the position of each id among those of counts of the same log; −1 if absent."""
    is_integer = has_text_ids and known.dtype.kind == "i"
    code, distinct = encode(column, has_text_ids=is_integer)
    return find_ids(distinct, known)[code]


def find_rows(table: pa.Table, counts: PositionCounts, *, has_text_ids: bool) -> NDArray[np.int64]:
    """Return the row of `counts` of each group of the same log.

    Items that the counts do not list are among their items that were never clicked.
    """
    codes = {"context": np.zeros(len(table), np.int64)}  # a log without contexts has one
    for name in ("query_id", "item_id", "context"):
        if name in table.column_names:
            known = getattr(counts, f"{name.removesuffix('_id')}_ids")
            codes[name] = find_codes(table[name], known, has_text_ids=has_text_ids)
    query, item, context = codes["query_id"], codes["item_id"], codes["context"]
    position = integers(table["position"])
    rows = counts.find_rows(query, item, position, context)
    if counts.rest is not None and (rows < 0).any():
        in_rest = counts.find_rows(query, np.full_like(item, counts.rest), position, context)
        rows = np.where(rows < 0, in_rest, rows)
    return rows


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
    marks = visits.select(n=nw.lit(1), missing=aggregation.mark(nw.col("session").is_null()))
    size = _read_totals(log, marks.select(nw.col("n").sum(), nw.col("missing").sum()))
    if size["n"] > MAX_VISITS or size["missing"]:
        return None

    seen = log.collect(visits)
    clicks = log.collect(aggregation.clicks_of_sessions(log.frame))
    both = pa.chunked_array([*seen["session"].chunks, *clicks["session"].chunks])
    session, ids = _rank(both.cast(pa.large_string()), has_text_ids=False)
    return Visits(
        n_sessions=len(ids),
        session=session[: len(seen)].astype(np.int64),
        query=find_codes(seen["query_id"], counts.query_ids, has_text_ids=log.has_text_ids),
        clicking=session[len(seen) :].astype(np.int64),
        row=find_rows(clicks, counts, has_text_ids=log.has_text_ids),
        value=clicks["value"].to_numpy().astype(np.float64),
    )
