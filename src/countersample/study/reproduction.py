"""Carry out studies in a results folder: plan, run, write up, report; and test claims on a file.

`Reproduction` is an experiment with its results folder. The folder keeps finished results, so the
same command continues after an interruption, and studies may be added to it. `evaluate_file` tests
the claims of studies on the rows of a results.parquet; nothing is run.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample import _cleanup, _text
from countersample._progress import Progress, Show, duration, share_progress
from countersample.errors import DataError, ParameterError
from countersample.fitting.summaries import render_summary
from countersample.study import grids
from countersample.study.claims import Verdict, evaluate_claims, summarize
from countersample.study.experiment import (
    KINDS,
    Experiment,
    load_grid,
    missing_libraries,
    plan,
    read_experiment,
)
from countersample.study.jobs import State, run, state_of
from countersample.study.kinds import draw_figures, make_tables
from countersample.study.report import Done, Report, SettingLine, write_report
from countersample.study.results import (
    StudyResult,
    gather_warnings,
    read_results,
    results_of,
    write_results,
)
from countersample.study.settings import PAPER, SETTINGS
from countersample.study.stages import versions
from countersample.study.store import Store
from countersample.study.tables import Table, to_text, write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from countersample.study.grids import Grid
    from countersample.study.jobs import WorkList

    Note = Callable[[str], None]

# Clicks drawn in training per second and core, on data of the shape of Yahoo's; an AMD EPYC.
DRAWS_PER_SECOND = 150_000
_FIRST_STAGES = ("data", "relevance")  # they are short, and warn of data that decides nothing
_MIN_DRAWN = 1_000_000  # clicks per run; fewer do not show where methods end
_FILES = {
    "study.json": "the grids, settings and datasets, whole",
    "results.parquet": "all learning curves: one row per evaluation point",
}


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


# -- runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reproduction:
    """An experiment and its results folder."""

    experiment: Experiment
    store: Store
    workers: int | None = None  # of a dry run, which reports the time instead of the results

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
        files = [Path(name) for name in studies if name.endswith(".toml")]
        scale = scale or ("paper" if files else "medium")
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
        folder = Path(files[0].stem if files else f"reproduction-{scale}")
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
        identity = store.claim(self.experiment.identity(command))
        experiment = read_experiment(identity)  # with the studies that the folder had before
        work = experiment.work()
        state = state_of(work, store)
        commands = dict.fromkeys(entry.command for entry in identity.grids.values())
        with _cleanup.noted(partial(_stop_message, state, store, command)):
            if state.missing:
                note(describe_time(state, workers))
            first = [job for job in state.missing.values() if job.stage in _FIRST_STAGES]
            rest = [job for job in state.missing.values() if job not in first]
            is_done = {*state.done}
            with share_progress("study") as progress:
                run(first, store, workers=workers, is_done=is_done, progress=progress)
                for text in gather_warnings(work.jobs.values(), store):
                    note(f"countersample: {text}")
                is_done |= {job.key for job in first}
                run(rest, store, workers=workers, is_done=is_done, progress=progress)
            with share_progress("study") as progress:
                return write_artifacts(
                    experiment, work, store, commands=tuple(commands), progress=progress
                )

    def dry_run(self, command: str, *, workers: int) -> Reproduction:
        """Return what reports the jobs that `run` would do, and about how long it would take."""
        identity = self.store.merge(self.experiment.identity(command))
        return replace(self, experiment=read_experiment(identity), workers=workers)

    def to_dict(self) -> dict[str, Any]:
        """Return the state, or the jobs and the time of a dry run, as plain values for JSON."""
        experiment, state = self.experiment, self.state
        work: dict[str, float]
        if self.workers is None:
            work = {"done": len(state.done), "missing": len(state.missing)}
        else:
            seconds = round(estimate_seconds(state, self.workers), 1)
            work = {"jobs": len(state.missing), "seconds": seconds, "workers": self.workers}
        return {
            "folder": str(self.store.folder),
            "scale": experiment.scale,
            "studies": [grid.name for grid in experiment.grids],
            "datasets": experiment.datasets,
            **work,
            "stages": state.by_stage(),
        }

    def summary(self) -> str:
        """Return the state, or the jobs and the time of a dry run, for a terminal."""
        state = self.state
        time = "" if self.workers is None else describe_time(state, self.workers)
        return render_summary(
            "status.txt", str(__package__), experiment=self.experiment, state=state, time=time,
            folder=self.store.folder,
        )  # fmt: skip


def estimate_seconds(state: State, workers: int) -> float:
    """Return about how long the missing jobs take: draws / (speed · workers)."""
    draws = sum(job.draws for job in state.missing.values())
    return draws / (DRAWS_PER_SECOND * workers)


def describe_time(state: State, workers: int) -> str:
    """Return "12 jobs, about 3 min on 2 cores at 150,000 draws per second and core"."""
    cores = "core" if workers == 1 else "cores"
    time = duration(estimate_seconds(state, workers))
    return (
        f"{len(state.missing)} jobs, about {time} on {workers} {cores}, at "
        f"{DRAWS_PER_SECOND:,} draws per second and core"
    )


def _stop_message(state: State, store: Store, command: str) -> str:
    """Return how far a study is that a signal stops now, by the results that are there."""
    n_done = len(state.done) + sum(store.path(job).exists() for job in state.missing.values())
    n_jobs = len(state.done) + len(state.missing)
    return f"Stopped: {n_done} of {n_jobs} jobs are done and kept. To go on: {command}"


# -- tables, figures, report ---------------------------------------------------------------------


@dataclass(frozen=True)
class Artifacts:
    """The main table of each study, the verdicts, and the path of the report."""

    tables: tuple[Table, ...]
    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...]
    remarks: tuple[str, ...]  # limits of scale and data
    report: Path


def write_artifacts(
    experiment: Experiment,
    work: WorkList,
    store: Store,
    *,
    commands: tuple[str, ...],
    progress: Progress | Show | None = None,
) -> Artifacts:
    """Write the tables, figures, rows and report of an experiment whose jobs are done.

    `commands` repeat it.
    """
    progress, folder = Progress.of(progress), store.folder
    done = Done(work, store, grids.load_published())
    for name in ("figures", "tables"):
        (folder / name).mkdir(exist_ok=True)
    sections = []
    for index, study in enumerate(experiment.studies):
        progress(f"writing up {study.name}", index / (len(experiment.studies) + 1))
        sections.append(KINDS[study.grid.kind].write_up(study, done))
    progress("writing the report", 1.0)
    write_results(experiment.studies, work, store, folder / "results.parquet")
    verdicts = tuple(verdict for section in sections for verdict in section.verdicts)
    warnings = tuple(gather_warnings(work.jobs.values(), store))
    remarks = _list_remarks(experiment)
    title = ", ".join(grid.title for grid in experiment.grids)
    if all(grid.name in grids.names() for grid in experiment.grids):
        title = "Weigh clicks or draw by weight? The CounterSample study, repeated"
    report = Report(
        title=title,
        summary=(*summarize(verdicts), *(f"Warning: on {text}." for text in warnings), *remarks),
        sections=tuple(sections),
        settings=tuple(_list_settings(experiment)),
        versions=versions(),
        commands=commands,
        files={path: text for path, text in _FILES.items() if (folder / path).exists()},
    )
    write_report(report, folder / "report.html")
    tables = tuple(section.tables[0] for section in sections)
    return Artifacts(tables, verdicts, warnings, remarks, folder / "report.html")


def _list_remarks(experiment: Experiment) -> tuple[str, ...]:
    """Return the limits of scale and data, one sentence or two each."""
    runs = (study.config for study in experiment.studies if study.grid.methods)
    n_drawn = min((config.steps() * config.batch_size for config in runs), default=_MIN_DRAWN)
    text = render_summary(
        "remarks.txt", str(__package__), scale=experiment.scale, n_drawn=n_drawn,
        is_short=n_drawn < _MIN_DRAWN, n_drawn_in_paper=PAPER.steps() * PAPER.batch_size,
        synthetic=[name for name in experiment.datasets if name.endswith("-like")],
    )  # fmt: skip
    return tuple(text.splitlines())


def _list_settings(experiment: Experiment) -> Iterator[SettingLine]:
    """Yield every setting that is the same in all studies of methods, beside the paper's."""

    def show(value: Any) -> str:  # noqa: ANN401 (a setting)
        if isinstance(value, tuple):
            return f"{len(value)} values from {value[0]:g} to {value[-1]:g}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    configs = [study.config for study in experiment.studies if study.grid.methods]
    for name, setting in SETTINGS.items():
        values = {getattr(config, name) for config in configs}
        if len(values) == 1:
            title, origin = setting.metadata["title"], setting.metadata["origin"]
            yield SettingLine(title, show(values.pop()), show(getattr(PAPER, name)), origin)


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


