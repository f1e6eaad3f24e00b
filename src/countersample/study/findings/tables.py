"""Tables of a study of regret: their content. `table_formats` and the report write them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import isinf, isnan
from typing import TYPE_CHECKING, Any

from countersample.study.design.grids import COMPARED
from countersample.study.findings.statistics import (
    MEASURES,
    PAPER_SIGNIFICANT,
    SIGNIFICANT,
    contrasts,
    independent,
    interval,
    lead,
    paired_test,
    point_at,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from countersample._arrays import Floats
    from countersample.study.design.grids import Grid, Published, Value
    from countersample.study.findings.statistics import Contrast
    from countersample.study.results import StudyResult

DEFAULT_RANKER = "CounterSampleRanker"  # with its defaults: what a user gets
LEAD_PARTS = (100, 10, 1)  # T over these are the lines of the table of leads
_IPS, _SAMPLED = (method.name for method in COMPARED)
_COLUMNS = {"sgd": "SGD", "adam": "Adam", "adagrad": "Adagrad", "dog": "DoG", "amsgrad": "AMSGrad"}
_LEAD_NOTE = (
    "T is the number of clicks drawn in a whole run, for which the learning rates were chosen; the "
    "lead after T/10 is that of the same runs up to there. ±: half the width of its 95 % interval. "
    "–: no evaluation that early."
)
_DEFAULTS_NOTE = (
    f"{DEFAULT_RANKER} has nothing set, no learning rate and no labels: held-out clicks of each "
    "log choose how far to follow which path. The methods have the learning rates that labels of "
    "validation queries choose, and end where all runs end."
)
_PAIRED_NOTE = (
    f"Differences are those of {DEFAULT_RANKER} less the method, in pairs of click logs; above 0 "
    "it is ahead. ±: half the width of the 95 % interval, not corrected for their number."
)


@dataclass(frozen=True)
class Entry:
    """One number of a table."""

    value: float | None  # None: a dash is shown
    # Decimals shown; None: three significant digits, for numbers of very different sizes.
    digits: int | None = 2
    half_width: float | None = None  # of the 95 % interval
    mark: str = ""  # ▽ or △: significantly lower, higher than the reference (paired, Holm)
    paper_mark: str = ""  # the same by the paper's unpaired test, p < 0.01
    published: float | None = None  # what the paper has there, if anything
    published_mark: str = ""
    note: str = ""  # such as "2 of 5 runs diverged"

    @classmethod
    def of_sample(cls, sample: Floats, digits: int | None = 2, **more: Any) -> Entry:  # noqa: ANN401
        """Return the mean of a sample, with its 95 % interval if there are several values."""
        half_width = interval(sample)
        width = None if isnan(half_width) else half_width
        return cls(float(sample.mean()), digits, half_width=width, **more)

    @property
    def shown(self) -> str:
        """The number as text; a dash if there is none.

        >>> Entry(1234.567).shown, Entry(-0.125, digits=1).shown, Entry(0.00003, digits=None).shown
        ('1,234.57', '−0.1', '3e-5')
        """
        return show_number(self.value, self.digits)

    @property
    def shown_published(self) -> str:
        """The paper's number as text."""
        return show_number(self.published, self.digits)


