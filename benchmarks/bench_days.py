"""Add a day to an aggregated log of many days and of none; fit from it and from the raw log.

    .venv/bin/python benchmarks/bench_days.py [--rows N] [--days 30] [--earlier N] [--json]

A day of N impressions (a million by default) is counted into an empty folder, and into one that has
`--days` days already (of `--earlier` impressions each): the ratio of the two times shows whether
adding a day depends on the number of days. Then the aggregated log and the raw Parquet files are
checked as `fit` does, and a ranker is fitted from each. Each is timed twice, in turn, and the
better time counts. Times are CPU seconds on all cores, which other work on the machine changes
little.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from output import make_parser, output, table
from pyarrow import parquet

from countersample.fitting import fit_from_impressions
from countersample.logs import count_days, read_features, read_impressions

ITEMS, QUERIES, FEATURES = 10, 20_000, 8
TIMES = 2


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--earlier", type=int, default=30_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    features = rng.normal(size=(QUERIES * ITEMS, FEATURES)).astype(np.float32)
    with tempfile.TemporaryDirectory(prefix="countersample-bench-") as name:
        folder = Path(name)
        (folder / "raw").mkdir()
        for day in range(options.days):
            write_day(folder / "raw" / f"{day}.parquet", day, options.earlier, features, rng)
        write_day(folder / "new.parquet", options.days, options.rows, features, rng)
        report = measure(folder, features)
    output(report, text, as_json=options.json)


def write_day(path: Path, day: int, n_rows: int, features: np.ndarray, rng: Any) -> None:
    """Write a day: pages of ten items, ranked by one of two policies, with clicks."""
    n = n_rows // ITEMS
    query = (QUERIES * rng.random(n) ** 3).astype(np.int64)
    policy = rng.integers(2, size=n)
    scores = features.reshape(QUERIES, ITEMS, FEATURES)[:, :, :2]
    order = np.argsort(-scores, axis=1)[query, :, policy]
    wanted = features.reshape(QUERIES, ITEMS, FEATURES)[query[:, None], order, 2]
    chance = 1 / (1 + np.exp(1 - wanted)) / np.arange(1, ITEMS + 1)
    stamp = np.datetime64("2026-03-01", "s") + np.timedelta64(day, "D")
    parquet.write_table(pa.table({
        "query_id": np.repeat(query, ITEMS),
        "item_id": (query[:, None] * ITEMS + order).ravel(),
        "position": np.tile(np.arange(1, ITEMS + 1), n),
        "click": (rng.random((n, ITEMS)) < chance).ravel().astype(np.int8),
        "session": np.repeat(np.arange(n) + day * 10**9, ITEMS),
        "policy": np.repeat(np.array(["a", "b"])[policy], ITEMS),
        "timestamp": np.repeat(stamp, n * ITEMS),
    }), path)  # fmt: skip


def measure(folder: Path, features: np.ndarray) -> dict[str, Any]:
    counts, raw = folder / "counts", str(folder / "raw")
    for path in Path(raw).iterdir():
        with read_impressions(path) as log:
            count_days(log, counts)
    item = np.arange(QUERIES * ITEMS)
    items = read_features(pa.table(
        {"query_id": item // ITEMS, "item_id": item}
        | {f"f{k}": features[:, k] for k in range(FEATURES)}
    ))  # fmt: skip
    add: dict[str, float] = {}
    for _ in range(TIMES):
        for where in ("no day", f"{len(list(counts.iterdir()))} days"):
            place = folder / "added"
            if where != "no day":
                shutil.copytree(counts, place)
            add[where] = min(add.get(where, np.inf), seconds(add_day, folder, place))
            shutil.rmtree(place)
    size = {
        "raw": sum(path.stat().st_size for path in Path(raw).iterdir()),
        "counts": sum(path.stat().st_size for path in counts.rglob("*.*") if path.is_file()),
    }
    found: dict[str, dict[str, float]] = {"check": {}, "fit": {}}
    for _ in range(TIMES):
        for source, path in (("raw", raw), ("counts", str(counts))):
            for what, do in (("check", check), ("fit", fit)):
                found[what][source] = min(found[what].get(source, np.inf), seconds(do, path, items))
    rows = [
        {
            "what": what,
            "raw CPU s": round(times["raw"], 2),
            "counts CPU s": round(times["counts"], 2),
            "times faster": round(times["raw"] / times["counts"], 2),
        }
        for what, times in found.items()
    ]
    empty, full = add.values()
    return {
        "added": [{"beside": where, "CPU s": round(each, 2)} for where, each in add.items()],
        "ratio": round(full / empty, 2),
        "read": rows,
        "raw MB": round(size["raw"] / 1e6, 1),
        "counts MB": round(size["counts"] / 1e6, 1),
    }


def add_day(folder: Path, place: Path) -> None:
    with read_impressions(folder / "new.parquet") as log:
        count_days(log, place)


def check(path: str, _items: Any) -> None:
    with read_impressions(path) as log:
        log.check()


def fit(path: str, items: Any) -> None:
    with read_impressions(path) as log:
        fit_from_impressions(log, items, seed=0)


def seconds(do: Any, *arguments: Any) -> float:
    started = time.process_time()
    do(*arguments)
    return time.process_time() - started


def text(report: dict[str, Any]) -> str:
    return "\n\n".join([
        "A day added beside\n" + table(report["added"], left=1) + f"\nratio {report['ratio']}",
        "All days\n" + table(report["read"], left=1),
        f"{report['raw MB']} MB of Parquet, {report['counts MB']} MB of counts",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
