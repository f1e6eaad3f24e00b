"""Studies of regret, and the table of datasets: the jobs they plan, and the sections they write.

Other kinds are in `toy.py`, `bounds.py` and `weights.py`; the registry is `experiment.KINDS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from countersample.study import stages
from countersample.study.claims import evaluate_claims
from countersample.study.figures import draw_leads, draw_panels
from countersample.study.grids import PAPER_DATASETS, Published
from countersample.study.jobs import Job, WorkList
from countersample.study.results import StudyResult, gather
from countersample.study.statistics import INTERVAL, has_leads
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
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from countersample.study.report import Done, Section
    from countersample.study.sources import Study

# -- regret --------------------------------------------------------------------------------------


def plan_regret(study: Study, work: WorkList) -> None:
    """Plan a tuning for each method and setting, and a run for each of its click logs."""
    grid = study.grid
    for source in study.sources:
        for value, config in zip(grid.values, grid.configs(study.config), strict=True):
            for fold in source.folds:
                for method in grid.methods:
                    name = (grid.name, source.name, method.name, value)
                    work.cells.setdefault(name, []).extend(work.runs(fold, config, method))
                if grid.nothing_set:
                    job = work.ranker(fold, config)
                    work.keep((grid.name, "ranker", source.name, value), job)


def write_regret(study: Study, done: Done) -> Section:
    """Draw learning curves; write the tables of regret, leads, the end, rates and tests."""
    result = gather(study, done.work, done.store)
    notes = []
    if any(config.scorer == "network" for config in study.grid.configs(study.config)):
        notes.append(
            "A network is evaluated at its last iterate, not at the average: it is not convex in "
            "its weights, and the mean of two good networks need not be good. Regret is against "
            "w*, which is linear: a network may be above it."
        )
    flags = [flag for cell in result.cells.values() for flag in cell.rate_flags]
    if n_flagged := sum(bool(flag) for flag in flags):
        notes.append(
            f"{n_flagged} of {len(flags)} learning rates are at an end of those tried, or on a "
            "plateau: three or more rates are within a standard error of each other on validation "
            "data. The table of learning rates lists them."
        )
    return done.section(
        study, make_tables(result, done.published), draw_figures(result, done.figures),
        verdicts=tuple(evaluate_claims(result)), notes=tuple(notes),
    )  # fmt: skip


def make_tables(result: StudyResult, published: Published) -> list[Table]:
    """Return the tables of regret, leads, where runs end, learning rates and tests."""
    tables = [regret_table(result, published), final_table(result)]
    if has_leads(result):
        tables.insert(1, leads_table(result))
    if result.nothing_set:
        tables.append(nothing_set_table(result))
    return [*tables, rates_table(result), significance_table(result)]


def draw_figures(result: StudyResult, folder: Path) -> list[tuple[str, str, str]]:
    """Draw learning curves and the lead; return name, description and caption of each figure."""
    name = result.grid.name
    draw_panels(result, folder / name)
    draw_panels(result, folder / f"{name}-log", log_x=True)
    title = f"Learning curves: {result.metric} on test data against clicks drawn, by method"
    caption = f"Learning curves: means over runs, in {INTERVAL}s."
    pictures = [(name, title, caption), (f"{name}-log", "", "")]
    if has_leads(result):
        draw_leads(result, folder / f"{name}-lead")
        title = "Lead of CounterSample over IPS-SGD during training"
        pictures.append((f"{name}-lead", title, f"{title}; below 0 IPS-SGD is ahead."))
    return pictures


# -- datasets ------------------------------------------------------------------------------------

_COUNT_NOTE = (
    "The paper's 36,251 queries of Yahoo are those of sets 1 and 2 together; its code reads set 1, "
    "with 29,921 queries. Its 33,118 queries of Istella-s are 33,018 in the published files."
)


def plan_datasets(study: Study, work: WorkList) -> None:
    """Plan to count the queries and items of each fold."""
    for source in study.sources:
        for fold in source.folds:
            data = work.data(fold, study.config)
            job = Job("shape", f"shape of {fold.title}", {}, stages.shape, (data,))
            work.keep((study.name, source.name), job)


def write_datasets(study: Study, done: Done) -> Section:
    """Write the table; folds of a set have the same queries, so the first stands for all."""
    shapes = {source.name: done.read(study.name, source.name)[0] for source in study.sources}
    return done.section(study, [shapes_table(shapes, done.published)])


def shapes_table(shapes: Mapping[str, Mapping[str, int]], published: Published) -> Table:
    """Return the paper's table of datasets, and below it ours, with list length and features.

    Parameters
    ----------
    shapes : mapping of dataset to the counts of `stages.shape`
    published : Published

    >>> from countersample.study.grids import Published
    >>> shape = {"queries": 2, "items": 30, "longest": 20, "features": 5, "irrelevant": 12}
    >>> table = shapes_table({"mine": shape}, Published({}))
    >>> [entry.number for entry in table.groups[-1].rows[0].entries]
    ['2', '15.0', '40.0', '20', '5']
    """
    columns = ("queries", "items a query", "grade 0, %", "longest list", "features")
    rows = []
    for dataset, shape in shapes.items():
        per_query = shape["items"] / shape["queries"]
        irrelevant = 100 * shape["irrelevant"] / shape["items"]
        numbers = [(shape["queries"], 0), (per_query, 1), (irrelevant, 1), (shape["longest"], 0),
                   (shape["features"], 0)]  # fmt: skip
        rows.append(Row(dataset, tuple(Entry(*number) for number in numbers)))
    groups = [Group("Here", tuple(rows))]
    paper_rows = []
    for name, ours in {name: ours for ours, name in PAPER_DATASETS.items()}.items():
        entries = [published.number("datasets", ours, "", column) for column in columns]
        if entries[0]:
            row = (Entry(entry.value if entry else None, 0) for entry in entries)
            paper_rows.append(Row(name, tuple(row)))
    if paper_rows:
        groups.insert(0, Group("In the paper", tuple(paper_rows)))
    notes = (_COUNT_NOTE,) if paper_rows else ()
    return Table("datasets", "Datasets", "Dataset", columns, tuple(groups), notes)