# -- results files -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation:
    """The tables and verdicts of the studies in a results file."""

    tables: tuple[Table, ...]
    verdicts: tuple[Verdict, ...]
    left_out: tuple[str, ...]  # rows that were not evaluated: one sentence each


def evaluate_file(path: Path, datasets: Sequence[str] = (), out: Path | None = None) -> Evaluation:
    """Test the claims of studies on the rows of a results file; nothing is run.

    Each study must be one of the package, at the scale whose values are in the file.

    Parameters
    ----------
    path : Path
    datasets : sequence of str
        By default all.
    out : Path, optional
        A folder for tables and figures.
    """
    rows = read_results(path)
    row_datasets = rows["dataset"].to_pylist()
    if datasets:
        rows = rows.filter([each in datasets for each in row_datasets])
    if not len(rows):
        names = ", ".join(dict.fromkeys(row_datasets)) or "none"
        raise DataError(f"{path} has no rows of {' or '.join(datasets) or 'runs'}: it has {names}")
    results, left_out = _read_studies(rows)
    if not results:
        raise DataError(f"{path} has no study of the package: see countersample reproduce --list")
    published = grids.load_published()
    tables = [table for result in results for table in make_tables(result, published)]
    verdicts = [verdict for result in results for verdict in evaluate_claims(result)]
    if out is not None:
        (out / "tables").mkdir(parents=True, exist_ok=True)
        (out / "figures").mkdir(exist_ok=True)
        for table in tables:
            write_table(table, out / "tables")
        for result in results:
            draw_figures(result, out / "figures")
    return Evaluation(tuple(tables), tuple(verdicts), tuple(left_out))


def _read_studies(rows: pa.Table) -> tuple[list[StudyResult], list[str]]:
    """Return the results of studies of the package, and sentences about other rows."""
    values: dict[str, dict[str, None]] = {}  # by study, in the order of the file
    for study, value in zip(rows["study"].to_pylist(), rows["value"].to_pylist(), strict=True):
        values.setdefault(study, {})[value] = None
    results: list[StudyResult] = []
    left_out: list[str] = []
    for name, in_file in values.items():
        if name not in grids.names():
            left_out.append(f"{name} is left out: it is no study of the package")
            continue
        results.append(results_of(rows, _find_grid(name, in_file)))
        complete = {str(value) for value in results[-1].grid.values}
        if missing := [value for value in in_file if value not in complete]:
            left_out.append(
                f"{name} at {', '.join(missing)} is left out: it lacks runs of a method or dataset"
            )
    return results, left_out


def _find_grid(name: str, values: Iterable[str]) -> Grid:
    """Return the grid of a study at the largest scale that has the most of the values."""
    at_scales = [load_grid(grids.path_of(name), scale) for scale in reversed(grids.SCALES)]
    return max(at_scales, key=lambda grid: len({*values} & {str(value) for value in grid.values}))
