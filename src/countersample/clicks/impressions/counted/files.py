"""The folder of counts: a folder for each day in it, with its tables and a header.

A day has ``counts.parquet`` (what was shown where and clicked), and as the log tells more
``visits.parquet`` and ``clicks.parquet`` (sessions, in buckets), ``weights.parquet`` (of logged
propensities); ``pages.parquet`` has what is compared with other days. ``header.json`` has the
number of the format, how the log was read, a hash of each table and a checksum of itself. A day is
written under a temporary name and renamed, and no other day is read or changed by that.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._files import atomic_path, is_file, is_folder, read_at_most
from countersample._json import parse_json
from countersample._version import __version__
from countersample.clicks.impressions.aggregation import MOST, Problems
from countersample.clicks.impressions.columns import CANONICAL
from countersample.clicks.impressions.counts import MAX_POSITION
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

FORMAT = "countersample-counts"
VERSION = 1
HEADER = "header.json"
TABLES = ("counts", "visits", "clicks", "weights", "pages")
BUCKETS = 256  # of sessions
MOST_POLICIES = 62  # of a day: the bits of a number
_MOST_HEADER = 1 << 20  # bytes
_CHECKSUM = "checksum"
_TYPES = {"int64": "int64", "text": "string"}
_OPTIONAL_KEYS = ("context", "policy", "client")


@dataclass(frozen=True)
class Part:
    """A day of counts, or a part of a log under another name: what its header says.

    Attributes
    ----------
    label : str
        The day, ``"2026-03-31"``, or the name that it was given.
    day : date, optional
    columns : tuple of str
        The canonical columns of the log.
    settings : dict
        How the log was read.
    id_types : dict
        ``"int64"`` or ``"text"``, of query_id and item_id.
    has_text_ids, has_events : bool
        As in `Impressions`.
    keeps_users : bool
        Whether counts are told apart by the log's clients, so that one can be forgotten.
    policies : tuple of str
        Sorted; the bits of ``policies`` in visits.parquet, the first is 1.
    problems : Problems
        Of the rows, those that were left out.
    n_sessions, n_mixed : int, optional
        As in `LogCheck`; None where they are not known.
    warnings : tuple of str
        What looked wrong when it was counted.
    folder : Path, optional
        Where it is.
    files : dict
        The hash of each table.
    """

    label: str
    day: date | None
    columns: tuple[str, ...]
    settings: dict[str, Any]
    id_types: dict[str, str]
    has_text_ids: bool
    has_events: bool
    keeps_users: bool
    policies: tuple[str, ...]
    problems: Problems
    n_sessions: int | None
    n_mixed: int | None
    warnings: tuple[str, ...] = ()
    folder: Path | None = None
    files: dict[str, str] = field(default_factory=dict)

    @property
    def has_sessions(self) -> bool:
        """Whether sessions were counted by their ids."""
        return "session" in self.columns and "impressions" not in self.columns

    def schema(self, table: str) -> pa.Schema:
        """Return the columns of a table, with their types."""
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

        ids = {name: getattr(pa, _TYPES[kind])() for name, kind in self.id_types.items()}
        there = {*self.columns, *(["client"] if self.keeps_users else [])}
        there -= set() if self.keeps_users else {"client"}
        inner = {name: pa.string() for name in _OPTIONAL_KEYS if name in there}
        whole, real = pa.int64(), pa.float64()
        keys = {**ids, "position": pa.int32(), **inner}
        user = {"client": pa.string()} if self.keeps_users else {}
        columns: dict[str, dict[str, Any]] = {
            "counts": {
                **keys, **({} if self.day is None else {"timestamp": pa.date32()}),
                "rows": whole, "impressions": whole, "clicks": whole,
                **({"value": real} if "value" in self.columns else {}),
            },
            "visits": {
                "query_id": ids["query_id"], **user, "bucket": pa.int32(), "policies": whole,
                "sessions": whole, "unnamed_rows": whole, "unnamed_top": whole,
            },
            "clicks": {**keys, "bucket": pa.int32(), "value": real},
            "weights": {**keys, "weight": real, "clicked": whole, "good": whole},
            "pages": {
                "query_id": ids["query_id"], **inner, "bucket": pa.int32(),
                "position": pa.int32(), "impressions": whole, "clicks": whole,
            },
        }  # fmt: skip
        return pa.schema(list(columns[table].items()))

    def tables(self) -> tuple[str, ...]:
        """Return the tables that such a part has."""
        left_out = set() if self.has_sessions else {"visits", "clicks"}
        left_out |= set() if "propensity" in self.columns else {"weights"}
        return tuple(name for name in TABLES if name not in left_out)

    def read(self, table: str) -> pa.Table:
        """Return a table, checked as if a stranger had written it."""
        assert self.folder is not None  # noqa: S101
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import parquet  # noqa: PLC0415

        path = self.folder / f"{table}.parquet"
        try:
            data = path.read_bytes() if is_file(path) else b""
            if hash_of(data) != self.files[table]:
                raise DataError(f"{path.name} is not what was written")
            found = parquet.ParquetFile(pa.BufferReader(data)).read()
            found.validate(full=True)
            if found.schema.remove_metadata() != self.schema(table):
                raise DataError(f"the columns of {path.name} are not those of its header")
            _check(found)
            if "timestamp" in found.schema.names and found["timestamp"].unique().to_pylist() != [
                self.day
            ]:
                raise DataError(f"{path.name} has rows of another day")
        except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
            raise DataError(f"{self.folder}: damaged counts ({_first(error)}): {_AGAIN}") from error
        return found


_AGAIN = "count the day again (countersample log count --replace)"


def write_part(folder: Path, part: Part, tables: Mapping[str, pa.Table]) -> Part:
    """Write a part to a folder, atomically, and return it as it is there."""
    from pyarrow import parquet  # noqa: PLC0415 (heavy, only where used)

    files = {}
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        for name in part.tables():
            path = temporary / f"{name}.parquet"
            schema = part.schema(name)
            table = tables[name].select(schema.names).cast(schema)
            keys = [(column, "ascending") for column in schema.names if column not in _SUMS]
            parquet.write_table(table.sort_by(keys).combine_chunks(), path, compression="zstd")
            files[name] = hash_of(path.read_bytes())
        header = _header(part, files)
        header[_CHECKSUM] = checksum_of(header)
        (temporary / HEADER).write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")
    return read_part(folder)


_SUMS = {
    "rows", "impressions", "clicks", "value", "sessions", "unnamed_rows", "unnamed_top", "weight",
    "clicked", "good",
}  # fmt: skip


def is_part(folder: Path) -> bool:
    """Whether a folder has the header of a part."""
    return _read_header(folder) is not None


def _read_header(folder: Path) -> dict[str, Any] | None:
    path = folder / HEADER
    try:
        found = parse_json(read_at_most(path, _MOST_HEADER)) if is_file(path) else None
    except (OSError, DataError):
        return None
    return found if isinstance(found, dict) and found.get("format") == FORMAT else None


def parts_of(folder: Path) -> list[Path]:
    """Return the folders of parts in a folder, or the folder itself where it is one, sorted."""
    if not is_folder(folder):
        return []
    if is_part(folder):
        return [folder]
    with suppress(OSError):  # one that nobody may look into
        return sorted(path for path in folder.iterdir() if path.name[0] != "." and is_part(path))
    return []


def read_part(folder: Path) -> Part:
    """Return what the header of a part says, checked."""
    header = _read_header(folder)
    if header is None:
        raise DataError(f"{folder}: no counts of a day (no {HEADER} of them)")
    if header.get("version") != VERSION:
        raise DataError(
            f"{folder}: counts in format version {header.get('version')!r}, expected {VERSION}: "
            f"{_AGAIN}"
        )
    try:
        if header.pop(_CHECKSUM, None) != checksum_of(header):
            raise DataError(f"{HEADER} is not what was written")
        return _part(header, folder)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise DataError(f"{folder}: damaged counts ({_first(error)}): {_AGAIN}") from error


def _header(part: Part, files: dict[str, str]) -> dict[str, Any]:
    told = {name.name: getattr(part, name.name) for name in fields(part)}
    del told["folder"]
    told |= {
        "files": files,
        "day": None if part.day is None else part.day.isoformat(),
        "problems": asdict(part.problems),
    }
    return {
        "format": FORMAT, "version": VERSION, "written_by": f"countersample {__version__}", **told,
    }  # fmt: skip


def _part(header: dict[str, Any], folder: Path) -> Part:
    """Return what a header says; what is not as it should be raises one of many errors."""
    day = header["day"]
    part = Part(
        label=_text(header["label"]),
        day=None if day is None else date.fromisoformat(day),
        columns=tuple(_text(name) for name in header["columns"]),
        settings=dict(header["settings"]),
        id_types={name: str(header["id_types"][name]) for name in ("query_id", "item_id")},
        has_text_ids=_flag(header["has_text_ids"]),
        has_events=_flag(header["has_events"]),
        keeps_users=_flag(header["keeps_users"]),
        policies=tuple(_text(name) for name in header["policies"]),
        problems=_problems(header["problems"]),
        n_sessions=_number(header["n_sessions"]),
        n_mixed=_number(header["n_mixed"]),
        warnings=tuple(_text(told) for told in header["warnings"]),
        folder=folder,
        files={name: _text(told) for name, told in header["files"].items()},
    )
    if not {"query_id", "item_id", "position", "click"} <= {*part.columns} <= {*CANONICAL}:
        raise DataError("its columns are not those of a log")
    if not {*part.id_types.values()} <= {*_TYPES} or len(part.policies) > MOST_POLICIES:
        raise DataError("its ids or policies are not those of counts")
    if (part.day is None) == ("timestamp" in part.columns):
        raise DataError("it has a day and no timestamps, or the other way round")
    return part


def _problems(told: dict[str, Any]) -> Problems:
    found = Problems(**told)
    for name in fields(found):
        value = getattr(found, name.name)
        if name.name == "is_from_zero":
            _flag(value)
        elif name.name != "position_found" or value is not None:
            kinds = (int, float) if name.name == "position_found" else int
            if isinstance(value, bool) or not isinstance(value, kinds) or not abs(value) <= MOST:
                raise DataError(f"{name.name} is {value!r}, expected a number")
    return found


def _check(table: pa.Table) -> None:
    """Refuse numbers that no log has."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    for name in table.column_names:
        column = table[name]
        if name not in {"policy", "client"} and column.null_count:
            raise DataError(f"{name} has values that are missing")
        if pa.types.is_string(column.type) or name in {"query_id", "item_id", "timestamp"}:
            continue
        values = column.to_numpy()
        least, most = {
            "position": (1, MAX_POSITION), "impressions": (1, MOST), "rows": (1, MOST),
            "bucket": (0, BUCKETS - 1), "policies": (0, 2**MOST_POLICIES),
        }.get(name, (0, MOST))  # fmt: skip
        if name in {"value", "weight"}:
            most = np.finfo(np.float64).max
        if not ((values >= least) & (values <= most)).all():
            raise DataError(f"{name} has a value that is not from {least:g} to {most:g}")
    names = {*table.column_names}
    if {"clicks", "impressions"} <= names:
        shown, clicks = table["impressions"].to_numpy(), table["clicks"].to_numpy()
        if (clicks > shown).any() or shown.sum(dtype=np.float64) > MOST:
            raise DataError("clicks are more than impressions, or impressions too many")


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise DataError(f"{value!r} is not true or false")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise DataError(f"{value!r} is no text")
    return value


def _number(value: object) -> int | None:
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST
    ):
        raise DataError(f"{value!r} is no whole number")
    return value


def hash_of(data: bytes) -> str:
    """Return a hash of what a file has."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def checksum_of(header: dict[str, Any]) -> str:
    """Return a hash of what a header says, however it is laid out."""
    return hash_of(json.dumps(header, sort_keys=True).encode())


def _first(error: Exception) -> str:
    return f"{error}".partition("\n")[0] or type(error).__name__
