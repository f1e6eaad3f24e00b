"""The engines that count a log: one file here and one line in `ENGINES` per engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from countersample._params import choice
from countersample.clicks.impressions.engines.base import Engine
from countersample.clicks.impressions.engines.duckdb import DuckDB
from countersample.clicks.impressions.engines.spark import Spark
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

__all__ = ["ENGINES", "DuckDB", "Engine", "Spark", "find_engine", "make_engine"]

_Engine = TypeVar("_Engine", bound=Engine)

#: By name; the first is the default.
ENGINES: dict[str, type[Engine]] = {"duckdb": DuckDB, "spark": Spark}


def find_engine(name: str) -> type[Engine]:
    """Return the engine of this name."""
    return ENGINES[choice("engine", name, ENGINES)]


def make_engine(
    engine: type[_Engine], cleanup: ExitStack, settings: Mapping[str, str | None]
) -> _Engine:
    """Start an engine; `cleanup` closes what it opens."""
    for setting, value in settings.items():
        if value is not None and setting not in engine.settings:
            owner = next(other.name for other in ENGINES.values() if setting in other.settings)
            raise ParameterError(f"{setting} is a setting of {owner}, not of {engine.name}")
    return engine(cleanup, **{setting: settings.get(setting) for setting in engine.settings})
