"""The machine and its user: cores, folders, and libraries that are optional."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import platformdirs

from countersample.errors import CounterSampleError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
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


def cache_folder() -> Path | None:
    """Return the user's folder for files that can be made again; None without a home folder."""
    return _user_folder(platformdirs.user_cache_path)


def data_folder() -> Path | None:
    """Return the user's folder for data, which may not exist yet; None without a home folder."""
    return _user_folder(platformdirs.user_data_path)


def _user_folder(find: Callable[..., Path]) -> Path | None:
    with suppress(RuntimeError):  # there is no home folder; older releases then return "~"
        path = find("countersample", appauthor=False)
        return path if path.is_absolute() else None
    return None
