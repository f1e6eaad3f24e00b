"""Ranking tables: which columns a ranker reads, and how data frames and files are ranked.

`rank_frame` ranks a data frame of any library, `rank_file` files that may be larger than memory,
and `rank_dataset` a dataset in memory. All return or write the ids, ``score`` and ``rank`` of each
row. With `top`, they keep the best rows of each query, the best first.
"""

from __future__ import annotations

import json
import zlib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from countersample._environment import need
from countersample._files import atomic_path, check_outputs, temporary_folder
from countersample._params import whole_number
from countersample.data import RankingDataset
from countersample.data.dataset import group_rows
from countersample.data.encoder import FeatureEncoder
from countersample.data.tables import as_floats, as_narwhals, check_column, kind_of
from countersample.errors import DataError, ParameterError
from countersample.logs.files import open_tables
from countersample.metrics import ranks_of
from countersample.rankers.checks import restore_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from os import PathLike

    from numpy.typing import NDArray

    from countersample._arrays import Floats, Ints
    from countersample.logs.files import Files
    from countersample.rankers.files import SavedScorer

QUERY_COLUMNS = ("query_id", "qid")  # names of the query column; the first that is there is used
ITEM_COLUMN, LABEL_COLUMN = "item_id", "label"
NUMBER_COLUMN = "item"  # of items without ids: their number in the query, from 0
# Endings of formats that scores are not written in
OTHER_ENDINGS = (".onnx", ".html", ".xlsx", ".xls", ".feather", ".gz", ".bz2", ".xz", ".zip")
PART_BYTES = 1 << 24  # of the files per part, when rows are grouped: several times that in memory
MIN_PARTS, MAX_PARTS = 8, 256  # each is an open file
_NAME_IDS = "; name it with query= and item= (--columns query_id=…,item_id=…)"


class SplitQueryError(Exception):
    """A query whose rows are not next to each other."""


# -- Columns ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table that a ranker reads; the encoder turns them into features."""

    query: str
    item: str | None  # None if the table has no item ids, and items are numbered
    encoder: FeatureEncoder

    @classmethod
    def find(
        cls, serving: SavedScorer, names: list[str], query: str | None, item: str | None
    ) -> TableColumns:
        """Return the columns of a table with these names; reject one without what is needed."""
        query = query or next((name for name in QUERY_COLUMNS if name in names), QUERY_COLUMNS[0])
        check_column(query, names, _NAME_IDS)
        item = item or (ITEM_COLUMN if ITEM_COLUMN in names else None)
        if item is not None:
            check_column(item, names, _NAME_IDS)
        if not {"score", "rank"}.isdisjoint({query, item}):
            raise DataError("ids are called score or rank, like columns of the output: rename them")
        encoder = serving.preprocessing.encoder
        if encoder is None:
            features = serving.feature_names
            if features is None:  # any names, if there are as many
                features = tuple(name for name in names if name not in {query, item, LABEL_COLUMN})
            encoder = FeatureEncoder.of_numbers(features)
        if encoder.n_features != serving.n_features:
            raise DataError(
                f"the table has {encoder.n_features} features, expected {serving.n_features} as in "
                "training"
            )
        for name in encoder.column_names:
            check_column(name, names)
        return cls(query, item, encoder)

    @property
    def names(self) -> list[str]:
        """The columns to read, each once."""
        ids = [self.query] if self.item is None else [self.query, self.item]
        return list(dict.fromkeys([*ids, *self.encoder.column_names]))

    def check_ids(self, table: pa.Table) -> None:
        """Reject ids that are missing, or are neither integers nor text."""
        for name in filter(None, (self.query, self.item)):
            column = table[name]
            dtype = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            is_text = pa.types.is_large_string(dtype) or pa.types.is_string(dtype)
            if not (is_text or pa.types.is_string_view(dtype) or pa.types.is_integer(dtype)):
                raise DataError(f"column {name!r} is {dtype}, expected ids: integers or text")
            if column.null_count:
                raise DataError(f"a row has no {name}, expected one in each")


def make_column(values: NDArray[Any]) -> pa.Array:
    """Return an Arrow column; numbers go without `pyarrow.array`, which imports pandas."""
    if values.dtype.kind not in "if":
        return pa.array(values)
    dtype = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(dtype, len(values), [None, pa.py_buffer(values)])


