"""CSV and TSV: text without types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countersample.clicks.impressions.formats.base import Format

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from countersample.clicks.impressions.files import Files


@dataclass(frozen=True)
class Delimited(Format):
    """Lines of values with a delimiter between them."""

    has_text_ids = True

    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:  # noqa: D102 (as in Format)
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import csv  # noqa: PLC0415

        parse = csv.ParseOptions(delimiter=self.delimiter)
        tables = []
        for path in files.paths:
            if as_text is not None:
                convert = csv.ConvertOptions(column_types=dict.fromkeys(as_text, pa.string()))
            else:
                with csv.open_csv(path, parse_options=parse) as reader:
                    names = reader.schema.names
                convert = csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    strings_can_be_null=True,
                    null_values=[""],
                )
            tables.append(csv.read_csv(path, parse_options=parse, convert_options=convert))
        return pa.concat_tables(tables)
