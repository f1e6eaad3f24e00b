"""Studies at a scale, on datasets: planned, or read from a results folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample._extras import MissingExtraError
from countersample._params import choice
from countersample.errors import DataError
from countersample.study.design import grids as packaged
from countersample.study.design.config import PAPER
from countersample.study.design.sources import Fold, Source, Study, find_source
from countersample.study.kinds import KINDS, grid_of, load_grid
from countersample.study.running.jobs import WorkList
from countersample.study.running.store import FORMAT, IDENTITY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countersample.study.design.grids import Grid

_TABLE_STAGES = ("run", "shape", "bounds", "diagnosis")  # whose results are in the tables


@dataclass(frozen=True)
class Experiment:
    """Some studies at a scale."""

    scale: str
    studies: tuple[Study, ...]

    @property
    def grids(self) -> list[Grid]:
        """The grids."""
        return [study.grid for study in self.studies]

    @property
    def datasets(self) -> list[str]:
        """The names of all datasets, each once."""
        return list(dict.fromkeys(s.name for study in self.studies for s in study.sources))

    @property
    def notes(self) -> list[str]:
        """Notes on the files of the datasets, each once."""
        sources = (source for study in self.studies for source in study.sources)
        return list(dict.fromkeys(note for source in sources for note in source.notes))

    def work(self) -> WorkList:
        """Return all jobs of the studies."""
        work = WorkList()
        for study in self.studies:
            KINDS[study.grid.kind].plan(study, work)
        return work

    def identity(self, command: str = "") -> dict[str, Any]:
        """Return plain values that identify this experiment.

        `command` is the command that began it.
        """
        return {
            "format": FORMAT,
            "scale": self.scale,
            "grids": {
                study.name: {
                    "grid": asdict(study.grid),
                    "config": asdict(study.config),
                    "folds": [asdict(fold) for source in study.sources for fold in source.folds],
                    "command": command,
                }
                for study in self.studies
            },
        }


def left_out(scale: str) -> dict[str, str]:
    """Return the studies of the package that cannot be run here, with the reason of each."""
    reasons = {}
    for name in packaged.names():
        grid = load_grid(packaged.path_of(name), scale)
        try:
            for config in grid.configs(PAPER.with_settings(grid.settings)):
                config.need_libraries()
        except MissingExtraError as error:
            reasons[name] = str(error)
    return reasons


def plan(
    studies: Sequence[str | Path],
    *,
    scale: str,
    datasets: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    data_dir: Path | None = None,
    fold: int | None = None,
) -> Experiment:
    """Return an experiment.

    Parameters
    ----------
    studies : sequence of names, or paths of grids
    scale : {"smoke", "small", "medium", "paper"}
    datasets : sequence of str
        Names or paths, instead of those that the grids name.
    settings : mapping
        They replace those of scale and grid (see `ExperimentConfig`).
    data_dir : Path, optional
        Where sets of the catalogue are looked for first.
    fold : int, optional
        The one fold of sets with folds that is used; by default all are.
    """
    base = packaged.config_of(scale)
    source = cache(partial(find_source, data_dir=data_dir, fold=fold))
    plans = []
    for name in studies:
        grid = load_grid(name if isinstance(name, Path) else packaged.path_of(name), scale)
        config = base.with_settings(dict(grid.settings) | dict(settings or {}))
        its_datasets = (datasets or grid.datasets) if KINDS[grid.kind].takes_data else ()
        for each in grid.configs(config):
            each.check([method.plan for method in grid.methods])
            each.need_libraries()
        sources = tuple(source(dataset, queries=config.queries) for dataset in its_datasets)
        plans.append(Study(grid, config, sources))
    return Experiment(scale, tuple(plans))


def no_longer_shown(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of the grids of a folder that lack some of their earlier results now.

    Both are identities of the folder. A grid that only grew lacks none.
    """

    def results(identity: Mapping[str, Any], name: str) -> set[str]:
        grids = {name: identity["grids"][name]}
        jobs = read_experiment({**identity, "grids": grids}).work().jobs.values()
        return {job.content for job in jobs if job.stage in _TABLE_STAGES}

    return [name for name in before["grids"] if not results(before, name) <= results(now, name)]


def read_experiment(identity: Mapping[str, Any]) -> Experiment:
    """Return the experiment of a results folder from its identity (see `Experiment.identity`).

    It is checked like a grid, whoever wrote it; errors are a DataError.
    """
    try:
        studies = tuple(_read_study(name, entry) for name, entry in identity["grids"].items())
        return Experiment(choice("scale", identity["scale"], packaged.SCALES), studies)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{IDENTITY} does not say what was studied ({error}): begin anew, in another folder"
        ) from error


def _read_study(name: str, entry: Mapping[str, Any]) -> Study:
    grid = grid_of(entry["grid"])
    if grid.name != name:
        raise DataError(f"the grid {name!r} is called {grid.name!r}")
    folds = [Fold(**fold) for fold in entry["folds"]]
    for fold in folds:
        if not (isinstance(fold.dataset, str) and isinstance(fold.name, str)):
            raise DataError(f"a fold is of {fold.dataset!r} and called {fold.name!r}")
        if not isinstance(fold.config, dict):
            raise DataError(f"the data of {fold.title} is {fold.config!r}")
    text = entry["command"]
    if not isinstance(text, str):
        raise DataError(f"command is {text!r}, expected text")
    sources = tuple(
        Source(name, tuple(fold for fold in folds if fold.dataset == name))
        for name in dict.fromkeys(fold.dataset for fold in folds)
    )
    return Study(grid, PAPER.with_settings(entry["config"]), sources)
