"""Writing files so that nothing is lost: under a temporary name first, then renamed.

What a killed process left behind under such a name is removed by the next one that writes to the
folder. The name says who writes: the process, and a hash of the machine, its boot and its space of
process numbers, for a number that is free here may be taken on another machine or in another
container that has the same folder. Names with another hash are never touched.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import tempfile
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from countersample import _leaving
from countersample.errors import CounterSampleError, DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator


_ATTEMPTS = 4
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES = Path("/proc/self/ns/pid")
_TEMPORARY = re.compile(
    r"\.(?P<target>.+)\.(?P<pid>[0-9]+)-(?P<place>[0-9a-f]{8})-[0-9a-f]{8}\.(?P<kind>tmp|old)",
    re.DOTALL,
)


@contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path beside `target` to write a file or a folder to; it takes its place at the end.

    If the block fails, what was written is removed and `target` is as it was.
    """
    target = Path(target)
    writer = f"{os.getpid()}-{_place() or '0' * 8}-{secrets.token_hex(4)}"
    temporary = target.with_name(f".{target.name}.{writer}.tmp")
    _clean_once(target.absolute().parent)
    with _leaving.noted(partial(_abandon, temporary, target)):
        try:
            yield temporary
            _replace(temporary, target)
        except OSError as error:
            raise CounterSampleError(f"{target}: cannot be written: {error.strerror}") from error
        finally:
            remove(temporary)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Give an empty folder in the one for temporary files; it is removed at the end."""
    folder = Path(tempfile.gettempdir(), f"countersample-{secrets.token_hex(8)}")
    with _leaving.noted(partial(remove, folder)):
        try:
            folder.mkdir(mode=0o700)
            yield folder
        finally:
            remove(folder)


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


def _aside(temporary: Path) -> Path:
    return temporary.with_suffix(".old")


def _abandon(temporary: Path, target: Path) -> None:
    """Remove what was written, wherever the writing has come to."""
    aside = _aside(temporary)
    if aside.is_dir() and not target.is_dir():
        aside.replace(target)
    remove(aside)
    remove(temporary)


def _replace(temporary: Path, target: Path) -> None:
    """Rename; other processes may do the same at the same time, and the last one stays."""
    aside = _aside(temporary)
    for is_last in (*[False] * _ATTEMPTS, True):
        # A folder cannot be renamed over one that has files, so the old one steps aside first.
        if temporary.is_dir() and target.is_dir():
            remove(aside)
            with suppress(FileNotFoundError):
                target.replace(aside)
        try:
            temporary.replace(target)
        except OSError:
            with suppress(OSError):
                aside.rename(target)  # which fails where there is another by now
            if is_last or not (temporary.is_dir() and target.is_dir()):
                raise
        else:
            break
    remove(aside)


@cache
def _place() -> str | None:
    """Return a hash of where process numbers mean what they mean here; None where none can tell."""
    try:
        known = (os.uname().nodename, _BOOT.read_text(), str(_PROCESSES.readlink()))
    except (OSError, AttributeError):  # no Linux
        return None
    return hashlib.blake2b("\n".join(known).encode(), digest_size=4).hexdigest()


@cache
def _clean_once(folder: Path) -> None:
    """Remove what processes that were killed left in a folder, once in the life of this one.

    A folder that stepped aside for another one, which did not come, is put back.
    """
    with suppress(OSError):  # a folder that cannot be read or written, which is said when writing
        for path in folder.iterdir():
            found = _TEMPORARY.fullmatch(path.name)
            if not found or found["place"] != _place() or _is_alive(int(found["pid"])):
                continue
            target = folder / found["target"]
            if found["kind"] == "old" and not os.path.lexists(target):
                path.rename(target)
            else:
                remove(path)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's
        return True
    return True


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there and may be."""
    with suppress(OSError):  # of a place that cannot be written, which was said already
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
