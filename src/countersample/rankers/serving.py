"""A ranker applied to tables: which columns it reads, and the ranks of queries as they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.data.encoding import FeatureEncoder
from countersample.data.frames import check_column
from countersample.errors import DataError
from countersample.evaluation.ranking import ranks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from countersample._arrays import Floats, Ints
    from countersample.rankers._saved import SavedScorer

QUERY = ("query_id", "qid")  # what the column of the query is called, the first that is there
ITEM = ("item_id",)
NUMBERED = "item"  # the column of items that have no id: their number in the query, from 0
_LABEL = "label"
_NAMED = "; name it with query= and item= (--columns query_id=…,item_id=…)"


class NotTogetherError(Exception):
    """A query whose rows are not side by side."""


@dataclass(frozen=True)
class TableReading:
    """What a ranker reads of a table.

    Attributes
    ----------
    query : str
        The column of the query's id.
    item : str or None
        That of the item's; None where the table has none, and items are numbered.
    encoder : FeatureEncoder
        What becomes of the other columns.
    """

    query: str
    item: str | None
    encoder: FeatureEncoder

    @classmethod
    def of(
        cls, serving: SavedScorer, columns: Sequence[str], query: str | None, item: str | None
    ) -> TableReading:
        """Find the columns in a table; refuse one that lacks what the ranker needs."""
        found = list(columns)
        query = query or next((name for name in QUERY if name in found), QUERY[0])
        check_column(query, found, _NAMED)
        item = item or next((name for name in ITEM if name in found), None)
        if item is not None:
            check_column(item, found, _NAMED)
        if not {"score", "rank"}.isdisjoint({query, item}):
            raise DataError("ids are called score or rank, which is what comes out: rename them")
        encoder = serving.encoder
        if encoder is None:
            names = serving.feature_names
            if names is None:  # as many columns as it knows features
                names = tuple(each for each in found if each not in {query, item, _LABEL})
            encoder = FeatureEncoder.of_numbers(names)
        if encoder.n_features != serving.n_features:
            raise DataError(
                f"the table has {encoder.n_features} features, expected {serving.n_features} as in "
                "training"
            )
        for name in encoder.column_names:
            check_column(name, found)
        return cls(query, item, encoder)

    @property
    def columns(self) -> list[str]:
        """The columns that are read, each once."""
        ids = [self.query] if self.item is None else [self.query, self.item]
        return list(dict.fromkeys([*ids, *self.encoder.column_names]))

    @property
    def names(self) -> list[str]:
        """The columns that come out."""
        return [self.query, self.item or NUMBERED, "score", "rank"]


def rank_table(
    serving: SavedScorer, reading: TableReading, table: pa.Table, order: Ints, offsets: Ints
) -> tuple[Floats, Ints]:
    """Return the score and the rank of each row; `order` has the rows of queries side by side."""
    features = reading.encoder.transform(table)
    scores = serving.scores(features[order], offsets)
    in_order = ranks_of(scores, offsets)
    found, ranks = np.empty_like(scores), np.empty_like(in_order)
    found[order], ranks[order] = scores, in_order
    return found, ranks


def rank_batches(
    serving: SavedScorer,
    reading: TableReading,
    batches: Iterable[pa.RecordBatch],
    top: int | None = None,
) -> Iterator[pa.Table]:
    """Rank the queries of a stream whose rows come side by side, with a query at a time in memory.

    Rows come out in their order; with `top`, the first so many of each query by rank. A query that
    comes again is a NotTogetherError.
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    seen = _Seen()
    pending: list[pa.Table] = []  # rows of the last query, which may go on
    done = 0

    def ranked(parts: list[pa.Table]) -> pa.Table:
        nonlocal done
        table = pa.concat_tables(parts, promote_options="permissive")
        done += len(table)
        try:
            return _ranked(table)
        except DataError as error:
            raise DataError(f"of rows {done - len(table):,} to {done - 1:,}: {error}") from error

    def _ranked(table: pa.Table) -> pa.Table:
        starts = _starts(table[reading.query])
        seen.add(table[reading.query].take(column_of(starts)).to_pylist())
        offsets = np.append(starts, table.num_rows)
        rows = np.arange(table.num_rows)
        scores, ranks = rank_table(serving, reading, table, rows, offsets)
        items = rows - np.repeat(starts, np.diff(offsets))
        items = column_of(items) if reading.item is None else table[reading.item]
        found = [table[reading.query], items, column_of(scores), column_of(ranks)]
        out = pa.table(found, names=reading.names)
        if top is None:
            return out
        query = np.repeat(np.arange(len(starts)), np.diff(offsets))
        kept = np.flatnonzero(ranks <= top)
        return out.take(column_of(kept[np.lexsort((ranks[kept], query[kept]))]))

    for batch in batches:
        if not batch.num_rows:
            continue
        part = pa.Table.from_batches([batch])
        check_ids(reading, part)
        if pending and pending[-1][reading.query][-1].as_py() != part[reading.query][0].as_py():
            yield ranked(pending)
            pending = []
        last = int(_starts(part[reading.query])[-1])
        if last:
            yield ranked([*pending, part.slice(0, last)])
            pending = []
        pending.append(part.slice(last))
    if pending:
        yield ranked(pending)
    seen.check()


