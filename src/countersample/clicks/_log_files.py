"""Click logs as Parquet files: columns, and a note of what they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from countersample._files import atomic_path
from countersample._version import __version__
from countersample.data.sources import reading
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from numpy.typing import ArrayLike

SCHEMA_VERSION = 1
NEEDED = {"query", "item", "propensity"}
_METADATA = b"countersample"


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

    with reading(path, "not a click log in Parquet ({})", pa.ArrowException):
        table = parquet.read_table(path)
    note = (table.schema.metadata or {}).get(_METADATA)
    if note is None or not set(table.column_names) >= NEEDED:
        raise DataError(
            f"{path}: not a click log of this package (columns {', '.join(table.column_names)}"
            "), expected one written by ClickLog.save"
        )
    try:
        kept = json.loads(note)
        version = kept["schema_version"]
        facts = {"fingerprint": kept["dataset"], "n_sessions": kept.get("n_sessions")}
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path}: the note of its schema version is damaged") from error
    if version != SCHEMA_VERSION:
        raise DataError(
            f"{path}: of schema version {version}, expected {SCHEMA_VERSION}: read it with the "
            "release that wrote it"
        )
    found = [name for name in names if name in table.column_names]
    return facts | {name: table[name].to_numpy() for name in found}
