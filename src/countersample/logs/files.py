"""The files of a log or of a table: find them, recognize their format, decompress and read them.

Logs of other systems are in `readers`, LETOR text in `data.letor`. DuckDB reads Parquet and JSON
lines, Arrow reads CSV, TSV, Feather and tables into memory. Its CSV reader guesses nothing, so that
all engines agree on a file. The dialect is RFC 4180. The first line has the names. A value in
double quotes may contain delimiters, newlines and doubled quotes. An empty value is missing. Blank
lines are ignored; lines of another length are rejected.
"""

from __future__ import annotations

import glob
import re
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import narwhals as nw
import pyarrow as pa
from pyarrow import csv, fs, parquet, types

from countersample._files import temporary_folder
from countersample.data.sources import COMPRESSED_SUFFIXES, join_words, open_source
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.logs.columns import INTEGER, MIXED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyarrow.csv import ParseOptions
    from pyarrow.dataset import Dataset
    from pyarrow.fs import FileSystem

#: Parquet metadata: whether text ids may mean numbers, as in the CSV file that they came from.
TEXT_IDS = b"countersample.text_ids"
#: Parquet metadata of an aggregated log: whether queries were joined when it was counted.
JOINED_QUERIES = b"countersample.joined_queries"
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
BATCH_ROWS = 1 << 15
_BLOCK_BYTES = 1 << 20
_AZURE_SCHEMES = ("az", "azure", "abfss")
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


@contextmanager
def explained(source: str) -> Iterator[None]:
    """Turn errors of the libraries that read and count into one that names the source."""
    try:
        yield
    except DataError as error:
        if str(error).startswith(source):
            raise
        raise DataError(f"{source}: {error}") from error
    except CounterSampleError:
        raise
    except _library_errors() as error:
        if type(error).__name__ == "OutOfMemoryException":
            raise DataError(
                f"{source}: DuckDB ran out of memory ({summarize_error(error)}): raise "
                "memory_limit (--memory-limit) or free disk in temp_dir"
            ) from error
        raise DataError(f"{source}: cannot be read or counted: {summarize_error(error)}") from error


def _library_errors() -> tuple[type[Exception], ...]:
    """Return the errors of Arrow, narwhals, DuckDB, and of Spark and polars if they are used."""
    errors = [OSError, ValueError, nw.exceptions.NarwhalsError, import_module("duckdb").Error]
    errors.append(import_module("pyarrow").ArrowException)
    for module, name in (
        ("pyspark.errors", "PySparkException"),
        ("py4j.protocol", "Py4JError"),
        ("polars.exceptions", "PolarsError"),
    ):
        if module in sys.modules:
            errors.append(getattr(sys.modules[module], name))
    return tuple(errors)


# -- files


@dataclass(frozen=True)
class Format:
    """A file format: its name, the endings of its files, and the delimiter of text without types.

    All readers decompress text with the ending ``.gz`` by themselves, and no other files.
    """

    name: str
    endings: tuple[str, ...]
    delimiter: str = ""


FORMATS = (
    Format("parquet", (".parquet", ".pq")),
    Format("csv", (".csv",), ","),
    Format("tsv", (".tsv",), "\t"),
    Format("jsonl", (".jsonl", ".ndjson", ".json")),
    Format("feather", (".feather",)),
)


