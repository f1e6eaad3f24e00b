"""Studies at a scale, on datasets: planned, or read from a results folder.

A kind of study is two functions and one line in `KINDS`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from countersample._environment import MissingExtraError
from countersample._params import choice
from countersample.errors import DataError, ParameterError
from countersample.study import bounds, grids, kinds, toy
from countersample.study.jobs import WorkList
from countersample.study.settings import PAPER
from countersample.study.sources import Fold, Source, Study, find_source
from countersample.study.store import FORMAT, Identity, StudyEntry, no_study

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from countersample.study.grids import Grid
    from countersample.study.report import Done, Section


class Kind(NamedTuple):
    """A kind of study: it plans jobs, and writes a section of the report from their results."""

    plan: Callable[[Study, WorkList], None]
    write_up: Callable[[Study, Done], Section]
    takes_data: bool = True  # whether it has datasets
    tests: tuple[str, ...] = ()  # of its claims; those of regret are `grids.TESTS`


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "regret": Kind(kinds.plan_regret, kinds.write_regret),
        "datasets": Kind(kinds.plan_datasets, kinds.write_datasets),
        "propensities": Kind(
            kinds.plan_propensities, kinds.write_propensities, tests=kinds.TESTS_OF_WEIGHTS
        ),
        "toy": Kind(lambda *_: None, toy.write_up, takes_data=False, tests=toy.TESTS),
        "bounds": Kind(bounds.plan, bounds.write_up, tests=bounds.TESTS),
    }
)


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

    def identity(self, command: str = "") -> Identity:
        """Return what identifies this experiment, begun by a command."""
        entries = {}
        for study in self.studies:
            folds = [fold for source in study.sources for fold in source.folds]
            entries[study.name] = StudyEntry(study.grid, asdict(study.config), folds, command)
        return Identity(FORMAT, self.scale, entries)


def read_experiment(identity: Identity) -> Experiment:
    """Return the experiment of a results folder from its identity; its grids are checked.

    Raises
    ------
    DataError
        For values that describe no study.
    """
    try:
        studies = tuple(_read_study(name, entry) for name, entry in identity.grids.items())
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise no_study(error) from error
    return Experiment(identity.scale, studies)


def _read_study(name: str, entry: StudyEntry) -> Study:
    grid = _check_kind(grids.check_grid(entry.grid))
    if grid.name != name:
        raise DataError(f"the grid {name!r} is called {grid.name!r}")
    folds: dict[str, list[Fold]] = {}
    for fold in entry.folds:
        folds.setdefault(fold.dataset, []).append(fold)
    sources = tuple(Source(dataset, tuple(some)) for dataset, some in folds.items())
    return Study(grid, PAPER.with_settings(entry.config), sources)


def load_grid(path: Path, scale: str = "paper") -> Grid:
    """Read and check a grid, adapted by its table ``[scale.…]`` (see `grids.load`)."""
    grid = grids.load(path, scale)
    with grids.locate_errors(path):
        return _check_kind(grid)


def _check_kind(grid: Grid) -> Grid:
    choice("kind", grid.kind, KINDS)
    if grid.kind == "regret" and not (grid.methods and grid.axis):
        raise ParameterError("a study of regret needs methods and a setting in [vary]")
    if grid.kind == "propensities" and grid.axis != "gamma":
        raise ParameterError("a study of propensities needs values of gamma in [vary]")
    for claim in grid.claims:
        if grid.kind == "regret":
            claim.check([method.name for method in grid.methods], grid.values)
        else:
            choice("test", claim.test, KINDS[grid.kind].tests)
            choice("source", claim.source, grids.SOURCES)
    return grid


def missing_libraries(scale: str) -> dict[str, str]:
    """Return the studies of the package that need a library which is not installed, and why."""
    reasons = {}
    for name in grids.names():
        grid = load_grid(grids.path_of(name), scale)
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
        Names or paths, instead of those in the grids.
    settings : mapping
        They replace the settings of scale and grid (see `ExperimentConfig`).
    data_dir : Path, optional
        The folder that is searched first for sets of the catalogue.
    fold : int, optional
        The only fold to use of sets with folds; by default all are used.
    """
    base = grids.config_of(scale)
    source = cache(partial(find_source, data_dir=data_dir, fold=fold))
    plans = []
    for name in studies:
        grid = load_grid(name if isinstance(name, Path) else grids.path_of(name), scale)
        config = base.with_settings(grid.settings | dict(settings or {}))
        for each in grid.configs(config):
            each.check([method.plan for method in grid.methods])
            each.need_libraries()
        names = (datasets or grid.datasets) if KINDS[grid.kind].takes_data else ()
        sources = tuple(source(dataset, queries=config.queries) for dataset in names)
        plans.append(Study(grid, config, sources))
    return Experiment(scale, tuple(plans))
