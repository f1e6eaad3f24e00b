"""The counting of a log, written once: it runs on every engine through narwhals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from countersample.clicks.impressions.counts import MAX_POSITION, PositionCounts

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

KEYS = ("query_id", "item_id", "position")
_LARGEST = float(np.finfo(np.float64).max)  # NaN is beyond it in some engines, in none below
_MOST = 2**53  # whole numbers beyond it are not exact in a float
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"


@dataclass(frozen=True)
class Problems:
    """Rows that cannot be counted; one row may have several problems.

    Attributes
    ----------
    n_rows : int
        All rows of the log.
    n_invalid : int
        Rows with at least one problem.
    no_query_id, no_item_id : int
        Rows without an id.
    bad_position : int
        Rows whose position is missing, below 1 or not a whole number.
    bad_click : int
        Rows whose click is not 0 or 1; with an ``impressions`` column, whose numbers are not
        whole, or that have no impression, or more clicks than impressions.
    bad_value : int
        Rows with a click whose value is missing, below 0 or not finite.
    position_found : float, optional
        One such position, where there is one.
    is_from_zero : bool
        Whether positions seem to count from 0: there is no other bad position, and rows at 0 are at
        least half as many as at 1.
    """

    n_rows: int
    n_invalid: int
    no_query_id: int
    no_item_id: int
    bad_position: int
    bad_click: int
    bad_value: int = 0
    position_found: float | None = None
    is_from_zero: bool = False

    def sentence(self, *, has_impressions: bool) -> str | None:
        """Say what is wrong with the rows, or None where nothing is."""
        clicks = (
            "more clicks than impressions, no impression, or numbers that are not whole"
            if has_impressions
            else "a click that is not 0 or 1"
        )
        found = "" if self.position_found is None else f" (such as {self.position_found:g})"
        parts = [
            (self.no_query_id, "no query_id"),
            (self.no_item_id, "no item_id"),
            (self.bad_position, f"a position that is not a whole number from 1{found}"),
            (self.bad_click, clicks),
            (self.bad_value, "a click whose value is not a number of at least 0"),
        ]
        said = [f"{count:,} with {what}" for count, what in parts if count]
        if not said:
            return None
        told = f"{self.n_invalid:,} of {self.n_rows:,} rows are impossible: " + ", ".join(said)
        if self.is_from_zero:
            told += (
                "; the positions seem to count from 0: say so with positions_from=0 "
                "(--positions-from 0)"
            )
        return told


def keys(frame: nw.LazyFrame[Any]) -> list[str]:
    """Return what rows are counted by: query, item, position and, where it is there, context."""
    return [*KEYS, *(["context"] if "context" in frame.collect_schema() else [])]


def group(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return rows, impressions, clicks and value of each query, item, position, context, lazily.

    Impossible ids and positions are groups of their own; impossible clicks and values are left out
    of the sums, and ``good`` counts the other rows.
    """
    schema = frame.collect_schema()
    has_click, has_value = _has_click(schema), _has_value(schema)
    is_good = has_click & has_value
    made = {"good": mark(is_good), "clicks": whole(is_good, nw.col("click"))}
    if "impressions" in schema:
        made["shown"] = whole(is_good, nw.col("impressions"))
    if "value" in schema:
        is_worth = is_good & (nw.col("click") > 0)
        made["value"] = (
            nw.when(is_worth).then(nw.col("value")).otherwise(nw.lit(0)).cast(nw.Float64)
        )
        made["bad_value"] = mark(has_click & (nw.col("click") > 0)) - mark(is_worth)
    sums = {name: nw.col(name).sum() for name in made}
    by = keys(frame)
    return frame.select(*by, **made).group_by(*by).agg(nw.len().alias("rows"), **sums)


