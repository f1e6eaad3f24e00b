"""Files that are written whole or not at all: under a temporary name first, then renamed."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from countersample import _cleanup
from countersample.errors import CounterSampleError, DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator


_NPY_MAGIC = b"\x93NUMPY\x01\x00"
_NPY_HEADER = re.compile(
    r"\{'descr': '(?P<dtype>[<>|][biufSU][0-9]+)', 'fortran_order': (?P<order>True|False), "
    r"'shape': \((?P<shape>[0-9, ]*)\), \} *\n"
)


class NpyHeader(NamedTuple):
    """What a ``.npy`` file holds."""

    dtype: str
    shape: tuple[int, ...]
    order: str  # "C" or "F"


@contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path beside `target` for a file or a folder, which replaces `target` at the end.

    If the block fails, the new file is removed and `target` is as it was.
    """
    target = Path(target)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    clean_up = partial(_clean_up, temporary, target)
    with _cleanup.noted(clean_up):
        try:
            yield temporary
            _replace(temporary, target)
        except OSError as error:
            raise CounterSampleError(f"{target}: cannot be written: {error.strerror}") from error
        finally:
            clean_up()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Give an empty folder among the temporary files, which is removed at the end."""
    folder = Path(tempfile.gettempdir(), f"countersample-{secrets.token_hex(8)}")
    with _cleanup.noted(partial(remove, folder)):
        try:
            folder.mkdir(mode=0o700)
            yield folder
        finally:
            remove(folder)


def is_file(path: Path) -> bool:
    """Whether a file exists; False if it may not be read, or no file can have such a name."""
    with suppress(OSError, ValueError):
        return path.is_file()
    return False


def is_folder(path: Path) -> bool:
    """Whether a folder exists; as `is_file`."""
    with suppress(OSError, ValueError):
        return path.is_dir()
    return False


def is_other(path: Path) -> bool:
    """Whether something exists that is not a folder: a file, a device; as `is_file`."""
    with suppress(OSError, ValueError):
        return path.exists() and not path.is_dir()
    return False


def read_at_most(path: Path, most: int) -> bytes:
    """Return the content of a file; a larger one, such as /dev/zero, raises a DataError."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise DataError(f"{path}: has more than {most:,} bytes, expected a smaller file")
    return data


def read_npy_header(file: IO[bytes]) -> NpyHeader:
    """Read the header of a ``.npy`` file that `numpy.save` wrote; the numbers follow it.

    numpy parses a header as Python. In CPython 3.11 that can fail if two threads do it at once
    (https://github.com/python/cpython/issues/106905), so threads must not use `numpy.load`.
    """
    if file.read(len(_NPY_MAGIC)) != _NPY_MAGIC:
        raise DataError("no array in numpy's format, version 1.0")
    length = int.from_bytes(file.read(2), "little")
    match = _NPY_HEADER.fullmatch(file.read(length).decode("latin-1"))
    if match is None:
        raise DataError("the header of an array is not what numpy writes")
    shape = tuple(int(size) for size in match["shape"].split(",") if size.strip())
    return NpyHeader(match["dtype"], shape, "F" if match["order"] == "True" else "C")


def check_writable(path: Path) -> None:
    """Raise an error if a file could not be written: before the work, not after it."""
    if not is_folder(path.parent):
        raise ParameterError(f"{path}: the folder {path.parent} is not there: make it first")
    if is_folder(path):
        raise ParameterError(f"{path} is a folder, expected the name of a file")


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists and may be removed."""
    with suppress(OSError):  # the place cannot be written, which was reported before
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _replace(temporary: Path, target: Path) -> None:
    """Rename. A folder cannot replace one that has files, so the old one is moved aside first."""
    if temporary.is_dir() and target.is_dir():
        target.replace(temporary.with_suffix(".old"))
    temporary.replace(target)


def _clean_up(temporary: Path, target: Path) -> None:
    """Remove temporary files at any stage of the writing; an old folder comes back if needed."""
    aside = temporary.with_suffix(".old")
    with suppress(OSError):
        if aside.is_dir() and not target.is_dir():
            aside.replace(target)
    if target.is_dir():  # else the old folder is the only copy
        remove(aside)
    remove(temporary)
