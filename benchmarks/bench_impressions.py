"""Impressions counted a second through DuckDB within a memory limit, against the bare SQL.

    .venv/bin/python benchmarks/bench_impressions.py [--rows N] [--memory-limit 2GB] [--json]

A log of N impressions (100 million by default, 3 GB of Parquet) is generated in chunks into a
temporary folder, which is removed at the end; three tenths and a tenth of it give the curve. Every
measurement is a process of its own, on two threads, so its peak memory is its own. `counts()` is
called as anyone would call it: it validates every row and gives sorted arrays. The peer is the one
GROUP BY that any user of DuckDB would write, fetched as Arrow, with the same settings, run just
before and after on the same files; the best of both counts. CPU seconds are of the whole process
with its imports, and say more where other work is going on. Bar: at least half of its rows/s.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from output import make_parser, output, table

CHUNK = 2_500_000  # rows a file
QUERIES, ITEMS, POSITIONS = 20_000, 20, 10  # 20 items a query, each at one of four positions
THREADS = 2
BAR = 0.5


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--memory-limit", default="2GB")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where to put the temporary folder")
    parser.add_argument("--measure", nargs=2, metavar=("HOW", "LOG"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure, options.memory_limit)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="countersample-bench-") as folder:
        n_files = max(10, -(-options.rows // CHUNK))
        size = generate(Path(folder), options.rows, n_files, options.seed)
        logs = [f"{folder}/{n_files * share // 10}" for share in (1, 3, 10)]
        rows = [compare(log, options.memory_limit) for log in logs]
    report = {"gigabytes": round(size / 1e9, 2), "memory limit": options.memory_limit, "rows": rows}
    output(report, text, as_json=options.json)
    if rows[-1]["share"] < BAR:
        sys.exit(f"missed the bar: {rows[-1]['share']:.2f} of the bare query, expected {BAR}")


def generate(folder: Path, n_rows: int, n_files: int, seed: int) -> int:
    """Write the log as files, and folders of links to the first tenth, three tenths and all."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(seed)
    shares = {n_files * share // 10 for share in (1, 3, 10)}
    for share in shares:
        (folder / str(share)).mkdir()
    (folder / "all").mkdir()
    size = session = 0
    for number in range(n_files):
        n = n_rows * (number + 1) // n_files - n_rows * number // n_files
        query = (QUERIES * rng.random(n) ** 2).astype(np.int64)  # some are asked more often
        place = rng.integers(0, ITEMS, n)
        position = 1 + (place + rng.integers(0, 4, n)) % POSITIONS
        columns = {
            "session": session + np.arange(n) // POSITIONS,
            "query_id": query,
            "item_id": query * 1000 + place,
            "position": position.astype(np.int32),
            "click": (rng.random(n) < 0.3 / position).astype(np.int8),
            "timestamp": 1_700_000_000_000_000 + rng.integers(0, 2 * 10**12, n),
            "visitor": rng.integers(0, 2**62, n),  # not read, as in real logs
        }
        session += n // POSITIONS + 1
        path = folder / "all" / f"{number:04d}.parquet"
        parquet.write_table(pa.table(columns), path, use_dictionary=False, compression="snappy")
        size += path.stat().st_size
        for share in shares:
            if number < share:
                (folder / str(share) / path.name).symlink_to(path)
    return size


def compare(log: str, memory_limit: str) -> dict[str, Any]:
    runs = [in_process(how, log, memory_limit) for how in ("sql", "ours", "sql", "ours")]
    sql, ours = (min(runs[k::2], key=lambda run: run["seconds"]) for k in (0, 1))
    assert sql["impressions"] == ours["impressions"]  # noqa: S101
    assert sql["clicks"] == ours["clicks"]  # noqa: S101
    n = ours["impressions"]
    return {
        "impressions": n,
        "groups": ours["groups"],
        "ours rows/s": round(n / ours["seconds"]),
        "bare SQL rows/s": round(n / sql["seconds"]),
        "share": round(sql["seconds"] / ours["seconds"], 2),
        "ours CPU s": round(min(run["cpu"] for run in runs[1::2]), 1),
        "bare SQL CPU s": round(min(run["cpu"] for run in runs[0::2]), 1),
        "ours peak MB": round(ours["peak"] / 1e6),
        "bare SQL peak MB": round(sql["peak"] / 1e6),
    }


def in_process(how: str, log: str, memory_limit: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", how, log, "--memory-limit", memory_limit]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(how: str, log: str, memory_limit: str) -> dict[str, Any]:
    """Count once in this process; return its times, and the most memory it ever had."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:THREADS]))
    found = with_sql(log, memory_limit) if how == "sql" else with_counts(log, memory_limit)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return found | {"cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss * 1024}


def with_sql(log: str, memory_limit: str) -> dict[str, Any]:
    import duckdb
    from pyarrow import compute

    settings = {"memory_limit": memory_limit, "threads": THREADS, "preserve_insertion_order": False}
    connection = duckdb.connect(config=settings)
    start = time.perf_counter()
    result = connection.sql(
        "select query_id, item_id, position, count(*) as impressions, sum(click) as clicks "  # noqa: S608
        f"from read_parquet('{log}/*.parquet') group by all"
    ).to_arrow_table()
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "groups": len(result),
        "impressions": compute.sum(result["impressions"]).as_py(),
        "clicks": int(compute.sum(result["clicks"]).as_py()),
    }


def with_counts(log: str, memory_limit: str) -> dict[str, Any]:
    from countersample.clicks.impressions import read_impressions

    start = time.perf_counter()
    counts = read_impressions(log, memory_limit=memory_limit).counts()
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "groups": len(counts),
        "impressions": counts.n_impressions,
        "clicks": counts.n_clicks,
    }


def text(report: dict[str, Any]) -> str:
    note = f"{report['gigabytes']} GB of Parquet, memory limit {report['memory limit']}"
    return f"{note}\n{table(report['rows'])}"


if __name__ == "__main__":
    main()
