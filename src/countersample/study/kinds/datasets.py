"""The sets that a study uses, beside those of the paper: queries, items, grades."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countersample.study.findings.tables import Entry, Group, Row, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countersample.study.design.published import Published

STUDY = "datasets"


@dataclass(frozen=True)
class Shape:
    """Counts of a set: its training, validation and test data together.

    Attributes
    ----------
    queries, items, features : int
    longest : int
        Items of the query that has most.
    irrelevant : int
        Items of grade 0.
    """

    queries: int
    items: int
    longest: int
    features: int
    irrelevant: int


def shapes_table(shapes: Mapping[str, Shape], published: Published) -> Table:
    """Make the paper's table of datasets, with the longest list and the features beside it.

    Parameters
    ----------
    shapes : mapping of dataset to Shape
    published : Published

    Examples
    --------
    >>> from countersample.study.design.published import Published
    >>> table = shapes_table({"mine": Shape(2, 30, 20, 5, 12)}, Published({}))
    >>> [entry.shown for entry in table.groups[0].rows[0].entries]
    ['2', '15.0', '40.0', '20', '5']
    """
    columns = ("queries", "items a query", "grade 0, %", "longest list", "features")

    def row(dataset: str, shape: Shape) -> Row:
        numbers = (
            (shape.queries, 0),
            (shape.items / shape.queries, 1),
            (100 * shape.irrelevant / shape.items, 1),
            (shape.longest, 0),
            (shape.features, 0),
        )
        entries = []
        for column, (number, digits) in zip(columns, numbers, strict=True):
            known = published.number(STUDY, dataset, "", column)
            entries.append(Entry(number, digits, published=known.value if known else None))
        return Row(dataset, tuple(entries))

    rows = tuple(row(dataset, shape) for dataset, shape in shapes.items())
    return Table(STUDY, "Datasets", "Dataset", columns, (Group("", rows),))
