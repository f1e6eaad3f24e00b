"""Tables as text for the terminal, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
import textwrap
import unicodedata
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from countersample._files import atomic_path
from countersample.study.findings.tables import show_number

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from countersample.study.findings.tables import Entry, Row, Table

_WIDTH = 100
_GAP = "  "
_CSV_COLUMNS = (
    "dataset", "row", "column", "value", "half_width", "mark", "paper_mark", "published",
    "published_mark", "note",
)  # fmt: skip
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
_MARKDOWN = re.compile(r"([\\`*_<\[\]|])")


def write_table(table: Table, folder: str | os.PathLike[str]) -> list[Path]:
    """Write a table as ``name.txt``, ``.md``, ``.csv`` and ``.tex`` into a folder that exists.

    Returns
    -------
    list of Path
    """
    paths = []
    for ending, render in RENDERERS.items():
        path = Path(folder) / f"{table.name}{ending}"
        with atomic_path(path) as temporary:
            temporary.write_text(render(table), encoding="utf-8", newline="\n")
        paths.append(path)
    return paths


# -- text ----------------------------------------------------------------------------------------


class _Parts(NamedTuple):
    """An entry in the parts that are aligned: the number flush right, what follows flush left."""

    number: str
    interval: str = ""
    marks: str = ""
    paper: str = ""


def to_text(table: Table) -> str:
    """Return a table for the terminal.

    The paper's numbers stand beside ours where 100 columns are enough, else in a line below them.
    Columns that are too many even so follow in a block of their own.
    """
    beside = _Grid(table, paper_beside=True)
    grid = beside if beside.width <= _WIDTH else _Grid(table, paper_beside=False)
    lines = [*_wrapped(table.caption), ""]
    for columns in grid.blocks():
        lines += [*grid.lines(columns), ""]
    for note in (*table.notes, *_footnotes(table)):
        lines += _wrapped(note)
    return "\n".join(lines).rstrip() + "\n"


class _Grid:
    """The lines of a table, and how wide its columns must be."""

    def __init__(self, table: Table, *, paper_beside: bool) -> None:
        self.columns = range(len(table.columns))
        self.heads = table.columns
        self.axis = table.axis
        self.rows: list[tuple[str, list[_Parts]]] = []
        for group in table.groups:
            if group.title:
                self.rows.append((group.title, []))
            indent = "  " if group.title else ""
            for row in group.rows:
                entries = [_parts(entry, paper_beside=paper_beside) for entry in row.entries]
                self.rows.append((indent + row.label, entries))
                if not paper_beside and _is_published(row):
                    below = [_Parts(*_published(entry)) for entry in row.entries]
                    self.rows.append((f"{indent}  in the paper", below))
        self.label_width = max(map(_width, [table.axis, *(label for label, _ in self.rows)]))
        filled = [entries for _, entries in self.rows if entries]
        self.part_widths = [
            [max(map(_width, part)) for part in zip(*(row[column] for row in filled), strict=True)]
            for column in self.columns
        ]
        self.widths = [
            max(sum(parts), _width(head))
            for parts, head in zip(self.part_widths, self.heads, strict=True)
        ]
        self.width = self._total(self.columns)

    def _total(self, columns: Sequence[int]) -> int:
        return self.label_width + sum(len(_GAP) + self.widths[column] for column in columns)

    def blocks(self) -> Iterator[list[int]]:
        """Cut the columns into blocks that fit, of one column at least."""
        block: list[int] = []
        for column in self.columns:
            if block and self._total([*block, column]) > _WIDTH:
                yield block
                block = []
            block.append(column)
        yield block

    def lines(self, columns: Sequence[int]) -> Iterator[str]:
        """Write the lines of some columns."""
        heads = [_pad(self.heads[column], self.widths[column], left=True) for column in columns]
        widths = [self.label_width, *(self.widths[column] for column in columns)]
        yield _GAP.join([_pad(self.axis, self.label_width), *heads]).rstrip()
        yield _GAP.join("─" * width for width in widths)
        for label, entries in self.rows:
            cells = [self._cell(entries[column], column) for column in columns] if entries else []
            yield _GAP.join([_pad(label, self.label_width), *cells]).rstrip()

    def _cell(self, parts: _Parts, column: int) -> str:
        padded = [
            _pad(part, width, left=index == 0)
            for index, (part, width) in enumerate(zip(parts, self.part_widths[column], strict=True))
        ]
        return _pad("".join(padded), self.widths[column], left=True)


def _parts(entry: Entry, *, paper_beside: bool) -> _Parts:
    paper = ""
    if paper_beside and entry.published is not None:
        paper = f" (paper {''.join(_published(entry))})"
    return _Parts(entry.shown, _interval(entry), _marks(entry), paper)


def _interval(entry: Entry) -> str:
    if entry.half_width is None:
        return ""
    return f" ±{show_number(entry.half_width, entry.digits)}"


def _marks(entry: Entry) -> str:
    """Return our mark, that of the paper's test, and a dagger where there is a note."""
    by_paper_test = f" t{entry.paper_mark}" if entry.paper_mark else ""
    return f"{entry.mark}{by_paper_test}{'†' if entry.note else ''}"


