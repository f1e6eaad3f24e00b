"""Write the tables, figures, results.parquet and report of studies.

`write_artifacts` is for an experiment whose jobs are done, `evaluate_file` for a results.parquet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from countersample._progress import Progress
from countersample.errors import DataError
from countersample.study import grids
from countersample.study.claims import evaluate_claims, summarize
from countersample.study.experiment import KINDS, load_grid
from countersample.study.kinds import Done, draw_figures, make_tables
from countersample.study.report import Link, Report, SettingLine, write_report
from countersample.study.results import gather_warnings, read_results, results_of, write_results
from countersample.study.settings import PAPER, SETTINGS, origin_of, title_of
from countersample.study.stages import versions
from countersample.study.tables import write_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from countersample._progress import Show
    from countersample.study.claims import Verdict
    from countersample.study.experiment import Experiment
    from countersample.study.grids import Grid
    from countersample.study.jobs import WorkList
    from countersample.study.results import StudyResult
    from countersample.study.store import Store
    from countersample.study.tables import Table


_FILES = (
    Link("study.json", "the grids, settings and datasets, whole"),
    Link("results.parquet", "all learning curves: one row per evaluation point"),
)

_MIN_DRAWN = 1_000_000  # clicks per run; fewer do not show where methods end


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
    progress = Progress.of(progress)
    done = Done(work, store, grids.load_published())
    done.figures.mkdir(exist_ok=True)
    (store.folder / "tables").mkdir(exist_ok=True)
    sections = []
    for index, study in enumerate(experiment.studies):
        progress(f"writing up {study.name}", index / (len(experiment.studies) + 1))
        sections.append(KINDS[study.grid.kind].write_up(study, done))
    progress("writing the report", 1.0)
    write_results(experiment.studies, work, store, store.folder / "results.parquet")
    verdicts = tuple(verdict for section in sections for verdict in section.verdicts)
    logs = {log.title: log for section in sections for log in section.logs}
    warnings = tuple(gather_warnings(work.jobs.values(), store))
    remarks = tuple(_remarks(experiment))
    path = store.folder / "report.html"
    write_report(
        Report(
            title=_title(experiment),
            summary=(
                *summarize(verdicts),
                *(f"Warning: on {each}." for each in warnings),
                *remarks,
            ),
            verdicts=verdicts,
            sections=tuple(sections),
            diagnoses=tuple(logs.values()),
            settings=tuple(_settings(experiment)),
            versions=versions(),
            commands=commands,
            files=tuple(link for link in _FILES if (store.folder / link.path).exists()),
        ),
        path,
    )
    tables = tuple(section.tables[0] for section in sections)
    return Artifacts(tables, verdicts, warnings, remarks, path)


def _title(experiment: Experiment) -> str:
    if all(grid.name in grids.names() for grid in experiment.grids):
        return "Weigh clicks or draw by weight? The CounterSample study, repeated"
    return ", ".join(grid.title for grid in experiment.grids)


def _remarks(experiment: Experiment) -> Iterator[str]:
    if experiment.scale != "paper":
        yield (
            f"This is the {experiment.scale} scale: fewer clicks, steps and queries than the "
            "paper's. Differences between methods are larger early in training, so regret is not "
            "comparable in size with the paper's, only in order."
        )
    runs = (study.config for study in experiment.studies if study.grid.methods)
    n_drawn = min((config.steps() * config.batch_size for config in runs), default=_MIN_DRAWN)
    if experiment.scale == "smoke":
        yield (
            "So little data and so few runs show that everything works, and decide nothing: "
            "intervals are wide, and most verdicts are open."
        )
    elif n_drawn < _MIN_DRAWN:
        yield (
            f"A run draws {n_drawn:,} clicks, the paper's {PAPER.steps() * PAPER.batch_size:,}: "
            "the early part of training is compared, and where methods end is not decided. "
            "--scale medium draws a million clicks per run."
        )
    synthetic = [name for name in experiment.datasets if name.endswith("-like")]
    if synthetic:
        yield (
            f"{' and '.join(synthetic)}: synthetic data of the shape of a real set. The paper's "
            "numbers beside it are those of the real set."
        )


def _settings(experiment: Experiment) -> Iterator[SettingLine]:
    """Yield every setting that is the same in all studies of methods, beside the paper's."""
    configs = [study.config for study in experiment.studies if study.grid.methods]
    for name in SETTINGS:
        values = {getattr(config, name) for config in configs}
        if len(values) == 1:
            here, paper = values.pop(), getattr(PAPER, name)
            yield SettingLine(title_of(name), _show(here), _show(paper), origin_of(name))


def _show(value: Any) -> str:  # noqa: ANN401 (a setting)
    if isinstance(value, tuple):
        return f"{len(value)} values from {value[0]:g} to {value[-1]:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


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
    row_studies = rows["study"].to_pylist()
    results: list[StudyResult] = []
    left_out: list[str] = []
    for name in dict.fromkeys(row_studies):
        if name not in grids.names():
            left_out.append(f"{name} is left out: it is no study of the package")
            continue
        study_rows = rows.filter([each == name for each in row_studies])
        results.append(results_of(study_rows, _find_grid(name, study_rows)))
        values = dict.fromkeys(study_rows["value"].to_pylist())
        complete = {str(value) for value in results[-1].grid.values}
        if missing := [value for value in values if value not in complete]:
            left_out.append(
                f"{name} at {', '.join(missing)} is left out: it lacks runs of a method or dataset"
            )
    return results, left_out


def _find_grid(name: str, rows: pa.Table) -> Grid:
    """Return the grid of a study at the largest scale that has the most of the values."""
    values = {*rows["value"].to_pylist()}
    at_scales = [load_grid(grids.path_of(name), scale) for scale in reversed(grids.SCALES)]
    return max(at_scales, key=lambda grid: len(values & {str(value) for value in grid.values}))
