"""The formats of a log's files: a format is one class here and one line in `FORMATS`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from countersample.clicks.impressions.columns import CANONICAL, IDS
from countersample.clicks.impressions.explaining import explained
from countersample.clicks.impressions.json_lines import read_blocks, read_lines
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyarrow.csv import ParseOptions
    from pyarrow.dataset import Dataset

    from countersample.clicks.impressions.files import Files


#: Metadata of Parquet that says whether text ids may mean numbers, as in the CSV they came from.
TEXT_IDS = b"countersample.text_ids"
#: Metadata of an aggregated log that says whether queries were joined when it was counted.
JOINED_QUERIES = b"countersample.joined_queries"
BATCH = 1 << 15  # rows at a time of what is read as a stream


@dataclass(frozen=True)
class Format(ABC):
    """A format of files, with a reader into memory that every engine can fall back on."""

    name: str
    endings: tuple[str, ...]  # of its files, the usual one first
    delimiter: str = ""  # what stands between two values of a line, where that is so
    #: Whether ids are text of a file that knows no types, so that "7" may mean the number.
    has_text_ids: ClassVar[bool] = False
    #: The endings of compressed files that may be unpacked on the way, where an engine does.
    unpacks: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:
        """Read files into memory; `as_text` are the columns that stay text, by default all.

        A format with types keeps them.
        """

    def open(self, files: Files) -> pa.Table | Dataset:
        """Return what can be read of the files without all of it in memory, else `read` them."""
        return self.read(files)

    def names(self, files: Files) -> list[str]:
        """Return the names of the columns."""
        names: list[str] = self.open(files).schema.names  # a table or a dataset
        return names

    def batches(self, files: Files, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return some columns of the rows, in their order; if it can, with few rows in memory.

        Files without types give text, whatever a value looks like. Arrow's scanner of datasets is
        of no use here: it reads ahead of a reader that is slow, as much as there is.
        """
        yield from self.read(files).select(list(columns)).to_batches(max_chunksize=BATCH)

    def may_have_numbers(self, files: Files) -> bool:  # noqa: ARG002 (for Parquet)
        """Return whether text ids may mean numbers."""
        return self.has_text_ids

    def check(self, files: Files, columns: Mapping[str, str] | None) -> None:  # noqa: B027 (few do)
        """Refuse files that do not fit together, before they are opened."""


class Parquet(Format):
    """Files with types, maybe in folders that are partitions (``policy=a/``)."""

    def open(self, files: Files) -> Dataset:  # noqa: D102 (as in Format)
        from pyarrow import dataset  # noqa: PLC0415 (heavy, only where used)

        system, paths = files.located()
        partitioning = None if files.folder is None else "hive"
        source = paths[0] if files.is_remote else paths  # which may be a folder
        return dataset.dataset(source, filesystem=system, partitioning=partitioning)

    def metadata(self, files: Files) -> dict[bytes, bytes]:
        """Return the metadata of the first file, if it is on this machine."""
        from pyarrow import parquet  # noqa: PLC0415 (heavy, only where used)

        if files.is_remote:
            return {}
        with explained(files.paths[0], (ValueError,)):
            path = Path(files.paths[0]).absolute()  # a relative name may look like an address
            return parquet.read_schema(path).metadata or {}

    def may_have_numbers(self, files: Files) -> bool:  # noqa: D102 (as in Format)
        return self.metadata(files).get(TEXT_IDS) == b"true"

    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:  # noqa: ARG002, D102 (as in Format)
        return self.open(files).to_table()

    def batches(self, files: Files, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: D102 (as in Format)
        from pyarrow import parquet  # noqa: PLC0415 (heavy, only where used)

        if files.is_remote:  # it may be a folder, and its files are Arrow's to find
            yield from self.open(files).to_batches(columns=list(columns), batch_size=BATCH)
            return
        for path in files.paths:
            with parquet.ParquetFile(path, pre_buffer=False) as file:
                there = [name for name in columns if name in file.schema_arrow.names]
                inner = files.partitions(path)
                missing = [name for name in columns if name not in {*there, *inner}]
                if missing:
                    raise DataError(f"{path} has no column {missing[0]!r}, which others have")
                for batch in file.iter_batches(BATCH, columns=there, use_threads=False):
                    yield _with_partitions(batch, columns, inner)

    def check(self, files: Files, columns: Mapping[str, str] | None) -> None:
        """Refuse files of one log whose ids are of different types, or that lack a column."""
        if len(files.paths) < 2:
            return
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import parquet  # noqa: PLC0415

        names = {(columns or {}).get(name, name) for name in CANONICAL}
        first_names: set[str] = set()
        first: dict[str, tuple[str, str]] = {}
        for path in files.paths:
            with explained(path, (ValueError,)):
                schema = parquet.read_schema(Path(path).absolute())
            there = names.intersection(schema.names)
            first_names = first_names or there
            if there != first_names:  # some engines would take it for a column of nothing
                raise DataError(
                    f"{path} has the columns {', '.join(sorted(there))} of a log, and "
                    f"{files.paths[0]} has {', '.join(sorted(first_names))}, expected the same in "
                    "all"
                )
            for name in IDS:
                index = schema.get_field_index((columns or {}).get(name, name))
                if index < 0:
                    continue
                kind = "integers" if pa.types.is_integer(schema.types[index]) else "text"
                was, where = first.setdefault(name, (kind, path))
                if kind != was:
                    raise DataError(
                        f"{name} is {was} in {where} and {kind} in {path}, expected one type in "
                        "all files: make them one"
                    )


class Delimited(Format):
    """CSV and TSV: lines of values without types, with a delimiter between them.

    The dialect is that of RFC 4180, and nothing about it is guessed: the first line has the names,
    a value may stand in double quotes and then have delimiters, newlines and quotes (each written
    twice) in it, lines end in LF, CRLF or CR. A value without anything in it is missing; blank
    lines are passed over, lines of another length refused.
    """

    has_text_ids = True
    unpacks = (".gz", ".bz2")

    def open(self, files: Files) -> Dataset:
        """Return all values as text, by Arrow's reader, so that engines cannot disagree."""
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import csv, dataset  # noqa: PLC0415

        text = csv.ConvertOptions(strings_can_be_null=True, null_values=[""])
        form = dataset.CsvFileFormat(parse_options=self._dialect(), convert_options=text)
        system, paths = files.located()
        first: list[str] = []
        for path in paths:
            with explained(path):
                names = form.inspect(path, system).names
            _check_names(path, names)
            first = first or names
            if sorted(names) != sorted(first):
                raise DataError(
                    f"{path} has the columns {', '.join(names)}, and {paths[0]} has "
                    f"{', '.join(first)}, expected the same in all files"
                )
        first = [name for name in first if name]  # of the others none can be asked for
        inner = [name for name in files.partitions(paths[0]) if name not in first]
        return dataset.dataset(
            paths,
            schema=pa.schema([(name, pa.string()) for name in (*first, *inner)]),
            format=form,
            filesystem=system,
            partitioning=dataset.partitioning(
                pa.schema([(name, pa.string()) for name in inner]), flavor="hive"
            )
            if inner
            else None,
        )

    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:  # noqa: D102 (as in Format)
        if as_text is None:
            return self.open(files).to_table()
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import csv  # noqa: PLC0415

        typed = csv.ConvertOptions(column_types=dict.fromkeys(as_text, pa.string()))
        return pa.concat_tables(
            csv.read_csv(path, parse_options=self._dialect(), convert_options=typed)
            for path in files.paths
        )

    def batches(self, files: Files, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: D102 (as in Format)
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import csv  # noqa: PLC0415

        self.open(files)  # which refuses files that do not fit together
        system, paths = files.located()
        for name, path in zip(files.paths, paths, strict=True):
            inner = files.partitions(name)
            text = csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                include_columns=[column for column in columns if column not in inner],
                strings_can_be_null=True,
                null_values=[""],
            )
            with system.open_input_stream(path) as file, csv.open_csv(
                file, csv.ReadOptions(use_threads=False), self._dialect(), text
            ) as reader:  # fmt: skip
                for batch in reader:
                    yield _with_partitions(batch, columns, inner)

    def _dialect(self) -> ParseOptions:
        from pyarrow import csv  # noqa: PLC0415 (heavy, only where used)

        return csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char='"',
            double_quote=True,
            escape_char=False,
            newlines_in_values=True,
            ignore_empty_lines=True,
        )


