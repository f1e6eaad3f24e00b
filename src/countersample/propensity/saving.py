"""Propensities in files: JSON, with the number of its format."""

from __future__ import annotations

import json
import reprlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from countersample._files import atomic_path, read_at_most
from countersample._json import parse_json
from countersample.data.sources import reading
from countersample.errors import DataError

if TYPE_CHECKING:
    from os import PathLike

SCHEMA_VERSION = 1
MOST_BYTES = 2**28  # of a file: a million positions take 100 MB


class Saved:
    """What has plain values: `save` writes them, and `load` reads them again."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> Self:
        """Return what `to_dict` gave these values of."""
        raise NotImplementedError

    def save(self, path: str | PathLike[str]) -> None:
        """Write JSON, atomically."""
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote."""
        with reading(path, "not propensities in JSON ({})", ValueError):
            return cls.from_dict(parse_json(read_at_most(Path(path), MOST_BYTES)))


def entries(kept: dict[str, Any], names: tuple[str, ...], kind: str | None = None) -> list[Any]:
    """Return the entries of these names; refuse another format, or another kind of propensities."""
    try:
        version, found = kept["schema_version"], kept.get("kind")
        if version != SCHEMA_VERSION:
            raise DataError(
                f"propensities of schema version {reprlib.repr(version)}, expected "
                f"{SCHEMA_VERSION}: read them with the release that wrote them"
            )
        if found != kind:
            raise DataError(
                f"propensities {_told(found)}, expected those "
                f"{_told(kind)}: read them with load_propensities"
            )
        return [kept[name] for name in names]
    except (LookupError, TypeError, AttributeError) as error:
        raise DataError(f"not propensities of this package: no entry {error}") from error


def _told(kind: object) -> str:
    if kind is None:
        return "of positions alone"
    return kind if isinstance(kind, str) else reprlib.repr(kind)
