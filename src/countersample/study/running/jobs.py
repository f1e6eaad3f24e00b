"""The work list of studies: what is to be done, what it needs, and the key of its result.

data → references (w* and the logging policy) → clicks → tuning → runs, and beside them the
shape of the data, the diagnosis of each log and the bounds. A job's key is a hash of its full
configuration and of the keys of what it needs, so work that two studies share is done once.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from countersample.study.kinds.bounds import STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from countersample.study.design.config import ExperimentConfig
    from countersample.study.design.grids import Grid, Method, Value
    from countersample.study.design.sources import Fold, Source

FORMAT = 1  # of the results: another number when they would come out different
STAGES = ("data", "shape", "references", "clicks", "diagnosis", "tuning", "run", "bounds")
INTERMEDIATE = ("data", "clicks")  # needed by other jobs only

_CLICKS = ("clicks", "gamma", "bias_offset", "noise", "relevant")
_TRAINING = ("optimizer", "objective", "batch_size", "epochs", "clip", "trained_gamma",
             "evaluate_every", "no_relevant")  # fmt: skip
LANES_A_PASS = 8
PASS_COST = 3.0  # of a pass with eight learning rates, in passes with one (see estimate.py)


@dataclass(frozen=True, eq=False)
class Job:
    """One piece of work with one result.

    Attributes
    ----------
    stage : one of `STAGES`
    title : str
        As it is shown while it runs.
    config : mapping
        Everything the result depends on, beside what it needs: plain values.
    needs : tuple of Job
    draws : float
        Clicks drawn, in those of a run with one learning rate: the measure of progress.
    """

    stage: str
    title: str
    config: Mapping[str, Any]
    needs: tuple[Job, ...] = ()
    draws: float = 0.0

    @cached_property
    def key(self) -> str:
        """A hash of everything the result depends on."""
        whole = [FORMAT, self.stage, self.config, [need.key for need in self.needs]]
        text = json.dumps(whole, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass
class WorkList:
    """The jobs of some studies, each once, and where the results of each study are.

    Attributes
    ----------
    jobs : dict of key to Job
        Everything a job needs comes before it.
    cells : dict of (study, dataset, method, value) to list of (fold, seed, tuning job, run job)
    references : dict of (dataset, fold) to Job
    logs : dict of (study, dataset, offset, γ) to list of diagnosis jobs
    single : dict of (study, dataset) to list of Job
        Of the other studies: the shape of each fold; the bounds.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    cells: dict[tuple[str, str, str, Value], list[tuple[str, int, Job, Job]]] = field(
        default_factory=dict
    )
    references: dict[tuple[str, str], Job] = field(default_factory=dict)
    logs: dict[tuple[str, str, int, float], list[Job]] = field(default_factory=dict)
    single: dict[tuple[str, str], list[Job]] = field(default_factory=dict)

    def add(self, job: Job) -> Job:
        """Add a job, or return the one of the same key that is there."""
        return self.jobs.setdefault(job.key, job)

    def data(self, fold: Fold, name: str, protocol: ExperimentConfig) -> Job:
        """Judged data, normalised and split."""
        config = {"source": dict(fold.config), "normalization": protocol.normalization}
        return self.add(Job("data", f"data of {_named(name, fold)}", config))

    def reference(self, fold: Fold, name: str, protocol: ExperimentConfig) -> Job:
        """w* and the logging policy."""
        data = self.data(fold, name, protocol)
        config = {"policy_fraction": protocol.policy_fraction, "no_relevant": protocol.no_relevant}
        job = self.add(
            Job("references", f"full supervision on {_named(name, fold)}", config, (data,))
        )
        self.references[name, fold.name] = job
        return job

    def clicks(self, fold: Fold, name: str, protocol: ExperimentConfig, seed: int) -> Job:
        """One click log."""
        config = {setting: getattr(protocol, setting) for setting in _CLICKS} | {"seed": seed}
        needs = (self.reference(fold, name, protocol),)
        title = f"{protocol.clicks:,} clicks on {_named(name, fold)}"
        return self.add(Job("clicks", title, config, needs))

    def diagnosis(self, fold: Fold, name: str, protocol: ExperimentConfig, seed: int) -> Job:
        """Figures of the weights of a click log."""
        clicks = self.clicks(fold, name, protocol, seed)
        return self.add(Job("diagnosis", f"weights of {clicks.title}", {}, (clicks,)))

    def runs(
        self, fold: Fold, name: str, protocol: ExperimentConfig, method: Method
    ) -> list[tuple[str, int, Job, Job]]:
        """Tuning of a method, and a run for each click log."""
        config = {setting: getattr(protocol, setting) for setting in _TRAINING}
        config |= {"plan": method.plan, "unit": method.unit}
        logs = [self.clicks(fold, name, protocol, seed) for seed in range(protocol.seeds)]
        chosen_by = tuple(logs[: protocol.tuning_seeds])
        draws = protocol.steps() * protocol.batch_size
        n_rates = len(protocol.learning_rates)
        tuning = self.add(
            Job(
                "tuning",
                f"{method.name} on {_named(name, fold)}",
                config | {"learning_rates": list(protocol.learning_rates)},
                chosen_by,
                draws * len(chosen_by) * PASS_COST * n_rates / LANES_A_PASS,
            )
        )
        return [
            (fold.name, seed, tuning,
             self.add(Job("run", tuning.title, config | {"seed": seed}, (tuning, log), draws)))
            for seed, log in enumerate(logs)
        ]  # fmt: skip