@dataclass(frozen=True)
class Files:
    """The files of a log or of a table, all of one format.

    Attributes
    ----------
    name : str
        The path, glob or address that the user gave.
    paths : tuple of str
        Each file, absolute, or a remote address.
    format : Format
    folder : str, optional
        The folder in which partitions (``policy=a/``) start.
    """

    name: str
    paths: tuple[str, ...]
    format: Format
    folder: str | None = None

    @property
    def is_remote(self) -> bool:
        """Whether the user gave an address (``s3://…``)."""
        return "://" in self.paths[0]

    def locate(self) -> tuple[FileSystem, list[str]]:
        """Return Arrow's file system and the paths in it."""
        if not self.is_remote:
            return fs.LocalFileSystem(), list(self.paths)
        system, path = fs.FileSystem.from_uri(self.paths[0])
        return system, [path]

    def unpack(self, cleanup: ExitStack) -> Files:
        """Decompress the files if one has a compression that not all readers support.

        All files go to a temporary folder, in the same partitions; `cleanup` removes it.
        """
        suffixes = {Path(path).suffix for path in self.paths}.intersection(COMPRESSED_SUFFIXES)
        is_text = self.format.name in {"csv", "tsv", "jsonl"}
        if self.is_remote or not suffixes or (is_text and suffixes == {".gz"}):
            return self
        folder = cleanup.enter_context(temporary_folder())
        paths = []
        for number, path in enumerate(self.paths):
            inner = Path(path).relative_to(self.folder).parent if self.folder else ""
            target = folder / inner / f"{number}{self.format.endings[0]}"
            target.parent.mkdir(parents=True, exist_ok=True)
            _decompress(path, target)
            paths.append(str(target))
        return replace(self, paths=tuple(paths), folder=self.folder and str(folder))

    @cached_property
    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of each Parquet or Feather file, without the columns of partitions."""
        schemas = {}
        for fragment in self._open_typed(pa.schema([])).get_fragments():
            with explained(fragment.path):
                schema = fragment.physical_schema
            schemas[fragment.path] = pa.schema(
                [(field.name, _decoded_type(field.type)) for field in schema]
            )
        return schemas

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of all Parquet or Feather files together, each with one type."""
        return unify_schemas(self.schemas)

    def open(self) -> Dataset:
        """Return a dataset that Arrow reads on demand; values of CSV and TSV are text.

        It has the columns of all files, matched by name; a column is null in files that lack it.
        """
        if self.format.delimiter:
            return _open_delimited(self)
        partitions = self.partition_schema()
        if self.is_remote:
            partitions = self._open_typed(None).schema
        others = [field for field in partitions if field.name not in self.schema.names]
        return self._open_typed(pa.schema([*self.schema, *others]))

    def _open_typed(self, schema: pa.Schema | None) -> Dataset:
        """Return a dataset with these columns; by default with the columns of the first file."""
        from pyarrow import dataset  # noqa: PLC0415 (imports pandas)

        system, paths = self.locate()
        partitions = "hive" if self.is_remote else _hive(self.partition_schema())
        return dataset.dataset(
            paths[0] if self.is_remote else paths,  # a remote address may be a folder
            schema=schema,
            format=self.format.name,
            filesystem=system,
            partitioning=partitions,
        )

    def scan(self, connection: Any) -> Any:  # noqa: ANN401 (a connection and a relation of DuckDB)
        """Return a relation of DuckDB, which reads the files itself or through Arrow."""
        if self.format.name == "jsonl":
            return _scan_json(connection, self)
        # DuckDB would convert columns of several types without an error, click "yes" to 1.
        if self.format.name == "parquet" and (self.is_remote or self.has_one_type_per_column):
            return _scan_parquet(connection, self)
        return connection.from_arrow(self.open())

    def read(self, as_text: Collection[str]) -> pa.Table:
        """Read the files of a table into memory; a column that a file lacks is an error.

        Types of CSV and TSV are inferred, except for the columns `as_text`.
        """
        if self.format.name == "jsonl":
            with _open_json(self) as lines:
                return lines.to_arrow_table()
        if not self.format.delimiter:
            check_same_columns(self.schemas)
            return self.open().to_table()
        options = csv.ConvertOptions(column_types=dict.fromkeys(as_text, pa.string()))
        tables = {
            path: csv.read_csv(path, parse_options=_dialect(self), convert_options=options)
            for path in self.paths
        }
        schemas = {path: table.schema for path, table in tables.items()}
        check_same_columns(schemas)
        schema = unify_schemas(schemas)
        return pa.concat_tables(
            table.select(schema.names).cast(schema) for table in tables.values()
        )

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns in the order of the rows, with few rows in memory.

        Columns of CSV and TSV are text. A column that no line of JSON has is missing everywhere.
        """
        if self.format.name == "jsonl":
            with _open_json(self, columns) as lines:
                yield from pa.RecordBatchReader.from_stream(lines)
            return
        if self.format.name == "parquet" and not self.is_remote:
            yield from self._parquet_batches(columns)
            return
        if not self.format.delimiter:
            yield from self.open().to_batches(columns=list(columns), batch_size=BATCH_ROWS)
            return
        self.open()  # rejects files with different columns
        system, paths = self.locate()
        for name, path in zip(self.paths, paths, strict=True):
            partitions = self.partitions(name)
            text = csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                include_columns=[column for column in columns if column not in partitions],
                strings_can_be_null=True,
                null_values=[""],
            )
            settings = csv.ReadOptions(use_threads=False), _dialect(self), text
            # The scanner of datasets would read whole files ahead.
            with system.open_input_stream(path) as file, csv.open_csv(file, *settings) as reader:
                for batch in reader:
                    yield _add_partitions(batch, columns, partitions)

    def _parquet_batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches file by file, because a dataset of Arrow would read ahead."""
        check_same_columns(self.schemas, columns)
        for path in self.paths:
            partitions = self.partitions(path)
            names = [name for name in columns if name in self.schema.names]
            with parquet.ParquetFile(path, pre_buffer=False) as file:
                for batch in file.iter_batches(BATCH_ROWS, columns=names, use_threads=False):
                    yield _add_partitions(batch, columns, partitions, self.schema)

    def partitions(self, path: str) -> dict[str, str | None]:
        """Return the columns that the folders of a file stand for (``policy=a/``), as text."""
        if self.folder is None or self.is_remote:
            return {}
        folders = Path(path).relative_to(self.folder).parts[:-1]
        values = dict(part.split("=", 1) for part in folders if "=" in part)
        return {k: None if v == _NO_PARTITION else unquote(v) for k, v in values.items()}

    def partition_schema(self) -> pa.Schema:
        """Return the types of partitions: integers if all are written so ("7", not "07"), or text.

        Each engine would infer other types, and Spark would read ``07`` and ``7`` as one id.
        """
        values: dict[str, set[str]] = {}
        for path in self.paths:
            for name, value in self.partitions(path).items():
                values.setdefault(name, set()).update([] if value is None else [value])
        return pa.schema(
            (name, pa.int64() if all(re.match(INTEGER, text) for text in texts) else pa.string())
            for name, texts in values.items()
        )

    def column_names(self) -> list[str]:
        """Return the names of the columns."""
        if self.format.name == "jsonl":
            with _open_json(self) as lines:
                return list(lines.columns)
        names: list[str] = self.open().schema.names
        return names

    def metadata(self) -> dict[bytes, bytes]:
        """Return the metadata of the first Parquet file, if it is on this machine."""
        if self.format.name != "parquet" or self.is_remote:
            return {}
        with explained(self.paths[0]):
            return parquet.read_schema(self.paths[0]).metadata or {}

    @property
    def has_text_ids(self) -> bool:
        """Whether ids are text because of the format, so that "7" may mean the number."""
        return bool(self.format.delimiter) or self.metadata().get(TEXT_IDS) == b"true"

    @property
    def has_one_type_per_column(self) -> bool:
        """Whether no column of Parquet or Feather files has several types."""
        fields = {(field.name, field.type) for each in self.schemas.values() for field in each}
        return len(fields) == len({name for name, _ in fields})


