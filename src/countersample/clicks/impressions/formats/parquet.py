"""Parquet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countersample.clicks.impressions.columns import IDS
from countersample.clicks.impressions.explaining import explained
from countersample.clicks.impressions.formats.base import Format
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

    from countersample.clicks.impressions.files import Files


@dataclass(frozen=True)
class Parquet(Format):
    """Files with types, maybe in folders that are partitions (``policy=a/``)."""

    is_stream = False

    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:  # noqa: ARG002, D102 (as in Format)
        from pyarrow import dataset  # noqa: PLC0415 (heavy, only where used)

        partitioning = None if files.folder is None else "hive"
        return dataset.dataset(list(files.paths), partitioning=partitioning).to_table()

    def check(self, files: Files, columns: Mapping[str, str] | None) -> None:
        """Refuse files of one log whose ids are of different types."""
        if len(files.paths) < 2:
            return
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import parquet  # noqa: PLC0415

        first: dict[str, tuple[str, str]] = {}
        for path in files.paths:
            with explained(path, (ValueError,)):
                schema = parquet.read_schema(path)
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
