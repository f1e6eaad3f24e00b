"""DuckDB, the embedded default: out of core, on all cores."""

from __future__ import annotations

import glob
import tempfile
import uuid
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw

from countersample import _leaving
from countersample._cores import available_cores
from countersample._files import remove
from countersample.clicks.impressions.columns import MIXED
from countersample.clicks.impressions.engines.base import Engine
from countersample.clicks.impressions.explaining import first_line
from countersample.clicks.impressions.formats import JsonLines, Parquet
from countersample.clicks.impressions.sql import quoted
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    import pyarrow as pa
    from pyarrow.dataset import Dataset

    from countersample.clicks.impressions.engines.base import Readers
    from countersample.clicks.impressions.files import Files

_AZURE = ("az", "azure", "abfss")
#: What JSON has, beside text; other types are guesses.
_OF_JSON = ("boolean", "bigint", "ubigint", "hugeint", "uhugeint", "double")


class DuckDB(Engine):
    """Count DuckDB's relations in place, and scan frames of other libraries through Arrow."""

    name = "duckdb"
    implementations = (nw.Implementation.DUCKDB,)
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
        # By default DuckDB would spill to the current folder.
        spill = Path(tempfile.gettempdir(), _unique())
        cleanup.enter_context(_leaving.noted(partial(remove, spill)))
        settings: dict[str, Any] = {
            "threads": available_cores(),
            "preserve_insertion_order": False,  # less memory, and nothing here depends on it
            "memory_limit": memory_limit,
            "temp_directory": temp_dir or str(spill),
            # No query may download an extension.
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        }
        config = {name: value for name, value in settings.items() if value is not None}
        try:
            self.connection = duckdb.connect(config=config)
        except duckdb.Error as error:
            raise ParameterError(
                f"DuckDB does not take memory_limit={memory_limit!r}, temp_dir={temp_dir!r}: "
                f"{first_line(error)} (expected something like '2GB' and a folder)"
            ) from error
        cleanup.callback(self.connection.close)

    def readers(self) -> Readers:  # noqa: D102 (as in Engine)
        return {Parquet: self._parquet, JsonLines: self._json}

    def from_arrow(self, table: pa.Table | Dataset) -> Any:  # noqa: ANN401, D102 (as in Engine)
        return self.connection.from_arrow(table)

    def check_types(self, frame: Any) -> None:  # noqa: ANN401 (a relation)
        """Reject a column that can only be JSON: numbers in some lines, text in others."""
        for name, kind in zip(frame.columns, frame.types, strict=True):
            if str(kind) == "JSON":
                has_value = f"{quoted(name)} is not null and json_type({quoted(name)}) <> 'NULL'"
                if frame.filter(has_value).limit(1).fetchall():
                    raise DataError(MIXED.format(name=name))

    @classmethod
    def batches(cls, frame: nw.LazyFrame[Any], source: str) -> Iterator[pa.RecordBatch]:  # noqa: D102 (as in Engine)
        with cls.explained(source):
            yield from import_module("pyarrow").RecordBatchReader.from_stream(frame.to_native())

    @classmethod
    def first_by_digest(  # noqa: D102 (as in Engine)
        cls, ids: nw.LazyFrame[Any], n: int, prefix: str, source: str
    ) -> nw.LazyFrame[Any]:
        name = quoted(ids.collect_schema().names()[0])
        with cls.explained(source):
            first = ids.to_native().order(f"md5('{prefix}' || {name})").limit(n)
        rows: nw.LazyFrame[Any] = nw.from_native(first)
        return rows

    @classmethod
    @contextmanager
    def store(cls, frame: nw.LazyFrame[Any], source: str) -> Iterator[nw.LazyFrame[Any]]:
        """Store the rows in a temporary table, which DuckDB spills to the disk if needed."""
        name = _unique()
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
            self._paths(files), hive_partitioning=files.folder is not None
        )

    def _json(self, files: Files) -> Any:  # noqa: ANN401 (a relation)
        def read(**settings: Any) -> Any:  # noqa: ANN401 (a relation)
            return self.connection.read_json(
                self._paths(files),
                format="newline_delimited",
                hive_partitioning=files.folder is not None,
                hive_types_autocast=False,
                **settings,
            )

        guessed = read(sample_size=-1, convert_strings_to_integers=False)
        types = zip(guessed.columns, guessed.types, strict=True)
        return read(columns={name: _stated(kind) for name, kind in types})

    def _paths(self, files: Files) -> list[str]:
        """Return paths without patterns, and load the extension that reads addresses."""
        if not files.is_remote:
            return [glob.escape(path) for path in files.paths]
        scheme = files.paths[0].split("://")[0]
        extension = "azure" if scheme in _AZURE else "httpfs"
        install = f"import duckdb; duckdb.install_extension('{extension}')"
        try:
            self.connection.load_extension(extension)
        except self.errors() as error:
            raise ParameterError(
                f"DuckDB reads {scheme}:// with its extension {extension}, which is not installed: "
                f'do so once (python -c "{install}"), or copy the files to this machine'
            ) from error
        return list(files.paths)


def _unique() -> str:
    return f"countersample_{uuid.uuid4().hex}"


def _stated(kind: Any) -> str:  # noqa: ANN401 (a type of DuckDB)
    """Return a type that JSON has for one that DuckDB guessed: ids may look like UUIDs or times."""
    if kind.id == "struct":
        fields = (f"{quoted(name)} {_stated(inner)}" for name, inner in kind.children)
        return f"STRUCT({', '.join(fields)})"
    if kind.id == "map":
        return f"MAP(VARCHAR, {_stated(kind.children[1][1])})"
    if kind.id == "list":
        return f"{_stated(kind.children[0][1])}[]"
    return str(kind) if kind.id in _OF_JSON or str(kind) == "JSON" else "VARCHAR"
