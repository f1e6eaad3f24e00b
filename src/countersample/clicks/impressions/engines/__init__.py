"""Where a log is counted: an engine is one file here and one line in `ENGINES`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from countersample._params import choice
from countersample.clicks.impressions.engines.base import Engine
from countersample.clicks.impressions.engines.duckdb import DuckDB
from countersample.clicks.impressions.engines.pandas import Pandas
from countersample.clicks.impressions.engines.polars import Polars
from countersample.clicks.impressions.engines.spark import Spark
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

    import narwhals as nw

__all__ = ["ENGINES", "DuckDB", "Engine", "Pandas", "engine_of", "find_engine", "make_engine"]

_Engine = TypeVar("_Engine", bound=Engine)

#: By name; the first is the default for files.
ENGINES: dict[str, type[Engine]] = {
    "duckdb": DuckDB,
    "polars": Polars,
    "pandas": Pandas,
    "spark": Spark,
}


def find_engine(name: str) -> type[Engine]:
    """Return the engine of this name."""
    return ENGINES[choice("engine", name, ENGINES)]


def engine_of(implementation: nw.Implementation) -> type[Engine] | None:
    """Return the engine that counts such frames where they are; None where none does."""
    return next((e for e in ENGINES.values() if implementation in e.implementations), None)


def make_engine(
    engine: type[_Engine], cleanup: ExitStack, settings: Mapping[str, str | None]
) -> _Engine:
    """Start an engine; what it opens is closed by `cleanup`."""
    for setting, value in settings.items():
        if value is not None and setting not in engine.settings:
            owner = next(other.name for other in ENGINES.values() if setting in other.settings)
            raise ParameterError(f"{setting} is a setting of {owner}, not of {engine.name}")
    return engine(cleanup, **{setting: settings.get(setting) for setting in engine.settings})
