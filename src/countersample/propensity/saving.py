"""Propensities in JSON files, with a version. The classes check the values on construction."""

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
MAX_BYTES = 2**28  # of a file: a million positions take 100 MB


class Saved:
    """A class with plain values: `save` writes them, and `load` reads them again."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the object that `to_dict` wrote."""
        raise NotImplementedError

    def save(self, path: str | PathLike[str]) -> None:
        """Write JSON, atomically."""
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote."""
        with reading(path, "not propensities in JSON ({})", ValueError):
            return cls.from_dict(parse_json(read_at_most(Path(path), MAX_BYTES)))


def entries(values: dict[str, Any], names: tuple[str, ...], kind: str | None = None) -> list[Any]:
    """Return the entries of these names; reject another version or another kind of propensities."""
    try:
        version, saved_kind = values["schema_version"], values.get("kind")
        if version != SCHEMA_VERSION:
            raise DataError(
                f"propensities of schema version {reprlib.repr(version)}, expected "
                f"{SCHEMA_VERSION}: read them with the release that wrote them"
            )
        if saved_kind != kind:
            raise DataError(
                f"propensities {_describe(saved_kind)}, expected those {_describe(kind)}: read "
                "them with load_propensities"
            )
        return [values[name] for name in names]
    except (LookupError, TypeError, AttributeError) as error:
        raise DataError(f"not propensities of this package: no entry {error}") from error


def _describe(kind: object) -> str:
    if kind is None:
        return "of positions alone"
    return kind if isinstance(kind, str) else reprlib.repr(kind)
