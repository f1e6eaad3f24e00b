"""Carry out studies in a results folder: plan, estimate the time, run, write up, report.

`Reproduction` is an experiment with its results folder. The folder keeps what was done, so the same
command continues after an interruption, and studies may be added to it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample import _cleanup, _text
from countersample._progress import duration, share_progress
from countersample.errors import ParameterError
from countersample.study import grids
from countersample.study.artifacts import write_artifacts
from countersample.study.claims import summarize
from countersample.study.estimate import estimate
from countersample.study.experiment import load_grid, missing_libraries, plan, read_experiment
from countersample.study.results import gather_warnings
from countersample.study.runner import run, state_of
from countersample.study.store import Store
from countersample.study.tables import to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from countersample.study.artifacts import Artifacts
    from countersample.study.claims import Verdict
    from countersample.study.estimate import Estimate
    from countersample.study.experiment import Experiment
    from countersample.study.grids import Grid
    from countersample.study.jobs import Job
    from countersample.study.runner import State
    from countersample.study.tables import Table

    Note = Callable[[str], None]

_FIRST_STAGES = ("data", "relevance")  # what the estimate of the time is measured on


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Return settings from ``name=value``; values are TOML, or texts without quotes.

    >>> parse_settings(["clicks=3000", "optimizer=adam"])
    {'clicks': 3000, 'optimizer': 'adam'}
    """
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ParameterError(f"--set {text!r}, expected name=value")
        try:
            settings[name.strip()] = tomllib.loads(f"value = {value}")["value"]
        except (ValueError, RecursionError):  # not TOML, or nested too deeply to be a setting
            settings[name.strip()] = value
    return settings


def packaged_grids() -> list[Grid]:
    """Return the grids of the studies that come with the package."""
    return [load_grid(grids.path_of(name)) for name in grids.names()]


def summarize_grids(studies: Iterable[Grid]) -> str:
    """Return a table of studies, for a terminal."""
    rows = [(grid.name, grid.title, grid.paper or "beyond the paper") for grid in studies]
    return _text.table(("study", "title", "in the paper"), rows, text_columns=3)


