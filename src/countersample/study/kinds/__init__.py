"""Kinds of study: each plans its work, does it and writes it up.

A kind is one file here and one line in `KINDS`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from countersample.study.design import grids
from countersample.study.kinds.bounds import BoundsStudy
from countersample.study.kinds.datasets import DatasetsStudy
from countersample.study.kinds.propensities import PropensitiesStudy
from countersample.study.kinds.regret import RegretStudy
from countersample.study.kinds.toy import ToyStudy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from countersample.study.design.grids import Grid
    from countersample.study.kinds.kind import Kind

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            RegretStudy(),
            DatasetsStudy(),
            PropensitiesStudy(),
            ToyStudy(),
            BoundsStudy(),
        )
    }
)


def load_grid(path: Path, scale: str = "paper") -> Grid:
    """Read and check a grid, adapted by its table ``[scale.…]`` (see `grids.load`)."""
    return grids.load(path, scale, _checks())


def grid_of(values: Mapping[str, Any]) -> Grid:
    """Return a grid from plain values, checked (see `grids.as_grid`)."""
    return grids.as_grid(values, _checks())


def _checks() -> dict[str, Callable[[Grid], None]]:
    return {name: kind.check for name, kind in KINDS.items()}