@contextmanager
def open_tables(source: str) -> Iterator[Files]:
    """Find and decompress the files of a table, and name the source in every error of the block."""
    with explained(source), ExitStack() as cleanup:
        yield find_files(source).unpack(cleanup)


def find_files(source: str, file_format: Format | None = None) -> Files:
    """Find the files of a path, a folder, a glob or an address (``s3://…``).

    A file with exactly this name comes first, even if the name looks like a glob. With a
    `file_format`, a single file may have any name, and a folder may have other files.
    """
    formats = FORMATS if file_format is None else (file_format,)
    path, base = Path(source), None
    if path.is_dir():
        base = path
        paths = _list_folder(path, formats)
        if not paths:
            raise DataError(
                f"{source}: no file of a log in this folder, expected {_list_endings(formats)}"
            )
    elif path.exists():
        paths = [path]
    elif "://" in source:
        return Files(source, (source,), file_format or find_format(source) or FORMATS[0], source)
    else:
        matches = sorted(map(Path, glob.glob(source, recursive=True)))  # noqa: PTH207 (absolute)
        paths = [match for match in matches if not match.is_dir()]
        if not paths:  # folders, such as some days of an aggregated log
            paths = [file for match in matches for file in _list_folder(match, formats)]
        if not paths:
            raise DataError(f"{source}: no such file or folder")
        base = Path(re.split(r"[*?[]", source)[0] + "x").parent
    for each in paths:
        if not each.is_file():
            raise DataError(
                f"{each}: a pipe, a device or a link to nothing, expected a file: a log is read "
                "more than once, so write it to one first"
            )
    # Each file once, however many links lead to it.
    names = tuple({each.resolve(): str(each.absolute()) for each in reversed(paths)}.values())[::-1]
    folder = None if base is None else str(base.absolute())
    return Files(source, names, file_format or _find_one_format(source, names), folder)


