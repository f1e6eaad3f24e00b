"""Find the files of a log, tell their format by the ending, and decompress them if needed."""

from __future__ import annotations

import glob
import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from countersample._files import temporary_folder
from countersample.clicks.impressions.explaining import explained
from countersample.clicks.impressions.formats import FORMATS
from countersample.data.sources import COMPRESSED_SUFFIXES, listed, open_source
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyarrow.fs import FileSystem

    from countersample.clicks.impressions.formats import Format

_BLOCK = 1 << 20  # bytes
_UNPACKED_BY_ARROW = (".gz", ".bz2", ".zst")
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_NO_FILE = (
    "a pipe or a device, expected a file: a log is read more than once, so write it to one first"
)


@dataclass(frozen=True)
class Files:
    """The files of a log, all of one format."""

    name: str  # what the user called them
    paths: tuple[str, ...]  # each file, or the address of a remote source as it was given
    format: Format
    folder: str | None = None  # where partitions (``policy=a/``) are counted from
    temporary: str | None = None  # where some of them were unpacked to, in the same partitions

    def located(self) -> tuple[FileSystem, list[str]]:
        """Return where Arrow finds the files: on this machine, or at an address."""
        from pyarrow import fs  # noqa: PLC0415 (heavy, only where used)

        if not self.is_remote:
            return fs.LocalFileSystem(), [str(Path(path).absolute()) for path in self.paths]
        system, path = fs.FileSystem.from_uri(self.paths[0])
        return system, [path]

    @property
    def is_remote(self) -> bool:
        """Whether the user gave an address (``s3://…``)."""
        return "://" in self.paths[0]

    def partitions(self, path: str) -> dict[str, str | None]:
        """Return what the folders of a file say (``policy=a/``), text or nothing."""
        parts = dict(part.split("=", 1) for part in self._inner(path))
        return {k: None if v == _NO_PARTITION else unquote(v) for k, v in parts.items()}

    def _inner(self, path: str) -> list[str]:
        if self.folder is None or self.is_remote:
            return []
        base = next(b for b in (self.folder, self.temporary) if b and Path(path).is_relative_to(b))
        return [part for part in Path(path).relative_to(base).parts[:-1] if "=" in part]

    def unpacked(self, readable: Iterable[str], cleanup: ExitStack) -> Files:
        """Return the files with those decompressed whose ending is not among the readable ones.

        They go to a temporary folder that `cleanup` removes.
        """
        left = {*readable}.intersection(self.format.unpacks)
        suffixes = [Path(path).suffix for path in self.paths]
        packed = {s for s in suffixes if s in COMPRESSED_SUFFIXES and s not in left}
        if not packed:
            return self
        folder = cleanup.enter_context(temporary_folder())
        paths = list(self.paths)
        for number, suffix in enumerate(suffixes):
            if suffix in packed:
                target = Path(folder, *self._inner(paths[number]))
                target.mkdir(parents=True, exist_ok=True)
                paths[number] = str(target / f"{number}.{self.format.name}")
                _decompress(self.paths[number], paths[number])
        return replace(self, paths=tuple(paths), temporary=str(folder))


@contextmanager
def open_tables(source: str) -> Iterator[Files]:
    """Find the files of a table that Arrow reads into memory, and name the source in every error.

    Files that Arrow cannot decompress are decompressed for the time of the block.
    """
    with explained(source, (ValueError,)), ExitStack() as cleanup:
        yield find_files(source).unpacked(_UNPACKED_BY_ARROW, cleanup)


