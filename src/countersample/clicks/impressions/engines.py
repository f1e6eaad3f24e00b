"""Where a log is counted: DuckDB, polars, pandas or Spark, behind one small interface.

An engine opens files, takes an Arrow table, and collects a lazy frame; the counting itself is
written once, in `aggregation`.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import narwhals as nw

from countersample._cores import available_cores
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    import pyarrow as pa

    from countersample.clicks.impressions.files import Files


class Engine(Protocol):
    """What reads and counts a log."""

    name: str
    #: Compressions of text that it reads by itself.
    readable: tuple[str, ...]

    def scan(self, files: Files) -> Any:  # noqa: ANN401 (the engine's own frame)
        """Open files, lazily where the engine can; the columns of CSV and TSV are text."""

    def from_arrow(self, table: pa.Table) -> Any:  # noqa: ANN401
        """Take a table from memory."""


class DuckDB:
    """The embedded default: out of core, on all cores."""

    name = "duckdb"
    readable = (".gz", ".zst")

    def __init__(
        self,
        cleanup: ExitStack,
        *,
        memory_limit: str | None = None,
        temp_dir: str | None = None,
        master: str | None = None,
    ) -> None:
        refuse_settings(self.name, {"master": master})
        duckdb = require("duckdb")
        settings: dict[str, Any] = {
            "threads": available_cores(),
            "preserve_insertion_order": False,  # less memory, and nothing here depends on it
        }
        if memory_limit is not None:
            settings["memory_limit"] = memory_limit
        if temp_dir is not None:
            settings["temp_directory"] = temp_dir
        try:
            self.connection = duckdb.connect(config=settings)
        except duckdb.Error as error:
            raise ParameterError(
                f"DuckDB does not take memory_limit={memory_limit!r}, temp_dir={temp_dir!r}: "
                f"{first_line(error)} (expected something like '2GB' and a folder)"
            ) from error
        cleanup.callback(self.connection.close)

    def scan(self, files: Files) -> Any:  # noqa: ANN401, D102 (as in Engine)
        paths = list(files.paths)
        if files.format == "parquet":
            return self.connection.read_parquet(paths, hive_partitioning=files.folder is not None)
        if files.format == "jsonl":
            return self.connection.read_json(
                paths, format="newline_delimited", sample_size=-1, convert_strings_to_integers=False
            )
        return self.connection.read_csv(
            paths, delimiter=files.delimiter, header=True, all_varchar=True
        )

    def from_arrow(self, table: pa.Table) -> Any:  # noqa: ANN401, D102 (as in Engine)
        return self.connection.from_arrow(table)


class Polars:
    """Polars' lazy frames."""

    name = "polars"
    readable = (".gz", ".zst")

    def __init__(self, cleanup: ExitStack, **settings: str | None) -> None:  # noqa: ARG002
        refuse_settings(self.name, settings)
        self.polars = require("polars")

    def scan(self, files: Files) -> Any:  # noqa: ANN401, D102 (as in Engine)
        paths = list(files.paths)
        if files.format == "parquet":
            return self.polars.scan_parquet(paths, hive_partitioning=files.folder is not None)
        if files.format == "jsonl":
            return self.from_arrow(read_json(files))
        return self.polars.scan_csv(
            paths, separator=files.delimiter, infer_schema=False, quote_char='"'
        )

    def from_arrow(self, table: pa.Table) -> Any:  # noqa: ANN401, D102 (as in Engine)
        return self.polars.from_arrow(table).lazy()


class Pandas:
    """Pandas with Arrow columns; the whole log is in memory."""

    name = "pandas"
    readable = (".gz", ".bz2", ".zst")

    def __init__(self, cleanup: ExitStack, **settings: str | None) -> None:  # noqa: ARG002
        refuse_settings(self.name, settings)
        self.pandas = require("pandas")

    def scan(self, files: Files) -> Any:  # noqa: ANN401, D102 (as in Engine)
        if files.format == "parquet":
            from pyarrow import dataset  # noqa: PLC0415 (heavy, only where used)

            partitioning = None if files.folder is None else "hive"
            table = dataset.dataset(list(files.paths), partitioning=partitioning).to_table()
        elif files.format == "jsonl":
            table = read_json(files)
        else:
            table = read_text(files)
        return self.from_arrow(table)

    def from_arrow(self, table: pa.Table) -> Any:  # noqa: ANN401, D102 (as in Engine)
        return table.to_pandas(types_mapper=self.pandas.ArrowDtype)


