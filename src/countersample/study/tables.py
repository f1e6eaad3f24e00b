"""Tables of a study: their content, and how they are written as text, Markdown, CSV and LaTeX."""

from __future__ import annotations

import io
import re
import textwrap
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from math import isinf, isnan
from typing import TYPE_CHECKING, Any

from countersample._files import atomic_path
from countersample.pages import escape_markdown
from countersample.pages.charts import write_csv
from countersample.study import statistics
from countersample.study.grids import COMPARED, Grid, Published, Value
from countersample.study.statistics import INTERVAL, MEASURES, Contrast, independent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from countersample._arrays import Floats
    from countersample.study.results import StudyResult

DEFAULT_RANKER = "CounterSampleRanker"  # with its defaults
LEAD_PARTS = (100, 10, 1)  # the rows of the table of leads are T over these
_IPS, _SAMPLED = (method.name for method in COMPARED)
_COLUMNS = {"sgd": "SGD", "adam": "Adam", "adagrad": "Adagrad", "dog": "DoG", "amsgrad": "AMSGrad"}


@dataclass(frozen=True)
class Entry:
    """One number of a table."""

    value: float | None  # None: a dash is shown
    # Decimals shown; None: three significant digits, for numbers of very different sizes.
    digits: int | None = 2
    half_width: float | None = None  # of the 95 % interval
    mark: str = ""  # ▽ or △: significantly lower, higher than the reference (paired, Holm)
    paper_mark: str = ""  # the same by the paper's unpaired test, p < 0.01
    published: float | None = None  # the paper's number
    published_mark: str = ""
    note: str = ""  # such as "2 of 5 runs diverged"

    @classmethod
    def of_sample(cls, sample: Floats, digits: int | None = 2, **more: Any) -> Entry:  # noqa: ANN401
        """Return the mean of a sample, with its 95 % interval if there are several values."""
        width = _number(statistics.interval(sample))
        return cls(float(sample.mean()), digits, half_width=width, **more)

    @property
    def number(self) -> str:
        """The number as text; a dash if there is none.

        >>> Entry(1234.567).number, Entry(-0.125, digits=1).number
        ('1,234.57', '−0.1')
        """
        return show_number(self.value, self.digits)

    @property
    def spread(self) -> str:
        """The half width of the interval with a ± before it; empty if there is none."""
        if self.half_width is None:
            return ""
        return f"±{show_number(self.half_width, self.digits)}"

    @property
    def published_number(self) -> str:
        """The paper's number as text; empty if there is none."""
        return "" if self.published is None else show_number(self.published, self.digits)

    @property
    def marks(self) -> str:
        """Our mark, the mark of the paper's test, and a dagger if there is a note."""
        paper_test = f" t{self.paper_mark}" if self.paper_mark else ""
        return f"{self.mark}{paper_test}{'†' if self.note else ''}"

    @property
    def text(self) -> str:
        """Number, interval, marks and the paper's number.

        >>> Entry(0.3, half_width=0.02, mark="▽", published=0.35).text
        '0.30 ±0.02▽ (paper 0.35)'
        """
        text = " ".join(filter(None, (self.number, self.spread))) + self.marks
        if self.published is None:
            return text
        return f"{text} (paper {self.published_number}{self.published_mark})"


def show_number(value: float | None, digits: int | None = None) -> str:
    """Return a number as the tables show it, see `Entry.digits`.

    >>> show_number(None), show_number(float("inf")), show_number(-0.001, 2), show_number(3e-5)
    ('–', '∞', '0.00', '3e-5')
    """
    if value is None or isnan(value):
        return "–"
    if isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.3g}" if digits is None else f"{value:,.{digits}f}"
    if not text.strip("-0.,"):  # no minus before a zero
        text = text.lstrip("-")
    return text.replace("e-0", "e-").replace("e+0", "e+").replace("-", "−").replace("e−", "e-")


