"""Libraries that are not needed by everyone, and what to say where one is missing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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


class MissingExtraError(CounterSampleError, ImportError):
    """A library that is not installed."""


def need(module: str) -> ModuleType:
    """Import a library that is not needed by everyone, or a module of one.

    Raises
    ------
    MissingExtraError
        Where it is not installed, with the line that installs it.

    Examples
    --------
    >>> from countersample._extras import need
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
