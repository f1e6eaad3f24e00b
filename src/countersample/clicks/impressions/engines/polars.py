"""Polars' lazy frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw

from countersample._extras import need
from countersample.clicks.impressions.engines.base import Engine
from countersample.clicks.impressions.formats import Delimited, Parquet

if TYPE_CHECKING:
    from contextlib import ExitStack

    import pyarrow as pa

    from countersample.clicks.impressions.engines.base import Readers
    from countersample.clicks.impressions.files import Files


class Polars(Engine):
    """Polars, which reads Parquet, CSV and TSV lazily."""

    name = "polars"
    implementations = (nw.Implementation.POLARS,)
    unpacks = (".gz", ".zst")

    def __init__(self, cleanup: ExitStack) -> None:  # noqa: ARG002 (nothing to close)
        self.polars = need("polars")

    def readers(self) -> Readers:  # noqa: D102 (as in Engine)
        return {Parquet: self._parquet, Delimited: self._delimited}

    def from_arrow(self, table: pa.Table) -> Any:  # noqa: ANN401, D102 (as in Engine)
        return self.polars.from_arrow(table).lazy()

    @classmethod
    def errors(cls) -> tuple[type[Exception], ...]:  # noqa: D102 (as in Engine)
        return (need("polars").exceptions.PolarsError,)

    def _parquet(self, files: Files) -> Any:  # noqa: ANN401 (a lazy frame)
        return self.polars.scan_parquet(
            list(files.paths), hive_partitioning=files.folder is not None
        )

    def _delimited(self, files: Files) -> Any:  # noqa: ANN401 (a lazy frame)
        return self.polars.scan_csv(
            list(files.paths),
            separator=files.format.delimiter,
            infer_schema=False,
            quote_char='"',
        )
