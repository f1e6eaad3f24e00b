"""The files of a log or of a table: find them, tell their format, decompress them, read them.

A format is one class and one line in `FORMATS`. Engines scan files lazily (`logs.engines`); here
are the readers into memory that every engine can fall back on, and that tables of features use.
"""

from __future__ import annotations

import glob
import re
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

import narwhals as nw

from countersample._files import temporary_folder
from countersample.data.sources import COMPRESSED_SUFFIXES, join_words, open_source
from countersample.errors import DataError
from countersample.logs.columns import MIXED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyarrow.csv import ParseOptions
    from pyarrow.dataset import Dataset
    from pyarrow.fs import FileSystem

#: Parquet metadata: whether text ids may mean numbers, as in the CSV file that they came from.
TEXT_IDS = b"countersample.text_ids"
#: Parquet metadata of an aggregated log: whether queries were joined when it was counted.
JOINED_QUERIES = b"countersample.joined_queries"
BATCH_ROWS = 1 << 15
_BLOCK_BYTES = 1 << 20
_UNPACKED_BY_ARROW = (".gz", ".bz2", ".zst")
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_NO_FILE = (
    "a pipe or a device, expected a file: a log is read more than once, so write it to one first"
)
#: The types that JSON has, beside text. DuckDB guesses others: ids may look like UUIDs or times.
_JSON_TYPES = ("boolean", "bigint", "ubigint", "hugeint", "uhugeint", "double")


# -- errors of libraries


def summarize_error(error: Exception) -> str:
    r"""Return the first line of an error message that is not blank.

    Examples
    --------
    >>> from countersample.logs.files import summarize_error
    >>> summarize_error(ValueError(" \nno such column"))
    'no such column'
    """
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)


def describe_error(error: Exception) -> str:
    """Return the sentence for an error of a library that reads or counts."""
    return f"cannot be read or counted: {summarize_error(error)}"


