"""The machine and its user: cores, folders, and libraries that are optional."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from countersample.errors import CounterSampleError

if TYPE_CHECKING:
    from types import ModuleType

# The extra of this package that installs a library.
EXTRAS = {
    "lightgbm": "gbdt",
    "onnx": "export",
    "onnxruntime": "export",
    "pandas": "pandas",
    "polars": "polars",
    "py4j": "spark",
    "pyspark": "spark",
    "sqlglot": "export",
    "torch": "torch",
    "xgboost": "gbdt",
}
CPU_INFO = Path("/proc/cpuinfo")


class MissingExtraError(CounterSampleError, ImportError):
    """A library that is not installed."""


def need(module: str) -> ModuleType:
    """Import an optional library, or a module of one.

    Raises
    ------
    MissingExtraError
        If it is not installed; the message has the command that installs it.

    Examples
    --------
    >>> from countersample._environment import need
    >>> need("lightgbm").__name__
    'lightgbm'
    """
    library = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != library:
            raise
        raise MissingExtraError(
            f"this needs {library}, which is not installed: run "
            f'pip install "countersample[{EXTRAS[library]}]"'
        ) from error


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name() -> str:
    """Return the name of the CPU (Linux), or else its architecture."""
    name = ""
    with suppress(OSError, UnicodeDecodeError):
        lines = CPU_INFO.read_text().splitlines()
        models = (line for line in lines if line.startswith("model name"))
        name = next(models, "").partition(":")[2].strip()
    return name or platform.processor() or platform.machine() or "an unknown CPU"


def cache_folder() -> Path | None:
    """Return the user's folder for files that can be made again; None without a home folder."""
    with suppress(RuntimeError):  # there is no home folder
        return _absolute(platformdirs.user_cache_path("countersample", appauthor=False))
    return None


def data_folder() -> Path | None:
    """Return the user's folder for data, which may not exist yet; None without a home folder."""
    with suppress(RuntimeError):
        return _absolute(platformdirs.user_data_path("countersample", appauthor=False))
    return None


def _absolute(path: Path) -> Path | None:
    """Return None for "~": older releases of platformdirs return it if there is no home folder."""
    return path if path.is_absolute() else None
