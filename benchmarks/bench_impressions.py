"""A log of many groups counted and described through DuckDB within a memory limit, and bare SQL.

    .venv/bin/python benchmarks/bench_impressions.py [--rows N] [--memory-limit 1000MB] [--json]

A log of N impressions (100 million by default, 3 GB of Parquet) is generated in chunks into a
temporary folder, which is removed at the end; three tenths and a tenth of it give the curve. It has
a group of query, item and position for every three impressions, as logs with a long tail of
queries have. Every measurement is a process of its own, on two threads, so its peak memory is its
own. `counts()` is called as anyone would call it: it validates every row, counts the sessions of
each query and gives sorted arrays, of clicked items and of the others together where there are more
than five million groups. The peer is what any user of DuckDB would write, one GROUP BY for the
groups and one for the sessions, fetched as Arrow, with the same settings, run just before and after
on the same files; the best of both counts. CPU seconds are of the whole process with its imports,
and say more where other work is going on. `check` is all that `log check` describes, with the
propensities by all pairs and the exposure of each clicked item.

Bars: at least half of the rows/s of the bare SQL, and less than 3 GB for all of it.
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
IMPRESSIONS, ITEMS, POSITIONS, SHIFTS = 110, 13, 10, 4  # a query; an item is at one of 4 positions
THREADS = 2
BAR, BAR_MEMORY = 0.5, 3e9


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--memory-limit", default="1000MB")
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
        whole = in_process("check", logs[-1], options.memory_limit)
    check = {
        "seconds": round(whole["seconds"]),
        "CPU s": round(whole["cpu"]),
        "peak MB": round(whole["peak"] / 1e6),
        "rows of clicked items": whole["groups"],
    }
    report = {"gigabytes": round(size / 1e9, 2), "memory limit": options.memory_limit,
              "rows": rows, "check": check}  # fmt: skip
    output(report, text, as_json=options.json)
    if rows[-1]["share"] < BAR:
        sys.exit(f"missed the bar: {rows[-1]['share']:.2f} of the bare query, expected {BAR}")
    if max(whole["peak"], 1e6 * rows[-1]["ours peak MB"]) > BAR_MEMORY:
        sys.exit(f"missed the bar: {whole['peak'] / 1e9:.2f} GB, expected {BAR_MEMORY / 1e9}")


def generate(folder: Path, n_rows: int, n_files: int, seed: int) -> int:
    """Write the log as files, and folders of links to the first tenth, three tenths and all."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(seed)
    n_queries = max(100, n_rows // IMPRESSIONS)
    shares = {n_files * share // 10 for share in (1, 3, 10)}
    for share in shares:
        (folder / str(share)).mkdir()
    (folder / "all").mkdir()
    size = session = 0
    for number in range(n_files):
        pages = (n_rows * (number + 1) // n_files - n_rows * number // n_files) // POSITIONS
        of_page = (n_queries * rng.random(pages) ** 2).astype(np.int64)  # some are asked more often
        query = np.repeat(of_page, POSITIONS)
        position = np.tile(np.arange(1, POSITIONS + 1), pages)
        place = (position + np.repeat(rng.integers(0, SHIFTS, pages), POSITIONS)) % ITEMS
        relevance = np.where((query + place) % 4, 0.02, 0.4)
        n = pages * POSITIONS
        columns = {
            "session": session + np.arange(n) // POSITIONS,
            "query_id": query,
            "item_id": query * 1000 + place,
            "position": position.astype(np.int32),
            "click": (rng.random(n) < relevance / position).astype(np.int8),
            "timestamp": 1_700_000_000_000_000 + rng.integers(0, 2 * 10**12, n),
            "visitor": rng.integers(0, 2**62, n),  # not read, as in real logs
        }
        session += pages
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
        "groups": sql["groups"],
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
    found = {"sql": with_sql, "ours": with_counts, "check": with_check}[how](log, memory_limit)
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
    connection.sql(
        "select query_id, count(*) as sessions from (select distinct query_id, session "  # noqa: S608
        f"from read_parquet('{log}/*.parquet')) group by query_id"
    ).to_arrow_table()
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "groups": len(result),
        "impressions": compute.sum(result["impressions"]).as_py(),
        "clicks": int(compute.sum(result["clicks"]).as_py()),
    }


def with_counts(log: str, memory_limit: str) -> dict[str, Any]:
    from countersample.logs import read_impressions

    start = time.perf_counter()
    counts = read_impressions(log, memory_limit=memory_limit).counts()
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "groups": len(counts),
        "impressions": counts.n_impressions,
        "clicks": counts.n_clicks,
    }


def with_check(log: str, memory_limit: str) -> dict[str, Any]:
    from countersample.logs import read_impressions
    from countersample.logs.exposure import EXPOSURES
    from countersample.propensity import estimate

    start = time.perf_counter()
    with read_impressions(log, memory_limit=memory_limit) as impressions:
        counts = impressions.check().counts
    curve = estimate(counts, method="all-pairs", n_bootstrap=20, rng=0)
    EXPOSURES["policy-aware"](counts, curve.propensity(counts.position))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "groups": len(counts)}


def text(report: dict[str, Any]) -> str:
    note = f"{report['gigabytes']} GB of Parquet, memory limit {report['memory limit']}"
    return f"{note}\n{table(report['rows'])}\n{table([report['check']])}"


if __name__ == "__main__":
    main()