def column_title(value: Value) -> str:
    """Return a setting as the head of a column.

    >>> [column_title(value) for value in ("adam", 1.0, 0.75, 5000, 10_000_000)]
    ['Adam', '1', '0.75', '5000', '10,000,000']
    """
    if isinstance(value, str):
        return _COLUMNS.get(value, value)
    return f"{value:,.10g}" if value >= 10_000 else f"{value:.10g}"


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    label: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Group:
    """The rows of one dataset."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """A table in the layout of the paper: groups of rows, one column per setting."""

    name: str  # also the name of its files
    caption: str
    axis: str  # the title of the columns: "Optimizer"
    columns: tuple[str, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()  # sentences below it, on marks and tests

    @property
    def footnotes(self) -> tuple[str, ...]:
        """The notes of the table and of its entries."""
        daggers = (
            "† " + ", ".join(filter(None, (group.title, row.label, column))) + f": {entry.note}."
            for group in self.groups
            for row in group.rows
            for column, entry in zip(self.columns, row.entries, strict=True)
            if entry.note
        )
        return (*self.notes, *daggers)


# -- tables of a study of regret -----------------------------------------------------------------


def regret_table(result: StudyResult, published: Published | None = None) -> Table:
    """Return the table of the paper: average regret ×100, by method and setting."""
    return _measure_table(result, "regret", "average regret ×100", 2, published)


def final_table(result: StudyResult) -> Table:
    """Return a table of nDCG@10 at the last evaluation point."""
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
    tests = statistics.contrasts(result, measure)
    marks = {(c.dataset, c.method, c.value): (c.mark, c.paper_mark) for c in tests}

    def entry(dataset: str, method: str, value: Value) -> Entry:
        cell = result.cells[dataset, method, value]
        mark, paper_mark = marks.get((dataset, method, value), ("", ""))
        number = published.number(grid.name, dataset, method, value) if published else None
        return Entry.of_sample(
            independent(MEASURES[measure](cell), cell.runs), digits,
            mark=mark, paper_mark=paper_mark, note=cell.divergence,
            published=number.value if number else None,
            published_mark=number.mark if number else "",
        )  # fmt: skip

    groups = [Group(dataset, _rows(grid, partial(entry, dataset))) for dataset in result.datasets]
    entries = [entry for group in groups for row in group.rows for entry in row.entries]
    notes = [*_interval_notes(result), *_mark_notes(grid, tests)]
    if any(entry.note for entry in entries):
        notes.append("Runs that diverged count, with nDCG@10 of 0 from there on.")
    if any(entry.published is not None for entry in entries):
        notes.append(
            "The paper's numbers and marks are those of the real Yahoo and Istella-s; a set named "
            "“-like” only has the shape of one of them."
        )
    return _table_of(grid, measure, what, groups, notes)


def _table_of(
    grid: Grid, name: str, caption: str, groups: Iterable[Group], notes: Iterable[str]
) -> Table:
    """Return a table of a study with one column per value of its setting."""
    columns, title = tuple(map(column_title, grid.values)), f"{grid.title}: {caption}"
    table_name = f"{grid.name}-{name}"
    return Table(table_name, title, grid.axis_title, columns, tuple(groups), tuple(notes))


def _rows(grid: Grid, entry: Callable[[str, Value], Entry], prefix: str = "") -> tuple[Row, ...]:
    """Return one row per method, with one entry per setting."""
    return tuple(
        Row(prefix + method.name, tuple(entry(method.name, value) for value in grid.values))
        for method in grid.methods
    )


def _interval_notes(result: StudyResult) -> list[str]:
    cells = result.cells.values()
    if all(len(cell.runs) < 2 for cell in cells):
        return ["There is one run of each, so there are no intervals and no tests."]
    note = f"±: half the width of the {INTERVAL} of the mean over runs"
    if all(len({fold for fold, _ in cell.runs}) < 2 for cell in cells):
        return [f"{note}."]
    folds = "runs of a fold share their test queries, so their mean counts as one"
    return [f"{note}, or over folds if a dataset has them: {folds}."]


def _mark_notes(grid: Grid, tests: Sequence[Contrast]) -> list[str]:
    n_tests = sum(not isnan(contrast.test.p) for contrast in tests)
    if not n_tests:
        return []
    ours = (
        f"▽ △: significantly lower, higher than {grid.reference}: paired t-test, p < "
        f"{statistics.SIGNIFICANT:g} after Holm's correction over the {n_tests} tests of this "
        "table."
    )
    papers = (
        "t▽ t△: lower, higher by the paper's test: unpaired t-test with population standard "
        f"deviations, p < {statistics.PAPER_SIGNIFICANT:g}, not corrected."
    )
    return [ours, papers]


def rates_table(result: StudyResult) -> Table:
    """Return a table of the learning rates chosen on validation data, by fold."""
    grid, cells = result.grid, result.cells

    def entry(dataset: str, fold: int, method: str, value: Value) -> Entry:
        cell = cells[dataset, method, value]
        note = cell.rate_flags[fold] if cell.rate_flags else ""
        return Entry(cell.learning_rates[fold], None, note=note)

    groups = []
    for dataset in result.datasets:
        some_cell = cells[dataset, grid.methods[0].name, grid.values[0]]
        folds = dict.fromkeys(fold for fold, _ in some_cell.runs)
        for index, fold in enumerate(folds):
            title = f"{dataset}, {fold}" if len(folds) > 1 else dataset
            groups.append(Group(title, _rows(grid, partial(entry, dataset, index))))
    without = any(None in cell.learning_rates for cell in cells.values())
    notes = ["–: the optimizer needs none."] if without else []
    caption = "learning rates chosen on validation data"
    return _table_of(grid, "learning-rates", caption, groups, notes)


def significance_table(result: StudyResult) -> Table:
    """Return a table of all tests on regret: one row per method and setting."""
    grid = result.grid
    tests = statistics.contrasts(result)
    groups: dict[str, list[Row]] = {dataset: [] for dataset in result.datasets}
    for contrast in tests:
        test = contrast.test
        entries = (
            Entry(test.difference, 3, half_width=_number(test.half()), mark=contrast.mark),
            Entry(test.effect),
            Entry(test.n, 0),
            Entry(test.p, None),
            Entry(contrast.adjusted, None),
            Entry(contrast.paper_p, None, paper_mark=contrast.paper_mark),
        )
        label = f"{contrast.method}, {column_title(contrast.value)}"
        groups[contrast.dataset].append(Row(label, entries))
    effect = "d_z: Cohen's effect size, the mean of the paired differences over their deviation."
    return Table(
        f"{grid.name}-significance",
        f"{grid.title}: regret ×100 against that of {grid.reference}",
        "Method and setting",
        ("difference", "d_z", "pairs", "p", "p, Holm", "p, paper's test"),
        tuple(Group(dataset, tuple(rows)) for dataset, rows in groups.items()),
        (*_interval_notes(result), *_mark_notes(grid, tests), effect),
    )


def leads_table(result: StudyResult) -> Table:
    """Return a table of the lead after T/100, T/10 and T clicks drawn, one column per setting."""
    grid = result.grid

    def entry(dataset: str, part: int, value: Value) -> Entry:
        cell = result.cells[dataset, _SAMPLED, value]
        point = statistics.point_at(cell.drawn, part)
        if point is None:
            return Entry(None)
        leads = statistics.lead(result, dataset, value)[:, point]
        return Entry.of_sample(independent(leads, cell.runs))

    note = (
        "T is the number of clicks drawn in a whole run, for which the learning rates were chosen; "
        "the lead after T/10 is the lead of the same runs at that point. ±: half the width of its "
        f"{INTERVAL}. –: no evaluation that early."
    )
    groups = []
    for dataset in result.datasets:
        rows = []
        for part in LEAD_PARTS:
            entries = tuple(entry(dataset, part, value) for value in grid.values)
            rows.append(Row("T" if part == 1 else f"T/{part}", entries))
        groups.append(Group(dataset, tuple(rows)))
    caption = f"lead of {_SAMPLED} over {_IPS}, the difference of their average regret ×100"
    return _table_of(grid, "lead", caption, groups, [note])


def nothing_set_table(result: StudyResult) -> Table:
    """Return a table of the default ranker's metric, and of its difference to each method."""
    grid = result.grid

    def difference(dataset: str, method: str, value: Value) -> Entry:
        cell = result.cells[dataset, method, value]
        test = statistics.paired_test(result.nothing_set[dataset, value], cell.final, cell.runs)
        half_width = _number(test.half())
        return Entry(test.difference, 4, half_width=half_width, note=cell.divergence)

    groups = []
    for dataset in result.datasets:
        entries = []
        for value in grid.values:
            runs = result.cells[dataset, grid.methods[0].name, value].runs
            sample = independent(result.nothing_set[dataset, value], runs)
            entries.append(Entry.of_sample(sample, 4))
        rows = _rows(grid, partial(difference, dataset), "less ")
        groups.append(Group(dataset, (Row(DEFAULT_RANKER, tuple(entries)), *rows)))
    about = (
        f"{DEFAULT_RANKER} has its default options, no learning rate and no labels: held-out "
        "clicks of each log choose the path and its end. The methods have the learning rates that "
        "labels of validation queries choose, and end where all runs end. "
        f"Differences are {DEFAULT_RANKER} minus the method, in pairs of click logs; above 0 it is "
        f"ahead. ±: half the width of the {INTERVAL}, not corrected for their number."
    )
    caption = f"{result.metric} of the default ranker, beside methods at their best"
    return _table_of(grid, "nothing-set", caption, groups, [about])


