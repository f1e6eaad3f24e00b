"""The datasets of a study beside those of the paper: queries, items, grades."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countersample.study.design.grids import PAPER_DATASETS
from countersample.study.findings.tables import Entry, Group, Row, Table
from countersample.study.kinds.kind import Done, Kind
from countersample.study.running import stages
from countersample.study.running.jobs import Job, WorkList

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countersample.study.design.grids import Published
    from countersample.study.design.sources import Study
    from countersample.study.report import Section

STUDY = "datasets"
_COUNT_NOTE = (
    "The paper's 36,251 queries of Yahoo are those of sets 1 and 2 together; its code reads set 1, "
    "of 29,921 queries. Its 33,118 queries of Istella-s are 33,018 in the published files."
)
_PAPER_SETS = {name: ours for ours, name in PAPER_DATASETS.items()}  # each once


def shapes_table(shapes: Mapping[str, Mapping[str, int]], published: Published) -> Table:
    """Make the paper's table of datasets and ours, with the longest list and the features.

    The two sets of the paper stand first, also where none of ours has the shape of one.

    Parameters
    ----------
    shapes : mapping of dataset to what `stages.shape` counts
    published : Published

    Examples
    --------
    >>> from countersample.study.design.grids import Published
    >>> shape = {"queries": 2, "items": 30, "longest": 20, "features": 5, "irrelevant": 12}
    >>> table = shapes_table({"mine": shape}, Published({}))
    >>> [entry.shown for entry in table.groups[-1].rows[0].entries]
    ['2', '15.0', '40.0', '20', '5']
    """
    columns = ("queries", "items a query", "grade 0, %", "longest list", "features")

    def row(dataset: str, shape: Mapping[str, int]) -> Row:
        numbers = (
            (shape["queries"], 0),
            (shape["items"] / shape["queries"], 1),
            (100 * shape["irrelevant"] / shape["items"], 1),
            (shape["longest"], 0),
            (shape["features"], 0),
        )
        return Row(dataset, tuple(Entry(number, digits) for number, digits in numbers))

    def of_paper(dataset: str) -> Row:
        ours = _PAPER_SETS[dataset]
        numbers = [published.number(STUDY, ours, "", column) for column in columns]
        return Row(dataset, tuple(Entry(each.value if each else None, 0) for each in numbers))

    names = [
        name for name, ours in _PAPER_SETS.items() if published.number(STUDY, ours, "", columns[0])
    ]
    ours = Group("Here", tuple(row(dataset, shape) for dataset, shape in shapes.items()))
    theirs = [Group("In the paper", tuple(map(of_paper, names)))] if names else []
    return Table(
        STUDY, "Datasets", "Dataset", columns, (*theirs, ours), (_COUNT_NOTE,) if names else ()
    )


class DatasetsStudy(Kind):
    """The paper's table of datasets."""

    name = "datasets"

    def plan(self, study: Study, work: WorkList) -> None:
        """Plan to count what each fold has."""
        for source in study.sources:
            for fold in source.folds:
                data = work.data(fold, study.config)
                job = Job("shape", f"shape of {fold.title}", {}, stages.shape, (data,))
                work.keep((study.name, source.name), job)

    def write_up(self, study: Study, done: Done) -> Section:
        """Make the table; folds of a set have the same queries, so the first speaks for all."""
        shapes = {source.name: done.read(study.name, source.name)[0] for source in study.sources}
        return done.section(study, (shapes_table(shapes, done.published),))
