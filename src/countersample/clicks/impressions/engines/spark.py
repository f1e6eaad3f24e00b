"""Apache Spark, for logs that outgrow a machine."""

from __future__ import annotations

import os
import re
import shutil
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import narwhals as nw

from countersample._extras import need
from countersample.clicks.impressions.engines.base import Engine
from countersample.clicks.impressions.explaining import first_line
from countersample.clicks.impressions.formats import Delimited, JsonLines, Parquet
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    import pyarrow as pa
    from pyarrow.dataset import Dataset

    from countersample.clicks.impressions.engines.base import Readers
    from countersample.clicks.impressions.files import Files

_PATIENCE = 5.0  # seconds to wait for a master's port
_SETTINGS = {
    "spark.app.name": "countersample",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",  # in which it takes times without a zone from Arrow
}


class Spark(Engine):
    """Spark's data frames, on the session that runs already or on one made for `master`.

    A session that was made here is stopped by `cleanup`; one that ran before is left alone.
    """

    name = "spark"
    implementations = (nw.Implementation.PYSPARK, nw.Implementation.PYSPARK_CONNECT)
    settings = ("master",)
    unpacks = (".gz", ".bz2")

    def __init__(self, cleanup: ExitStack, *, master: str | None = None) -> None:
        sql = need("pyspark.sql")
        running = sql.SparkSession.getActiveSession()
        if running is not None:
            there = running.sparkContext.master
            if master not in {None, there}:
                raise ParameterError(
                    f"a Spark session on {there} runs already, not on {master}: stop it first, or "
                    "leave out master"
                )
            self.session = running
            return
        master = master or "local[*]"
        _check_java()
        _check_reachable(master)
        builder = sql.SparkSession.builder.master(master)
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
        try:
            self.session = builder.getOrCreate()
        except self.errors() as error:
            raise DataError(
                f"Spark did not start on {master}: {first_line(error)} (is the master running, and "
                "is Java 17 or later installed?)"
            ) from error
        cleanup.callback(self.session.stop)

    def readers(self) -> Readers:
        """Return readers whose paths the workers must see too."""
        return {Parquet: self._parquet, Delimited: self._delimited, JsonLines: self._json}

    def from_arrow(self, table: pa.Table | Dataset) -> Any:  # noqa: ANN401 (a data frame)
        """Send a table from memory to the workers."""
        rows = table.to_table() if hasattr(table, "to_table") else table
        return self.session.createDataFrame(rows)

    @classmethod
    def batches(cls, frame: nw.LazyFrame[Any], source: str) -> Iterator[pa.RecordBatch]:  # noqa: D102 (as in Engine)
        yield from cls.collect(frame, source).to_batches()

    @classmethod
    def first_by_digest(  # noqa: D102 (as in Engine)
        cls, ids: nw.LazyFrame[Any], n: int, prefix: str, source: str
    ) -> nw.LazyFrame[Any]:
        functions, rows = need("pyspark.sql.functions"), ids.to_native()
        column = functions.col(rows.columns[0]).cast("string")
        digest = functions.md5(functions.concat(functions.lit(prefix), column))
        with cls.explained(source):  # computed once: a lazy frame would sort at every use
            first = rows.orderBy(digest).limit(n).toArrow()
            chosen: nw.LazyFrame[Any] = nw.from_native(rows.sparkSession.createDataFrame(first))
        return chosen

    @classmethod
    @contextmanager
    def store(cls, frame: nw.LazyFrame[Any], source: str) -> Iterator[nw.LazyFrame[Any]]:
        """Store the rows on the disks of the workers; Spark recomputes what a lost worker had."""
        rows = frame.to_native()
        with cls.explained(source):
            rows.persist(need("pyspark").StorageLevel.DISK_ONLY)
        try:
            yield frame
        finally:
            rows.unpersist()

    @classmethod
    def errors(cls) -> tuple[type[Exception], ...]:  # noqa: D102 (as in Engine)
        return need("pyspark.errors").PySparkException, need("py4j.protocol").Py4JError

    def _parquet(self, files: Files) -> Any:  # noqa: ANN401 (a data frame)
        return self._reader(files).parquet(*_paths(files))

    def _delimited(self, files: Files) -> Any:  # noqa: ANN401 (a data frame)
        """Read the dialect of `Delimited`, but for newlines in values, which are refused.

        Lines are parsed whole, as one of another length is else not noticed.
        """

        def read(*, checked: bool) -> Any:  # noqa: ANN401 (a data frame)
            return (
                self._reader(files)
                .option("columnPruning", "false")
                .csv(
                    _paths(files),
                    sep=files.format.delimiter,
                    header=True,
                    quote='"',
                    escape='"',
                    mode="FAILFAST",
                    enforceSchema=not checked,
                    unescapedQuoteHandling="RAISE_ERROR",
                )
            )

        frame = read(checked=True)
        # A column without a name gets one from Spark, which the header of no file has then.
        is_named = not any(re.fullmatch(r"_c[0-9]+", name) for name in frame.columns)
        return frame if is_named else read(checked=False)

    def _json(self, files: Files) -> Any:  # noqa: ANN401 (a data frame)
        return self._reader(files).json(_paths(files), mode="FAILFAST")

    def _reader(self, files: Files) -> Any:  # noqa: ANN401 (a reader of data frames)
        if files.folder is None:
            return self.session.read
        unpacked = [path for path in files.paths if path.startswith(files.temporary or "\0")]
        base = files.temporary if unpacked == list(files.paths) else files.folder
        return self.session.read.option("basePath", base)


def _paths(files: Files) -> list[str]:
    """Return paths that mean these files and no others."""
    return [_plain(files, path) for path in files.paths]


def _plain(files: Files, path: str) -> str:
    if files.is_remote:
        return path
    return re.sub(r"([\\*?{}\[\]])", r"\\\1", str(Path(path).absolute()))


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise ParameterError(
            f"Spark needs Java, and there is none {where}: install Java 17 or later and set "
            "JAVA_HOME, or use another engine"
        )


def _check_reachable(master: str) -> None:
    """Refuse a standalone master that does not answer: Spark itself would try for a minute."""
    if not master.startswith("spark://"):
        return
    problems = []
    for address in master.removeprefix("spark://").split(","):
        parts = urlsplit(f"//{address}")
        try:
            port = parts.port or 7077
            with socket.create_connection((parts.hostname or "", port), timeout=_PATIENCE):
                return
        except (OSError, ValueError) as error:
            problems.append(f"{address}: {error}")
    raise DataError(
        f"the Spark master {master} cannot be reached ({'; '.join(problems)}): check its address, "
        "and that it is running"
    )
