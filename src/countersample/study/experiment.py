"""Studies at a scale, on datasets, in a results folder: planned, run, written up."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from countersample._version import __version__
from countersample.study.design import grids as grids_module
from countersample.study.design.config import as_config
from countersample.study.design.grids import as_grid
from countersample.study.design.sources import Fold, Source, find_source
from countersample.study.running.jobs import FORMAT, list_work

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from countersample.study.design.config import ExperimentConfig
    from countersample.study.design.grids import Grid
    from countersample.study.running.jobs import WorkList


@dataclass(frozen=True)
class Experiment:
    """What is studied: grids with their protocols and datasets.

    Attributes
    ----------
    scale : str
    studies : tuple of (Grid, ExperimentConfig, datasets)
    """

    scale: str
    studies: tuple[tuple[Grid, ExperimentConfig, tuple[Source, ...]], ...]

    @property
    def grids(self) -> list[Grid]:
        """The grids."""
        return [grid for grid, _, _ in self.studies]

    @property
    def datasets(self) -> list[str]:
        """The names of all datasets, each once."""
        return list(dict.fromkeys(s.name for _, _, sources in self.studies for s in sources))

    def work(self) -> WorkList:
        """Return everything there is to do."""
        return list_work(self.studies)

    def identity(self) -> dict[str, Any]:
        """Return what tells this experiment from another: plain values, whole."""
        return {
            "format": FORMAT,
            "scale": self.scale,
            "studies": [grid.name for grid in self.grids],
            "datasets": self.datasets,
            "grids": {
                grid.name: {
                    "grid": asdict(grid),
                    "config": asdict(protocol),
                    "folds": [dict(fold.config) for source in sources for fold in source.folds],
                    "sources": {s.name: [fold.name for fold in s.folds] for s in sources},
                }
                for grid, protocol, sources in self.studies
            },
        }


def plan(
    studies: Sequence[str | Path],
    *,
    scale: str,
    datasets: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    data_dir: Path | None = None,
) -> Experiment:
    """Return an experiment.

    Parameters
    ----------
    studies : sequence of names, or paths of grids
    scale : {"smoke", "small", "paper"}
    datasets : sequence of str
        Names or paths, in the place of those that the grids name.
    settings : mapping
        Settings of the protocol, over those of scale and grid.
    data_dir : Path, optional
        Where sets of the catalogue are looked for first.
    """
    base, of_scale = grids_module.config_of(scale)
    found: dict[tuple[str, int], Source] = {}
    planned = []
    for name in studies:
        grid = (
            grids_module.get(name, scale) if isinstance(name, str)
            else grids_module.load(name, scale)
        )  # fmt: skip
        protocol = base.with_settings(dict(grid.settings) | dict(settings or {}))
        wanted = list(datasets or of_scale or grid.datasets) if grid.kind != "toy" else []
        for dataset in wanted:
            place = (dataset, protocol.queries)
            if place not in found:
                found[place] = find_source(dataset, queries=protocol.queries, data_dir=data_dir)
        sources = tuple(found[dataset, protocol.queries] for dataset in wanted)
        planned.append((grid, protocol, sources))
    return Experiment(scale, tuple(planned))


def read_experiment(identity: Mapping[str, Any]) -> Experiment:
    """Return the experiment that a results folder says it holds (see `Experiment.identity`)."""
    studies = []
    for entry in identity["grids"].values():
        folds = iter(entry["folds"])
        sources = tuple(
            Source(name, tuple(Fold(fold, next(folds)) for fold in names))
            for name, names in entry["sources"].items()
        )
        studies.append((as_grid(entry["grid"]), as_config(entry["config"]), sources))
    return Experiment(identity["scale"], tuple(studies))


def versions() -> dict[str, str]:
    """Return the versions that results depend on."""
    return {
        "countersample": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "numba", "scipy")},
    }