def _number(value: float) -> float | None:
    return None if isnan(value) else value


# -- formats -------------------------------------------------------------------------------------

_WIDTH = 100
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%",
    "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": "$<$", ">": "$>$", "|": "$|$", "−": "$-$", "–": "--", "±": r"$\pm$", "×": r"$\times$",
    "∞": r"$\infty$", "≤": r"$\le$", "≥": r"$\ge$", "γ": r"$\gamma$", "η": r"$\eta$",
    "λ": r"$\lambda$", "▽": r"$\triangledown$", "△": r"$\triangle$", "†": r"$\dagger$",
    "√": r"$\surd$", "→": r"$\to$", "‖": r"$\|$", "“": "``", "”": "''", "’": "'", "…": r"\dots{}",
    "·": r"$\cdot$",
}  # fmt: skip
_BARRED = re.compile(r"(\w)\N{COMBINING MACRON}")


def write_table(table: Table, folder: Path) -> list[Path]:
    """Write a table as ``name.md``, ``.csv`` and ``.tex`` into a folder that exists."""
    paths = {ending: folder / f"{table.name}.{ending}" for ending in ("md", "csv", "tex")}
    for ending in ("md", "tex"):
        with atomic_path(paths[ending]) as temporary:
            text = render_table(table, f"table.{ending}")
            temporary.write_text(text, encoding="utf-8", newline="\n")
    _, _, *others = (field.name for field in fields(Entry))
    write_csv(paths["csv"], ("dataset", "row", "column", "value", *others), list_entries(table))
    return list(paths.values())


