"""Polars' lazy frames."""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING, Any

import narwhals as nw

from countersample._extras import need
from countersample.clicks.impressions.engines.base import Engine
from countersample.clicks.impressions.formats import Parquet

if TYPE_CHECKING:
    from contextlib import ExitStack

    import pyarrow as pa
    from pyarrow.dataset import Dataset

    from countersample.clicks.impressions.engines.base import Readers
    from countersample.clicks.impressions.files import Files


class Polars(Engine):
    """Polars; Parquet, CSV and TSV are read lazily."""

    name = "polars"
    implementations = (nw.Implementation.POLARS,)
    unpacks = (".gz", ".zst")

    def __init__(self, cleanup: ExitStack) -> None:  # noqa: ARG002 (nothing to close)
        self.polars = need("polars")

    def readers(self) -> Readers:  # noqa: D102 (as in Engine)
        return {Parquet: self._parquet}

    def from_arrow(self, table: pa.Table | Dataset) -> Any:  # noqa: ANN401, D102 (as in Engine)
        if hasattr(table, "to_table"):
            return self.polars.scan_pyarrow_dataset(table)
        return self.polars.from_arrow(table).lazy()

    @classmethod
    def errors(cls) -> tuple[type[Exception], ...]:  # noqa: D102 (as in Engine)
        return (need("polars").exceptions.PolarsError,)

    def _parquet(self, files: Files) -> Any:  # noqa: ANN401 (a lazy frame)
        if not files.is_remote and any(map(glob.has_magic, files.paths)):
            return self.from_arrow(files.format.open(files))  # to which no name is a pattern
        return self.polars.scan_parquet(
            list(files.paths), hive_partitioning=files.folder is not None
        )
