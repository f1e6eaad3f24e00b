"""How figures are printed: aligned, with units, or as JSON for scripts."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import unicodedata
from typing import TYPE_CHECKING, Any

from countersample._printable import printable
from countersample.cli._streams import tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from countersample.clicks.impressions import PositionCounts
    from countersample.evaluation import Gain

_BAR_WIDTH = 30


def line(text: str = "") -> None:
    """Print a line."""
    sys.stdout.write(printable(text) + "\n")


def paragraph(text: str) -> None:
    """Print a text wrapped to the width of the terminal, at most 100 columns."""
    line(textwrap.fill(text, min(100, shutil.get_terminal_size((100, 24)).columns)))


def note(text: str) -> None:
    """Print a sentence beside the results: to the standard error stream."""
    tell(text)


def as_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print a value as JSON; with escapes where the output cannot show every character."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    line(text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: int = 1) -> None:
    """Print an aligned table; columns after the first `text_columns` are flush right."""
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]

    def aligned(row: Sequence[str]) -> str:
        return "  ".join(
            cell.ljust(width) if column < text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()

    line(aligned(cells[0]))
    line("  ".join("─" * width for width in widths))
    for row in cells[1:]:
        line(aligned(row))


def warnings(texts: Iterable[str]) -> None:
    """Print warnings, a paragraph each."""
    for text in texts:
        paragraph(f"Warning: {text}")


def size_of_log(counts: PositionCounts) -> str:
    """Return how large a log is."""
    return (
        f"{counts.n_impressions:,} impressions, {counts.n_clicks:,} clicks, "
        f"{len(counts.query_ids):,} queries"
    )


def gain(found: Gain) -> None:
    """Print the values of what was logged and of a new ranker, with their intervals."""
    table(
        [
            f"{found.new.metric} a {found.new.per}",
            "estimate",
            f"{found.new.confidence:.0%} interval",
        ],
        [
            [name, f"{each.value:.4g}", f"{each.low:.4g} to {each.high:.4g}"]
            for name, each in (("logged", found.logged), ("new ranker", found.new))
        ],
    )


def pairs(rows: Iterable[tuple[str, str]], *, indent: int = 2) -> None:
    """Print names and values below each other."""
    rows = list(rows)
    width = max(_width(name) for name, _ in rows)
    for name, value in rows:
        line(f"{'':{indent}}{name}{'':{width - _width(name)}}  {value}")


def bars(rows: Iterable[tuple[str, int]]) -> None:
    """Print counts as bars with their numbers and shares."""
    rows = list(rows)
    total = sum(count for _, count in rows)
    most = max(count for _, count in rows)
    name_width = max(len(name) for name, _ in rows)
    count_width = len(f"{most:,}")
    for name, count in rows:
        bar = "█" * round(_BAR_WIDTH * count / most) or ("▏" if count else "")
        share = 100 * count / total
        line(
            f"    {name:>{name_width}}  {bar:<{_BAR_WIDTH}}  {count:>{count_width},}  "
            f"{share:5.1f} %"
        )


def _width(text: str) -> int:
    """Return the columns a text takes: a bar over a letter takes none."""
    return sum(not unicodedata.combining(letter) for letter in text)


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
