"""JSON lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countersample.clicks.impressions.formats.base import Format

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from countersample.clicks.impressions.files import Files


@dataclass(frozen=True)
class JsonLines(Format):
    """An object a line; a column whose type changes is an error."""

    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:  # noqa: ARG002, D102 (as in Format)
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import json  # noqa: PLC0415

        tables = [json.read_json(path) for path in files.paths]
        return pa.concat_tables(tables, promote_options="default")
