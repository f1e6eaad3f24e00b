"""``countersample reproduce``, ``demo`` and ``study``: the paper's studies, and your own."""

from __future__ import annotations

from functools import partial
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from countersample import _leaving
from countersample.cli import _show
from countersample.cli._first_use import compile_ahead
from countersample.cli._options import (  # noqa: TC001 (cyclopts reads them)
    Json,
    OptionalOut,
    Out,
)
from countersample.cli.app import command_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from countersample.study.artifacts import Artifacts
    from countersample.study.experiment import Experiment
    from countersample.study.findings.claims import Verdict
    from countersample.study.findings.tables import Table
    from countersample.study.running.estimate import Estimate
    from countersample.study.running.jobs import Job
    from countersample.study.running.runner import State
    from countersample.study.running.store import Store

OneFold = Annotated[
    int | None,
    Parameter(validator=Number(gte=1), help="One fold of sets with Fold1 … or S1 …; all of them."),
]
Workers = Annotated[
    int | None, Parameter(validator=Number(gte=1), help="The number of threads; all cores.")
]
Settings = Annotated[
    tuple[str, ...],
    Parameter(name="--set", help="A setting of the study: name=value; may be repeated."),
]


def reproduce(
    *studies: str,
    scale: Literal["smoke", "small", "medium", "paper"] | None = None,
    data: tuple[str, ...] = (),
    fold: OneFold = None,
    data_dir: Path | None = None,
    out: OptionalOut = None,
    workers: Workers = None,
    settings: Settings = (),
    list_studies: Annotated[bool, Parameter(name="--list")] = False,
    dry_run: bool = False,
    json: Json = False,
) -> None:
    """Repeat the paper's studies, or run a study of your own.

    Parameters
    ----------
    studies
        Names of studies (see --list), or the TOML file of one of your own; all by default.
    scale
        smoke (does it run?), small (minutes), medium (for verdicts) or paper. By default medium,
        and paper for a study of your own.
    data
        A dataset by name or path, instead of those of the study; may be repeated.
    data_dir
        The folder in which datasets known by name are looked for first.
    out
        The results folder; reproduction-SCALE by default, or the name of your study.
    list_studies
        List the studies that come with the package, and stop.
    dry_run
        Report what would be done and how long it takes, and stop.
    """
    if list_studies:
        _list_studies(json=json)
        return
    is_own = any(name.endswith(".toml") for name in studies)
    scale = scale or ("paper" if is_own else "medium")
    from countersample.study import experiment
    from countersample.study.design import grids

    excluded = {} if studies else experiment.left_out(scale)
    names = list(studies) or [name for name in grids.names() if name not in excluded]
    own = [Path(name) for name in names if name.endswith(".toml")]
    planned = experiment.plan(
        [Path(name) if name.endswith(".toml") else name for name in names],
        scale=scale, datasets=data, settings=settings_of(settings), data_dir=data_dir,
        fold=fold,
    )  # fmt: skip
    for name, reason in excluded.items():  # after the plan, whose errors are one sentence
        _show.note(f"{name} is left out: {reason}")
    folder = Path(own[0].stem if own else f"reproduction-{scale}")
    _carry_out(planned, out or folder, workers, dry_run=dry_run, json=json)


