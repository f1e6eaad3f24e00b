"""The engines that count a log: an engine is one class here and one line in `ENGINES`.

An engine opens files (their formats are in `files`), takes Arrow tables, stores frames and yields
them in batches. The counting itself is written once, in `logs.aggregation`, and runs on every
engine through narwhals. The constructor of an engine imports its library, rejects the settings of
other engines and starts it; `cleanup` closes what it opens. `implementations` are the frames that
an engine counts in place. The logs of other systems, search engines among them, have `readers`.
"""

from __future__ import annotations

import os
import re
import tempfile
import uuid
from contextlib import contextmanager
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa

from countersample import _cleanup
from countersample._environment import available_cores, need
from countersample._files import remove
from countersample._params import choice
from countersample.errors import DataError, ParameterError
from countersample.logs.files import (
    check_json_types,
    decode_dictionaries,
    explained,
    quote_name,
    summarize_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack

    from countersample.logs.files import Files
    from countersample.options import LogOptions

_ZONE = "spark.sql.session.timeZone"
_SPARK_SETTINGS = {
    "spark.app.name": "countersample",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    _ZONE: "UTC",
}


class DuckDB:
    """DuckDB, the embedded default: out of core, on all cores.

    It counts its own relations in place, and scans frames of other libraries through Arrow.
    """

    name = "duckdb"
    implementations = (nw.Implementation.DUCKDB,)

    def __init__(self, cleanup: ExitStack, options: LogOptions) -> None:
        if options.master is not None:
            raise ParameterError("master is a setting of spark, not of duckdb")
        duckdb = import_module("duckdb")
        # By default DuckDB would spill to the current folder.
        spill = Path(tempfile.gettempdir(), _unique_name())
        cleanup.enter_context(_cleanup.noted(partial(remove, spill)))
        config: dict[str, Any] = {
            "threads": available_cores(),
            "preserve_insertion_order": False,  # less memory, and nothing here depends on it
            "temp_directory": os.fspath(options.temp_dir or spill),
            # No query may download an extension.
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        }
        if options.memory_limit is not None:
            config["memory_limit"] = options.memory_limit
        try:
            self.connection = duckdb.connect(config=config)
            self.connection.execute("set TimeZone = 'UTC'")  # by default the machine's
        except duckdb.Error as error:
            raise ParameterError(
                f"DuckDB rejects memory_limit={options.memory_limit!r}, temp_dir="
                f"{str(options.temp_dir)!r}: {summarize_error(error)} (expected something like "
                "'2GB' and a folder)"
            ) from error
        cleanup.callback(self.connection.close)

    def from_arrow(self, table: pa.Table) -> Any:  # noqa: ANN401 (a relation)
        """Scan a table in memory."""
        return self.connection.from_arrow(decode_dictionaries(table))

    def scan(self, files: Files) -> Any:  # noqa: ANN401 (a relation)
        """Open files lazily if DuckDB can, or else through Arrow."""
        return files.scan(self.connection)

    @staticmethod
    def batches(frame: nw.LazyFrame[Any], source: str) -> Iterator[pa.RecordBatch]:
        """Compute a lazy frame, and yield the result in batches as they are computed."""
        with explained(source):
            yield from pa.RecordBatchReader.from_stream(frame.to_native())

    @staticmethod
    @contextmanager
    def store(frame: nw.LazyFrame[Any], source: str) -> Iterator[nw.LazyFrame[Any]]:
        """Store the rows in a temporary table, which DuckDB spills to the disk if needed."""
        name = _unique_name()
        rows = frame.to_native()
        try:
            with explained(source):
                rows.query(f"{name}_rows", f"create temp table {name} as from {name}_rows")
            yield nw.from_native(rows.query(f"{name}_rows", f"from {name}")).lazy()
        finally:
            rows.query(f"{name}_rows", f"drop table if exists {name}")
            rows.query(f"{name}_rows", f"drop view if exists {name}_rows")

    @staticmethod
    def first_by_digest(
        ids: nw.LazyFrame[Any], n: int, prefix: str, source: str
    ) -> nw.LazyFrame[Any]:
        """Return the n distinct ids, one column, whose md5 of prefix and id sorts first.

        All engines return the same ids, and the ids for a smaller n are among those for a larger n.
        """
        column = quote_name(ids.collect_schema().names()[0])
        with explained(source):
            first = ids.to_native().order(f"md5('{prefix}' || {column})").limit(n)
        rows: nw.LazyFrame[Any] = nw.from_native(first)
        return rows


def _cast_columns(rows: Any, present: pa.Schema, schema: pa.Schema) -> Any:  # noqa: ANN401 (data frames of Spark)
    """Return rows with the types of a schema, if they were read with others."""
    casts = {}
    for field in present:
        dtype = schema.field(field.name).type
        if field.type != dtype:
            column = rows["`" + field.name.replace("`", "``") + "`"]
            casts[field.name] = column.cast(_spark_type(dtype))
    return rows.withColumns(casts) if casts else rows


def _spark_type(dtype: pa.DataType) -> Any:  # noqa: ANN401 (a type of Spark)
    return need("pyspark.sql.pandas.types").from_arrow_type(dtype, prefer_timestamp_ntz=True)


def _unique_name() -> str:
    return f"countersample_{uuid.uuid4().hex}"


class Spark:
    """Apache Spark, for logs that outgrow a machine.

    It uses the session that runs already, or starts one on `master`. `cleanup` stops only a
    session that was started here. The workers must see the paths of files, too.
    """

    name = "spark"
    implementations = (nw.Implementation.PYSPARK, nw.Implementation.PYSPARK_CONNECT)

    def __init__(self, cleanup: ExitStack, options: LogOptions) -> None:
        if options.memory_limit or options.temp_dir:
            raise ParameterError("memory_limit and temp_dir are settings of duckdb, not of spark")
        sql, master = need("pyspark.sql"), options.master
        session = sql.SparkSession.getActiveSession()
        if session is not None:
            current = session.sparkContext.master
            if master not in {None, current}:
                raise ParameterError(
                    f"a Spark session on {current} runs already, not on {master}: stop it first, "
                    "or leave out master"
                )
            self.session = session
            return
        master = master or "local[*]"
        builder = sql.SparkSession.builder.master(master)
        for name, value in _SPARK_SETTINGS.items():
            builder = builder.config(name, value)
        try:
            self.session = builder.getOrCreate()
        except (need("pyspark.errors").PySparkException, need("py4j.protocol").Py4JError) as error:
            raise DataError(
                f"Spark did not start on {master}: {summarize_error(error)} (check that the master "
                "runs, and that Java 17 or later is installed)"
            ) from error
        cleanup.callback(self.session.stop)

    def from_arrow(self, table: pa.Table) -> Any:  # noqa: ANN401 (a data frame)
        """Send a table from memory to the workers; its times without a zone are in UTC."""
        zone = self.session.conf.get(_ZONE)
        self.session.conf.set(_ZONE, "UTC")
        try:
            return self.session.createDataFrame(decode_dictionaries(table))
        finally:
            self.session.conf.set(_ZONE, zone)

    def scan(self, files: Files) -> Any:  # noqa: ANN401 (a data frame)
        """Open Parquet and JSON lines lazily; other formats go through the driver's memory."""
        if files.format.name == "jsonl":
            return self._read(files, files.paths, mode="FAILFAST")
        if files.format.name != "parquet":
            return self.from_arrow(files.open().to_table())
        if files.is_remote:
            return self._read(files, files.paths, mergeSchema="true")
        # Spark cannot merge files whose columns have other types: each group has its own types.
        groups: dict[tuple[pa.Field, ...], list[str]] = {}
        for path in files.paths:
            groups.setdefault(tuple(files.schemas[path]), []).append(path)
        parts = [
            _cast_columns(self._read(files, paths), pa.schema(fields), files.schema)
            for fields, paths in groups.items()
        ]
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)

    def _read(self, files: Files, paths: Sequence[str], **settings: str) -> Any:  # noqa: ANN401 (a data frame)
        """Read some of the files; partitions are integers or text, not what Spark infers."""
        paths, reader = list(paths), self.session.read.options(**settings)
        if files.folder is not None:
            reader = reader.option("basePath", files.folder)
        if not files.is_remote:  # Spark takes paths as patterns
            paths = [re.sub(r"([\\*?{}\[\]])", r"\\\1", path) for path in paths]
        load = {"jsonl": "json"}.get(files.format.name, files.format.name)
        rows = reader.format(load).load(paths)
        partitions, schema = files.partition_schema(), rows.schema
        if not partitions.names:
            return rows
        for field in partitions:
            if field.name in schema.names:
                schema[field.name].dataType = _spark_type(field.type)
        return reader.schema(schema).format(load).load(paths)

    @staticmethod
    def batches(frame: nw.LazyFrame[Any], source: str) -> Iterator[pa.RecordBatch]:
        """Compute a lazy frame, and yield the result in batches."""
        yield from collect(frame, source).to_batches()

    @staticmethod
    @contextmanager
    def store(frame: nw.LazyFrame[Any], source: str) -> Iterator[nw.LazyFrame[Any]]:
        """Store the rows on the disks of the workers; Spark recomputes what a lost worker had."""
        rows = frame.to_native()
        with explained(source):
            rows.persist(need("pyspark").StorageLevel.DISK_ONLY)
        try:
            yield frame
        finally:
            rows.unpersist()

    @staticmethod
    def first_by_digest(
        ids: nw.LazyFrame[Any], n: int, prefix: str, source: str
    ) -> nw.LazyFrame[Any]:
        """Return the ids that DuckDB would, computed once: a lazy frame would sort at every use."""
        functions, rows = need("pyspark.sql.functions"), ids.to_native()
        column = functions.col(rows.columns[0]).cast("string")
        digest = functions.md5(functions.concat(functions.lit(prefix), column))
        with explained(source):
            first = rows.orderBy(digest).limit(n).toArrow()
            chosen: nw.LazyFrame[Any] = nw.from_native(rows.sparkSession.createDataFrame(first))
        return chosen


Engine = DuckDB | Spark
#: By name; the first is the default.
ENGINES: dict[str, type[Engine]] = {"duckdb": DuckDB, "spark": Spark}


def find_engine(name: str) -> type[Engine]:
    """Return the engine of this name."""
    return ENGINES[choice("engine", name, ENGINES)]


def collect(frame: nw.LazyFrame[Any], source: str) -> pa.Table:
    """Compute a lazy frame in its engine, and return the result as an Arrow table."""
    with explained(source):
        return frame.collect(backend="pyarrow").to_arrow()


def check_types(rows: nw.LazyFrame[Any]) -> None:
    """Reject columns of JSON lines that have no single type; Spark raises its own error."""
    if rows.implementation is nw.Implementation.DUCKDB:
        check_json_types(rows.to_native())
