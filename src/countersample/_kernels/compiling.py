"""The two decorators of compiled code: `kernel` for what Python calls, `part` for its pieces.

Whoever runs a command for the first time waits for the compiler, so it gets as little as possible:

- A kernel is called with arrays of one type only, because each other type is compiled again. numba
  stores it with all its parts, in the folder that `_kernels.cache` chooses.
- A part is compiled for other compiled code alone, without the wrapper that a call from Python
  needs. Called from Python, it is the plain function that was written.
- Slices that are assigned, array expressions, `np.searchsorted` and the like each bring more code
  than the loop they replace.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import numba
from llvmlite import binding
from numba import njit
from numba.extending import register_jitable

from countersample._kernels import cache

Function = TypeVar("Function", bound=Callable[..., Any])
config: Any = numba.config  # it has no types
# A part inherits the options that it does not set from its caller: sums would lose their order.
_BOTH: dict[str, Any] = {"fastmath": False, "no_cfunc_wrapper": True}
_KERNEL: dict[str, Any] = _BOTH | {"nogil": True}

# Settings that change compiled code, and that the index of numba's cache does not hold.
_SETTINGS = ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT")


def kernel(**options: Any) -> Callable[[Function], Function]:  # noqa: ANN401 (numba's)
    """Compile a function that Python calls, at its first call, or load it from the cache."""

    def decorate(function: Function) -> Function:
        folder = _find_folder()
        if folder is not None:
            try:
                return _compile_with_cache(function, _KERNEL | options, folder)
            except RuntimeError as error:
                cache.warn_once(folder, error)
        return njit(**_KERNEL | options)(function)

    return decorate


def part(**options: Any) -> Callable[[Function], Function]:  # noqa: ANN401 (numba's)
    """Compile a function that kernels call, into each of them."""
    return register_jitable(**_BOTH | options)


def _find_folder() -> Path | None:
    """Return the folder for compiled kernels, or None if they stay in memory."""
    if config.DISABLE_JIT:
        return None
    if cache.hash_files() != cache.FILES_HASH:
        return None  # an upgrade since this process started: its kernels would be of both releases
    # With the CPU in the name, only processes that compile the same code write to one index.
    cpu = (binding.get_host_cpu_name(), config.CPU_NAME, config.CPU_FEATURES)
    settings = [getattr(config, name, None) for name in _SETTINGS]
    try:
        return cache.open_folder(repr((numba.__version__, llvmlite.__version__, cpu, settings)))
    except OSError as error:
        cache.warn_once(error.filename, error.strerror)
        return None


def _compile_with_cache(function: Function, options: dict[str, Any], folder: Path) -> Function:
    """Decorate a function such that numba stores its code below a folder.

    Raises
    ------
    RuntimeError
        If numba stores nothing, or elsewhere.
    """
    previous, config.CACHE_DIR = config.CACHE_DIR, str(folder)  # numba reads it right here
    try:
        dispatcher: Any = njit(cache=True, **options)(function)
    finally:
        config.CACHE_DIR = previous
    path = Path(dispatcher.stats.cache_path)
    if path.parent != folder:  # numba's next choice, in which it would overlook an edit of parts
        raise RuntimeError("numba cannot write to it")
    _compile_despite_damage(dispatcher, path)
    return dispatcher


def _compile_despite_damage(dispatcher: Any, path: Path) -> None:  # noqa: ANN401 (numba's)
    """Let a kernel survive a damaged file, which numba would run, and a full disk.

    A file beside those that numba stored holds their checksum. If it differs, they are removed.
    """
    compile_or_load, function = dispatcher.compile, dispatcher.py_func
    name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
    checksum = path / f"{name}.sum"

    def compile_for(signature: Any) -> Any:  # noqa: ANN401 (numba's)
        try:
            files = sorted(path.glob(f"{name}-*.nb[ic]"))
            stored = cache.read_if_present(checksum)
            if stored != cache.hash_content(files):
                for file in files:
                    file.unlink(missing_ok=True)
            compile_or_load(signature)
            content = cache.hash_content(sorted(path.glob(f"{name}-*.nb[ic]")))
            if content != stored:
                checksum.write_bytes(content)
        except OSError as error:  # the code is compiled, and cannot be stored
            cache.warn_once(error.filename or path, error.strerror)
        return compile_or_load(signature)  # which is compiled or loaded by now

    dispatcher.compile = compile_for
