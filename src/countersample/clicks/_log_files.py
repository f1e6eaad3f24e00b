"""Click logs as Parquet files: columns, and a note of what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample._files import atomic_path
from countersample._json import parse_json
from countersample._params import number
from countersample._version import __version__
from countersample.data.sources import reading
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

SCHEMA_VERSION = 1
NEEDED = {"query", "item", "propensity"}
_METADATA = b"countersample"
# What pyarrow comes across in strange files, beside errors of its own
_STRANGE = (ValueError, LookupError, TypeError, OverflowError, NotImplementedError)


def write_log(
    path: str | PathLike[str], columns: Mapping[str, ArrayLike], facts: Mapping[str, Any]
) -> None:
    """Write the columns, and the facts as a note, atomically."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import parquet  # noqa: PLC0415

    note = {"schema_version": SCHEMA_VERSION, "written_by": __version__, **facts}
    table = pa.table(columns, metadata={_METADATA: json.dumps(note).encode()})
    with atomic_path(path) as temporary:
        parquet.write_table(table, temporary, compression="zstd")


def read_log(path: str | PathLike[str], names: Sequence[str]) -> dict[str, Any]:
    """Return what makes a `ClickLog`: those of the named columns that a file has, and the facts."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import parquet  # noqa: PLC0415

    cannot = "not a click log in Parquet ({})"
    # A path is that file: no folder, no address of another machine
    with reading(path, cannot, pa.ArrowException), Path(path).open("rb") as file:
        try:
            table = parquet.ParquetFile(file).read()
            columns = table.column_names
        except _STRANGE as error:
            raise DataError(cannot.format(error)) from error
    note = (table.schema.metadata or {}).get(_METADATA)
    if note is None or not set(columns) >= NEEDED:
        raise DataError(
            f"{path}: not a click log of this package (columns {', '.join(columns)}"
            "), expected one written by ClickLog.save"
        )
    try:
        kept = parse_json(note)
        version = kept["schema_version"]
        facts = {"fingerprint": kept["dataset"], "n_sessions": kept.get("n_sessions")}
        _check_facts(**facts)
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path}: the note of its schema version is damaged") from error
    if version != SCHEMA_VERSION:
        raise DataError(
            f"{path}: of schema version {version}, expected {SCHEMA_VERSION}: read it with the "
            "release that wrote it"
        )
    found = [name for name in names if name in columns]
    return facts | {name: _column(path, table, name) for name in found}


def _column(path: str | PathLike[str], table: Any, name: str) -> NDArray[Any]:  # noqa: ANN401
    try:
        column: NDArray[Any] = table[name].to_numpy()
    except _STRANGE as error:
        raise DataError(f"{path}: the column {name} cannot be read ({error})") from error
    return column


def _check_facts(fingerprint: object, n_sessions: object) -> None:
    if n_sessions is not None:
        number("n_sessions", n_sessions)
    if not isinstance(fingerprint, str | None):
        raise TypeError(f"dataset is {fingerprint!r}, expected a fingerprint")
