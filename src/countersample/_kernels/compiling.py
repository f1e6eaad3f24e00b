"""The two decorators of compiled code, `kernel` and `part`, and the folder that stores it.

Python calls kernels; kernels call parts. Whoever runs a command for the first time waits for the
compiler, so it gets as little as possible:

- A kernel is called with arrays of one type only, because each other type is compiled again.
- A part is compiled for other compiled code alone, without the wrapper that a call from Python
  needs. Called from Python, it is the plain function that was written.
- Slices that are assigned, array expressions, `np.searchsorted` and the like each bring more code
  than the loop they replace.

numba stores a kernel with all its parts, and loads it in the next run. Its cache notices an edit of
the file that holds a kernel, but not an edit of the parts that the kernel calls from other files.
So each content of this package has its own folder, named by a hash of all kernel files. numba
unpickles and runs what it reads there, so the folder must be private. Without such a folder,
kernels are compiled in each run, and one warning gives the reason.
"""

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from threading import Lock
from typing import Any, TypeVar

import numba
from numba import njit
from numba.extending import register_jitable

from countersample._environment import cache_folder
from countersample._version import __version__

Function = TypeVar("Function", bound=Callable[..., Any])
config: Any = numba.config  # it has no types
# A part inherits the options that it does not set from its caller: sums would lose their order.
_BOTH: dict[str, Any] = {"fastmath": False, "no_cfunc_wrapper": True}
_KERNEL: dict[str, Any] = _BOTH | {"nogil": True}
# Settings that change compiled code, and that the index of numba's cache does not hold.
_SETTINGS = ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT")
_DECORATING = Lock()  # numba.config is shared by all threads
MAX_FOLDERS = 8  # the last used ones: of this release, of other releases and of former edits


def kernel(**options: Any) -> Callable[[Function], Function]:  # noqa: ANN401 (numba's)
    """Compile a function that Python calls, at its first call, or load it from the cache."""

    def decorate(function: Function) -> Function:
        folder = open_folder()
        if folder is None:
            return njit(**_KERNEL | options)(function)
        with _DECORATING:
            previous, config.CACHE_DIR = config.CACHE_DIR, str(folder)  # numba reads it right here
            try:
                return njit(cache=True, **_KERNEL | options)(function)
            finally:
                config.CACHE_DIR = previous

    return decorate


def part(**options: Any) -> Callable[[Function], Function]:  # noqa: ANN401 (numba's)
    """Compile a function that kernels call, into each of them."""
    return register_jitable(**_BOTH | options)


@cache
def open_folder() -> Path | None:
    """Return the folder for compiled kernels, or None, with a warning, if there is none."""
    if config.DISABLE_JIT:
        return None
    try:
        root = _find_root()
        folder = root / hash_files()
        for each in (root, folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_private(each)
        os.utime(folder)  # used now
    except OSError as error:
        warnings.warn(
            "compiled code cannot be stored, so each run compiles again: "
            f"{error.filename}: {error.strerror}; "
            "set NUMBA_CACHE_DIR to a folder to which only you can write",
            stacklevel=2,
        )
        return None
    with suppress(OSError):  # another process may remove them at the same time
        folders = sorted(root.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in folders[MAX_FOLDERS:]:
            rmtree(old, ignore_errors=True)
    return folder


def hash_files() -> str:
    """Return a hash of the version, of all files of this package, and of numba's settings."""
    settings = [getattr(config, name, None) for name in _SETTINGS]
    content = blake2b(f"{__version__} {settings}".encode(), digest_size=10)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        content.update(path.name.encode() + path.read_bytes())
    return content.hexdigest()


def _find_root() -> Path:
    """Return the folder that holds the folders of all releases, which may not exist yet."""
    if not Path(__file__).is_file():  # numba could not check whether its code is current
        reason = "the package is not installed as a folder of files"
        raise FileNotFoundError(0, reason, str(Path(__file__).parent))
    numba_folder = os.environ.get("NUMBA_CACHE_DIR")
    if numba_folder:
        return Path(numba_folder).absolute() / "countersample" / "kernels"
    folder = cache_folder()
    if folder is None:
        raise FileNotFoundError(0, "there is no home folder", "~")
    return folder / "kernels"


def _check_private(folder: Path) -> None:
    """Raise OSError if this process may not write to a folder, or if other users may."""
    if not os.access(folder, os.W_OK):
        raise PermissionError(0, "you may not write to it", str(folder))
    status = folder.stat()
    if os.name != "nt" and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
        raise PermissionError(0, "other users may write to it", str(folder))
