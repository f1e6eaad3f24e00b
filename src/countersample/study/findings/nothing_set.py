"""What a user gets who tunes nothing, beside every method at its best learning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countersample.study.findings.statistics import independent, paired_test
from countersample.study.findings.tables import Entry, Group, Row, Table, column_title

if TYPE_CHECKING:
    from countersample.study.design.claims import Value
    from countersample.study.results import StudyResult

USERS = "CounterSampleRanker"  # with nothing set: what a user gets
_HOW = (
    f"{USERS} has nothing set, no learning rate and no labels: held-out clicks of each log choose "
    "how far to follow which path. The methods have the learning rates that labels of validation "
    "queries choose, and end where all runs end."
)
_PAIRED = (
    f"Differences are those of {USERS} less the method, in pairs of click logs; above 0 it is "
    "ahead. ±: half the width of the 95 % interval, not corrected for their number."
)


def nothing_set_table(result: StudyResult) -> Table:
    """Make a table of the metric on test data: of the ranker, and less each method at its end."""
    grid = result.grid

    def of_users(dataset: str, value: Value) -> Entry:
        cell = result.cells[dataset, grid.methods[0].name, value]
        return Entry.of_sample(independent(result.nothing_set[dataset, value], cell.runs), 4)

    def ahead_of(dataset: str, method: str, value: Value) -> Entry:
        cell = result.cells[dataset, method, value]
        test = paired_test(result.nothing_set[dataset, value], cell.final, cell.runs)
        half_width = test.half_width if test.n > 1 else None
        return Entry(test.difference, 4, half_width=half_width, note=cell.divergence)

    def group(dataset: str) -> Group:
        rows = [Row(USERS, tuple(of_users(dataset, value) for value in grid.values))]
        for method in grid.methods:
            entries = tuple(ahead_of(dataset, method.name, value) for value in grid.values)
            rows.append(Row(f"less {method.name}", entries))
        return Group(dataset, tuple(rows))

    return Table(
        f"{grid.name}-nothing-set",
        f"{grid.title}: {result.metric} with nothing set, beside methods at their best",
        grid.axis_title,
        tuple(map(column_title, grid.values)),
        tuple(map(group, result.datasets)),
        (_HOW, _PAIRED),
    )
