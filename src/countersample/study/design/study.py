"""One study, ready to be planned: its grid, its settings and its datasets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from countersample.study.design.config import ExperimentConfig
    from countersample.study.design.grids import Grid
    from countersample.study.design.sources import Source


@dataclass(frozen=True)
class Study:
    """A grid, the settings it is run with, and the datasets it is run on."""

    grid: Grid
    config: ExperimentConfig
    sources: tuple[Source, ...]

    @property
    def name(self) -> str:
        """That of its grid."""
        return self.grid.name
