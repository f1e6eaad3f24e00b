"""The tables of a part of counts, made of a log: what each has is in `files`."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from countersample.clicks.impressions import aggregation
from countersample.clicks.impressions.assembling import integers
from countersample.clicks.impressions.engines import find_engine

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from countersample.clicks.impressions.counted.files import Part
    from countersample.clicks.impressions.handle import Impressions


def tables_of(log: Impressions, part: Part) -> dict[str, pa.Table]:
    """Return the tables that a part has."""
    return {name: _MAKE[name](log, part) for name in part.tables()}


def _more(log: Impressions, part: Part) -> list[str]:
    """Return what counts are told apart by, beside query, item, position and context."""
    there = ["policy"] if "policy" in log.columns else []
    return [*there, *(["client"] if part.keeps_users else [])]


def _counts(log: Impressions, part: Part) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    by = [*aggregation.keys(log.frame), *_more(log, part)]
    table = log.collect(aggregation.group_by(log.frame, by))
    if part.day is not None:
        days = pa.repeat(pa.scalar(part.day, pa.date32()), len(table))
        table = table.append_column("timestamp", days)
    return table


def _weights(log: Impressions, part: Part) -> pa.Table:
    return log.collect(aggregation.group_weights(log.frame, *_more(log, part)))


def _clicks(log: Impressions, part: Part) -> pa.Table:
    more = dict.fromkeys([*_more(log, part), *(["client"] if "client" in log.columns else [])])
    table = _in_buckets(log.collect(aggregation.clicks_of_sessions(log.frame, *more)))
    by = [*aggregation.keys(log.frame), *_more(log, part), "bucket"]
    return _added_up(table, by, ["value"])


def _visits(log: Impressions, part: Part) -> pa.Table:
    """Return the sessions of each query by bucket and by the policies that they saw."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    has_client = "client" in log.columns
    rows = log.frame.filter(aggregation.is_possible(log.frame))
    columns: dict[str, Any] = {"unnamed_top": aggregation.mark(nw.col("position") == 1)}
    for k, policy in enumerate(part.policies):
        columns[f"policy_{k}"] = aggregation.mark(nw.col("policy") == policy)
    keys = ["query_id", "session", *(["client"] if has_client else [])]
    rows = rows.select(*keys, **columns)
    most = {name: nw.col(name).max() for name in columns if name != "unnamed_top"}
    user = {"client": nw.col("client").min()} if has_client else {}
    is_none = nw.col("session").is_null()
    named = log.collect(rows.filter(~is_none).group_by("query_id", "session").agg(**most, **user))
    by = ["query_id", *most, *(["client"] if part.keeps_users else [])]
    unnamed = log.collect(
        rows.filter(is_none)
        .group_by(*by)
        .agg(nw.len().alias("unnamed_rows"), unnamed_top=nw.col("unnamed_top").sum())
    )
    sums = ["sessions", "unnamed_rows", "unnamed_top"]
    tables = []
    for table, made in ((_in_buckets(named), sums[:1]), (unnamed, sums[1:])):
        mask = np.zeros(len(table), np.int64)
        for k in range(len(part.policies)):
            mask |= integers(table[f"policy_{k}"].fill_null(0)) << k
        filled = {
            "query_id": table["query_id"],
            **({"client": _as_text(table["client"])} if part.keeps_users else {}),
            "bucket": table["bucket"] if "bucket" in table.column_names else
            pa.array(np.zeros(len(table), np.int32)),
            "policies": pa.array(mask),
        }  # fmt: skip
        for name in sums:
            given = np.full(len(table), int(made == sums[:1]), np.int64)
            filled[name] = pa.array(
                (integers(table[name]) if name in table.column_names else given)
                if name in made else np.zeros(len(table), np.int64)
            )  # fmt: skip
        tables.append(pa.table(filled).cast(part.schema("visits")))
    together = pa.concat_tables(tables)
    return _added_up(together, [n for n in together.column_names if n not in sums], sums)


def _pages(log: Impressions, part: Part) -> pa.Table:
    return pages_of(log, *(["client"] if part.keeps_users else []))


def pages_of(log: Impressions, *more: str) -> pa.Table:
    """Return impressions and clicks by query, context, policy, bucket and position.

    They are made of pieces of the log, which need not be there at once.
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    frame = log.frame
    schema = frame.collect_schema()
    inner = [n for n in ("context", "policy", "client", "session") if n in schema]
    shown = nw.col("impressions") if "impressions" in schema else nw.lit(1)
    rows = frame.filter(aggregation.is_possible(frame)).select(
        "query_id", *inner, position=nw.col("position").cast(nw.Int32),
        impressions=shown.cast(nw.Int64), clicks=nw.col("click").cast(nw.Int64),
    )  # fmt: skip
    by = ["query_id", *(n for n in ("context", "policy") if n in schema), *more, "bucket",
          "position"]  # fmt: skip
    sums = ["impressions", "clicks"]
    pieces = []
    for batch in find_engine(log.engine).batches(rows, log.source):
        piece = _in_buckets(pa.Table.from_batches([batch]))
        for name in {*by} & {"context", "policy", "client"}:
            piece = piece.set_column(piece.column_names.index(name), name, _as_text(piece[name]))
        pieces.append(_added_up(piece, by, sums))
    return _added_up(pa.concat_tables(pieces), by, sums)


_MAKE = {
    "counts": _counts, "visits": _visits, "clicks": _clicks, "weights": _weights, "pages": _pages,
}  # fmt: skip


def _in_buckets(table: pa.Table) -> pa.Table:
    """Return a table with the bucket of each row: by its client, or session, or query."""
    from pyarrow import compute  # noqa: PLC0415 (heavy, only where used)

    names = [name for name in ("client", "session", "query_id") if name in table.column_names]
    told = compute.coalesce(*(_as_text(table[name]) for name in names))
    coded = told.combine_chunks().dictionary_encode()
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    if isinstance(coded, pa.ChunkedArray):
        coded = coded.chunk(0)
    buckets = np.array([bucket_of(text) for text in coded.dictionary.to_pylist()], np.int32)
    of_row: NDArray[np.int32] = buckets[coded.indices.to_numpy()] if len(table) else buckets
    return table.append_column("bucket", pa.array(of_row, pa.int32()))


def bucket_of(text: str) -> int:
    """Return one of 256 buckets for an id, always the same.

    >>> bucket_of("session-1"), bucket_of("session-2")
    (38, 123)
    """
    return hashlib.blake2b(text.encode(), digest_size=1).digest()[0]


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    return column.cast(pa.string())


def _added_up(table: pa.Table, by: list[str], sums: list[str]) -> pa.Table:
    """Return the sums of columns for each group."""
    found = table.group_by(by).aggregate([(name, "sum") for name in sums])
    return found.select([*by, *(f"{name}_sum" for name in sums)]).rename_columns([*by, *sums])
