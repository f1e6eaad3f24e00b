"""What all benchmarks share: their options, and results as a table or as JSON."""

import argparse
import json
from collections.abc import Callable
from typing import Any


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with --json; a benchmark adds its own options."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the statistics as JSON")
    return parser


def output(results: Any, as_text: Callable[[Any], str | None], *, as_json: bool) -> None:
    """Print the results as JSON, or as the text that `as_text` returns or prints itself."""
    text = json.dumps(results, indent=2) if as_json else as_text(results)
    if text is not None:
        print(text)


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows of the same keys as an aligned table."""
    cells = [list(rows[0])]
    cells += [[f"{x:,}" if isinstance(x, int) else str(x) for x in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.rjust, line, widths)) for line in cells)
