"""Lay out figures as plain text: tables, names with values, bars and wrapped paragraphs.

The ``summary()`` of a result is made of these blocks. Each function returns lines that are joined
by line feeds, without one at the end.
"""

from __future__ import annotations

import shutil
import textwrap
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_WIDTH = 100  # columns of a paragraph
BAR_WIDTH = 30


def paragraph(text: str) -> str:
    """Wrap a text to the width of the terminal, at most 100 columns."""
    return textwrap.fill(text, min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns))


def warning_paragraphs(texts: Iterable[str]) -> list[str]:
    """Return one paragraph per warning."""
    return [paragraph(f"Warning: {text}") for text in texts]


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: int = 1) -> str:
    """Align a table; the columns after the first `text_columns` are flush right.

    >>> print(table(["day", "clicks"], [["Monday", "7"], ["Tuesday", "12"]]))
    day      clicks
    ───────  ──────
    Monday        7
    Tuesday      12
    """
    cells = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]

    def align(row: Sequence[str]) -> str:
        return "  ".join(
            cell.ljust(width) if column < text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()

    rule = "  ".join("─" * width for width in widths)
    return "\n".join([align(cells[0]), rule, *map(align, cells[1:])])


def pairs(rows: Iterable[tuple[str, str]], *, indent: int = 2) -> str:
    """Align names and values, one pair per line.

    >>> print(pairs([("clicks", "12"), ("mean weight M̄", "3.4")], indent=0))
    clicks         12
    mean weight M̄  3.4
    """
    rows = list(rows)
    width = max(_display_width(name) for name, _ in rows)
    return "\n".join(
        f"{'':{indent}}{name}{'':{width - _display_width(name)}}  {value}" for name, value in rows
    )


def bar(share: float) -> str:
    """Return a bar of this share of the full width, padded; a small share is still visible."""
    blocks = "█" * round(BAR_WIDTH * share) or ("▏" if share else "")
    return f"{blocks:<{BAR_WIDTH}}"


def bars(rows: Iterable[tuple[str, int]]) -> str:
    """Draw counts as bars, with their numbers and shares.

    >>> print(bars([("1–4", 30), ("5–9", 10)]))
        1–4  ██████████████████████████████  30   75.0 %
        5–9  ██████████                      10   25.0 %
    """
    rows = list(rows)
    total, largest = sum(count for _, count in rows), max(count for _, count in rows)
    name_width, count_width = max(len(name) for name, _ in rows), len(f"{largest:,}")
    return "\n".join(
        f"    {name:>{name_width}}  {bar(count / largest)}  {count:>{count_width},}  "
        f"{100 * count / total:5.1f} %"
        for name, count in rows
    )


def size(n_bytes: float) -> str:
    """Return a number of bytes for a person.

    >>> size(3_400_000)
    '3.4 MB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} bytes" if unit == "bytes" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"


def _display_width(text: str) -> int:
    """Return the columns that a text takes: a bar over a letter takes none."""
    return sum(not unicodedata.combining(letter) for letter in text)
