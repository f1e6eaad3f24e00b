"""What all benchmarks share: their options, and results as a table or as JSON, with the machine."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import commit, in_words, machine


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with --json; a benchmark adds its own options."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument(
        "--json", nargs="?", const=True, default=False, metavar="FILE",
        help="print the statistics as JSON, or write them to a file and print the table",
    )  # fmt: skip
    return parser


def output(
    results: Any, as_text: Callable[[Any], str | None], *, as_json: bool | str = False
) -> None:
    """Print the results as JSON, or as the text that `as_text` returns or prints itself.

    The text ends with the machine; JSON has the keys machine, commit and results. With the name of
    a file as `as_json`, JSON goes there and the text is printed.
    """
    about, at = machine(), commit()
    told = {"machine": about, "commit": at, "results": results}
    as_lines = json.dumps(told, indent=2, default=lambda number: number.item())  # NumPy's
    if as_json is True:
        print(as_lines)
        return
    if as_json:
        Path(as_json).write_text(as_lines, "utf-8")
    text = as_text(results)
    if text is not None:
        print(text)
    print(f"\n{in_words(about, at)}")


def table(rows: list[dict[str, Any]], *, left: int = 0) -> str:
    """Return rows of the same keys as a table, aligned right but for the first `left` columns."""
    cells = [list(rows[0])]
    cells += [[f"{x:,}" if isinstance(x, int) else str(x) for x in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = [str.ljust] * left + [str.rjust] * (len(widths) - left)
    lines = ([side(*each) for side, *each in zip(sides, line, widths, strict=True)]
             for line in cells)  # fmt: skip
    return "\n".join("  ".join(line).rstrip() for line in lines)