def make_engine(name: str, cleanup: ExitStack, **settings: str | None) -> Engine:
    """Return the engine of this name; what it opens is closed by `cleanup`."""
    if name not in ENGINES:
        raise ParameterError(f"engine is {name!r}, expected one of {', '.join(ENGINES)}")
    home, made = ENGINES[name]
    engine: Engine = getattr(import_module(home), made)(cleanup, **settings)
    return engine


#: name: (module, class)
ENGINES = {
    "duckdb": (__name__, "DuckDB"),
    "polars": (__name__, "Polars"),
    "pandas": (__name__, "Pandas"),
    "spark": ("countersample.clicks.impressions.spark", "Spark"),
}


def collect(frame: nw.LazyFrame[Any], engine: str, source: str) -> pa.Table:
    """Compute a lazy frame where its data is; return the result as an Arrow table."""
    with explained(engine, source):
        if engine in {"duckdb", "spark"}:
            return frame.collect(backend="pyarrow").to_arrow()
        return frame.collect().to_arrow()


@contextmanager
def explained(engine: str, source: str) -> Iterator[None]:
    """Turn what an engine raises for files and values into one sentence that names the source."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    errors: tuple[type[Exception], ...] = (pa.ArrowException, nw.exceptions.NarwhalsError, OSError)
    if engine == "duckdb":
        errors += (require("duckdb").Error,)
    elif engine == "polars":
        errors += (require("polars").exceptions.PolarsError,)
    elif engine == "pandas":
        errors += (ValueError,)  # which it raises for text that is no number
    elif engine == "spark":
        errors += (require("pyspark.errors").PySparkException, require("py4j.protocol").Py4JError)
    try:
        yield
    except DataError as error:
        if str(error).startswith(source):
            raise
        raise DataError(f"{source}: {error}") from error
    except errors as error:
        raise DataError(f"{source}: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    if type(error).__name__ == "OutOfMemoryException":
        return (
            f"DuckDB ran out of memory ({first_line(error)}): raise memory_limit (--memory-limit) "
            "or free disk in temp_dir"
        )
    return f"cannot be read or counted: {first_line(error)}"


def first_line(error: Exception) -> str:
    """Return the first line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)


def require(module: str) -> Any:  # noqa: ANN401 (a module)
    """Import a module of an optional package, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        extra = {"pyspark": "spark", "py4j": "spark"}.get(package, package)
        raise ParameterError(
            f'this needs {package}, which is not installed: pip install "countersample[{extra}]"'
        ) from error


def refuse_settings(engine: str, settings: dict[str, str | None]) -> None:
    """Refuse settings that an engine does not have."""
    for name, value in settings.items():
        if value is not None:
            owner = "spark" if name == "master" else "duckdb"
            raise ParameterError(f"{name} is a setting of {owner}, not of {engine}")


def read_text(files: Files) -> pa.Table:
    """Read CSV or TSV with every column as text, into memory."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import csv  # noqa: PLC0415

    parse = csv.ParseOptions(delimiter=files.delimiter)
    tables = []
    for path in files.paths:
        with csv.open_csv(path, parse_options=parse) as reader:
            names = reader.schema.names
        convert = csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
        )
        tables.append(csv.read_csv(path, parse_options=parse, convert_options=convert))
    return pa.concat_tables(tables)


def read_json(files: Files) -> pa.Table:
    """Read JSON lines into memory; a column whose type changes is an error."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import json  # noqa: PLC0415

    return pa.concat_tables(
        [json.read_json(path) for path in files.paths], promote_options="default"
    )
