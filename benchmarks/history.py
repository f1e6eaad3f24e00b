"""Results of benchmarks that are kept, and what has changed since the run before.

Records are lines of JSON: benchmark, date, arguments, machine, commit, results. A figure is found
again by its path: keys, and for a row of a table its first cell and its cells of text.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from countersample._files import atomic_path

FORMAT = 1
KEYS = {"format", "benchmark", "date", "arguments", "machine", "commit", "results"}
RATIO = re.compile(r"ratio|×|\btimes\b|faster|speed-?up|share", re.IGNORECASE)
OF_RATIOS, OF_OTHERS = 10, 25  # percent: smaller changes are not told
LIMITS = f"{OF_RATIOS} % (ratios) or {OF_OTHERS} % (other figures)"

Record = dict[str, Any]


def read(path: Path) -> list[Record]:
    """Return the records of a file; one that is damaged is set aside, and a sentence says so."""
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or set(record) != KEYS or record["format"] != FORMAT:
            aside = path.with_name(f"{path.stem}-damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.jsonl")
            path.rename(aside)
            print(f"{path}, line {number}: expected a record of format {FORMAT}; the file is now "
                  f"{aside.name}, to be mended by hand, and a new one begins")  # fmt: skip
            return []
        records.append(record)
    return records


def keep(path: Path, name: str, arguments: list[str], told: dict[str, Any]) -> Record:
    """Add what a benchmark told to a file, and return its record."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"format": FORMAT, "benchmark": name, "date": now, "arguments": arguments, **told}
    before = path.read_bytes() if path.exists() else b""
    with atomic_path(path) as temporary:
        temporary.write_bytes(before + json.dumps(record).encode() + b"\n")
    return record


def run_before(records: list[Record], now: Record) -> Record | None:
    """Return the last run of the same benchmark with the same arguments, on this machine if any."""
    same = [each for each in records
            if all(each[key] == now[key] for key in ("benchmark", "arguments"))]  # fmt: skip
    here = [each for each in same if is_same_machine(each, now)]
    return (here or same or [None])[-1]


def is_same_machine(one: Record, other: Record) -> bool:
    return all(one["machine"].get(key) == other["machine"].get(key) for key in ("CPU", "cores"))


def compare(before: Record, now: Record) -> tuple[int, list[dict[str, str]]]:
    """Return how many figures were compared, ratios only on another machine, and what changed."""
    earlier = {path: figure for path, figure, _ in figures(before["results"])}
    compared, rows = 0, []
    for path, figure, is_ratio in figures(now["results"]):
        if path not in earlier or not (is_ratio or is_same_machine(before, now)):
            continue
        compared += 1
        old = earlier[path]
        percent = 100 * (figure / old - 1) if old else 0
        if abs(percent) > (OF_RATIOS if is_ratio else OF_OTHERS):
            rows.append({
                "benchmark": now["benchmark"], "figure": " · ".join(path), "before": short(old),
                "now": short(figure), "change": f"{percent:+,.0f} %",
            })  # fmt: skip
    return compared, rows


def figures(
    results: Any, path: tuple[str, ...] = (), *, is_ratio: bool = False
) -> Iterator[tuple[tuple[str, ...], float, bool]]:
    """Yield the path of every number in results, the number, and whether a key calls it a ratio."""
    if isinstance(results, dict):
        for key, value in results.items():
            ratio = is_ratio or bool(RATIO.search(key))
            yield from figures(value, (*path, key), is_ratio=ratio)
    elif isinstance(results, list):
        seen: Counter[str] = Counter()
        for row in results:
            name, rest = split_row(row)
            seen[name] += 1
            again = f" ({seen[name]})" if seen[name] > 1 else ""
            yield from figures(rest, (*path, name + again), is_ratio=is_ratio)
    elif isinstance(results, int | float) and not isinstance(results, bool):
        yield path, results, is_ratio


def split_row(row: Any) -> tuple[str, Any]:
    """Return what a row of a table is of, and its other cells."""
    if not isinstance(row, dict):
        return "row", row
    names = {key: value for number, (key, value) in enumerate(row.items())
             if isinstance(value, str) or (number == 0 and isinstance(value, int))}  # fmt: skip
    name = " ".join(f"{each:,}" if isinstance(each, int) else each for each in names.values())
    return name or "row", {key: value for key, value in row.items() if key not in names}


def short(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.3g}"
