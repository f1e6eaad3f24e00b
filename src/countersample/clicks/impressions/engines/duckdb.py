"""DuckDB, the embedded default: out of core, on all cores."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import narwhals as nw

from countersample._cores import available_cores
from countersample.clicks.impressions.columns import IDS, MIXED
from countersample.clicks.impressions.engines.base import Engine
from countersample.clicks.impressions.explaining import first_line
from countersample.clicks.impressions.formats import Delimited, JsonLines, Parquet
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import ExitStack

    import pyarrow as pa

    from countersample.clicks.impressions.engines.base import Readers
    from countersample.clicks.impressions.files import Files


class DuckDB(Engine):
    """DuckDB's relations; tables of Arrow, which have no engine of their own, are counted by it."""

    name = "duckdb"
    implementations = (nw.Implementation.DUCKDB, nw.Implementation.PYARROW)
    settings = ("memory_limit", "temp_dir")
    unpacks = (".gz", ".zst")

    def __init__(
        self,
        cleanup: ExitStack,
        *,
        memory_limit: str | None = None,
        temp_dir: str | None = None,
    ) -> None:
        duckdb = import_module("duckdb")
        settings: dict[str, Any] = {
            "threads": available_cores(),
            "preserve_insertion_order": False,  # less memory, and nothing here depends on it
            "memory_limit": memory_limit,
            "temp_directory": temp_dir,
        }
        given = {name: value for name, value in settings.items() if value is not None}
        try:
            self.connection = duckdb.connect(config=given)
        except duckdb.Error as error:
            raise ParameterError(
                f"DuckDB does not take memory_limit={memory_limit!r}, temp_dir={temp_dir!r}: "
                f"{first_line(error)} (expected something like '2GB' and a folder)"
            ) from error
        cleanup.callback(self.connection.close)

    def readers(self) -> Readers:  # noqa: D102 (as in Engine)
        return {Parquet: self._parquet, Delimited: self._delimited, JsonLines: self._json}

    def from_arrow(self, table: pa.Table) -> Any:  # noqa: ANN401, D102 (as in Engine)
        return self.connection.from_arrow(table)

    def check_ids(self, frame: Any, names: Mapping[str, str]) -> None:  # noqa: ANN401 (a relation)
        """Refuse ids that can only be JSON: numbers in some lines, text in others."""
        types = dict(zip(frame.columns, frame.types, strict=True))
        for name in IDS:
            if str(types[names[name]]) == "JSON":
                raise DataError(MIXED.format(name=name))

    @classmethod
    def batches(cls, frame: nw.LazyFrame[Any], source: str) -> Iterator[pa.RecordBatch]:  # noqa: D102 (as in Engine)
        with cls.explained(source):
            yield from import_module("pyarrow").RecordBatchReader.from_stream(frame.to_native())

    @classmethod
    @contextmanager
    def kept(cls, frame: nw.LazyFrame[Any], source: str) -> Iterator[nw.LazyFrame[Any]]:
        """Keep it in a temporary table, which goes to the disk where memory ends."""
        name = f"countersample_{uuid.uuid4().hex}"
        rows = frame.to_native()
        try:
            with cls.explained(source):
                rows.query(f"{name}_rows", f"create temp table {name} as from {name}_rows")
            yield nw.from_native(rows.query(f"{name}_rows", f"from {name}")).lazy()
        finally:
            rows.query(f"{name}_rows", f"drop table if exists {name}")
            rows.query(f"{name}_rows", f"drop view if exists {name}_rows")

    @classmethod
    def errors(cls) -> tuple[type[Exception], ...]:  # noqa: D102 (as in Engine)
        return (import_module("duckdb").Error,)

    @classmethod
    def sentence(cls, error: Exception) -> str:  # noqa: D102 (as in Engine)
        if type(error).__name__ == "OutOfMemoryException":
            return (
                f"DuckDB ran out of memory ({first_line(error)}): raise memory_limit "
                "(--memory-limit) or free disk in temp_dir"
            )
        return super().sentence(error)

    def _parquet(self, files: Files) -> Any:  # noqa: ANN401 (a relation)
        return self.connection.read_parquet(
            list(files.paths), hive_partitioning=files.folder is not None
        )

    def _delimited(self, files: Files) -> Any:  # noqa: ANN401 (a relation)
        return self.connection.read_csv(
            list(files.paths), delimiter=files.format.delimiter, header=True, all_varchar=True
        )

    def _json(self, files: Files) -> Any:  # noqa: ANN401 (a relation)
        return self.connection.read_json(
            list(files.paths),
            format="newline_delimited",
            sample_size=-1,
            convert_strings_to_integers=False,
        )