@contextmanager
def explained(
    source: str,
    errors: tuple[type[Exception], ...] = (),
    describe: Callable[[Exception], str] = describe_error,
) -> Iterator[None]:
    """Turn these errors, and errors of Arrow and narwhals, into one that names the source."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    try:
        yield
    except DataError as error:
        if str(error).startswith(source):
            raise
        raise DataError(f"{source}: {error}") from error
    except (
        pa.ArrowException,
        nw.exceptions.NarwhalsError,
        OSError,
        UnicodeError,  # from Arrow, for names that are not UTF-8
        *errors,
    ) as error:
        raise DataError(f"{source}: {describe(error)}") from error


# -- files


@dataclass(frozen=True)
class Files:
    """The files of a log, all of one format.

    Attributes
    ----------
    name : str
        What the user called them.
    paths : tuple of str
        Each file, or a remote address.
    format : Format
    folder : str, optional
        The folder in which partitions (``policy=a/``) start.
    temporary : str, optional
        The folder that has the decompressed files, in the same partitions.
    """

    name: str
    paths: tuple[str, ...]
    format: Format
    folder: str | None = None
    temporary: str | None = None

    @property
    def is_remote(self) -> bool:
        """Whether the user gave an address (``s3://…``)."""
        return "://" in self.paths[0]

    def locate(self) -> tuple[FileSystem, list[str]]:
        """Return Arrow's file system and the paths in it."""
        from pyarrow import fs  # noqa: PLC0415 (heavy, only where used)

        if not self.is_remote:
            return fs.LocalFileSystem(), [str(Path(path).absolute()) for path in self.paths]
        system, path = fs.FileSystem.from_uri(self.paths[0])
        return system, [path]

    def partitions(self, path: str) -> dict[str, str | None]:
        """Return the columns that the folders of a file stand for (``policy=a/``), as text."""
        parts = dict(part.split("=", 1) for part in self._partition_folders(path))
        return {k: None if v == _NO_PARTITION else unquote(v) for k, v in parts.items()}

    def _partition_folders(self, path: str) -> list[str]:
        if self.folder is None or self.is_remote:
            return []
        base = next(b for b in (self.folder, self.temporary) if b and Path(path).is_relative_to(b))
        return [part for part in Path(path).relative_to(base).parts[:-1] if "=" in part]

    def unpack(self, readable: Iterable[str], cleanup: ExitStack) -> Files:
        """Decompress the files whose ending is not among the readable ones.

        They go to a temporary folder that `cleanup` removes.
        """
        as_they_are = {*readable}.intersection(self.format.unpacks)
        suffixes = [Path(path).suffix for path in self.paths]
        packed = {s for s in suffixes if s in COMPRESSED_SUFFIXES and s not in as_they_are}
        if not packed:
            return self
        folder = cleanup.enter_context(temporary_folder())
        paths = list(self.paths)
        for number, suffix in enumerate(suffixes):
            if suffix in packed:
                target = Path(folder, *self._partition_folders(paths[number]))
                target.mkdir(parents=True, exist_ok=True)
                paths[number] = str(target / f"{number}.{self.format.name}")
                _decompress(self.paths[number], paths[number])
        return replace(self, paths=tuple(paths), temporary=str(folder))


@contextmanager
def open_tables(source: str) -> Iterator[Files]:
    """Find the files of a table that is read into memory, and name the source in every error.

    Files that Arrow cannot decompress are decompressed while the block runs.
    """
    with explained(source, (ValueError,)), ExitStack() as cleanup:
        yield find_files(source).unpack(_UNPACKED_BY_ARROW, cleanup)


def find_files(source: str, file_format: Format | None = None) -> Files:
    """Find the files of a path, a folder, a glob or an address (``s3://…``).

    A file with exactly this name comes first, even if the name looks like a glob. With a
    `file_format`, a single file may have any name, and a folder may have other files.
    """
    formats = FORMATS if file_format is None else (file_format,)
    path = Path(source)
    if path.is_dir():
        files = _find_in_folder(path, formats)
        if not files:
            raise DataError(
                f"{source}: no file of a log in this folder, expected {_list_endings(formats)}"
            )
        return Files(source, files, file_format or _find_one_format(source, files), source)
    if path.is_file():
        return Files(
            source, _drop_repeated([path]), file_format or _find_one_format(source, [source])
        )
    if path.exists():
        raise DataError(f"{source}: {_NO_FILE}")
    if "://" in source:
        return Files(source, (source,), file_format or find_format(source) or FORMATS[0], source)
    if glob.has_magic(source):
        matches = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 (it may be absolute)
        files = _drop_repeated(match for match in map(Path, matches) if not match.is_dir())
        if not files:  # folders, such as some days of an aggregated log
            files = tuple(file for match in matches for file in _find_in_folder(match, formats))
        if files:
            base = str(Path(re.split(r"[*?[]", source)[0] + "x").parent)
            return Files(source, files, file_format or _find_one_format(source, files), base)
    raise DataError(f"{source}: no such file or folder")


def find_format(name: str, formats: Sequence[Format] | None = None) -> Format | None:
    """Return the format of a file by its name (``log.tsv.gz``), None for any other file."""
    suffixes = Path(name).suffixes
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes = suffixes[:-1]
    ending = suffixes[-1].lower() if suffixes else ""
    return next((each for each in formats or FORMATS if ending in each.endings), None)


def read_first_line(path: str) -> str | None:
    """Return the first line of a text file, at most 64 kB; None for a remote file."""
    if "://" in path:
        return None
    buffer = bytearray(1 << 16)
    with open_source(path) as source:
        count = source.readinto(memoryview(buffer))
    return buffer[:count].decode("utf-8", errors="replace").split("\n", 1)[0].rstrip("\r")


def _find_in_folder(folder: str | Path, formats: Sequence[Format]) -> tuple[str, ...]:
    """Return the files of these formats in a folder and in the folders within it."""
    folder, paths = Path(folder), []
    for path in sorted(folder.rglob("*")):
        if _is_hidden(path, folder):
            continue
        if not path.is_dir():
            paths += [path] if find_format(path.name, formats) else []
        elif path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(
                f"{path}: a link to another folder, which is not followed: name the files with a "
                "pattern, or put them into one folder"
            )
    return _drop_repeated(paths)


def _is_hidden(path: Path, folder: Path) -> bool:
    """Return whether Spark and similar systems would ignore the file (``_SUCCESS``, ``.crc``)."""
    return any(part[0] in "._" and "=" not in part for part in path.relative_to(folder).parts)


def _drop_repeated(paths: Iterable[Path]) -> tuple[str, ...]:
    """Return each file once, however many links lead to it; reject what is no file."""
    names: dict[Path, str] = {}
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: {_NO_FILE if path.exists() else 'a link to nothing'}")
        # Libraries take a leading ~ for the home folder.
        names.setdefault(path.resolve(), f"./{path}" if path.parts[0][0] == "~" else str(path))
    return tuple(names.values())


def _find_one_format(source: str, files: Sequence[str]) -> Format:
    formats = {file: find_format(file) for file in files}
    for file, each in formats.items():
        if each is None:
            expected = _list_endings(FORMATS)
            raise DataError(f"{file}: cannot tell the format by its name, expected {expected}")
    names = sorted({each.name for each in formats.values() if each is not None})
    if len(names) > 1:
        raise DataError(
            f"{source}: files of several formats ({', '.join(names)}), expected one: name one "
            f"with a pattern such as '{source}/**/*.{names[0]}'"
        )
    return next(each for each in FORMATS if each.name == names[0])


def _list_endings(formats: Sequence[Format]) -> str:
    usual = [each.endings[0] or "any name without an ending" for each in formats]
    return f"{join_words(usual, 'or')}, also with {join_words(COMPRESSED_SUFFIXES, 'or')}"


def _decompress(path: str, target: str) -> None:
    buffer = bytearray(_BLOCK_BYTES)
    with open_source(path) as source, Path(target).open("wb") as file:
        while count := source.readinto(memoryview(buffer)):
            file.write(memoryview(buffer)[:count])


# -- formats


@dataclass(frozen=True)
class Format(ABC):
    """A file format, with a reader into memory.

    Attributes
    ----------
    name : str
    endings : tuple of str
        The endings of its files, the usual one first.
    delimiter : str
        The character between two values of a line.
    """

    name: str
    endings: tuple[str, ...]
    delimiter: str = ""
    #: Whether ids are text because the format has no types, so that "7" may mean the number.
    has_text_ids: ClassVar[bool] = False
    #: The endings of compressed files that a reader may decompress on the way.
    unpacks: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:
        """Read files into memory.

        A format without types infers them, except for the columns `as_text`; by default all
        columns stay text.
        """

    def batches(self, files: Files, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns in the order of the rows, if possible with few rows in memory.

        Columns of a format without types are text. Arrow's scanner of datasets is not used: it
        reads ahead without limit if the consumer is slow.
        """
        yield from self.read(files).select(list(columns)).to_batches(max_chunksize=BATCH_ROWS)

    def open(self, files: Files) -> pa.Table | Dataset:
        """Return a dataset that is read on demand, or else a table in memory."""
        return self.read(files)

    def column_names(self, files: Files) -> list[str]:
        """Return the names of the columns."""
        names: list[str] = self.open(files).schema.names
        return names

    def may_have_numbers(self, files: Files) -> bool:  # noqa: ARG002 (for Parquet)
        """Return whether text ids may mean numbers."""
        return self.has_text_ids


class Parquet(Format):
    """Files with types, maybe in folders that are partitions (``policy=a/``)."""

    def open(self, files: Files) -> Dataset:  # noqa: D102 (as in Format)
        from pyarrow import dataset  # noqa: PLC0415 (heavy, only where used)

        system, paths = files.locate()
        partitioning = None if files.folder is None else "hive"
        source = paths[0] if files.is_remote else paths  # a remote address may be a folder
        return dataset.dataset(source, filesystem=system, partitioning=partitioning)

    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:  # noqa: ARG002, D102 (as in Format)
        return self.open(files).to_table()

    def batches(self, files: Files, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: D102 (as in Format)
        from pyarrow import parquet  # noqa: PLC0415 (heavy, only where used)

        if files.is_remote:
            yield from self.open(files).to_batches(columns=list(columns), batch_size=BATCH_ROWS)
            return
        for path in files.paths:
            with parquet.ParquetFile(path, pre_buffer=False) as file:
                present = [name for name in columns if name in file.schema_arrow.names]
                partitions = files.partitions(path)
                missing = [name for name in columns if name not in {*present, *partitions}]
                if missing:
                    raise DataError(f"{path} has no column {missing[0]!r}, which others have")
                for batch in file.iter_batches(BATCH_ROWS, columns=present, use_threads=False):
                    yield _add_partitions(batch, columns, partitions)

    def check(self, files: Files) -> None:
        """Raise an error if files on this machine have a column of types that do not fit."""
        if files.is_remote or len(files.paths) < 2:
            return
        kinds: dict[str, tuple[str, str]] = {}
        for path in files.paths:
            schema = _read_schema(path)
            for name, dtype in zip(schema.names, schema.types, strict=True):
                kind = _describe_type(dtype)
                if kind == "nulls":
                    continue
                other, file = kinds.setdefault(name, (kind, path))
                if kind != other and {kind, other} != {"integers", "numbers"}:
                    raise DataError(
                        f"{name} is {other} in {file} and {kind} in {path}, expected one type in "
                        "all files: convert one of them"
                    )

    def metadata(self, files: Files) -> dict[bytes, bytes]:
        """Return the metadata of the first file, if it is on this machine."""
        return {} if files.is_remote else _read_schema(files.paths[0]).metadata or {}

    def may_have_numbers(self, files: Files) -> bool:  # noqa: D102 (as in Format)
        return self.metadata(files).get(TEXT_IDS) == b"true"


class Delimited(Format):
    """CSV and TSV: lines of values without types, with a delimiter between them.

    The dialect is RFC 4180, and nothing is guessed. The first line has the names. A value in double
    quotes may contain delimiters, newlines and doubled quotes. Lines end in LF, CRLF or CR. An
    empty value is missing. Blank lines are ignored; lines of another length are rejected.
    """

    has_text_ids = True
    unpacks = (".gz", ".bz2")

    def open(self, files: Files) -> Dataset:
        """Return all values as text, by Arrow's reader, so that engines cannot disagree."""
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import csv, dataset  # noqa: PLC0415

        text = csv.ConvertOptions(strings_can_be_null=True, null_values=[""])
        form = dataset.CsvFileFormat(parse_options=self._dialect(), convert_options=text)
        system, paths = files.locate()
        first: list[str] = []
        for path in paths:
            with explained(path):
                names = form.inspect(path, system).names
            if any("\0" in name for name in names):  # DuckDB sees only the start of such a name
                raise DataError(f"{path}: the name of a column has the character NUL: rename it")
            first = first or names
            if sorted(names) != sorted(first):
                raise DataError(
                    f"{path} has the columns {', '.join(names)}, and {paths[0]} has "
                    f"{', '.join(first)}, expected the same in all files"
                )
        first = [name for name in first if name]  # a column without a name cannot be selected
        inner = [name for name in files.partitions(paths[0]) if name not in first]
        partitions = pa.schema([(name, pa.string()) for name in inner])
        return dataset.dataset(
            paths,
            schema=pa.schema([(name, pa.string()) for name in (*first, *inner)]),
            format=form,
            filesystem=system,
            partitioning=dataset.partitioning(partitions, flavor="hive") if inner else None,
        )

    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:  # noqa: D102 (as in Format)
        if as_text is None:
            return self.open(files).to_table()
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import csv  # noqa: PLC0415

        types = csv.ConvertOptions(column_types=dict.fromkeys(as_text, pa.string()))
        return pa.concat_tables(
            csv.read_csv(path, parse_options=self._dialect(), convert_options=types)
            for path in files.paths
        )

    def batches(self, files: Files, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: D102 (as in Format)
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import csv  # noqa: PLC0415

        self.open(files)  # rejects files that do not fit together
        system, paths = files.locate()
        for name, path in zip(files.paths, paths, strict=True):
            partitions = files.partitions(name)
            text = csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                include_columns=[column for column in columns if column not in partitions],
                strings_can_be_null=True,
                null_values=[""],
            )
            with system.open_input_stream(path) as file, csv.open_csv(
                file, csv.ReadOptions(use_threads=False), self._dialect(), text
            ) as reader:  # fmt: skip
                for batch in reader:
                    yield _add_partitions(batch, columns, partitions)

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
    """One JSON object per line, read by DuckDB. Text stays text: JSON has no times."""

    unpacks = (".gz", ".zst")

    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:  # noqa: ARG002, D102 (as in Format)
        with _open_json(files) as lines:
            return lines.to_arrow_table()

    def batches(self, files: Files, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns; a column that no line has is missing everywhere."""
        with _open_json(files, columns) as lines:
            yield from import_module("pyarrow").RecordBatchReader.from_stream(lines)

    def column_names(self, files: Files) -> list[str]:  # noqa: D102 (as in Format)
        with _open_json(files) as lines:
            return list(lines.columns)


class Feather(Format):
    """Arrow's own files, with types."""

    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:  # noqa: ARG002, D102 (as in Format)
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import feather  # noqa: PLC0415

        return pa.concat_tables([feather.read_table(path) for path in files.paths])


FORMATS: tuple[Format, ...] = (
    Parquet("parquet", (".parquet", ".pq")),
    Delimited("csv", (".csv",), ","),
    Delimited("tsv", (".tsv",), "\t"),
    JsonLines("jsonl", (".jsonl", ".ndjson", ".json")),
    Feather("feather", (".feather",)),
)


def _read_schema(path: str) -> pa.Schema:
    from pyarrow import parquet  # noqa: PLC0415 (heavy, only where used)

    with explained(path, (ValueError,)):
        return parquet.read_schema(Path(path).absolute())  # a relative name may look like a URL


def _describe_type(dtype: pa.DataType) -> str:
    """Return the kind of values; integers and numbers of any width fit each other."""
    from pyarrow import types  # noqa: PLC0415 (heavy, only where used)

    if types.is_dictionary(dtype):
        dtype = dtype.value_type
    for kind, is_kind in {
        "nulls": types.is_null,
        "integers": types.is_integer,
        "numbers": lambda dtype: types.is_floating(dtype) or types.is_decimal(dtype),
        "text": lambda dtype: types.is_string(dtype) or types.is_large_string(dtype),
        "dates or times": lambda dtype: types.is_date(dtype) or types.is_timestamp(dtype),
    }.items():
        if is_kind(dtype):
            return kind
    return str(dtype)


def _add_partitions(
    batch: pa.RecordBatch, columns: Sequence[str], partitions: Mapping[str, str | None]
) -> pa.RecordBatch:
    """Return columns of a batch, or of the partitions of its file if the batch lacks them."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    def column(name: str) -> pa.Array:
        if name in batch.schema.names:
            return batch[name]
        return pa.repeat(pa.scalar(partitions[name], pa.string()), len(batch))

    return pa.record_batch({name: column(name) for name in columns})


# -- JSON lines, read by DuckDB


def quote_name(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def scan_json(connection: Any, files: Files, paths: Sequence[str]) -> Any:  # noqa: ANN401 (of DuckDB)
    """Return the relation of files of JSON lines, with the types that JSON has."""

    def read(**settings: Any) -> Any:  # noqa: ANN401 (a relation)
        return connection.read_json(
            list(paths),
            format="newline_delimited",
            records="true",  # each line is an object
            hive_partitioning=files.folder is not None,
            hive_types_autocast=False,
            **settings,
        )

    guess = read(sample_size=-1, convert_strings_to_integers=False)
    types = zip(guess.columns, guess.types, strict=True)
    return read(columns={name: _json_type(kind) for name, kind in types})


def check_json_types(relation: Any) -> None:  # noqa: ANN401 (a relation)
    """Reject a column that has no type but JSON: it has numbers in some lines, text in others."""
    for name, kind in zip(relation.columns, relation.types, strict=True):
        if str(kind) == "JSON":
            column = quote_name(name)
            has_value = f"{column} is not null and json_type({column}) <> 'NULL'"
            if relation.filter(has_value).limit(1).fetchall():
                raise DataError(MIXED.format(name=name))


def _json_type(kind: Any) -> str:  # noqa: ANN401 (a type of DuckDB)
    """Return the type that JSON has for one that DuckDB guessed."""
    if kind.id == "struct":
        fields = (f"{quote_name(name)} {_json_type(inner)}" for name, inner in kind.children)
        return f"STRUCT({', '.join(fields)})"
    if kind.id == "map":
        return f"MAP(VARCHAR, {_json_type(kind.children[1][1])})"
    if kind.id == "list":
        return f"{_json_type(kind.children[0][1])}[]"
    return str(kind) if kind.id in _JSON_TYPES or str(kind) == "JSON" else "VARCHAR"


@contextmanager
def _open_json(files: Files, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Open files of JSON lines in a connection of their own; `columns` selects some of them."""
    duckdb = import_module("duckdb")
    settings = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    paths = [glob.escape(path) for path in files.paths]
    with duckdb.connect(config=settings) as connection, explained(files.name, (duckdb.Error,)):
        lines = scan_json(connection, files, paths)
        if columns is not None:
            present = {name: quote_name(name) for name in lines.columns}
            lines = lines.project(
                ", ".join(f"{present.get(name, 'null')} as {quote_name(name)}" for name in columns)
            )
        check_json_types(lines)
        yield lines