def find_format(name: str, formats: Sequence[Format] = FORMATS) -> Format | None:
    """Return the format of a file by its name (``log.tsv.gz``), None for any other file."""
    suffixes = Path(name).suffixes
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes = suffixes[:-1]
    ending = suffixes[-1].lower() if suffixes else ""
    return next((each for each in formats if ending in each.endings), None)


def quote_name(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _list_folder(folder: Path, formats: Sequence[Format]) -> list[Path]:
    """Return the files of these formats in a folder, without hidden ones (``_temporary``)."""

    def is_hidden(path: Path) -> bool:
        return any(part[0] in "._" and "=" not in part for part in path.relative_to(folder).parts)

    paths = []
    for path in sorted(folder.rglob("*")):
        if is_hidden(path):
            continue
        if not path.is_dir():
            paths += [path] if find_format(path.name, formats) else []
        elif path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(
                f"{path}: a link to another folder, which is not followed: name the files with a "
                "pattern, or put them into one folder"
            )
    return paths


def _find_one_format(source: str, paths: Sequence[str]) -> Format:
    formats = {find_format(path): path for path in paths}
    if None in formats:
        raise DataError(
            f"{formats[None]}: the name does not show the format, expected {_list_endings(FORMATS)}"
        )
    names = sorted(each.name for each in formats if each is not None)
    if len(names) > 1:
        raise DataError(
            f"{source}: files of several formats ({', '.join(names)}), expected one: name one "
            f"with a pattern such as '{source}/**/*.{names[0]}'"
        )
    return next(each for each in FORMATS if each.name == names[0])


def _list_endings(formats: Sequence[Format]) -> str:
    usual = [each.endings[0] or "any name without an ending" for each in formats]
    return f"{join_words(usual, 'or')}, also with {join_words(COMPRESSED_SUFFIXES, 'or')}"


def _decompress(path: str, target: Path) -> None:
    buffer = bytearray(_BLOCK_BYTES)
    with open_source(path) as source, target.open("wb") as file:
        while count := source.readinto(memoryview(buffer)):
            file.write(memoryview(buffer)[:count])


# -- CSV and TSV


def _dialect(files: Files) -> ParseOptions:
    return csv.ParseOptions(delimiter=files.format.delimiter, newlines_in_values=True)


def _open_delimited(files: Files) -> Dataset:
    """Return all values as text, by Arrow's reader; a column that a file lacks is an error."""
    from pyarrow import dataset  # noqa: PLC0415 (imports pandas)

    text = csv.ConvertOptions(strings_can_be_null=True, null_values=[""])
    form = dataset.CsvFileFormat(parse_options=_dialect(files), convert_options=text)
    system, paths = files.locate()
    schemas = {}
    for path in paths:
        with explained(path):
            schemas[path] = form.inspect(path, system)
    check_same_columns(schemas)
    # A column without a name cannot be selected.
    names = [name for name in schemas[paths[0]].names if name]
    partitions = [name for name in files.partitions(files.paths[0]) if name not in names]
    return dataset.dataset(
        paths,
        schema=pa.schema([(name, pa.string()) for name in (*names, *partitions)]),
        format=form,
        filesystem=system,
        partitioning=_hive(pa.schema([(name, pa.string()) for name in partitions])),
    )


def _hive(partitions: pa.Schema) -> Any:  # noqa: ANN401 (of pyarrow.dataset)
    """Return Arrow's description of folders such as ``policy=a/``; None if there are none."""
    from pyarrow import dataset  # noqa: PLC0415 (imports pandas)

    return dataset.partitioning(partitions, flavor="hive") if partitions.names else None


def _add_partitions(
    batch: pa.RecordBatch,
    columns: Sequence[str],
    partitions: Mapping[str, str | None],
    schema: pa.Schema | None = None,
) -> pa.RecordBatch:
    """Return columns of a batch, or of the partitions of its file if the batch lacks them.

    Columns get the types of a schema, if there is one.
    """

    def column(name: str) -> pa.Array:
        if name not in batch.schema.names:
            return pa.repeat(pa.scalar(partitions[name], pa.string()), len(batch))
        return batch[name] if schema is None else batch[name].cast(schema.field(name).type)

    return pa.record_batch({name: column(name) for name in columns})


# -- types of several files


def unify_schemas(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the columns of files together, matched by name, each with one type.

    Arrow decides what fits: integers of any width and fractions become numbers, times take the
    finest unit. Other types that differ are an error, because each engine would convert them in its
    own way.

    Parameters
    ----------
    schemas : dict of schema
        By file.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from countersample.logs.files import unify_schemas
    >>> old, new = pa.schema([("price", pa.int32())]), pa.schema([("price", pa.float64())])
    >>> unify_schemas({"a.parquet": old, "b.parquet": new}).field("price").type
    DataType(double)
    """
    union = pa.schema([])
    for path, schema in schemas.items():
        try:
            union = pa.unify_schemas([union, schema], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError(
                f"{path} does not fit the files before it ({summarize_error(error)}), expected one "
                "type in all files: convert one of them"
            ) from error
    return union


def check_same_columns(
    schemas: Mapping[str, pa.Schema], columns: Sequence[str] | None = None
) -> None:
    """Raise an error if a file lacks one of the columns that another file has."""
    present = {name for schema in schemas.values() for name in schema.names}
    for path, schema in schemas.items():
        missing = sorted(present.intersection(columns or present).difference(schema.names))
        if missing:
            raise DataError(
                f"{path} has no column {missing[0]!r}, which others have, expected the same in all "
                "files: add it there"
            )


def decode_dictionaries(table: pa.Table) -> pa.Table:
    """Return a table whose encoded columns have their values: integers stay integers."""
    fields = [field.with_type(_decoded_type(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def _decoded_type(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if types.is_dictionary(dtype) else dtype


# -- Parquet


def _scan_parquet(connection: Any, files: Files) -> Any:  # noqa: ANN401 (of DuckDB)
    """Return the relation of Parquet files without columns of several types."""
    paths = ", ".join(map(quote_text, _find_duckdb_paths(connection, files)))
    rows = connection.sql(
        # A column that some files lack is null there.
        f"from read_parquet([{paths}], union_by_name = true, "
        f"hive_partitioning = {files.folder is not None}, hive_types_autocast = {files.is_remote})"
    )
    return _cast_partitions(rows, files.partition_schema())


def _cast_partitions(rows: Any, partitions: pa.Schema) -> Any:  # noqa: ANN401 (relations)
    """Return rows whose partitions of integers are integers; DuckDB reads them as text."""
    names = [quote_name(field.name) for field in partitions if types.is_integer(field.type)]
    if not names:
        return rows
    casts = ", ".join(f"cast({name} as bigint) as {name}" for name in names)
    return rows.project(f"* replace ({casts})")


def _find_duckdb_paths(connection: Any, files: Files) -> list[str]:  # noqa: ANN401 (of DuckDB)
    """Return paths without patterns, and load the extension that reads addresses."""
    if not files.is_remote:
        return [glob.escape(path) for path in files.paths]
    scheme = files.paths[0].split("://")[0]
    extension = "azure" if scheme in _AZURE_SCHEMES else "httpfs"
    install = f"import duckdb; duckdb.install_extension('{extension}')"
    try:
        connection.load_extension(extension)
    except import_module("duckdb").Error as error:
        raise ParameterError(
            f"DuckDB reads {scheme}:// with its extension {extension}, which is not installed: "
            f'do so once (python -c "{install}"), or copy the files to this machine'
        ) from error
    return list(files.paths)


# -- JSON lines


def _scan_json(connection: Any, files: Files) -> Any:  # noqa: ANN401 (of DuckDB)
    """Return the relation of files of JSON lines, with the types that JSON has."""
    paths = _find_duckdb_paths(connection, files)

    def read(**settings: Any) -> Any:  # noqa: ANN401 (a relation)
        return connection.read_json(
            paths,
            format="newline_delimited",
            records="true",  # each line is an object
            hive_partitioning=files.folder is not None,
            hive_types_autocast=False,
            **settings,
        )

    guess = read(sample_size=-1, convert_strings_to_integers=False)
    types = zip(guess.columns, guess.types, strict=True)
    rows = read(columns={name: _json_type(kind) for name, kind in types})
    return _cast_partitions(rows, files.partition_schema())


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
    settings = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    with import_module("duckdb").connect(config=settings) as connection, explained(files.name):
        lines = files.scan(connection)
        if columns is not None:
            present = {name: quote_name(name) for name in lines.columns}
            lines = lines.project(
                ", ".join(f"{present.get(name, 'null')} as {quote_name(name)}" for name in columns)
            )
        check_json_types(lines)
        yield lines
