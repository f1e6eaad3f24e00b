"""The files of a log: found, told apart by their endings, unpacked where an engine cannot."""

from __future__ import annotations

import glob
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from countersample.data.sources import COMPRESSED_SUFFIXES, open_source
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import ExitStack

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
_ENDINGS = ".parquet, .csv, .tsv or .jsonl, also with .gz, .bz2, .xz or .zst"
_BLOCK = 1 << 20  # bytes


@dataclass(frozen=True)
class Files:
    """The files of a log, all of one format.

    Parameters
    ----------
    name : str
        What the user called them.
    paths : tuple of str
        Each file, or the address of a remote source as it was given.
    format : {"parquet", "csv", "tsv", "jsonl"}
    folder : str, optional
        Where partitions (``policy=a/``) are counted from.
    """

    name: str
    paths: tuple[str, ...]
    format: str
    folder: str | None = None

    @property
    def delimiter(self) -> str:
        """What stands between two values of a line."""
        return "\t" if self.format == "tsv" else ","

    def unpacked(self, readable: Iterable[str], cleanup: ExitStack) -> Files:
        """Return the files with those decompressed whose ending is not among the readable ones.

        They go to a temporary folder that `cleanup` removes.
        """
        if self.format == "parquet":
            return self
        packed = {p for p in self.paths if _compression(p) not in {"", *readable}}
        if not packed:
            return self
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="countersample-")))
        paths = []
        for number, path in enumerate(self.paths):
            if path not in packed:
                paths.append(path)
                continue
            target = folder / f"{number}.{self.format}"
            _decompress(path, target)
            paths.append(str(target))
        return replace(self, paths=tuple(paths))


def find_files(source: str) -> Files:
    """Find the files that a path, a folder, a glob or an address (``s3://…``) means."""
    if "://" in source:
        return Files(source, (source,), _format(source) or "parquet", source)
    path = Path(source)
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.is_file() and not _is_hidden(p, path))
        files = [str(p) for p in found if _format(p.name)]
        if not files:
            raise DataError(f"{source}: no file of a log in this folder, expected {_ENDINGS}")
        return Files(source, tuple(files), _one_format(source, files), source)
    if path.is_file():
        return Files(source, (source,), _one_format(source, [source]))
    if glob.has_magic(source):
        matches = glob.glob(source, recursive=True)  # noqa: PTH207 (it may be absolute)
        files = sorted(match for match in matches if Path(match).is_file())
        if files:
            base = str(Path(source[: _first_magic(source)] + "x").parent)
            return Files(source, tuple(files), _one_format(source, files), base)
    raise DataError(f"{source}: no such file or folder")


def _one_format(source: str, files: list[str]) -> str:
    formats = sorted({_format(f) or "" for f in files})
    if "" in formats:
        odd = next(f for f in files if not _format(f))
        raise DataError(f"{odd}: cannot tell the format by its name, expected {_ENDINGS}")
    if len(formats) > 1:
        raise DataError(
            f"{source}: files of several formats ({', '.join(formats)}), expected one: name one "
            f"with a pattern such as '{source}/**/*.{formats[0]}'"
        )
    return formats[0]


def _format(name: str) -> str | None:
    suffixes = Path(name).suffixes
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes = suffixes[:-1]
    return FORMATS.get(suffixes[-1].lower()) if suffixes else None


def _compression(path: str) -> str:
    suffix = Path(path).suffix
    return suffix if suffix in COMPRESSED_SUFFIXES else ""


def _is_hidden(path: Path, folder: Path) -> bool:
    """Tell whether Spark and its kin would pass over the file (``_SUCCESS``, ``.crc``)."""
    return any(part[0] in "._" and "=" not in part for part in path.relative_to(folder).parts)


def _first_magic(pattern: str) -> int:
    return min(i for i, letter in enumerate(pattern) if letter in "*?[")


def _decompress(path: str, target: Path) -> None:
    buffer = bytearray(_BLOCK)
    with open_source(path) as source, target.open("wb") as file:
        while count := source.readinto(memoryview(buffer)):
            file.write(memoryview(buffer)[:count])