def check_ids(reading: TableReading, table: pa.Table) -> None:
    """Refuse ids that are missing, or are neither integers nor text."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    for name in (reading.query, reading.item):
        if name is None:
            continue
        column = table[name]
        dtype = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        is_text = pa.types.is_large_string(dtype) or pa.types.is_string(dtype)
        if not (is_text or pa.types.is_string_view(dtype) or pa.types.is_integer(dtype)):
            raise DataError(f"column {name!r} is {dtype}, expected ids: integers or text")
        if column.null_count:
            raise DataError(f"a row has no {name}, expected one in each")


class _Seen:
    """Queries that came by, as hashes: 8 bytes a query."""

    def __init__(self) -> None:
        self._hashes: list[NDArray[np.int64]] = []
        self._n, self._next = 0, 1 << 12

    def add(self, queries: list[Any]) -> None:
        self._hashes.append(np.fromiter(map(_hash, queries), np.int64, len(queries)))
        self._n += len(queries)
        if self._n >= self._next:  # each time that they are twice as many
            self._next = 2 * self._n
            self.check()

    def check(self) -> None:
        if self._n:
            together = np.concatenate(self._hashes)
            self._hashes = [together]
            if len(np.unique(together)) < len(together):
                raise NotTogetherError


def _hash(query: Any) -> int:  # noqa: ANN401 (text or a number)
    """Return 64 bits of an id; those of a number are its own, as Python's hash of −1 is of −2."""
    return (query + 2**63) % 2**64 - 2**63 if isinstance(query, int) else hash(query)


def column_of(values: NDArray[Any]) -> pa.Array:
    """Return a column; one of numbers is made without `pyarrow.array`, which imports pandas."""
    from pyarrow import Array, array, from_numpy_dtype, py_buffer  # noqa: PLC0415 (heavy)

    if values.dtype.kind not in "if":
        return array(values)
    kind = from_numpy_dtype(values.dtype)
    return Array.from_buffers(kind, len(values), [None, py_buffer(values)])


def codes_of(column: pa.ChunkedArray) -> tuple[Ints, list[Any]]:
    """Return a number for each row, (n,), and the ids that have these numbers, as first seen."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    if not pa.types.is_integer(column.type):
        column = column.cast(pa.large_string())
    chunks = column.dictionary_encode().chunks  # with one dictionary for all
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks]).astype(np.int64)
    return codes, chunks[-1].dictionary.to_pylist()


def _starts(column: pa.ChunkedArray) -> Ints:
    """Return the first row of each run of a value, (n_runs,)."""
    index, _ = codes_of(column)
    return np.flatnonzero(np.concatenate([[True], index[1:] != index[:-1]]))
