"""Kinds of study: the interface, studies of regret, and the table of datasets.

Other kinds are in `toy.py`, `bounds.py` and `weights.py`; the registry is `experiment.KINDS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from glob import escape
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from countersample.clicks import Diagnosis
from countersample.errors import ParameterError
from countersample.study import stages
from countersample.study.claims import evaluate_claims
from countersample.study.figures import draw_leads, draw_panels, draw_versus
from countersample.study.grids import PAPER_DATASETS
from countersample.study.jobs import Job
from countersample.study.report import Figure, Link, LogDiagnosis, Section
from countersample.study.results import gather
from countersample.study.statistics import has_leads
from countersample.study.tables import (
    Entry,
    Group,
    Row,
    Table,
    final_table,
    leads_table,
    nothing_set_table,
    rates_table,
    regret_table,
    significance_table,
    write_table,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from pathlib import Path

    from countersample.study.grids import Grid, Published
    from countersample.study.jobs import WorkList
    from countersample.study.results import StudyResult
    from countersample.study.sources import Study
    from countersample.study.store import Store

_SHOWN_LOGS = ("gamma", "optimizer")  # studies that vary these show the weights of their logs


class Drawing(NamedTuple):
    """A figure among the files of a study: its name, a description, and its caption.

    Without a caption it is linked, and not shown on the page.
    """

    name: str
    alt: str = ""
    caption: str = ""


@dataclass(frozen=True)
class Done:
    """Studies whose jobs are done."""

    work: WorkList
    store: Store
    published: Published  # the paper's numbers

    @property
    def figures(self) -> Path:
        """The folder of the figures."""
        return self.store.folder / "figures"

    def section(
        self,
        study: Study,
        tables: tuple[Table, ...],
        drawings: Sequence[Drawing] = (),
        **more: Any,  # noqa: ANN401
    ) -> Section:
        """Write the tables of a study, the main one first, and return its part of the report.

        The drawings are in the folder `figures`. `more` are other fields of `Section`.
        """
        folder = self.store.folder
        files = [path for table in tables for path in write_table(table, folder / "tables")]
        for drawing in drawings:
            files += sorted(self.figures.glob(f"{escape(drawing.name)}.*"))
        figures = tuple(
            Figure(self.figures / f"{name}.png", alt, caption)
            for name, alt, caption in drawings
            if caption
        )
        links = [Link(path.relative_to(folder).as_posix(), path.suffix[1:]) for path in files]
        grid = study.grid
        return Section(
            grid.name, grid.title, grid.about, grid.paper, tables, figures,
            files=tuple(links), **more,
        )  # fmt: skip

    def read(self, *name: Hashable) -> list[dict[str, Any]]:
        """Return the results of a study under a name (see `WorkList.keep`)."""
        return [self.store.read(job) for job in self.work.others[name]]


class Kind:
    """A kind of study: the jobs that it plans, and the section that it writes."""

    name: str  # its name in grids
    takes_data: bool = True  # whether it has datasets

    def check(self, grid: Grid) -> None:
        """Raise a `ParameterError` for a grid that cannot be a study of this kind."""

    def plan(self, study: Study, work: WorkList) -> None:
        """Add the jobs of a study to a work list."""
        raise NotImplementedError

    def write_up(self, study: Study, done: Done) -> Section:
        """Write the tables and figures of a study, and return its part of the report."""
        raise NotImplementedError


# -- regret --------------------------------------------------------------------------------------


class RegretStudy(Kind):
    """The paper's comparison: every method at every setting, at its best learning rate."""

    name = "regret"

    def check(self, grid: Grid) -> None:
        """Raise a `ParameterError` for a grid without methods or a setting."""
        if not grid.methods or not grid.axis:
            raise ParameterError("a study of regret needs methods and a setting in [vary]")

    def plan(self, study: Study, work: WorkList) -> None:
        """Plan a tuning for each method and setting, and a run for each of its click logs."""
        grid = study.grid
        for (place, (source, block)), value in product(study.places.items(), grid.values):
            config = study.config.with_settings(block | {grid.axis: value})
            for fold in source.folds:
                log = work.diagnosis(fold, config, 0)
                work.keep((grid.name, source.name, config.gamma), log)
                for method in grid.methods:
                    name = (grid.name, place, method.name, value)
                    work.cells.setdefault(name, []).extend(work.runs(fold, config, method))
                if grid.nothing_set:
                    rankers = work.rankers.setdefault((grid.name, place, value), [])
                    rankers.append(work.ranker(fold, config))

    def write_up(self, study: Study, done: Done) -> Section:
        """Draw learning curves; write the tables of regret, leads, the end, rates and tests."""
        result = gather(study, done.work, done.store)
        return done.section(
            study,
            tables=make_tables(result, done.published),
            verdicts=tuple(evaluate_claims(result)),
            drawings=draw_figures(result, done.figures),
            logs=_read_logs(study, done) if {*study.grid.varied} & {*_SHOWN_LOGS} else (),
            notes=_make_notes(study, result),
        )


def make_tables(result: StudyResult, published: Published) -> tuple[Table, ...]:
    """Return the tables of regret, leads, where runs end, learning rates and tests."""
    return (
        regret_table(result, published),
        *((leads_table(result),) if has_leads(result) else ()),
        final_table(result),
        *((nothing_set_table(result),) if result.nothing_set else ()),
        rates_table(result),
        significance_table(result),
    )