@dataclass(frozen=True, eq=False)
class Reproduction:
    """An experiment and its results folder."""

    experiment: Experiment
    store: Store

    @classmethod
    def plan(
        cls,
        studies: Sequence[str],
        *,
        scale: str | None,
        out: Path | None,
        note: Note,
        **options: Any,  # noqa: ANN401 (of `experiment.plan`)
    ) -> Reproduction:
        """Plan studies by name, or of a TOML file; all of the package by default.

        `note` is called with sentences on what is left out, and on the files of the data.
        """
        own = [Path(name) for name in studies if name.endswith(".toml")]
        scale = scale or ("paper" if own else "medium")
        excluded = {} if studies else missing_libraries(scale)
        names = studies or [name for name in grids.names() if name not in excluded]
        experiment = plan(
            [Path(name) if name.endswith(".toml") else name for name in names],
            scale=scale, **options,
        )  # fmt: skip
        for name, reason in excluded.items():  # after the plan, whose errors are one sentence
            note(f"{name} is left out: {reason}")
        for text in experiment.notes:
            note(f"countersample: {text}")
        folder = Path(own[0].stem if own else f"reproduction-{scale}")
        return cls(experiment, Store(out or folder))

    @classmethod
    def open(cls, folder: Path) -> Reproduction:
        """Return the experiment of a results folder."""
        store = Store(folder)
        return cls(read_experiment(store.identity()), store)

    @property
    def state(self) -> State:
        """How far the work is."""
        return state_of(self.experiment.work(), self.store)

    def run(self, command: str, *, workers: int, note: Note) -> Artifacts:
        """Do the missing work in the folder, and write tables, figures and the report."""
        store = self.store
        whole, identity = self._join(command, store.claim)
        work = whole.experiment.work()
        state = state_of(work, store)
        with store.lock():
            with _cleanup.noted(partial(_stop_message, state, store, command)):
                _do_missing(state, store, workers, note)
            commands = dict.fromkeys(entry["command"] for entry in identity["grids"].values())
            with share_progress("study") as progress:
                return write_artifacts(
                    whole.experiment, work, store, commands=tuple(commands), progress=progress
                )

    def dry_run(self, command: str, *, workers: int) -> DryRun:
        """Return what `run` would do, and how long it would take."""
        whole, _ = self._join(command, self.store.merge)
        state = whole.state
        expected = _estimate(state.missing.values(), self.store, workers)
        return DryRun(whole, state, expected, workers)

    def _join(
        self, command: str, join: Callable[[Mapping[str, Any]], dict[str, Any]]
    ) -> tuple[Reproduction, dict[str, Any]]:
        """Join this experiment to the one of the folder; return both together."""
        identity = join(self.experiment.identity(command))
        return replace(self, experiment=read_experiment(identity)), identity

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain values for JSON."""
        state = self.state
        return {
            **self.facts,
            "running": self.store.is_locked(),
            "done": len(state.done),
            "missing": len(state.missing),
            "damaged": [str(self.store.path(job)) for job in state.damaged],
            "stale": len(state.stale),
            "stages": _stages(state),
        }

    @property
    def facts(self) -> dict[str, Any]:
        """The folder, the scale, the studies and the datasets."""
        experiment = self.experiment
        return {
            "folder": str(self.store.folder),
            "scale": experiment.scale,
            "studies": [grid.name for grid in experiment.grids],
            "datasets": experiment.datasets,
        }

    def summary(self) -> str:
        """Return the state for a terminal."""
        experiment, state, is_running = self.experiment, self.state, self.store.is_locked()
        rows = [
            ("studies", ", ".join(grid.name for grid in experiment.grids)),
            ("datasets", ", ".join(experiment.datasets) or "none"),
            ("scale", experiment.scale),
            ("state", "a run is at work" if is_running else "no run is at work"),
        ]
        blocks = [_text.pairs(rows), "", _table_of_stages(state)]
        blocks += [
            f"{self.store.path(job)} is damaged and will be made again" for job in state.damaged
        ]
        if not state.missing:
            report = self.store.folder / "report.html"
            blocks.append(f"All results are there; the report is {report}")
        elif not is_running:
            blocks.append("To go on, give the command that began it again")
        return "\n".join(blocks)


def _do_missing(state: State, store: Store, workers: int, note: Note) -> None:
    if not state.missing:
        return
    if state.damaged:
        note(f"{len(state.damaged)} damaged results are made again")
    if state.stale:
        note(f"{len(state.stale)} results are made again: a version with other numbers made them")
    first = {key: job for key, job in state.missing.items() if job.stage in _FIRST_STAGES}
    rest = {key: job for key, job in state.missing.items() if key not in first}
    with share_progress("study") as progress:
        run(first.values(), store, workers=workers, is_done=state.done, progress=progress)
    for text in gather_warnings({**state.done, **first}.values(), store):
        note(f"countersample: {text}")
    expected = _estimate(rest.values(), store, workers)
    note(describe_time(len(rest), expected, workers))
    with share_progress("study") as progress:
        run(
            rest.values(), store, workers=workers, is_done={*state.done, *first},
            seconds=expected.by_job, progress=progress,
        )  # fmt: skip


def _estimate(jobs: Iterable[Job], store: Store, workers: int) -> Estimate:
    with share_progress("study") as progress:
        progress("measuring how long it will take; the first time on a machine it compiles", nan)
        return estimate(list(jobs), store, workers=workers)


def _stop_message(state: State, store: Store, command: str) -> str:
    """Return how far a study is that a signal stops now, by the results that are there."""
    damaged = {job.key for job in state.damaged}
    n_new = sum(
        key not in damaged and store.path(job).exists() for key, job in state.missing.items()
    )
    n_jobs = len(state.done) + len(state.missing)
    return (
        f"Stopped: {len(state.done) + n_new} of {n_jobs} jobs are done and kept. "
        f"To go on: {command}"
    )


@dataclass(frozen=True, eq=False)
class DryRun:
    """What a run would do, and how long it would take."""

    reproduction: Reproduction
    state: State
    expected: Estimate
    workers: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            **self.reproduction.facts,
            "jobs": len(self.state.missing),
            "seconds": round(self.expected.seconds, 1),
            "workers": self.workers,
            "stages": _stages(self.state),
        }

    def summary(self) -> str:
        """Return the jobs and the time, for a terminal."""
        blocks = [
            _table_of_stages(self.state),
            describe_time(len(self.state.missing), self.expected, self.workers),
            f"Nothing was done; the results would go to {self.reproduction.store.folder}",
        ]
        return "\n".join(blocks)


def describe_time(n_jobs: int, expected: Estimate, workers: int) -> str:
    """Return "12 jobs, about 3 min on 2 cores"."""
    cores = "core" if workers == 1 else "cores"
    return f"{n_jobs} jobs, about {duration(expected.seconds)} on {workers} {cores}"


def _stages(state: State) -> dict[str, dict[str, int]]:
    return {
        stage: {"done": done, "total": total, "stale": stale}
        for stage, done, total, stale in state.by_stage()
    }


def _table_of_stages(state: State) -> str:
    rows = [
        (stage, f"{done:,}", f"{total:,}", f"{100 * done / total:.0f} %", f"{stale:,}")
        for stage, done, total, stale in state.by_stage()
    ]
    table = _text.table(("stage", "done", "of", "", "stale"), rows)
    hint = "\nstale: made by a version with other numbers; it will be made again"
    return table + (hint if state.stale else "")


def summarize_findings(
    tables: Iterable[Table], verdicts: Sequence[Verdict], remarks: Iterable[str] = ()
) -> str:
    """Return tables, each note once, and the verdicts, for a terminal."""
    blocks: list[str] = []
    notes: set[str] = set()
    for table in tables:
        new = tuple(note for note in table.notes if note not in notes)
        notes |= set(new)
        blocks.append(to_text(replace(table, notes=new)))
    for verdict in verdicts:
        where = f"{verdict.study}, {verdict.dataset}" if verdict.dataset else verdict.study
        text = f"{verdict.outcome.upper()} ({where}): {verdict.claim} {verdict.evidence}"
        blocks.append(_text.paragraph(text))
    if verdicts:
        blocks.append("")
    return "\n".join([*blocks, *map(_text.paragraph, (*summarize(verdicts), *remarks))])