def group_sessions(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return S_q, the sessions of each query in possible rows, lazily.

    Rows without a session count as the impressions of position 1 among them, and at least once.
    """
    visits = (
        frame.filter(_is_possible(frame))
        .select("query_id", "session", top=mark(nw.col("position") == 1))
        .group_by("query_id", "session")
        .agg(top=nw.col("top").sum())
    )
    without = nw.when(nw.col("top") > 0).then(nw.col("top")).otherwise(nw.lit(1))
    n = nw.when(nw.col("session").is_null()).then(without).otherwise(nw.lit(1))
    return visits.select("query_id", n=n).group_by("query_id").agg(sessions=nw.col("n").sum())


def group_weights(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return Σ click/propensity of each group, lazily, over its possible rows that have clicks.

    ``clicked`` counts those rows, ``good`` those among them whose propensity is within (0, 1].
    """
    click, propensity = nw.col("click"), nw.col("propensity")
    clicked = _is_possible(frame) & (click > 0)
    is_good = clicked & (propensity > 0) & (propensity <= 1)
    divisor = nw.when(is_good).then(propensity).otherwise(nw.lit(1.0))
    by = keys(frame)
    rows = frame.select(
        *by,
        weight=nw.when(is_good).then(click / divisor).otherwise(nw.lit(0.0)),
        clicked=mark(clicked),
        good=mark(is_good),
    )
    sums = {name: nw.col(name).sum() for name in ("weight", "clicked", "good")}
    return rows.group_by(*by).agg(**sums)


def finish(
    table: pa.Table,
    *,
    has_text_ids: bool,
    sessions: pa.Table | None = None,
    n_sessions: int | None = None,
) -> tuple[PositionCounts | None, Problems]:
    """Turn the groups into counts of all possible rows, and say how many are impossible.

    `sessions` are those of each query, where the log has ids of sessions.
    """
    columns = table.column_names
    rows = integers(table["rows"])
    good = integers(table["good"])
    no_query, no_item, position, has_position, is_group_good = keys_of(table)
    found = position[~has_position & ~np.isnan(position)]
    n_bad = int(rows[~has_position].sum())
    at = [int(rows[position == place].sum()) for place in (0, 1)]
    n_rows = int(rows.sum())
    bad_value = int(integers(table["bad_value"]).sum()) if "bad_value" in columns else 0
    problems = Problems(
        n_rows=n_rows,
        n_invalid=n_rows - int(good[is_group_good].sum()),
        no_query_id=int(rows[no_query].sum()),
        no_item_id=int(rows[no_item].sum()),
        bad_position=n_bad,
        bad_click=n_rows - int(good.sum()) - bad_value,
        bad_value=bad_value,
        position_found=float(found.min()) if len(found) else None,
        is_from_zero=bool(n_bad and n_bad == at[0] and 2 * at[0] >= at[1]),
    )
    kept = is_group_good & (good > 0)
    if not kept.any():
        return None, problems
    if not kept.all():
        table = table.filter(kept)
        position = position[kept]
    query, query_ids = encode(table["query_id"], has_text_ids=has_text_ids)
    item, item_ids = encode(table["item_id"], has_text_ids=has_text_ids)
    context = context_ids = None
    if "context" in columns:
        context, context_ids = encode(table["context"], has_text_ids=False)
    shown = table["shown" if "shown" in columns else "good"]
    return PositionCounts.from_codes(
        query,
        item,
        position,
        integers(shown),
        integers(table["clicks"]),
        query_ids,
        item_ids,
        context=context,
        context_ids=context_ids,
        value=table["value"].to_numpy() if "value" in columns else None,
        sessions=None if sessions is None else _in_order(sessions, has_text_ids=has_text_ids),
        n_sessions=n_sessions,
    ), problems


def _in_order(sessions: pa.Table, *, has_text_ids: bool) -> NDArray[np.float64]:
    """Return the sessions of each query in the order of the sorted ids, (n_queries,)."""
    query, query_ids = encode(sessions["query_id"], has_text_ids=has_text_ids)
    in_order = np.empty(len(query_ids))
    in_order[query] = integers(sessions["sessions"])
    return in_order


def encode(
    column: pa.ChunkedArray, *, has_text_ids: bool
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return ids as positions in their sorted distinct values, and those.

    Ids of a text file become integers where all of them are written as such ("7", not "07").
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import compute  # noqa: PLC0415

    is_text = not pa.types.is_integer(column.type)
    column = column.cast(pa.large_string() if is_text else pa.int64())
    coded = column.combine_chunks().dictionary_encode()
    distinct = coded.dictionary
    is_written = compute.match_substring_regex(distinct, _INTEGER) if has_text_ids else None
    if is_written is not None and compute.all(is_written).as_py():
        distinct, is_text = distinct.cast(pa.int64()), False
    order = compute.array_sort_indices(distinct)
    rank = np.empty(len(order), np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    ids = distinct.take(order).to_numpy(zero_copy_only=False)
    return rank[coded.indices.to_numpy()], ids.astype(np.str_) if is_text else ids


def integers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return whole numbers of any Arrow type as int64."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    whole: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return whole


def keys_of(table: pa.Table) -> tuple[NDArray[Any], ...]:
    """Return of each group: no query, no item, the position, whether it can be, whether all can."""
    no_query, no_item = (table[name].is_null().to_numpy() for name in ("query_id", "item_id"))
    position = table["position"].to_numpy().astype(np.float64)
    is_good = (position >= 1) & (position <= MAX_POSITION) & (position == np.floor(position))
    return no_query, no_item, position, is_good, is_good & ~no_query & ~no_item


def _is_possible(frame: nw.LazyFrame[Any]) -> nw.Expr:
    """Whether a row can be counted: it has ids, a position from 1, and a click that can be."""
    schema = frame.collect_schema()
    position = nw.col("position")
    is_place = (position >= 1) & (position <= MAX_POSITION)
    if schema["position"].is_float():
        is_place &= position.round(0) == position
    has_ids = ~nw.col("query_id").is_null() & ~nw.col("item_id").is_null()
    return has_ids & is_place & _has_click(schema) & _has_value(schema)


def _has_click(schema: nw.Schema) -> nw.Expr:
    """Whether a row's click is 0 or 1, or its clicks at most its impressions."""
    click, shown = nw.col("click"), nw.col("impressions")
    if "impressions" not in schema:
        return (click == 0) | (click == 1)
    is_good = (shown >= 1) & (shown <= _MOST) & (click >= 0) & (click <= shown)
    for name in ("click", "impressions"):
        if schema[name].is_float():
            is_good &= nw.col(name).round(0) == nw.col(name)
    return is_good


def _has_value(schema: nw.Schema) -> nw.Expr:
    """Whether a row has no click, or one whose value is a number of at least 0."""
    if "value" not in schema:
        return nw.lit(True)
    value = nw.col("value")
    return (nw.col("click") == 0) | ((value >= 0) & (value <= _LARGEST))


def mark(condition: nw.Expr) -> nw.Expr:
    """Return 1 where something is so, else 0."""
    return nw.when(condition).then(nw.lit(1)).otherwise(nw.lit(0))


def whole(is_good: nw.Expr, column: nw.Expr) -> nw.Expr:
    """Return a column as whole numbers, 0 where something is not so."""
    return nw.when(is_good).then(column).otherwise(nw.lit(0)).cast(nw.Int64)