def _published(entry: Entry) -> tuple[str, str]:
    return ("", "") if entry.published is None else (entry.shown_published, entry.published_mark)


def _is_published(row: Row) -> bool:
    return any(entry.published is not None for entry in row.entries)


def _footnotes(table: Table) -> list[str]:
    return [
        "† " + ", ".join(filter(None, (group.title, row.label, column))) + f": {entry.note}."
        for group in table.groups
        for row in group.rows
        for column, entry in zip(table.columns, row.entries, strict=True)
        if entry.note
    ]


def _width(text: str) -> int:
    """Return the columns that a text takes: a bar over a letter takes none."""
    return sum(not unicodedata.combining(letter) for letter in text)


def _pad(text: str, width: int, *, left: bool = False) -> str:
    space = " " * (width - _width(text))
    return space + text if left else text + space


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH)


# -- Markdown ------------------------------------------------------------------------------------


def to_markdown(table: Table) -> str:
    """Return a table as GitHub's Markdown."""
    lines = [
        f"**{_escape_markdown(table.caption)}**",
        "",
        _piped([table.axis, *table.columns]),
        "|---" + "|--:" * len(table.columns) + "|",
    ]
    for group in table.groups:
        if group.title:
            title = f"| **{_escape_markdown(group.title)}** |"
            lines.append(title + "  |" * len(table.columns))
        lines += [
            _piped([row.label, *("".join(_parts(e, paper_beside=True)) for e in row.entries)])
            for row in group.rows
        ]
    for note in (*table.notes, *_footnotes(table)):
        lines += ["", _escape_markdown(note)]
    return "\n".join(lines) + "\n"


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_escape_markdown, cells)) + " |"


def _escape_markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


# -- CSV -----------------------------------------------------------------------------------------


def to_csv(table: Table) -> str:
    """Return a table as CSV, a row a number: unrounded, empty where there is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for group in table.groups:
        for row in group.rows:
            for column, entry in zip(table.columns, row.entries, strict=True):
                writer.writerow(
                    [group.title, row.label, column, entry.value, entry.half_width, entry.mark,
                     entry.paper_mark, entry.published, entry.published_mark, entry.note]
                )  # fmt: skip
    return text.getvalue()


# -- LaTeX ---------------------------------------------------------------------------------------


def to_latex(table: Table) -> str:
    """Return a table in the layout of the paper, for a document with amssymb and booktabs."""
    n_columns = len(table.columns)
    lines = [
        r"% \usepackage{amssymb, booktabs}",
        r"\begin{table}",
        rf"\caption{{{escape_latex(table.caption)}}}",
        rf"\label{{tbl:{table.name}}}",
        # Marks hang over into the space before the next column, so that digits stay aligned.
        rf"\begin{{tabular}}{{l*{{{n_columns}}}{{@{{\hspace{{8mm}}}}r}}@{{\hspace{{8mm}}}}}}",
        r"\toprule",
        _latex_row(f"{table.axis}:" if table.axis else "", map(escape_latex, table.columns)),
    ]
    for group in table.groups:
        lines.append(r"\midrule")
        if group.title:
            lines.append(escape_latex(group.title) + " &" * n_columns + r" \\")
        indent = r"\quad " if group.title else ""
        for row in group.rows:
            lines.append(_latex_row(row.label, map(_latex_entry, row.entries), indent))
            if _is_published(row):
                published = (_latex_marked(*_published(entry)) for entry in row.entries)
                lines.append(_latex_row("in the paper", published, indent + r"\quad "))
    lines += [r"\bottomrule", r"\end{tabular}"]
    for note in (*table.notes, *_footnotes(table)):
        lines += ["", rf"{{\footnotesize {escape_latex(note)}\par}}"]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _latex_row(label: str, cells: Iterable[str], indent: str = "") -> str:
    return " & ".join([indent + escape_latex(label), *cells]) + r" \\"


def _latex_entry(entry: Entry) -> str:
    return _latex_marked(entry.shown + _interval(entry), _marks(entry))


def _latex_marked(number: str, marks: str) -> str:
    symbols = " ".join(escape_latex(marks).replace("$", " ").split())
    return escape_latex(number) + (rf"\rlap{{$^{{{symbols}}}$}}" if symbols else "")


def escape_latex(text: str) -> str:
    r"""Return a text so that LaTeX prints it as it is.

    >>> print(escape_latex("50 % of M̄ & γ_1"))
    50 \% of $\bar{M}$ \& $\gamma$\_1
    """
    composed = "".join(_LATEX.get(letter, letter) for letter in text)
    return _BARRED.sub(r"$\\bar{\1}$", composed)


RENDERERS: Mapping[str, Callable[[Table], str]] = MappingProxyType(
    {".txt": to_text, ".md": to_markdown, ".csv": to_csv, ".tex": to_latex}
)