def _named(name: str, fold: Fold) -> str:
    return f"{name} {fold.name}" if fold.name else name


def list_work(studies: Iterable[tuple[Grid, ExperimentConfig, tuple[Source, ...]]]) -> WorkList:
    """Return everything that some studies need.

    Parameters
    ----------
    studies : of (grid, its protocol, its datasets)
    """
    work = WorkList()
    for grid, protocol, sources in studies:
        _PLANNERS[grid.kind](work, grid, protocol, sources)
    return work


def _plan_regret(
    work: WorkList, grid: Grid, protocol: ExperimentConfig, sources: tuple[Source, ...]
) -> None:
    for source in sources:
        for value in grid.values:
            setting = protocol.with_settings({grid.axis: value})
            for fold in source.folds:
                log = work.diagnosis(fold, source.name, setting, 0)
                place = (grid.name, source.name, setting.bias_offset, setting.gamma)
                work.logs.setdefault(place, []).append(log)
                for method in grid.methods:
                    cell = work.cells.setdefault((grid.name, source.name, method.name, value), [])
                    cell += work.runs(fold, source.name, setting, method)


def _plan_propensities(
    work: WorkList, grid: Grid, protocol: ExperimentConfig, sources: tuple[Source, ...]
) -> None:
    for source in sources:
        for offset in (0, 1):  # the paper's equation; its authors' code
            for gamma in grid.values:
                setting = protocol.with_settings({"gamma": gamma, "bias_offset": offset})
                work.logs[grid.name, source.name, offset, float(gamma)] = [
                    work.diagnosis(fold, source.name, setting, seed)
                    for fold in source.folds
                    for seed in range(protocol.seeds)
                ]


def _plan_datasets(
    work: WorkList, grid: Grid, protocol: ExperimentConfig, sources: tuple[Source, ...]
) -> None:
    for source in sources:
        for fold in source.folds:
            data = work.data(fold, source.name, protocol)
            title = f"shape of {_named(source.name, fold)}"
            work.single.setdefault((grid.name, source.name), []).append(
                work.add(Job("shape", title, {}, (data,)))
            )


def _plan_bounds(
    work: WorkList, grid: Grid, protocol: ExperimentConfig, sources: tuple[Source, ...]
) -> None:
    for source in sources:
        fold = source.folds[0]
        config = {"steps": list(STEPS), "seeds": protocol.seeds}
        log = work.clicks(fold, source.name, protocol, 0)
        title = f"bounds on {source.name}"
        work.single[grid.name, source.name] = [work.add(Job("bounds", title, config, (log,)))]


def _plan_toy(_: WorkList, __: Grid, ___: ExperimentConfig, ____: tuple[Source, ...]) -> None:
    """Plan nothing: the toy example is made in a second, as it is written up."""


_PLANNERS = {
    "regret": _plan_regret,
    "propensities": _plan_propensities,
    "datasets": _plan_datasets,
    "bounds": _plan_bounds,
    "toy": _plan_toy,
}