def show_number(value: float | None, digits: int | None = None) -> str:
    """Return a number as the tables show it, see `Entry.digits`.

    >>> show_number(None), show_number(float("inf")), show_number(-0.001, 2)
    ('–', '∞', '0.00')
    """
    if value is None or isnan(value):
        return "–"
    if isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.3g}" if digits is None else f"{value:,.{digits}f}"
    if not text.strip("-0.,"):  # no minus before a zero
        text = text.lstrip("-")
    return text.replace("e-0", "e-").replace("e+0", "e+").replace("-", "−").replace("e−", "e-")


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    label: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Group:
    """Rows that belong together: those of a dataset."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """A table in the layout of the paper: groups of rows, one column per setting."""

    name: str  # also the name of its files
    caption: str
    axis: str  # what the columns are: "Optimizer"
    columns: tuple[str, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()  # sentences below it: what is marked, by which test


def regret_table(result: StudyResult, published: Published | None = None) -> Table:
    """Make the table of the paper: average regret ×100, by method and setting."""
    return _measure_table(result, "regret", "average regret ×100", 2, published)


def final_table(result: StudyResult) -> Table:
    """Make a table of nDCG@10 at the last evaluation point."""
    table = _measure_table(result, "ndcg", f"{result.metric} at the end", 4, None)
    limits = tuple(
        f"{dataset}: w* has {result.best[dataset]:.4f}, the logging policy "
        f"{result.policy[dataset]:.4f}."
        for dataset in result.datasets
    )
    return replace(table, notes=table.notes + limits)


def _measure_table(
    result: StudyResult, measure: str, what: str, digits: int, published: Published | None
) -> Table:
    grid = result.grid
    tests = contrasts(result, measure)
    marks = {(c.dataset, c.method, c.value): (c.mark, c.paper_mark) for c in tests}

    def entry(dataset: str, method: str, value: Value) -> Entry:
        cell = result.cells[dataset, method, value]
        mark, paper_mark = marks.get((dataset, method, value), ("", ""))
        number = published.number(grid.name, dataset, method, value) if published else None
        return Entry.of_sample(
            independent(MEASURES[measure](cell), cell.runs),
            digits,
            mark=mark,
            paper_mark=paper_mark,
            published=number.value if number else None,
            published_mark=number.mark if number else "",
            note=cell.divergence,
        )

    groups = tuple(
        Group(dataset, _rows(grid, partial(entry, dataset))) for dataset in result.datasets
    )
    return _table_of(
        grid, measure, what, groups,
        (*_interval_notes(result), *_mark_notes(grid, tests), *_entry_notes(groups)),
    )  # fmt: skip


def _table_of(
    grid: Grid, name: str, caption: str, groups: Iterable[Group], notes: tuple[str, ...]
) -> Table:
    """Return a table of a study with one column per value of its setting."""
    columns = tuple(map(column_title, grid.values))
    title = f"{grid.title}: {caption}"
    return Table(f"{grid.name}-{name}", title, grid.axis_title, columns, tuple(groups), notes)


def _rows(grid: Grid, entry: Callable[[str, Value], Entry]) -> tuple[Row, ...]:
    """Return one row per method, with one entry per setting."""
    return tuple(
        Row(method.name, tuple(entry(method.name, value) for value in grid.values))
        for method in grid.methods
    )


def column_title(value: Value) -> str:
    """Return a setting as the head of a column.

    >>> [column_title(value) for value in ("adam", 1.0, 0.75, 5000, 10_000_000)]
    ['Adam', '1', '0.75', '5000', '10,000,000']
    """
    if isinstance(value, str):
        return _COLUMNS.get(value, value)
    return f"{value:,.10g}" if value >= 10_000 else f"{value:.10g}"


def _interval_notes(result: StudyResult) -> list[str]:
    cells = result.cells.values()
    if all(len(cell.runs) < 2 for cell in cells):
        return ["There is one run of each, so there are no intervals and no tests."]
    if all(len({fold for fold, _ in cell.runs}) < 2 for cell in cells):
        return ["±: half the width of the 95 % interval of the mean over runs."]
    fold_note = (
        "±: half the width of the 95 % interval of the mean over runs, or over folds where a "
        "dataset has them: runs of a fold share their test queries, so their mean counts as one."
    )
    return [fold_note]


def _mark_notes(grid: Grid, tests: Sequence[Contrast]) -> list[str]:
    n_tests = sum(not isnan(contrast.test.p) for contrast in tests)
    if not n_tests:
        return []
    ours = (
        f"▽ △: significantly lower, higher than {grid.reference}: paired t-test, p < "
        f"{SIGNIFICANT:g} after Holm's correction over the {n_tests} tests of this table."
    )
    of_paper = (
        "t▽ t△: lower, higher by the paper's test: unpaired t-test with population standard "
        f"deviations, p < {PAPER_SIGNIFICANT:g}, not corrected."
    )
    return [ours, of_paper]


def _entry_notes(groups: tuple[Group, ...]) -> list[str]:
    entries = [entry for group in groups for row in group.rows for entry in row.entries]
    notes = []
    if any(entry.note for entry in entries):
        notes.append("Runs that diverged count, with nDCG@10 of 0 from there on.")
    if any(entry.published is not None for entry in entries):
        notes.append(
            "The paper's numbers and marks are those of the real Yahoo and Istella-s; a set named "
            "“-like” has the shape of one of them only."
        )
    return notes


def rates_table(result: StudyResult) -> Table:
    """Make a table of the learning rates chosen on validation data, by fold."""
    grid, cells = result.grid, result.cells
    without = any(None in cell.learning_rates for cell in cells.values())
    groups = []
    for dataset in result.datasets:
        some_cell = cells[dataset, grid.methods[0].name, grid.values[0]]
        for index, fold in enumerate(dict.fromkeys(fold for fold, _ in some_cell.runs)):

            def entry(method: str, value: Value, dataset: str = dataset, i: int = index) -> Entry:
                cell = cells[dataset, method, value]
                note = cell.rate_flags[i].words if cell.rate_flags else ""
                return Entry(cell.learning_rates[i], None, note=note)

            several = len(some_cell.learning_rates) > 1
            title = f"{dataset}, {fold}" if several else dataset
            groups.append(Group(title, _rows(grid, entry)))
    notes = ("–: the optimizer needs none.",) if without else ()
    caption = "learning rates chosen on validation data"
    return _table_of(grid, "learning-rates", caption, groups, notes)


def significance_table(result: StudyResult) -> Table:
    """Make a table of all tests on regret: one row per method and setting."""
    grid = result.grid
    tests = contrasts(result)

    def row(contrast: Contrast) -> Row:
        test = contrast.test
        half_width = None if isnan(test.half_width) else test.half_width
        return Row(
            f"{contrast.method}, {column_title(contrast.value)}",
            (
                Entry(test.difference, 3, half_width=half_width, mark=contrast.mark),
                Entry(test.effect),
                Entry(test.n, 0),
                Entry(test.p, None),
                Entry(contrast.adjusted, None),
                Entry(contrast.paper_p, None, paper_mark=contrast.paper_mark),
            ),
        )

    return Table(
        f"{grid.name}-significance",
        f"{grid.title}: regret ×100 against that of {grid.reference}",
        "Method and setting",
        ("difference", "d_z", "pairs", "p", "p, Holm", "p, paper's test"),
        tuple(
            Group(dataset, tuple(row(c) for c in tests if c.dataset == dataset))
            for dataset in result.datasets
        ),
        (
            *_interval_notes(result),
            *_mark_notes(grid, tests),
            "d_z: Cohen's effect size, the mean of the paired differences over their deviation.",
        ),
    )


def leads_table(result: StudyResult) -> Table:
    """Make a table of the lead after T/100, T/10 and T clicks drawn, one column per setting."""
    grid = result.grid

    def entry(dataset: str, value: Value, part: int) -> Entry:
        cell = result.cells[dataset, _SAMPLED, value]
        point = point_at(cell.drawn, part)
        if point is None:
            return Entry(None)
        return Entry.of_sample(independent(lead(result, dataset, value)[:, point], cell.runs))

    def row(dataset: str, part: int) -> Row:
        label = "T" if part == 1 else f"T/{part}"
        return Row(label, tuple(entry(dataset, value, part) for value in grid.values))

    groups = (
        Group(dataset, tuple(row(dataset, part) for part in LEAD_PARTS))
        for dataset in result.datasets
    )
    caption = f"lead of {_SAMPLED} over {_IPS}, the difference of their average regret ×100"
    return _table_of(grid, "lead", caption, groups, (_LEAD_NOTE,))


def nothing_set_table(result: StudyResult) -> Table:
    """Make a table of the metric on test data: of the ranker, and less each method at its end."""
    grid = result.grid

    def of_ranker(dataset: str, value: Value) -> Entry:
        cell = result.cells[dataset, grid.methods[0].name, value]
        return Entry.of_sample(independent(result.nothing_set[dataset, value], cell.runs), 4)

    def ahead_of(dataset: str, method: str, value: Value) -> Entry:
        cell = result.cells[dataset, method, value]
        test = paired_test(result.nothing_set[dataset, value], cell.final, cell.runs)
        half_width = test.half_width if test.n > 1 else None
        return Entry(test.difference, 4, half_width=half_width, note=cell.divergence)

    def group(dataset: str) -> Group:
        rows = [Row(DEFAULT_RANKER, tuple(of_ranker(dataset, value) for value in grid.values))]
        for method in grid.methods:
            entries = tuple(ahead_of(dataset, method.name, value) for value in grid.values)
            rows.append(Row(f"less {method.name}", entries))
        return Group(dataset, tuple(rows))

    caption = f"{result.metric} with nothing set, beside methods at their best"
    groups = map(group, result.datasets)
    return _table_of(grid, "nothing-set", caption, groups, (_DEFAULTS_NOTE, _PAIRED_NOTE))
