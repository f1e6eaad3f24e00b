"""What comes out of an experiment: tables, figures, results.parquet and the report."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks import Diagnosis
from countersample.study.design import grids as grids_module
from countersample.study.design.config import PAPER, ExperimentConfig
from countersample.study.design.published import load_published
from countersample.study.experiment import versions
from countersample.study.findings.claims import judge
from countersample.study.findings.figures import draw_panels, draw_versus
from countersample.study.findings.tables import (
    final_table,
    rates_table,
    regret_table,
    significance_table,
)
from countersample.study.findings.toy import (
    make_toy,
    run_toy,
    toy_for_page,
    toy_table,
    toy_verdicts,
)
from countersample.study.findings.toy_figure import draw_toy
from countersample.study.findings.write_tables import write_table
from countersample.study.kinds.bounds import Bounds, bounds_table, bounds_verdicts, draw_bounds
from countersample.study.kinds.datasets import Shape, shapes_table
from countersample.study.kinds.propensities import draw_weights, weights_table, weights_verdicts
from countersample.study.report.model import (
    Figure,
    Link,
    LogDiagnosis,
    ProtocolLine,
    Report,
    Section,
)
from countersample.study.report.page import write_report
from countersample.study.report.summary import summarize
from countersample.study.running.gather import gather, write_results

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from countersample.study.design.grids import Grid
    from countersample.study.design.published import Published
    from countersample.study.design.sources import Source
    from countersample.study.experiment import Experiment
    from countersample.study.findings.claims import Verdict
    from countersample.study.findings.tables import Table
    from countersample.study.running.jobs import WorkList
    from countersample.study.running.store import Store


@dataclass(frozen=True)
class Artifacts:
    """What was made, to be shown: the main table of each study, the verdicts, the report."""

    tables: tuple[Table, ...]
    verdicts: tuple[Verdict, ...]
    report: Path


def write_artifacts(
    experiment: Experiment,
    work: WorkList,
    store: Store,
    *,
    command: str,
    report: Callable[[str, float], None] = lambda _what, _share: None,
) -> Artifacts:
    """Write everything that comes out of an experiment whose jobs are done.

    Parameters
    ----------
    experiment : Experiment
    work : WorkList
    store : Store
    command : str
        What repeats it.
    report : function of (what is going on, share done)
    """
    writer = _Writer(work, store, load_published(grids_module.folder() / "published.toml"))
    sections, verdicts = [], []
    for position, (grid, protocol, sources) in enumerate(experiment.studies):
        report(f"writing up {grid.name}", position / (len(experiment.studies) + 1))
        section, judged = writer.write_up(grid, protocol, sources)
        sections.append(section)
        verdicts += judged
    report("writing the report", 1.0)
    write_results(experiment.grids, work, store, versions(), store.folder / "results.parquet")
    files = [Link("study.json", "the grids, settings and datasets, whole")]
    if (store.folder / "results.parquet").exists():
        files.append(Link("results.parquet", "all learning curves: a row an evaluation point"))
    path = store.folder / "report.html"
    write_report(
        Report(
            title=_title(experiment),
            summary=(*summarize(verdicts), *_remarks(experiment)),
            verdicts=tuple(verdicts),
            sections=tuple(sections),
            diagnoses=_diagnoses(experiment, work, store),
            protocol=_protocol_lines(experiment),
            versions=versions(),
            commands=(command,),
            files=tuple(files),
        ),
        path,
    )
    return Artifacts(
        tuple(section.tables[0] for section in sections if section.tables), tuple(verdicts), path
    )


class _Writer:
    """Writes up one study after the other.

    Parameters
    ----------
    work : WorkList
    store : Store
    published : Published
    """

    def __init__(self, work: WorkList, store: Store, published: Published) -> None:
        self.work, self.store, self.published = work, store, published
        self.tables = store.folder / "tables"
        self.figures = store.folder / "figures"
        for folder in (self.tables, self.figures):
            folder.mkdir(exist_ok=True)

    def write_up(
        self, grid: Grid, protocol: ExperimentConfig, sources: Sequence[Source]
    ) -> tuple[Section, list[Verdict]]:
        """Write the tables and figures of a study; return its part of the report."""
        parts: dict[str, Any]
        parts, verdicts = getattr(self, f"_{grid.kind}")(grid, protocol, sources)
        written = [path for table in parts["tables"] for path in write_table(table, self.tables)]
        drawn = [path for stem in parts.pop("stems") for path in sorted(self.figures.glob(stem))]
        section = Section(
            name=grid.name,
            title=grid.title,
            about=grid.about,
            paper=grid.paper,
            files=tuple(
                Link(path.relative_to(self.store.folder).as_posix(), path.suffix[1:])
                for path in (*written, *drawn)
            ),
            **parts,
        )
        return section, verdicts

    def _regret(
        self, grid: Grid, _: ExperimentConfig, sources: Sequence[Source]
    ) -> tuple[dict[str, Any], list[Verdict]]:
        result = gather(grid, [source.name for source in sources], self.work, self.store)
        draw_panels(result, self.figures / grid.name)
        draw_panels(result, self.figures / f"{grid.name}-log", log_x=True)
        if not isinstance(grid.values[0], str):
            draw_versus(result, self.figures / f"{grid.name}-regret")
        tables = (regret_table(result, self.published), final_table(result), rates_table(result),
                  significance_table(result))  # fmt: skip
        stems = [f"{grid.name}.*", f"{grid.name}-log.*", f"{grid.name}-regret.*"]
        return {"tables": tables, "curves": result, "stems": stems}, judge(result)

    def _datasets(
        self, grid: Grid, _: ExperimentConfig, sources: Sequence[Source]
    ) -> tuple[dict[str, Any], list[Verdict]]:
        shapes = {
            source.name: Shape(**self.store.read(self.work.single[grid.name, source.name][0]))
            for source in sources
        }
        return {"tables": (shapes_table(shapes, self.published),), "stems": []}, []

    def _propensities(
        self, grid: Grid, _: ExperimentConfig, sources: Sequence[Source]
    ) -> tuple[dict[str, Any], list[Verdict]]:
        weights = {
            (dataset, offset, gamma): [
                (found["mean_weight"], found["max_weight"]) for found in map(self.store.read, jobs)
            ]
            for (study, dataset, offset, gamma), jobs in self.work.logs.items()
            if study == grid.name and dataset in {source.name for source in sources}
        }
        draw_weights(weights, self.published, self.figures / grid.name)
        figure = Figure(
            self.figures / f"{grid.name}.svg",
            "The largest and the mean weight against γ, on a logarithmic axis",
            "M and M̄ against γ, under the paper's equation and under its authors' code.",
        )
        parts = {
            "tables": (weights_table(weights, self.published),),
            "figures": (figure,),
            "stems": [f"{grid.name}.*"],
        }
        return parts, weights_verdicts(weights, self.published)

    def _toy(
        self, grid: Grid, _: ExperimentConfig, __: Sequence[Source]
    ) -> tuple[dict[str, Any], list[Verdict]]:
        rng = np.random.default_rng(0)
        toy = make_toy(rng)
        draw_toy(toy, self.figures / grid.name, rng=rng)
        result = run_toy()
        parts = {
            "tables": (toy_table(result),),
            "toy": toy_for_page(toy, rng),
            "stems": [f"{grid.name}.*"],
        }
        return parts, toy_verdicts(result)

    def _bounds(
        self, grid: Grid, _: ExperimentConfig, sources: Sequence[Source]
    ) -> tuple[dict[str, Any], list[Verdict]]:
        measured = {
            source.name: Bounds.from_dict(self.store.read(job))
            for source in sources
            for job in self.work.single[grid.name, source.name]
        }
        draw_bounds(measured, self.figures / grid.name)
        figure = Figure(
            self.figures / f"{grid.name}.svg",
            "Measured suboptimality and the bounds of the theorems against steps",
            "Measured suboptimality (with intervals) and the bounds of Theorems 1 and 3.",
        )
        parts = {
            "tables": (bounds_table(measured),),
            "figures": (figure,),
            "stems": [f"{grid.name}.*"],
        }
        return parts, [
            v for name, bounds in measured.items() for v in bounds_verdicts(name, bounds)
        ]


def _title(experiment: Experiment) -> str:
    if all(grid.name in grids_module.names() for grid in experiment.grids):
        return "Weigh clicks or draw by weight? The CounterSample study, repeated"
    return ", ".join(grid.title for grid in experiment.grids)


def _remarks(experiment: Experiment) -> tuple[str, ...]:
    remarks = []
    if experiment.scale != "paper":
        remarks.append(
            f"This is the {experiment.scale} scale: fewer clicks, steps and queries than the "
            "paper's. Differences between methods are larger early in training, so regret is not "
            "comparable in size with the paper's, only in order."
        )
    if experiment.scale == "smoke":
        remarks.append(
            "So little data and so few runs show that everything works, and decide nothing: "
            "intervals are wide, and most verdicts are open."
        )
    made = [name for name in experiment.datasets if name.endswith("-like")]
    if made:
        remarks.append(
            f"{' and '.join(made)}: made-up data of the shape of a real set. The paper's numbers "
            "beside it are those of the real set."
        )
    return tuple(remarks)


def _diagnoses(experiment: Experiment, work: WorkList, store: Store) -> tuple[LogDiagnosis, ...]:
    """Return the diagnosis of one log of each dataset and γ of the studies of regret."""
    found: dict[str, LogDiagnosis] = {}
    for grid, _, _ in experiment.studies:
        if grid.kind == "regret" and grid.axis in {"gamma", "optimizer"}:
            for (study, dataset, _, gamma), jobs in work.logs.items():
                title = f"{dataset}, γ = {gamma:g}"
                if study == grid.name and title not in found:
                    values = store.read(jobs[0])
                    values["histogram"] = tuple(map(tuple, values["histogram"]))
                    found[title] = LogDiagnosis(title, Diagnosis(**values))
    return tuple(found.values())


def _protocol_lines(experiment: Experiment) -> tuple[ProtocolLine, ...]:
    """Return every setting that is the same in all studies, beside the paper's."""
    protocols = [protocol for grid, protocol, _ in experiment.studies if grid.kind == "regret"]
    lines = []
    for field in fields(ExperimentConfig):
        values = {getattr(protocol, field.name) for protocol in protocols}
        if len(values) == 1:
            here, paper = values.pop(), getattr(PAPER, field.name)
            lines.append(ProtocolLine(_NAMES[field.name], _shown(here), _shown(paper)))
    return tuple(lines)


def _shown(value: Any) -> str:  # noqa: ANN401 (a setting)
    if isinstance(value, tuple):
        return f"{len(value)} values from {value[0]:g} to {value[-1]:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


_NAMES = {
    "clicks": "clicks a log",
    "epochs": "epochs",
    "seeds": "click logs and runs",
    "tuning_seeds": "logs that choose the learning rate",
    "learning_rates": "learning rates tried",
    "evaluate_every": "clicks drawn between evaluations",
    "gamma": "position bias γ",
    "bias_offset": "offset of the bias law",
    "noise": "false clicks",
    "relevant": "smallest relevant grade",
    "policy_fraction": "share of queries behind the logging policy",
    "normalization": "normalisation of features",
    "optimizer": "optimizer",
    "objective": "objective",
    "batch_size": "batch size",
    "clip": "smallest propensity",
    "trained_gamma": "believed γ / true γ",
    "queries": "queries of a synthetic set (0: as many as the real one)",
    "no_relevant": "test queries without a relevant item",
}
