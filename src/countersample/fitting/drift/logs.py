"""The statistics of a log that are compared: impressions and clicks by unit and position."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from countersample.clicks.impressions import aggregation
from countersample.clicks.impressions.assembling import integers
from countersample.clicks.impressions.columns import NONE
from countersample.clicks.impressions.engines import find_engine
from countersample.errors import DataError
from countersample.evaluation.resampling import add_up
from countersample.fitting.drift.testing import Rate

if TYPE_CHECKING:
    import pyarrow as pa

    from countersample._arrays import Bools, Floats, Ints
    from countersample.clicks.impressions import Impressions

BUCKETS = 256  # of clients, sessions or queries


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two logs: a row for each query, context, policy, unit and position."""

    source: str
    unit: Ints  # a bucket of users, sessions or queries
    unit_is: str  # client, session or query
    query: list[str]  # the ids of queries
    query_code: Ints
    names: dict[str, tuple[list[str], Ints]]  # of policies and contexts: names, and of each row
    position: Ints
    impressions: Floats
    clicks: Floats

    @classmethod
    def of(cls, log: Impressions) -> Side:
        """Compute the statistics of a log."""
        table = _pages(log)
        if not len(table):
            raise DataError(f"{log.source}: the log has no rows that are possible")
        query, code = _coded(table["query_id"])
        names = {
            name: _coded(table[name].fill_null(NONE))
            for name in ("policy", "context")
            if name in table.column_names
        }
        by = next(
            (what for what in ("client", "session") if what in log.columns), "query"
        )  # as buckets are made
        return cls(
            log.source, integers(table["bucket"]), by, query, code, names,
            integers(table["position"]), *(
                integers(table[name]).astype(np.float64) for name in ("impressions", "clicks")
            ),
        )  # fmt: skip

    def rate(self, above: Floats, below: Floats) -> Rate:
        """Return a rate by unit, of columns of the rows."""
        return Rate(add_up(self.unit, above, BUCKETS), add_up(self.unit, below, BUCKETS))

    def share(self, rows: Bools) -> Rate:
        """Return the share of impressions that some rows have."""
        return self.rate(self.impressions * rows, self.impressions)

    @property
    def visits(self) -> Floats:
        """The pages that a row tells of: the impressions of the first position, 0 of others."""
        return np.where(self.position == 1, self.impressions, 0.0)

    def share_of_other_queries(self, other: Side) -> Rate:
        """Return the share of visits whose query the other log does not have."""
        other_queries = {*other.query}
        is_new = np.array([name not in other_queries for name in self.query])
        return self.rate(self.visits * is_new[self.query_code], self.visits)

    def share_expected(self) -> Rate:
        """Return the share of visits whose query no other unit of this log has.

        It is what another log of such users would have of queries that are not in this one: each
        unit in turn is taken for the other log.
        """
        pairs = np.unique(self.query_code * BUCKETS + self.unit)
        n_units = np.bincount(pairs // BUCKETS, minlength=len(self.query))
        return self.rate(self.visits * (n_units == 1)[self.query_code], self.visits)


def _coded(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """Return distinct values as text, sorted, and the place of each row's."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    coded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.chunk(0)
    names, place = np.unique(np.array(coded.dictionary.to_pylist(), object), return_inverse=True)
    return names.tolist(), place[coded.indices.to_numpy()]


def units_of_queries(ids: Any) -> Ints:  # noqa: ANN401 (an array of ids)
    """Return the bucket of each query."""
    return np.array([bucket_of(str(name)) for name in ids.tolist()], np.int64)


def bucket_of(text: str) -> int:
    """Return one of 256 buckets for an id, always the same.

    >>> bucket_of("session-1"), bucket_of("session-2")
    (38, 123)
    """
    return hashlib.blake2b(text.encode(), digest_size=1).digest()[0]


def _pages(log: Impressions) -> pa.Table:
    """Return impressions and clicks by query, context, policy, bucket and position.

    The bucket is that of the row's client, or else of its session, or else of its query. The log is
    read in batches, so that it need not fit into memory.
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    frame = log.frame
    names = [name for name in ("context", "policy", "client", "session") if name in log.columns]
    rows = frame.filter(aggregation.is_possible(frame)).select(
        "query_id", *names, position=nw.col("position").cast(nw.Int32),
        impressions=aggregation.impressions_of(frame).cast(nw.Int64),
        clicks=nw.col("click").cast(nw.Int64),
    )  # fmt: skip
    by = ["query_id", *(name for name in names if name in {"context", "policy"}), "bucket",
          "position"]  # fmt: skip
    pieces = [
        _add_up(_with_buckets(pa.Table.from_batches([batch])), by)
        for batch in find_engine(log.engine).batches(rows, log.source)
    ]
    return _add_up(pa.concat_tables(pieces), by)


def _with_buckets(table: pa.Table) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import compute  # noqa: PLC0415

    names = [name for name in ("client", "session", "query_id") if name in table.column_names]
    ids = compute.coalesce(*(table[name].cast(pa.string()) for name in names))
    coded = ids.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.chunk(0)
    buckets = np.array([bucket_of(text) for text in coded.dictionary.to_pylist()], np.int32)
    of_rows = buckets[coded.indices.to_numpy()] if len(table) else buckets
    return table.append_column("bucket", pa.array(of_rows, pa.int32()))


def _add_up(table: pa.Table, by: list[str]) -> pa.Table:
    sums = ["impressions", "clicks"]
    groups = table.group_by(by).aggregate([(name, "sum") for name in sums])
    return groups.select([*by, *(f"{name}_sum" for name in sums)]).rename_columns([*by, *sums])
