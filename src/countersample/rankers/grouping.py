"""Rows of a table brought together by query, on disk: for files that are larger than memory."""

from __future__ import annotations

import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from countersample.data.arrow_values import kind_of
from countersample.rankers.serving import codes_of, column_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from countersample._arrays import Ints
    from countersample.clicks.impressions.files import Files
    from countersample.rankers.serving import TableReading

_PART = 1 << 24  # bytes of the files for each part: several times as many in memory
_PARTS = (8, 256)  # the fewest and the most: each is an open file


def grouped(files: Files, reading: TableReading, folder: Path) -> Iterator[pa.RecordBatch]:
    """Return the rows of each query together, in their order.

    The table is written to `folder` in parts, all rows of a query to the same one; a part at a time
    is read back.
    """
    sizes = 0 if files.is_remote else sum(Path(path).stat().st_size for path in files.paths)
    n_parts = int(np.clip(sizes // _PART, *_PARTS))
    paths = [folder / str(part) for part in range(n_parts)]
    _spill(files, reading, paths)
    for path in paths:
        if path.exists():
            yield from _together(path, reading)
            path.unlink()


def _spill(files: Files, reading: TableReading, paths: list[Path]) -> None:
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    schema = None
    writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
    with ExitStack() as opened:
        for batch in files.format.batches(files, reading.columns):
            table = pa.Table.from_batches([batch])
            columns = {name: _as_float(table[name], reading, name) for name in reading.columns}
            table = pa.table(columns)
            schema = schema or table.schema
            table = table.cast(schema)
            part = _parts(table[reading.query], len(paths))
            order = np.argsort(part, kind="stable")
            table, part = table.take(column_of(order)), part[order]
            starts = np.flatnonzero(np.append(True, part[1:] != part[:-1]))
            for first, last in zip(starts, [*starts[1:], len(part)], strict=True):
                own = int(part[first])
                if own not in writers:
                    writers[own] = opened.enter_context(pa.ipc.new_stream(paths[own], schema))
                writers[own].write_table(table.slice(first, last - first))


def _together(path: Path, reading: TableReading) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_stream(file).read_all()
        order = np.argsort(codes_of(table[reading.query])[0], kind="stable")
        yield from table.take(column_of(order)).combine_chunks().to_batches()


def _parts(column: pa.ChunkedArray, n_parts: int) -> Ints:
    """Return the part of each row, by its query: the same in every process."""
    codes, ids = codes_of(column)
    part = [zlib.crc32(str(each).encode()) % n_parts for each in ids]
    return np.array(part, np.int64)[codes]


def _as_float(column: pa.ChunkedArray, reading: TableReading, name: str) -> pa.ChunkedArray:
    """Return a feature that is a number as a float: JSON has integers here, fractions there."""
    kinds = {each.name: each.kind for each in reading.encoder.columns}
    if name in {reading.query, reading.item} or kinds[name] != "number":
        return column
    is_number = kind_of(column.type) in {"number", "boolean", "nothing"}
    return column.cast("float64", safe=False) if is_number else column
