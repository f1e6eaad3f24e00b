"""Where compiled kernels are kept: a folder for each content of all kernels, private to its user.

numba goes by the file of a function, not by what that function calls: a kernel would outlive a
change of its parts, which are in other files. Here the folder goes by every file of this package,
so that another release, or an edit of any of them, has a folder of its own. Within it there is a
file for each kernel, types and CPU: no index that two processes could both write.

What is kept is unpickled, and run. So it is read only where nobody but its user could have written
it. Where it cannot be kept, kernels are compiled in each run, which is told once.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
import warnings
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree

from countersample._home import cache_folder
from countersample._version import __version__

SUFFIX = ".nbc"
OTHERS = 4  # folders of other releases, or of former edits, that stay: those last used
DAY = 86400.0  # seconds; what was used since stays in any case
HOUR = 3600.0  # no file is written for as long
_FOLDER = re.compile(r"[0-9a-f]{20}-.+")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def fingerprint() -> str:
    """Return a hash of the version and of every file of this package, as they are on disk now."""
    found = blake2b(__version__.encode(), digest_size=10)
    with suppress(OSError):  # such as a package in an archive
        for path in sorted(Path(__file__).parent.iterdir()):
            if path.suffix in {".py", ".pyc"}:
                content = path.read_bytes()
                found.update(f"{path.name} {len(content)} ".encode() + content)
        return found.hexdigest()
    return ""


FINGERPRINT = fingerprint()  # of what this process runs: kernels are imported after this


class Kept:
    """What is kept of the kernels as this process has them, compiled with some tools.

    Parameters
    ----------
    tools : str
        Python and the compiler with their versions, as part of a name.
    """

    def __init__(self, tools: str) -> None:
        self._name = f"{FINGERPRINT}-{tools}"

    def read(self, kernel: str, made_for: str) -> bytes | None:
        """Return what was kept of a kernel for types and a CPU; None where nothing can be used."""
        try:
            folder = root() / self._name
            _check_private(folder, folder.stat())
            _mark_as_used(folder)
            with self._path(folder, kernel, made_for).open("rb") as file:
                _check_private(folder, os.fstat(file.fileno()))
                mark, content = file.read(32), file.read()
        except OSError:
            return None
        return content if mark == self._mark(kernel, made_for, content) else None

    def write(self, kernel: str, made_for: str, content: bytes) -> None:
        """Keep what was compiled, in whole or not at all."""
        if fingerprint() != FINGERPRINT:
            return  # a file was changed since: what is compiled here may be of either
        try:
            folder = make_root() / self._name
            is_new = _make_private(folder)
            mark = self._mark(kernel, made_for, content)
            _write_whole(self._path(folder, kernel, made_for), mark + content)
        except OSError as error:
            _tell(error.filename or folder, error.strerror)  # a full disk names no file
            return
        if is_new:
            _remove_old(folder)

    def _path(self, folder: Path, kernel: str, made_for: str) -> Path:
        name = blake2b(made_for.encode(), digest_size=10).hexdigest()
        return folder / f"{kernel}-{name}{SUFFIX}"

    def _mark(self, kernel: str, made_for: str, content: bytes) -> bytes:
        """Return a hash by which a file is known to be whole, and in its place."""
        place = f"{self._name}\n{kernel}\n{made_for}\n".encode()
        return blake2b(place + content, digest_size=32).digest()


def has_kept(kernel: str) -> bool:
    """Tell whether any is kept of a kernel as this process has it, for whatever types and CPU."""
    with suppress(OSError):
        return any(root().glob(f"{FINGERPRINT}-*/{kernel}-*{SUFFIX}"))
    return False


def root() -> Path:
    """Return the folder of all folders, whether it is there or not; OSError where there is none."""
    if not FINGERPRINT:
        raise FileNotFoundError(
            0, "its files cannot be read one by one", str(Path(__file__).parent)
        )
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        return Path(named).absolute() / "countersample" / "kernels"
    own = cache_folder()
    if own is None:
        raise FileNotFoundError(0, "there is no home folder", "~")
    return own / "kernels"


def make_root() -> Path:
    """Return the folder of all folders, made where it was not; OSError where it cannot be used."""
    folder = root()
    _make_private(folder)
    return folder


def _make_private(folder: Path) -> bool:
    """Make a folder that only its user may enter; return whether it was not there."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        _check_private(folder, folder.stat())
        return False
    return True


def _check_private(folder: Path, found: os.stat_result) -> None:
    """Raise PermissionError where another user than root could have written a folder or file."""
    if os.name == "nt":  # modes tell nothing there, and the folder of a user is private
        return
    if found.st_uid not in {0, os.geteuid()}:
        raise PermissionError(0, "it belongs to another user", str(folder))
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise PermissionError(0, "other users may write to it", str(folder))


def _age(modified: float) -> float:
    """Return the seconds since; of a clock that went backwards, fewer: then nothing is old."""
    return time.time() - modified  # noqa: TID251 (files are dated by this clock)


def _mark_as_used(folder: Path) -> None:
    if _age(folder.stat().st_mtime) > DAY:
        with suppress(OSError):
            os.utime(folder)


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place and move it there; remove what writers who were killed left."""
    for left in path.parent.glob("*.tmp"):
        with suppress(OSError):
            if _age(left.stat().st_mtime) > HOUR:
                left.unlink()
    descriptor, made = tempfile.mkstemp(".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(made).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(made).unlink()
        raise


def _remove_old(current: Path) -> None:
    """Remove the folders of other kernels, but for those last used and those used within a day."""
    with suppress(OSError):  # another process may remove them, too
        others = [
            (path.stat().st_mtime, path)
            for path in current.parent.iterdir()
            if path != current and _FOLDER.fullmatch(path.name) and not path.is_symlink()
        ]
        for used, path in sorted(others, reverse=True)[OTHERS:]:
            if _age(used) > DAY:
                rmtree(path, ignore_errors=True)


_told: list[str] = []


def _tell(where: object, why: object) -> None:
    if not _told:
        _told.append(
            f"compiled code cannot be kept, so that each run compiles anew: {where}: {why}; "
            "NUMBA_CACHE_DIR may name a folder that is yours alone"
        )
        warnings.warn(_told[0], stacklevel=2)
