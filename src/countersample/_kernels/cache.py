"""The private folder in which numba stores compiled kernels.

numba's cache notices an edit of the file that holds a kernel, but not an edit of the parts that the
kernel calls from other files. So each content of this package has its own folder:

    <cache folder of the user>/kernels/<hash of all kernel files>-<hash of compiler and CPU>/

An upgrade, or an edit in a clone, starts with an empty folder. Folders that were not used for a
while are removed.

numba unpickles and runs what it reads there, so the folder must belong to the user, and nobody else
may write to it. Without such a folder, kernels are compiled in memory in each run, and one warning
gives the reason.

This module does not import numba: the command line uses it before it needs numba.
"""

from __future__ import annotations

import os
import re
import stat
import time
import warnings
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree

from countersample._environment import cache_folder
from countersample._version import __version__

OTHER_FOLDERS = 4  # that stay: the last used ones of other releases and of former edits
SECONDS_PER_DAY = 86400.0  # a folder that was used within a day stays, too
_FOLDER_NAME = re.compile(r"[0-9a-f]{20}-[0-9a-f]{20}")


def hash_text(text: str) -> str:
    """Return 20 hexadecimal digits."""
    return blake2b(text.encode(), digest_size=10).hexdigest()


def hash_files() -> str:
    """Return a hash of the version and of all files of this package, or "" for a zipped package."""
    content = blake2b(__version__.encode(), digest_size=10)
    try:
        for path in sorted(Path(__file__).parent.iterdir()):
            if path.suffix in {".py", ".pyc"}:
                text = path.read_bytes()
                content.update(f"{path.name} {len(text)} ".encode() + text)
    except OSError:
        return ""
    return content.hexdigest()


FILES_HASH = hash_files()  # of the files that this process runs: kernels are imported after this


def find_root() -> Path:
    """Return the folder that holds the folders of all releases, which may not exist yet.

    Raises
    ------
    OSError
        If there is no place for it.
    """
    if not FILES_HASH:
        reason = "the package is not installed as a folder of files"
        raise FileNotFoundError(0, reason, str(Path(__file__).parent))
    numba_folder = os.environ.get("NUMBA_CACHE_DIR")
    if numba_folder:
        return Path(numba_folder).absolute() / "countersample" / "kernels"
    folder = cache_folder()
    if folder is None:
        raise FileNotFoundError(0, "there is no home folder", "~")
    return folder / "kernels"


def make_private(folder: Path) -> None:
    """Create a folder that only its user may enter; raise OSError if others may write to it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name == "nt":  # modes have no meaning there, and the folder of a user is private
        return
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise PermissionError(0, "it belongs to another user", str(folder))
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(0, "other users may write to it", str(folder))


@cache
def open_folder(compiler: str) -> Path:
    """Return the folder for these kernels and a compiler; create it, and remove old ones.

    Raises
    ------
    OSError
        If it cannot be created, or is not private.
    """
    root = find_root()
    folder = root / f"{FILES_HASH}-{hash_text(compiler)}"
    make_private(root)
    make_private(folder)
    os.utime(folder)  # used now
    _remove_old_folders(folder)
    return folder


def hash_content(files: list[Path]) -> bytes:
    """Return the checksum of the names and contents of files."""
    content = blake2b(digest_size=32)
    for file in files:
        content.update(file.name.encode() + read_if_present(file))
    return content.digest()


def read_if_present(file: Path) -> bytes:
    """Return the content of a file, or nothing if another process has removed it."""
    with suppress(FileNotFoundError):
        return file.read_bytes()
    return b""


def has_compiled(kernel: str) -> bool:
    """Return whether a kernel as this process has it was compiled, by any compiler for any CPU."""
    with suppress(OSError):
        return any(find_root().glob(f"{FILES_HASH}-*/*/{kernel}-*.nbc"))
    return False


def _remove_old_folders(current: Path) -> None:
    """Remove all folders but the last used ones and those used within a day."""
    with suppress(OSError):  # another process may remove them at the same time
        others = [
            (path.stat().st_mtime, path)
            for path in current.parent.iterdir()
            if path != current and _FOLDER_NAME.fullmatch(path.name) and not path.is_symlink()
        ]
        now = time.time()  # noqa: TID251 (files are dated by this clock)
        for last_use, path in sorted(others, reverse=True)[OTHER_FOLDERS:]:
            if now - last_use > SECONDS_PER_DAY:
                rmtree(path, ignore_errors=True)


_warnings: list[str] = []


def warn_once(path: object, reason: object) -> None:
    """Warn that compiled kernels cannot be stored, once per process."""
    if not _warnings:
        _warnings.append(
            f"compiled code cannot be stored, so each run compiles again: {path}: {reason}; "
            "set NUMBA_CACHE_DIR to a folder to which only you can write"
        )
        warnings.warn(_warnings[0], stacklevel=2)