def find_files(source: str, file_format: Format | None = None) -> Files:
    """Find the files that a path, a folder, a glob or an address (``s3://…``) means.

    What is there under this very name is taken, whatever characters the name has.

    With a `file_format`, a file may have any name; of a folder, the files with the endings of the
    format are taken.
    """
    formats = FORMATS if file_format is None else (file_format,)
    path = Path(source)
    if path.is_dir():
        files = _in_folder(path, formats)
        if not files:
            raise DataError(
                f"{source}: no file of a log in this folder, expected {_endings(formats)}"
            )
        return Files(source, files, file_format or _one_format(source, files), source)
    if path.is_file():
        return Files(source, _distinct([path]), file_format or _one_format(source, [source]))
    if path.exists():
        raise DataError(f"{source}: {_NO_FILE}")
    if "://" in source:
        return Files(source, (source,), file_format or format_of(source) or FORMATS[0], source)
    if glob.has_magic(source):
        matches = glob.glob(source, recursive=True)  # noqa: PTH207 (it may be absolute)
        files = _distinct(match for match in map(Path, sorted(matches)) if not match.is_dir())
        if not files:  # folders, such as some days of an aggregated log
            files = tuple(
                file for match in sorted(matches) for file in _in_folder(Path(match), formats)
            )
        if files:
            base = str(Path(re.split(r"[*?[]", source)[0] + "x").parent)
            return Files(source, files, file_format or _one_format(source, files), base)
    raise DataError(f"{source}: no such file or folder")


def _in_folder(folder: Path, formats: Sequence[Format]) -> tuple[str, ...]:
    """Return the files of a log in a folder and in those within it."""
    paths = []
    for path in sorted(folder.rglob("*")):
        if _is_hidden(path, folder):
            continue
        if not path.is_dir():
            paths += [path] if format_of(path.name, formats) else []
        elif path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(
                f"{path}: a link to another folder, which is not followed: name the files with a "
                "pattern, or put them into one folder"
            )
    return _distinct(paths)


def _distinct(paths: Iterable[Path]) -> tuple[str, ...]:
    """Return each file once, however many links lead to it; refuse what is no file."""
    names: dict[Path, str] = {}
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: {_NO_FILE if path.exists() else 'a link to nothing'}")
        # libraries take a leading ~ for the home folder
        names.setdefault(path.resolve(), f"./{path}" if path.parts[0][0] == "~" else str(path))
    return tuple(names.values())


def format_of(name: str, formats: Sequence[Format] | None = None) -> Format | None:
    """Tell the format of a file by its name (``log.tsv.gz``); None where it is none of a log."""
    suffixes = Path(name).suffixes
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes = suffixes[:-1]
    ending = suffixes[-1].lower() if suffixes else ""
    return next((each for each in formats or FORMATS if ending in each.endings), None)


def _one_format(source: str, files: Sequence[str]) -> Format:
    formats = [format_of(f) for f in files]
    if None in formats:
        odd = files[formats.index(None)]
        raise DataError(f"{odd}: cannot tell the format by its name, expected {_endings(FORMATS)}")
    names = sorted({each.name for each in formats if each is not None})
    if len(names) > 1:
        raise DataError(
            f"{source}: files of several formats ({', '.join(names)}), expected one: name one "
            f"with a pattern such as '{source}/**/*.{names[0]}'"
        )
    return next(each for each in FORMATS if each.name == names[0])


def first_line(path: str) -> str | None:
    """Return the first line of a file of text, at most 64 kB; None of one that is elsewhere."""
    if "://" in path:
        return None
    buffer = bytearray(1 << 16)
    with open_source(path) as source:
        count = source.readinto(memoryview(buffer))
    return buffer[:count].decode("utf-8", errors="replace").split("\n", 1)[0].rstrip("\r")


def _endings(formats: Sequence[Format]) -> str:
    usual = [each.endings[0] or "any name without an ending" for each in formats]
    return f"{listed(usual, 'or')}, also with {listed(COMPRESSED_SUFFIXES, 'or')}"


def _is_hidden(path: Path, folder: Path) -> bool:
    """Tell whether Spark and its kin would pass over the file (``_SUCCESS``, ``.crc``)."""
    return any(part[0] in "._" and "=" not in part for part in path.relative_to(folder).parts)


def _decompress(path: str, target: str) -> None:
    buffer = bytearray(_BLOCK)
    with open_source(path) as source, Path(target).open("wb") as file:
        while count := source.readinto(memoryview(buffer)):
            file.write(memoryview(buffer)[:count])
