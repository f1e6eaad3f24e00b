"""The formats of a log's files: a format is one file here and one line in `FORMATS`."""

from countersample.clicks.impressions.formats.base import Format
from countersample.clicks.impressions.formats.delimited import Delimited
from countersample.clicks.impressions.formats.jsonl import JsonLines
from countersample.clicks.impressions.formats.parquet import Parquet

__all__ = ["FORMATS", "Delimited", "Format", "JsonLines", "Parquet"]

FORMATS: tuple[Format, ...] = (
    Parquet("parquet", (".parquet", ".pq")),
    Delimited("csv", (".csv",), ","),
    Delimited("tsv", (".tsv",), "\t"),
    JsonLines("jsonl", (".jsonl", ".ndjson", ".json")),
)