def draw_figures(result: StudyResult, folder: Path) -> tuple[Drawing, ...]:
    """Draw learning curves, the lead, and regret against a setting that is a number."""
    name = result.grid.name
    draw_panels(result, folder / name)
    draw_panels(result, folder / f"{name}-log", log_x=True)
    drawings = [
        Drawing(
            name,
            f"Learning curves: {result.metric} on test data against clicks drawn, by method",
            "Learning curves: means over runs, in 95 % intervals.",
        ),
        Drawing(f"{name}-log"),
    ]
    if not isinstance(result.grid.values[0], str):
        draw_versus(result, folder / f"{name}-regret")
        title = f"Average regret ×100 against {result.grid.axis_title}"
        drawings.append(Drawing(f"{name}-regret", f"{title}, by method", f"{title}."))
    if has_leads(result):
        draw_leads(result, folder / f"{name}-lead")
        title = "Lead of CounterSample over IPS-SGD during training"
        drawings.append(Drawing(f"{name}-lead", title, f"{title}; below 0 IPS-SGD is ahead."))
    return tuple(drawings)


def _make_notes(study: Study, result: StudyResult) -> tuple[str, ...]:
    """Return notes on networks, and on learning rates that the tuning does not determine."""
    notes = []
    if any(config.scorer == "network" for config in study.grid.configs(study.config)):
        notes.append(
            "A network is evaluated at its last iterate, not at the average: it is not convex in "
            "its weights, and the mean of two good networks need not be good. Regret is against "
            "w*, which is linear: a network may be above it."
        )
    flags = [flag for cell in result.cells.values() for flag in cell.rate_flags if flag.n_alike]
    at_edge = sum(bool(flag.edge) for flag in flags)
    on_plateau = sum(flag.is_plateau for flag in flags)
    if at_edge + on_plateau:
        notes.append(
            f"{len(flags)} learning rates were chosen. {at_edge} are at an end of those tried, and "
            f"{on_plateau} on a plateau: three or more rates are within a standard error of each "
            "other on validation data. The table of learning rates lists them."
        )
    return tuple(notes)


def _read_logs(study: Study, done: Done) -> tuple[LogDiagnosis, ...]:
    """Return the diagnosis of one log of each dataset and γ."""
    gammas = study.grid.varied.get("gamma", (study.config.gamma,))
    logs = []
    for source, gamma in product(study.sources, gammas):
        values, *_ = done.read(study.name, source.name, gamma)
        values["histogram"] = tuple(map(tuple, values["histogram"]))
        logs.append(LogDiagnosis(f"{source.name}, γ = {gamma:g}", Diagnosis(**values)))
    return tuple(logs)


# -- datasets ------------------------------------------------------------------------------------

_COUNT_NOTE = (
    "The paper's 36,251 queries of Yahoo are those of sets 1 and 2 together; its code reads set 1, "
    "with 29,921 queries. Its 33,118 queries of Istella-s are 33,018 in the published files."
)


class DatasetsStudy(Kind):
    """The paper's table of datasets: queries, items, grades."""

    name = "datasets"

    def plan(self, study: Study, work: WorkList) -> None:
        """Plan to count the queries and items of each fold."""
        for source in study.sources:
            for fold in source.folds:
                data = work.data(fold, study.config)
                job = Job("shape", f"shape of {fold.title}", {}, stages.shape, (data,))
                work.keep((study.name, source.name), job)

    def write_up(self, study: Study, done: Done) -> Section:
        """Write the table; folds of a set have the same queries, so the first stands for all."""
        shapes = {source.name: done.read(study.name, source.name)[0] for source in study.sources}
        return done.section(study, (shapes_table(shapes, done.published),))


def shapes_table(shapes: Mapping[str, Mapping[str, int]], published: Published) -> Table:
    """Return the paper's table of datasets, and below it ours, with list length and features.

    Parameters
    ----------
    shapes : mapping of dataset to the counts of `stages.shape`
    published : Published

    Examples
    --------
    >>> from countersample.study.grids import Published
    >>> shape = {"queries": 2, "items": 30, "longest": 20, "features": 5, "irrelevant": 12}
    >>> table = shapes_table({"mine": shape}, Published({}))
    >>> [entry.number for entry in table.groups[-1].rows[0].entries]
    ['2', '15.0', '40.0', '20', '5']
    """
    columns = ("queries", "items a query", "grade 0, %", "longest list", "features")
    rows = [
        Row(
            dataset,
            (
                Entry(shape["queries"], 0),
                Entry(shape["items"] / shape["queries"], 1),
                Entry(100 * shape["irrelevant"] / shape["items"], 1),
                Entry(shape["longest"], 0),
                Entry(shape["features"], 0),
            ),
        )
        for dataset, shape in shapes.items()
    ]
    groups = [Group("Here", tuple(rows))]
    paper_rows = []
    for name, ours in {name: ours for ours, name in PAPER_DATASETS.items()}.items():
        numbers = [published.number("datasets", ours, "", column) for column in columns]
        if numbers[0]:
            entries = (Entry(number.value if number else None, 0) for number in numbers)
            paper_rows.append(Row(name, tuple(entries)))
    if paper_rows:
        groups.insert(0, Group("In the paper", tuple(paper_rows)))
    notes = (_COUNT_NOTE,) if paper_rows else ()
    return Table("datasets", "Datasets", "Dataset", columns, tuple(groups), notes)