def _encode_ids(column: pa.ChunkedArray) -> tuple[Ints, list[Any]]:
    """Return a code per row, (n,), and the id of each code, in order of appearance."""
    if not pa.types.is_integer(column.type):
        column = column.cast(pa.large_string())
    chunks = column.dictionary_encode().chunks  # with one dictionary for all
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks]).astype(np.int64)
    return codes, chunks[-1].dictionary.to_pylist()


def _number_items(offsets: Ints) -> Ints:
    """Return the number of each row within its query, from 0."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))


# -- Tables in memory ------------------------------------------------------------------------------


def rank_table(
    serving: SavedScorer, columns: TableColumns, table: pa.Table, top: int | None = None
) -> tuple[pa.Table, Ints]:
    """Return ids, score and rank of the rows, which may be in any order, and which rows they are.

    They keep their order. With `top`, they are the best rows of each query, the best first.
    """
    columns.check_ids(table)
    codes, _ = _encode_ids(table[columns.query])
    order, offsets, _ = group_rows(codes)
    order = np.arange(len(codes)) if order is None else order
    features = columns.encoder.transform(table)
    serving.check_features(features)
    scores = serving.scores(features[order], offsets)
    ids = {name: table[name] for name in filter(None, (columns.query, columns.item))}
    return _make_ranked(ids, scores, order, offsets, top)


def rank_dataset(
    serving: SavedScorer, dataset: RankingDataset, target: Path, *, top: int | None = None
) -> int:
    """Score and rank the items of a dataset into a file; return the number of rows written."""
    ids = {"query": make_column(np.repeat(dataset.query_ids, dataset.query_sizes))}
    scores, order = serving.predict(dataset), np.arange(dataset.n_items)
    ranked, _ = _make_ranked(ids, scores, order, dataset.offsets, top)
    with atomic_path(target) as temporary:
        return _write(iter([ranked]), temporary, target)


def _make_ranked(
    ids: dict[str, Any], scores: Floats, order: Ints, offsets: Ints, top: int | None
) -> tuple[pa.Table, Ints]:
    """Return the result of `rank_table`; `order` has the row of each score, query by query."""
    ranks = ranks_of(scores, offsets)
    arrays: dict[str, Any] = {NUMBER_COLUMN: _number_items(offsets)} if len(ids) == 1 else {}
    arrays |= {"score": scores, "rank": ranks}
    results = {name: make_column(restore_order(order, each)) for name, each in arrays.items()}
    ranked = pa.table({**ids, **results})
    if top is None:
        return ranked, np.arange(len(order))
    query = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    best = np.flatnonzero(ranks <= top)
    rows = order[best[np.lexsort((ranks[best], query[best]))]]
    return ranked.take(make_column(rows)), rows


def read_labelled(serving: SavedScorer, path: str | PathLike[str]) -> RankingDataset:
    """Read a table with a column ``label`` and the ranker's features into memory."""
    with open_tables(str(path)) as files:
        encoder = serving.preprocessing.encoder
        categories = [] if encoder is None else encoder.categories
        table = files.read(as_text=categories)
        columns = TableColumns.find(serving, table.column_names, None, None)
        check_column(LABEL_COLUMN, table.column_names)
        columns.check_ids(table)
        labels = as_floats(LABEL_COLUMN, table[LABEL_COLUMN])
        if np.isnan(labels).any():
            row = int(np.isnan(labels).argmax())
            raise DataError(f"column {LABEL_COLUMN!r} has no value in row {row}, expected one")
        return RankingDataset.from_arrays(
            columns.encoder.transform(table),
            labels,
            table[columns.query].to_numpy(),
            feature_names=columns.encoder.feature_names,
        )


# -- Streams ---------------------------------------------------------------------------------------