def demo(
    *,
    data: Path | None = None,
    fold: OneFold = None,
    out: Out = Path("demo"),
    settings: Settings = (),
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Compare naive, IPS-weighted and CounterSample training on simulated clicks.

    Parameters
    ----------
    data
        Your own labelled data: LETOR text, Parquet, or a folder of splits.
    out
        The folder for what the demo writes.
    """
    compile_ahead()
    from countersample._cores import available_cores
    from countersample._progress import share_progress
    from countersample.study.demo import HEADER, NOTES, run_demo, write_demo

    with share_progress("CounterSample demo") as progress:
        result = run_demo(
            str(data) if data else None,
            settings_of(settings),
            fold=fold,
            workers=workers or available_cores(),
            progress=progress,
        )
    for text in (*result.notes, *result.warnings):
        _show.note(f"countersample: {text}")
    write_demo(result, out, command=command_line())
    if json:
        _show.as_json({"page": str(out / "index.html"), **result.to_dict()})
        return
    for text in result.story():
        _show.paragraph(text)
        _show.line()
    _show.table(HEADER, result.rows())
    _show.line()
    for note in NOTES:
        _show.paragraph(note)
    _show.line()
    _show.line(f"Learning curves: {out / 'curves.png'}, their numbers: {out / 'curves.csv'}")
    _show.line(f"Results are in {out / 'index.html'}")


def _list_studies(*, json: bool) -> None:
    """List the studies that come with the package."""
    from countersample.study.design import grids
    from countersample.study.kinds import load_grid

    studies = [load_grid(grids.path_of(name)) for name in grids.names()]
    if json:
        _show.as_json([
            {"name": grid.name, "title": grid.title, "paper": grid.paper, "about": grid.about}
            for grid in studies
        ])  # fmt: skip
        return
    rows = [(grid.name, grid.title, grid.paper or "beyond the paper") for grid in studies]
    _show.table(("study", "title", "in the paper"), rows, text_columns=3)


def status(folder: Path, /, *, json: Json = False) -> None:
    """Report how far the study in a results folder is.

    Parameters
    ----------
    folder
        The results folder.
    """
    from countersample.study.experiment import read_experiment
    from countersample.study.running.runner import state_of
    from countersample.study.running.store import Store

    store = Store(folder)
    experiment = read_experiment(store.identity())
    state = state_of(experiment.work(), store)
    running = store.is_locked()
    if json:
        _show.as_json({
            "folder": str(folder), "running": running, "scale": experiment.scale,
            "studies": [grid.name for grid in experiment.grids], "datasets": experiment.datasets,
            "done": len(state.done), "missing": len(state.missing),
            "damaged": [str(store.path(job)) for job in state.damaged],
            "stale": len(state.stale), "stages": _stages(state),
        })  # fmt: skip
        return
    _show.pairs(
        [
            ("studies", ", ".join(grid.name for grid in experiment.grids)),
            ("datasets", ", ".join(experiment.datasets) or "none"),
            ("scale", experiment.scale),
            ("state", "a run is at work" if running else "no run is at work"),
        ]
    )
    _show.line()
    _table_of_stages(state)
    for job in state.damaged:
        _show.line(f"{store.path(job)} is damaged and will be made again")
    if not state.missing:
        _show.line(f"All results are there; the report is {folder / 'report.html'}")
    elif not running:
        _show.line("To go on, give the command that began it again")


def claims(
    results: Path,
    /,
    *,
    data: tuple[str, ...] = (),
    out: OptionalOut = None,
    json: Json = False,
) -> None:
    """Test the claims of studies again on a file of results; nothing is run.

    Parameters
    ----------
    results
        The rows of studies (results.parquet).
    data
        Only this dataset; may be repeated.
    out
        A folder for the tables and figures; none by default.
    """
    from dataclasses import asdict

    from countersample.study.artifacts import evaluate_file
    from countersample.study.findings.claims import summarize

    evaluation = evaluate_file(results, data, out)
    for text in evaluation.left_out:
        _show.note(text)
    if json:
        _show.as_json(asdict(evaluation))
        return
    _tell_tables(each for each in evaluation.tables if not each.name.endswith("-significance"))
    _tell_verdicts(evaluation.verdicts)
    for text in summarize(evaluation.verdicts):
        _show.paragraph(text)
    if out is not None:
        _show.line(f"Tables and figures are in {out}")


def _stages(state: State) -> dict[str, dict[str, int]]:
    return {
        stage: {"done": done, "total": total, "stale": stale}
        for stage, done, total, stale in state.by_stage()
    }


def _table_of_stages(state: State) -> None:
    rows = [
        (stage, f"{done:,}", f"{total:,}", f"{100 * done / total:.0f} %", f"{stale:,}")
        for stage, done, total, stale in state.by_stage()
    ]
    _show.table(("stage", "done", "of", "", "stale"), rows)
    if state.stale:
        _show.line("stale: made by a version with other numbers; it will be made again")


def _carry_out(
    experiment: Experiment, out: Path, workers: int | None, *, dry_run: bool, json: bool
) -> None:
    from dataclasses import asdict

    from countersample._cores import available_cores
    from countersample._progress import share_progress
    from countersample.study.artifacts import write_artifacts
    from countersample.study.experiment import no_longer_shown, read_experiment
    from countersample.study.running.runner import state_of
    from countersample.study.running.store import Store

    for text in experiment.notes:
        _show.note(f"countersample: {text}")
    command = command_line()
    store = Store(out)
    before = store.identity() if store.is_begun() else None
    identity = experiment.identity(command)
    identity = store.merge(identity) if dry_run else store.claim(identity)
    for name in no_longer_shown(before, identity) if before else ():
        _show.note(f"{name} is not what it was: results of before are kept, and not shown")
    experiment = read_experiment(identity)
    work = experiment.work()
    state = state_of(work, store)
    n_workers = workers or available_cores()
    if dry_run:
        _tell_work(experiment, state, store, n_workers, json=json)
        return
    with store.lock():
        with _leaving.noted(partial(_stopped, state, store, command)):
            _work(state, store, n_workers)
        commands = tuple(dict.fromkeys(entry["command"] for entry in identity["grids"].values()))
        with share_progress("study") as progress:
            artifacts = write_artifacts(
                experiment, work, store, commands=commands, progress=progress
            )
    if json:
        plain = asdict(artifacts) | {"report": str(artifacts.report)}
        _show.as_json({"folder": str(out), **plain})
    else:
        _print(artifacts, out)


def _stopped(state: State, store: Store, command: str) -> str:
    """Say how far a study is that is stopped now, by a look at which results are there."""
    damaged = {job.key for job in state.damaged}
    made = [k for k, j in state.missing.items() if k not in damaged and store.path(j).exists()]
    n_jobs = len(state.done) + len(state.missing)
    return (
        f"Stopped: {len(state.done) + len(made)} of {n_jobs} jobs are done and kept. "
        f"To go on: {command}"
    )


def _tell_work(
    experiment: Experiment, state: State, store: Store, workers: int, *, json: bool
) -> None:
    """Say what would be done, and how long it takes."""
    expected = _expected(state.missing.values(), store, workers)
    if json:
        _show.as_json({
            "folder": str(store.folder), "scale": experiment.scale,
            "studies": [grid.name for grid in experiment.grids], "datasets": experiment.datasets,
            "jobs": len(state.missing), "seconds": round(expected.seconds, 1), "workers": workers,
            "compiled_in_seconds": round(expected.compiling, 1), "stages": _stages(state),
        })  # fmt: skip
        return
    _table_of_stages(state)
    _show.line(_in_words(len(state.missing), expected, workers))
    _show.line(f"Nothing was done; the results would go to {store.folder}")


def _expected(jobs: Iterable[Job], store: Store, workers: int) -> Estimate:
    from countersample._progress import share_progress
    from countersample.study.running.estimate import estimate

    compile_ahead()
    with share_progress("study") as progress:
        progress("measuring how long it will take; the first time on a machine it compiles", nan)
        return estimate(list(jobs), store, workers=workers)


def _in_words(n_jobs: int, expected: Estimate, workers: int) -> str:
    """Return "12 jobs, about 3 min on 2 cores", and what compiling took, where it took any time."""
    from countersample._progress import duration

    cores = "core" if workers == 1 else "cores"
    words = f"{n_jobs} jobs, about {duration(expected.seconds)} on {workers} {cores}"
    if expected.compiling < 2:
        return words
    return f"{words}, after {duration(expected.compiling)} of compiling, which is done"


def _work(state: State, store: Store, workers: int) -> None:
    compile_ahead()
    from countersample._progress import share_progress
    from countersample.study.running.rows import warnings_of
    from countersample.study.running.runner import run

    if not state.missing:
        return
    if state.damaged:
        _show.note(f"{len(state.damaged)} damaged results are made again")
    if state.stale:
        _show.note(
            f"{len(state.stale)} results are made again: a version with other numbers made them"
        )
    first = ("data", "relevance")
    data = {key: job for key, job in state.missing.items() if job.stage in first}
    rest = {key: job for key, job in state.missing.items() if job.stage not in first}
    with share_progress("study") as progress:  # first, as the estimate is measured on it
        run(data.values(), store, workers=workers, is_done=state.done, progress=progress)
    for text in warnings_of({**state.done, **data}.values(), store):
        _show.note(f"countersample: {text}")
    expected = _expected(rest.values(), store, workers)
    _show.note(_in_words(len(rest), expected, workers))
    with share_progress("study") as progress:
        run(
            rest.values(), store, workers=workers, is_done={*state.done, *data},
            seconds=expected.each, progress=progress,
        )  # fmt: skip


def _print(artifacts: Artifacts, out: Path) -> None:
    from countersample.study.findings.claims import summarize

    _tell_tables(artifacts.tables)
    _tell_verdicts(artifacts.verdicts)
    for text in (*summarize(artifacts.verdicts), *artifacts.remarks):
        _show.paragraph(text)
    _show.line()
    _show.line(f"Tables: {out / 'tables'}, figures: {out / 'figures'}")
    if (out / "results.parquet").exists():
        _show.line(f"Learning curves, a row an evaluation point: {out / 'results.parquet'}")
    _show.line(f"Results are in {artifacts.report}")


def _tell_tables(tables: Iterable[Table]) -> None:
    """Print tables, each note once."""
    from dataclasses import replace

    from countersample.study.findings.table_formats import to_text

    told: set[str] = set()
    for table in tables:
        new = tuple(note for note in table.notes if note not in told)
        told |= set(new)
        _show.line(to_text(replace(table, notes=new)))


def _tell_verdicts(verdicts: Sequence[Verdict]) -> None:
    for verdict in verdicts:
        where = f"{verdict.study}, {verdict.dataset}" if verdict.dataset else verdict.study
        _show.paragraph(f"{verdict.outcome.upper()} ({where}): {verdict.claim} {verdict.evidence}")
    if verdicts:
        _show.line()


def settings_of(texts: Sequence[str]) -> dict[str, Any]:
    """Return settings from name=value, the values as in TOML, or as texts without quotes."""
    import tomllib

    from countersample.errors import ParameterError

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
