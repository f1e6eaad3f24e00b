"""Files of features ranked as they are read: `rank_file`, for files larger than memory, too."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from countersample._files import atomic_path, temporary_folder
from countersample.clicks.impressions.files import open_tables
from countersample.errors import DataError, ParameterError
from countersample.rankers.grouping import grouped
from countersample.rankers.serving import NotTogetherError, TableReading, rank_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from countersample.rankers._saved import SavedScorer

    Write = Callable[[pa.Table], None]

_OTHERS = (".onnx", ".html", ".xlsx", ".xls", ".feather", ".gz", ".bz2", ".xz", ".zst", ".zip")


def rank_file(
    serving: SavedScorer,
    source: str,
    target: Path,
    *,
    query: str | None = None,
    item: str | None = None,
    top: int | None = None,
) -> int:
    """Score and rank the rows of a table in files; return how many rows were written.

    A part of the table is in memory at a time, and all rows of one query. Where the rows of a query
    are not side by side, they are first brought together in temporary files.

    Parameters
    ----------
    serving : SavedScorer
    source : str
        Parquet, CSV, TSV, JSON lines or Feather: a file, a folder, a glob.
    target : Path
        What is written: ``.parquet``, ``.csv``, ``.jsonl``; under another name, text with tabs.
    query, item : str, optional
        The columns of the ids; by default query_id, or qid, and item_id.
    top : int, optional
        How many items of each query are written, the best first; by default all, in their order.
    """
    with open_tables(source) as files, ExitStack() as cleanup:
        names = files.format.names(files)
        if not names:
            raise DataError("has no rows, expected at least one")
        reading = TableReading.of(serving, names, query, item)
        with atomic_path(target) as temporary:
            try:
                batches = files.format.batches(files, reading.columns)
                return _write(rank_batches(serving, reading, batches, top), temporary, target)
            except NotTogetherError:
                batches = grouped(files, reading, cleanup.enter_context(temporary_folder()))
                return _write(rank_batches(serving, reading, batches, top), temporary, target)


def check_form(target: Path) -> None:
    """Refuse the name of a file of another kind than what is written."""
    if target.suffix.lower() in _OTHERS:
        raise ParameterError(
            f"{target}: scores are not written as {target.suffix}, expected .parquet, .csv, .tsv "
            "or .jsonl"
        )


def write_table(table: pa.Table, target: Path) -> None:
    """Write scores as the name of the file says, atomically."""
    with atomic_path(target) as temporary:
        _write(iter([table]), temporary, target)


def _write(tables: Iterator[pa.Table], temporary: Path, target: Path) -> int:
    n_rows = 0
    with ExitStack() as opened:
        write: Write | None = None
        schema = None
        for table in tables:
            if write is None:
                schema = table.schema
                write = opened.enter_context(_writer(temporary, target, schema))
            write(table.cast(schema))
            n_rows += table.num_rows
    if not n_rows:
        raise DataError("has no rows, expected at least one")
    return n_rows


@contextmanager
def _writer(temporary: Path, target: Path, schema: pa.Schema) -> Iterator[Write]:
    from pyarrow import csv, parquet  # noqa: PLC0415 (heavy, only where used)

    suffix = target.suffix.lower()
    if suffix == ".parquet":
        with parquet.ParquetWriter(temporary, schema) as writer:
            yield writer.write_table
    elif suffix in {".jsonl", ".ndjson", ".json"}:
        with temporary.open("w", encoding="utf-8") as file:
            yield lambda table: file.writelines(_lines(table))
    else:
        options = csv.WriteOptions(delimiter="," if suffix == ".csv" else "\t")
        with csv.CSVWriter(temporary, schema, write_options=options) as writer:
            yield writer.write_table


def _lines(table: pa.Table) -> Iterator[str]:
    names = table.column_names
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        yield json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n"
