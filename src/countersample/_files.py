"""Files that are written whole or not at all: under a temporary name first, then renamed.

Devices and pipes are written into instead. An output that is an input of the same command is
rejected (`check_outputs`).
"""

from __future__ import annotations

import glob
import os
import re
import secrets
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from countersample import _cleanup
from countersample.errors import CounterSampleError, DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NO_DATA = {".html", ".md", ".pdf", ".png", ".svg"}  # endings of files that no reader takes
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

    If the block fails, the new file is removed and `target` is as it was. A device or a pipe stays
    what it is: the finished file is written into it.
    """
    target = Path(target)
    if is_device(target):
        with temporary_folder() as folder:
            yield folder / "output"
            _copy_into(folder / "output", target)
        return
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


def is_device(path: Path) -> bool:
    """Whether something exists that is neither a file nor a folder: a device, a pipe, a socket."""
    return is_other(path) and not is_file(path)


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
        raise ParameterError(f"{path}: the folder {path.parent} does not exist: create it first")
    if is_folder(path):
        raise ParameterError(f"{path} is a folder, expected the name of a file")


def check_outputs(outputs: Iterable[Path], inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Reject an output that is an input, by whatever name, or a file that an input consists of.

    An input is the name of a file or a folder, or a glob; other texts are ignored.
    """
    identities = {path: _identity(path) for path in outputs}
    existing = {path: each for path, each in identities.items() if each is not None}
    for source in inputs if existing else ():
        parts = None
        for path, identity in existing.items():
            is_input = identity == _identity(source)
            if not is_input and is_file(path) and path.suffix not in _NO_DATA:
                parts = set(map(_identity, _list_parts(str(source)))) if parts is None else parts
                is_input = identity in parts
            if is_input:
                raise ParameterError(
                    f"{path} is an input of this command ({source}), which writing would destroy, "
                    "expected another name"
                )


def _identity(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Return what all names of a file or folder share; None for a terminal."""
    with suppress(OSError, ValueError):
        status = Path(path).stat()
        if not stat.S_ISCHR(status.st_mode):
            return status.st_dev, status.st_ino
    return None


def _list_parts(source: str) -> Iterator[str]:
    """Yield the files within a folder, or the files of a glob and of the folders in it."""
    names = [source] if os.path.lexists(source) else glob.iglob(source, recursive=True)  # noqa: PTH207
    for each in names:
        yield each
        for folder, _, files in os.walk(each):
            yield from (str(Path(folder, file)) for file in files)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists and may be removed."""
    with suppress(OSError):  # the place cannot be written, which was reported before
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _copy_into(source: Path, target: Path) -> None:
    """Write a finished file into a device or a pipe, which waits for its reader."""
    if source.is_dir():
        raise ParameterError(f"{target} is a device or a pipe, expected the name of a folder")
    try:
        with source.open("rb") as file, target.open("wb") as device:
            shutil.copyfileobj(file, device)
    except OSError as error:
        raise CounterSampleError(f"{target}: cannot be written: {error.strerror}") from error


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
