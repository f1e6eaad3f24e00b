"""Writing files so that nothing is lost: under a temporary name first, then renamed."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from countersample import _leaving
from countersample.errors import CounterSampleError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path beside `target` to write a file or a folder to; it takes its place at the end.

    If the block fails, what was written is removed and `target` is as it was.
    """
    target = Path(target)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    with _leaving.noted(partial(_abandon, temporary, target)):
        try:
            yield temporary
            _replace(temporary, target)
        except OSError as error:
            raise CounterSampleError(f"{target}: cannot be written: {error.strerror}") from error
        finally:
            _remove(temporary)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Give an empty folder in the one for temporary files; it is removed at the end."""
    folder = Path(tempfile.gettempdir(), f"countersample-{secrets.token_hex(8)}")
    with _leaving.noted(partial(_remove, folder)):
        try:
            folder.mkdir(mode=0o700)
            yield folder
        finally:
            _remove(folder)


def check_writable(path: Path) -> None:
    """Refuse the name of a file that could not be written: before the work, not after it."""
    try:
        if not path.parent.is_dir():
            raise ParameterError(f"{path}: the folder {path.parent} is not there: make it first")
        if path.is_dir():
            raise ParameterError(f"{path} is a folder, expected the name of a file")
    except OSError as error:
        raise ParameterError(f"{path}: cannot be written: {error.strerror}") from error


def _aside(temporary: Path) -> Path:
    return temporary.with_suffix(".old")


def _abandon(temporary: Path, target: Path) -> None:
    """Remove what was written, wherever the writing has come to."""
    aside = _aside(temporary)
    if aside.is_dir() and not target.is_dir():
        aside.replace(target)
    _remove(aside)
    _remove(temporary)


def _replace(temporary: Path, target: Path) -> None:
    if not target.is_dir():
        temporary.replace(target)
        return
    # A folder cannot be renamed over one that has files, so the old one steps aside first.
    aside = _aside(temporary)
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
