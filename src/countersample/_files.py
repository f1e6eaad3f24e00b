"""Writing files so that nothing is lost: under a temporary name first, then renamed."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from countersample.errors import CounterSampleError, DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path beside `target` to write a file or a folder to; it takes its place at the end.

    If the block fails, what was written is removed and `target` is as it was.
    """
    target = Path(target)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        _replace(temporary, target)
    except OSError as error:
        raise CounterSampleError(f"{target}: cannot be written: {error.strerror}") from error
    finally:
        _remove(temporary)


def is_file(path: Path) -> bool:
    """Whether there is a file; no where nobody may look, or no file can have such a name."""
    with suppress(OSError, ValueError):
        return path.is_file()
    return False


def is_folder(path: Path) -> bool:
    """Whether there is a folder; as `is_file`."""
    with suppress(OSError, ValueError):
        return path.is_dir()
    return False


def is_other(path: Path) -> bool:
    """Whether there is something that is no folder: a file, a device; as `is_file`."""
    with suppress(OSError, ValueError):
        return path.exists() and not path.is_dir()
    return False


def read_at_most(path: Path, most: int) -> bytes:
    """Return what a file has; one with more bytes than that is a DataError, as /dev/zero is."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise DataError(f"{path}: has more than {most:,} bytes, expected a smaller file")
    return data


def check_writable(path: Path) -> None:
    """Refuse the name of a file that could not be written: before the work, not after it."""
    try:
        if not path.parent.is_dir():
            raise ParameterError(f"{path}: the folder {path.parent} is not there: make it first")
        if path.is_dir():
            raise ParameterError(f"{path} is a folder, expected the name of a file")
    except OSError as error:
        raise ParameterError(f"{path}: cannot be written: {error.strerror}") from error


def _replace(temporary: Path, target: Path) -> None:
    if not target.is_dir():
        temporary.replace(target)
        return
    # A folder cannot be renamed over one that has files, so the old one steps aside first.
    aside = temporary.with_suffix(".old")
    target.replace(aside)
    try:
        temporary.replace(target)
    except OSError:
        aside.replace(target)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    with suppress(OSError):  # of a place that cannot be written, which was said already
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