def rank_batches(
    serving: SavedScorer,
    columns: TableColumns,
    batches: Iterable[pa.RecordBatch],
    top: int | None = None,
) -> Iterator[pa.Table]:
    """Rank a stream whose queries are in one piece, with one batch and query in memory.

    Rows keep their order; with `top`, the best of each query. A query that comes again raises
    SplitQueryError.
    """
    seen: set[Any] = set()  # the ids of queries so far
    pending: list[pa.Table] = []  # rows of the last query, which may continue in the next batch
    n_rows = 0

    def rank_pending(parts: list[pa.Table]) -> pa.Table:
        nonlocal n_rows
        table = pa.concat_tables(parts, promote_options="permissive")
        codes, ids = _encode_ids(table[columns.query])
        n_runs = 1 + np.count_nonzero(np.diff(codes))
        if n_runs > len(ids) or not seen.isdisjoint(ids):
            raise SplitQueryError
        seen.update(ids)
        n_rows += len(table)
        try:
            return rank_table(serving, columns, table, top)[0]
        except DataError as error:
            raise DataError(
                f"of rows {n_rows - len(table):,} to {n_rows - 1:,}: {error}"
            ) from error

    for batch in batches:
        if not batch.num_rows:
            continue
        part = pa.Table.from_batches([batch])
        columns.check_ids(part)
        if pending and pending[-1][columns.query][-1].as_py() != part[columns.query][0].as_py():
            yield rank_pending(pending)
            pending = []
        codes, _ = _encode_ids(part[columns.query])
        changes = np.flatnonzero(np.diff(codes))
        if len(changes):
            last = int(changes[-1]) + 1
            yield rank_pending([*pending, part.slice(0, last)])
            pending, part = [], part.slice(last)
        pending.append(part)
    if pending:
        yield rank_pending(pending)


# -- Files -----------------------------------------------------------------------------------------


def rank_file(
    serving: SavedScorer,
    source: str,
    target: Path,
    *,
    query: str | None = None,
    item: str | None = None,
    top: int | None = None,
) -> int:
    """Score and rank the rows of a table in files; return the number of rows written.

    One part of the table is in memory at a time, and all rows of one query. If the rows of a query
    are not next to each other, they are first grouped in temporary files.

    The source is Parquet, CSV, TSV, JSON lines or Feather: a file, a folder, a glob. The target is
    ``.parquet``, ``.csv`` or ``.jsonl``; any other name is text with tabs. `query`, `item` and
    `top` are as for `ClickRanker.rank_frame`.
    """
    check_outputs([target], [source])
    with open_tables(source) as files, ExitStack() as cleanup:
        names = files.column_names()
        if not names:
            raise DataError("has no rows, expected at least one")
        columns = TableColumns.find(serving, names, query, item)
        with atomic_path(target) as temporary:
            try:
                batches = files.batches(columns.names)
                return _write(rank_batches(serving, columns, batches, top), temporary, target)
            except SplitQueryError:
                batches = _group_rows(files, columns, cleanup.enter_context(temporary_folder()))
                return _write(rank_batches(serving, columns, batches, top), temporary, target)


def check_form(target: Path) -> None:
    """Reject a file name with the ending of another format."""
    if target.suffix.lower() in OTHER_ENDINGS:
        raise ParameterError(
            f"{target}: scores are not written as {target.suffix}, expected .parquet, .csv, .tsv "
            "or .jsonl"
        )


def _write(tables: Iterator[pa.Table], temporary: Path, target: Path) -> int:
    n_rows = 0
    with ExitStack() as cleanup:
        write = schema = None
        for table in tables:
            if write is None:
                schema = table.schema
                write = cleanup.enter_context(_open_writer(temporary, target, schema))
            write(table.cast(schema))
            n_rows += table.num_rows
    if not n_rows:
        raise DataError("has no rows, expected at least one")
    return n_rows


@contextmanager
def _open_writer(
    temporary: Path, target: Path, schema: pa.Schema
) -> Iterator[Callable[[pa.Table], None]]:
    from pyarrow import csv, parquet  # noqa: PLC0415 (heavy, only where used)

    suffix = target.suffix.lower()
    if suffix == ".parquet":
        with parquet.ParquetWriter(temporary, schema) as writer:
            yield writer.write_table
    elif suffix in {".jsonl", ".ndjson", ".json"}:
        with temporary.open("w", encoding="utf-8") as file:
            yield lambda table: file.writelines(
                json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist()
            )
    else:
        options = csv.WriteOptions(delimiter="," if suffix == ".csv" else "\t")
        with csv.CSVWriter(temporary, schema, write_options=options) as writer:
            yield writer.write_table