def render_table(table: Table, template: str) -> str:
    """Return a table by a template: GitHub's Markdown, or LaTeX with amssymb and booktabs."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 (heavy)

    environment = Environment(  # LaTeX is full of braces
        loader=PackageLoader("countersample.study"), autoescape=False,  # noqa: S701 (no HTML)
        block_start_string="<%", block_end_string="%>", variable_start_string="<<",
        variable_end_string=">>", comment_start_string="<#", comment_end_string="#>",
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined,
    )  # fmt: skip
    environment.filters |= {"md": escape_markdown, "tex": escape_latex, "raised": _raise_marks}
    return environment.get_template(template).render(table=table)


def _raise_marks(marks: str) -> str:
    """Return marks above the line in LaTeX, without a width."""
    symbols = " ".join(escape_latex(marks).replace("$", " ").split())
    return rf"\rlap{{$^{{{symbols}}}$}}" if symbols else ""


def to_text(table: Table) -> str:
    """Return a table for the terminal, 100 columns wide."""
    from rich import box  # noqa: PLC0415 (only to print)
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table as TextTable  # noqa: PLC0415

    grid = TextTable(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    grid.add_column(table.axis)
    for column in table.columns:
        grid.add_column(column, justify="right")
    for group in table.groups:
        if group.title:
            grid.add_row(group.title)
        indent = "  " if group.title else ""
        for row in group.rows:
            grid.add_row(indent + row.label, *(entry.text for entry in row.entries))
    text = io.StringIO()
    console = Console(file=text, width=_WIDTH, color_system=None, markup=False, highlight=False)
    console.print(grid)
    body = "\n".join(line.rstrip() for line in text.getvalue().splitlines())
    notes = [line for note in table.footnotes for line in textwrap.wrap(note, _WIDTH)]
    return "\n".join([*textwrap.wrap(table.caption, _WIDTH), "", body, "", *notes]).rstrip() + "\n"


def list_entries(table: Table) -> Iterator[tuple[Any, ...]]:
    """Yield one row per number for a CSV file: unrounded, empty if there is none."""
    for group in table.groups:
        for row in group.rows:
            for column, entry in zip(table.columns, row.entries, strict=True):
                value, _digits, *rest = astuple(entry)
                yield (group.title, row.label, column, value, *rest)


def escape_latex(text: str) -> str:
    r"""Return a text escaped for LaTeX.

    >>> print(escape_latex("50 % of M̄ & γ_1"))
    50 \% of $\bar{M}$ \& $\gamma$\_1
    """
    composed = "".join(_LATEX.get(letter, letter) for letter in text)
    return _BARRED.sub(r"$\\bar{\1}$", composed)
