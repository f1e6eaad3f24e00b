"""The formats of a log's files: a format is one class here and one line in `FORMATS`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from countersample.clicks.impressions.columns import IDS
from countersample.clicks.impressions.explaining import explained
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

    from countersample.clicks.impressions.files import Files


@dataclass(frozen=True)
class Format(ABC):
    """A format of files, with a reader into memory that every engine can fall back on."""

    name: str
    endings: tuple[str, ...]  # of its files, the usual one first
    delimiter: str = ""  # what stands between two values of a line, where that is so
    #: Whether ids are text of a file that knows no types, so that "7" may mean the number.
    has_text_ids: ClassVar[bool] = False
    #: Whether it is read from start to end, so that an engine can unpack it on the way.
    is_stream: ClassVar[bool] = True

    @abstractmethod
    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:
        """Read files into memory; `as_text` are the columns that stay text, by default all.

        A format with types keeps them.
        """

    def check(self, files: Files, columns: Mapping[str, str] | None) -> None:  # noqa: B027 (few do)
        """Refuse files that do not fit together, before they are opened."""


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


class Delimited(Format):
    """CSV and TSV: lines of values without types, with a delimiter between them."""

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


class JsonLines(Format):
    """An object a line; a column whose type changes is an error."""

    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:  # noqa: ARG002, D102 (as in Format)
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import json  # noqa: PLC0415

        tables = [json.read_json(path) for path in files.paths]
        return pa.concat_tables(tables, promote_options="default")


class Feather(Format):
    """Arrow's own files, with types."""

    is_stream = False

    def read(self, files: Files, *, as_text: Collection[str] | None = None) -> pa.Table:  # noqa: ARG002, D102 (as in Format)
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import feather  # noqa: PLC0415

        return pa.concat_tables([feather.read_table(path) for path in files.paths])


FORMATS: tuple[Format, ...] = (
    Parquet("parquet", (".parquet", ".pq")),
    Delimited("csv", (".csv",), ","),
    Delimited("tsv", (".tsv",), "\t"),
    JsonLines("jsonl", (".jsonl", ".ndjson", ".json")),
    Feather("feather", (".feather",)),
)