class JsonLines(Format):
    """An object a line; a column whose type changes is an error.

    Text is text, whatever it looks like: JSON knows no times.
    """

    unpacks = (".gz", ".bz2", ".xz", ".zst")

    def names(self, files: Files) -> list[str]:
        """Return the names that the first lines have."""
        first = next(chain.from_iterable(map(read_blocks, files.paths)), None)
        names: list[str] = [] if first is None else first.column_names
        return names

    def batches(self, files: Files, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return rows block by block; what no row of a block has is missing."""
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

        for path in files.paths:
            for table in read_blocks(path):
                _check_names(path, table.column_names)
                columns_of_rows = {
                    name: table[name] if name in table.column_names else pa.nulls(len(table))
                    for name in columns
                }
                yield from pa.table(columns_of_rows).to_batches()

    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:  # noqa: ARG002, D102 (as in Format)
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

        tables = []
        for path in files.paths:
            table = read_lines(path)
            _check_names(path, table.column_names)
            times = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
            if times:  # text that looks like it
                table = read_lines(path, as_text=times)
            for name, value in files.partitions(path).items():
                if name not in table.column_names:
                    column = pa.repeat(pa.scalar(value, pa.string()), len(table))
                    table = table.append_column(name, column)
            tables.append(table)
        return pa.concat_tables(tables, promote_options="default")


class Feather(Format):
    """Arrow's own files, with types."""

    def batches(self, files: Files, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: D102 (as in Format)
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

        for path in files.paths:
            with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
                for number in range(file.num_record_batches):
                    yield file.get_batch(number).select(list(columns))

    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:  # noqa: ARG002, D102 (as in Format)
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import feather  # noqa: PLC0415

        return pa.concat_tables([feather.read_table(path) for path in files.paths])


def _with_partitions(
    batch: pa.RecordBatch, columns: Sequence[str], inner: Mapping[str, str | None]
) -> pa.RecordBatch:
    """Return columns of a batch; those that it has not are what the folders of its file say."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    def column(name: str) -> pa.Array:
        if name in batch.schema.names:
            return batch[name]
        return pa.repeat(pa.scalar(inner[name], pa.string()), len(batch))

    return pa.record_batch({name: column(name) for name in columns})


def _check_names(path: str, names: Sequence[str]) -> None:
    """Refuse a name of which an engine that is given the table sees but the start."""
    cut = next((name for name in names if "\0" in name), None)
    if cut is not None:
        raise DataError(f"{path}: the column {cut!r} has the character NUL in its name: rename it")


FORMATS: tuple[Format, ...] = (
    Parquet("parquet", (".parquet", ".pq")),
    Delimited("csv", (".csv",), ","),
    Delimited("tsv", (".tsv",), "\t"),
    JsonLines("jsonl", (".jsonl", ".ndjson", ".json")),
    Feather("feather", (".feather",)),
)