def _group_rows(files: Files, columns: TableColumns, folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each query together, in their order.

    The table is written to `folder` in parts, all rows of a query to the same one: by a hash that
    is the same in every process. One part at a time is read back and sorted.
    """
    n_bytes = 0 if files.is_remote else sum(Path(path).stat().st_size for path in files.paths)
    n_parts = int(np.clip(n_bytes // PART_BYTES, MIN_PARTS, MAX_PARTS))
    paths = [folder / str(part) for part in range(n_parts)]
    _write_parts(files, columns, paths)
    for path in filter(Path.exists, paths):
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_stream(file).read_all()
            order = np.argsort(_encode_ids(table[columns.query])[0], kind="stable")
            yield from table.take(make_column(order)).combine_chunks().to_batches()
        path.unlink()


def _write_parts(files: Files, columns: TableColumns, paths: list[Path]) -> None:
    schema = None
    writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
    with ExitStack() as cleanup:
        for batch in files.batches(columns.names):
            table = _unify_numbers(pa.Table.from_batches([batch]), columns)
            schema = schema or table.schema
            table = table.cast(schema)
            codes, ids = _encode_ids(table[columns.query])
            parts = np.array([zlib.crc32(str(each).encode()) % len(paths) for each in ids])[codes]
            for part in np.unique(parts).tolist():
                if part not in writers:
                    writers[part] = cleanup.enter_context(pa.ipc.new_stream(paths[part], schema))
                writers[part].write_table(table.take(make_column(np.flatnonzero(parts == part))))


def _unify_numbers(table: pa.Table, columns: TableColumns) -> pa.Table:
    """Turn number features into floats: JSON has integers in one batch, fractions in others."""
    numbers = {column.name for column in columns.encoder.columns if column.kind == "number"}
    for name in numbers - {columns.query, columns.item}:
        if kind_of(table[name].type) in {"number", "boolean", "nothing"}:
            place = table.column_names.index(name)
            table = table.set_column(place, name, table[name].cast("float64", safe=False))
    return table


# -- Data frames -----------------------------------------------------------------------------------


def rank_frame(
    serving: SavedScorer,
    frame: Any,  # noqa: ANN401 (any frame narwhals knows)
    *,
    query: str | None,
    item: str | None,
    top: int | None,
) -> Any:  # noqa: ANN401 (the same kind of frame)
    """Return ids, score and rank of each row; see `ClickRanker.rank_frame`."""
    if top is not None:
        whole_number("top", top, least=1)
    native = as_narwhals(frame)
    columns = TableColumns.find(serving, native.collect_schema().names(), query, item)
    if native.implementation.is_pyspark() or native.implementation.is_pyspark_connect():
        return _rank_spark(serving, columns, frame, top)
    is_lazy = not isinstance(native, nw.DataFrame)
    eager = native.select(columns.names).collect() if isinstance(native, nw.LazyFrame) else native
    if not len(eager):
        raise DataError("the data frame has no rows, expected at least one")
    ranked, rows = rank_table(serving, columns, _to_arrow(eager, columns.names), top)
    if native.implementation.is_duckdb():
        import duckdb  # noqa: PLC0415 (heavy, only where used)

        return duckdb.from_arrow(ranked)
    result = nw.from_arrow(ranked, backend=eager.implementation)
    if eager.implementation.is_pandas():
        return result.to_native().set_axis(eager.to_native().index[rows])
    return result.lazy().to_native() if is_lazy else result.to_native()


def _to_arrow(frame: nw.DataFrame[Any], names: list[str]) -> pa.Table:
    columns = {}
    for name in names:
        try:
            columns[name] = frame.select(name).to_arrow()[name]
        except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
            raise DataError(
                f"column {name!r} has values of mixed or unknown types, expected one type"
            ) from error
    return pa.table(columns)


def _rank_spark(
    serving: SavedScorer,
    columns: TableColumns,
    frame: Any,  # noqa: ANN401 (a data frame of Spark)
    top: int | None,
) -> Any:  # noqa: ANN401 (likewise)
    """Rank on the workers: each query is sorted into one partition, and ranked as a stream."""
    if columns.item is None:
        raise ParameterError(
            "item is None and the frame has no column 'item_id', expected the column of the "
            "items' ids: rows of Spark have no order that could number them"
        )
    types = need("pyspark.sql.types")
    schema = types.StructType([
        *(frame.schema[name] for name in (columns.query, columns.item)),
        types.StructField("score", types.DoubleType()),
        types.StructField("rank", types.LongType()),
    ])  # fmt: skip

    def rank(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in rank_batches(serving, columns, batches, top):
            yield from table.to_batches()

    def quote(name: str) -> str:
        return f"`{name.replace('`', '``')}`"

    selected = frame.select(*map(quote, columns.names))
    keys = [selected[quote(name)] for name in (columns.query, columns.item)]
    return selected.repartition(keys[0]).sortWithinPartitions(*keys).mapInArrow(rank, schema)
