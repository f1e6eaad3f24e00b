"""What comes out of an experiment: tables, figures, results.parquet and the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from countersample._progress import Progress
from countersample.study.design import grids as grids_module
from countersample.study.design.config import PAPER, SETTINGS, origin_of, title_of
from countersample.study.design.published import load_published
from countersample.study.findings.claims import summarize
from countersample.study.kinds import KINDS
from countersample.study.kinds.kind import Done
from countersample.study.report.page import Link, Report, SettingLine, write_report
from countersample.study.running.gather import warnings_of, write_results
from countersample.study.running.versions import versions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from countersample._progress import Show
    from countersample.study.experiment import Experiment
    from countersample.study.findings.claims import Verdict
    from countersample.study.findings.tables import Table
    from countersample.study.running.jobs import WorkList
    from countersample.study.running.store import Store


_FILES = (
    Link("study.json", "the grids, settings and datasets, whole"),
    Link("results.parquet", "all learning curves: a row an evaluation point"),
)

_FEW_DRAWN = 1_000_000  # clicks a run, below which it says nothing about where methods end


@dataclass(frozen=True)
class Artifacts:
    """What was made, to be shown: the main table of each study, the verdicts, the report."""

    tables: tuple[Table, ...]
    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...]
    remarks: tuple[str, ...]  # what scale and data leave open
    report: Path


def write_artifacts(
    experiment: Experiment,
    work: WorkList,
    store: Store,
    *,
    commands: tuple[str, ...],
    progress: Progress | Show | None = None,
) -> Artifacts:
    """Write everything that comes out of an experiment whose jobs are done.

    `commands` are what repeats it.
    """
    progress = Progress.of(progress)
    done = Done(work, store, load_published(grids_module.folder() / "published.toml"))
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
    warnings = tuple(warnings_of(work.jobs.values(), store))
    remarks = tuple(_remarks(experiment))
    path = store.folder / "report.html"
    write_report(
        Report(
            title=_title(experiment),
            summary=(*summarize(verdicts), *map(_as_sentence, warnings), *remarks),
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


def _as_sentence(warning: str) -> str:
    return f"Be warned: on {warning}."


def _title(experiment: Experiment) -> str:
    if all(grid.name in grids_module.names() for grid in experiment.grids):
        return "Weigh clicks or draw by weight? The CounterSample study, repeated"
    return ", ".join(grid.title for grid in experiment.grids)


def _remarks(experiment: Experiment) -> Iterator[str]:
    if experiment.scale != "paper":
        yield (
            f"This is the {experiment.scale} scale: fewer clicks, steps and queries than the "
            "paper's. Differences between methods are larger early in training, so regret is not "
            "comparable in size with the paper's, only in order."
        )
    else:
        runs = (study.config for study in experiment.studies if study.grid.methods)
        drawn = min((config.steps() * config.batch_size for config in runs), default=_FEW_DRAWN)
        if drawn < _FEW_DRAWN:
            yield (
                f"By the grid's own settings a run draws {drawn:,} clicks, the paper's "
                f"{PAPER.steps() * PAPER.batch_size:,}: what is compared is the early part of "
                "training, and nothing is decided about where methods end."
            )
    if experiment.scale == "small":
        yield (
            "So short a run decides nothing about where methods end: which one is ahead may turn "
            "round in a longer one. --scale medium draws a million clicks a run."
        )
    if experiment.scale == "smoke":
        yield (
            "So little data and so few runs show that everything works, and decide nothing: "
            "intervals are wide, and most verdicts are open."
        )
    made = [name for name in experiment.datasets if name.endswith("-like")]
    if made:
        yield (
            f"{' and '.join(made)}: made-up data of the shape of a real set. The paper's numbers "
            "beside it are those of the real set."
        )


def _settings(experiment: Experiment) -> Iterator[SettingLine]:
    """Yield every setting that is the same in all studies of methods, beside the paper's."""
    configs = [study.config for study in experiment.studies if study.grid.methods]
    for name in SETTINGS:
        values = {getattr(config, name) for config in configs}
        if len(values) == 1:
            here, paper = values.pop(), getattr(PAPER, name)
            yield SettingLine(title_of(name), _shown(here), _shown(paper), origin_of(name))


def _shown(value: Any) -> str:  # noqa: ANN401 (a setting)
    if isinstance(value, tuple):
        return f"{len(value)} values from {value[0]:g} to {value[-1]:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
