"""Tables as text for the terminal, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
import textwrap
import unicodedata
from dataclasses import astuple, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from countersample._files import atomic_path
from countersample.pages import escape_markdown
from countersample.study.findings.tables import Entry, show_number

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from countersample.study.findings.tables import Row, Table

_WIDTH = 100
_GAP = "  "
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


def write_table(table: Table, folder: str | os.PathLike[str]) -> list[Path]:
    """Write a table as ``name.txt``, ``.md``, ``.csv`` and ``.tex`` into a folder that exists."""
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

    The paper's numbers stand beside ours if 100 columns are enough, else in a line below them.
    Columns that still do not fit follow in another block.
    """
    labels, *columns = _aligned(table, paper_beside=True)
    if _total([labels, *columns]) > _WIDTH:
        labels, *columns = _aligned(table, paper_beside=False)
    blocks = [[labels]]
    for column in columns:
        if len(blocks[-1]) > 1 and _total([*blocks[-1], column]) > _WIDTH:
            blocks.append([labels])
        blocks[-1].append(column)
    lines = [*textwrap.wrap(table.caption, _WIDTH), ""]
    for block in blocks:
        lines += [_GAP.join(line).rstrip() for line in zip(*block, strict=True)]
        lines.append("")
    for note in (*table.notes, *_footnotes(table)):
        lines += textwrap.wrap(note, _WIDTH)
    return "\n".join(lines).rstrip() + "\n"


def _aligned(table: Table, *, paper_beside: bool) -> list[list[str]]:
    """Return the labels and the columns: a head, a rule and one text per line, all of one width."""
    rows: list[tuple[str, Sequence[_Parts]]] = []
    for group in table.groups:
        if group.title:
            rows.append((group.title, [_Parts("")] * len(table.columns)))
        indent = "  " if group.title else ""
        for row in group.rows:
            entries = [_parts(entry, paper_beside=paper_beside) for entry in row.entries]
            rows.append((indent + row.label, entries))
            if not paper_beside and _is_published(row):
                below = [_Parts(*_published(entry)) for entry in row.entries]
                rows.append((f"{indent}  in the paper", below))
    label_width = max(map(_width, [table.axis, *(label for label, _ in rows)]))
    labels = [_pad(label, label_width) for label, _ in rows]
    columns = [[_pad(table.axis, label_width), "─" * label_width, *labels]]
    for index, head in enumerate(table.columns):
        cells = [entries[index] for _, entries in rows]
        widths = [max(map(_width, part)) for part in zip(*cells, strict=True)]
        width = max(sum(widths), _width(head))
        texts = [head, "─" * width]
        for number, *others in cells:
            padded = [_pad(part, size) for part, size in zip(others, widths[1:], strict=True)]
            texts.append(_pad(number, widths[0], left=True) + "".join(padded))
        columns.append([_pad(text, width, left=True) for text in texts])
    return columns


def _total(columns: Sequence[Sequence[str]]) -> int:
    return sum(len(_GAP) + _width(column[0]) for column in columns) - len(_GAP)


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
    """Return our mark, that of the paper's test, and a dagger if there is a note."""
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


# -- Markdown ------------------------------------------------------------------------------------


def to_markdown(table: Table) -> str:
    """Return a table as GitHub's Markdown."""
    lines = [
        f"**{escape_markdown(table.caption)}**",
        "",
        _piped([table.axis, *table.columns]),
        "|---" + "|--:" * len(table.columns) + "|",
    ]
    for group in table.groups:
        if group.title:
            title = f"| **{escape_markdown(group.title)}** |"
            lines.append(title + "  |" * len(table.columns))
        lines += [
            _piped([row.label, *("".join(_parts(e, paper_beside=True)) for e in row.entries)])
            for row in group.rows
        ]
    for note in (*table.notes, *_footnotes(table)):
        lines += ["", escape_markdown(note)]
    return "\n".join(lines) + "\n"


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(escape_markdown, cells)) + " |"


# -- CSV -----------------------------------------------------------------------------------------


def to_csv(table: Table) -> str:
    """Return a table as CSV: one row per number, unrounded, empty if there is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    _, _, *others = (field.name for field in fields(Entry))
    writer.writerow(["dataset", "row", "column", "value", *others])
    for group in table.groups:
        for row in group.rows:
            for column, entry in zip(table.columns, row.entries, strict=True):
                value, _digits, *rest = astuple(entry)
                writer.writerow([group.title, row.label, column, value, *rest])
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
    r"""Return a text escaped for LaTeX.

    >>> print(escape_latex("50 % of M̄ & γ_1"))
    50 \% of $\bar{M}$ \& $\gamma$\_1
    """
    composed = "".join(_LATEX.get(letter, letter) for letter in text)
    return _BARRED.sub(r"$\\bar{\1}$", composed)


RENDERERS: Mapping[str, Callable[[Table], str]] = MappingProxyType(
    {".txt": to_text, ".md": to_markdown, ".csv": to_csv, ".tex": to_latex}
)
