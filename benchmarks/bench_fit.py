"""How long `countersample fit` takes, start to end, on a log of 1,000,000 impressions.

``python benchmarks/bench_fit.py`` writes the log of 100,000 sessions, each of which showed 10 of 40
items, and runs the command on it, in a process of its own, as a user does: reading, checking,
propensities, tuning, held-out judging with intervals, training, the page. The first run on a
machine also compiles; it is told apart. Beside it is the time of reading the same file with DuckDB
and counting it by query, item and position, which any tool has to do. CPU seconds are those of the
fastest run: on a busy machine they say more than its seconds do.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from output import make_parser, output, table

sys.path.insert(0, str(Path(__file__).parent / "quality"))
from top_k_log import make

QUERIES, ITEMS, SHOWN = 2000, 40, 10
WAYS = {
    "by queries": [],
    "by time": [],
    "propensities given": ["--gamma", "1"],
}


def write(folder, sessions):
    """Write the log, with and without timestamps, and the features."""
    sizes = {"queries": QUERIES, "items": ITEMS, "shown": SHOWN, "sessions": sessions}
    dataset, log = make(sizes, np.random.default_rng(0))
    pq.write_table(log, folder / "by queries.parquet")
    pq.write_table(log, folder / "propensities given.parquet")
    session = log["session"].to_numpy()
    seconds = session * (14 * 86_400) // (session.max() + 1)
    stamps = np.datetime64("2026-01-05", "s") + seconds.astype("timedelta64[s]")
    pq.write_table(log.append_column("timestamp", pa.array(stamps)), folder / "by time.parquet")
    columns = {f"f{k}": column for k, column in enumerate(dataset.features.T)}
    query = np.repeat(np.arange(QUERIES), ITEMS)
    ids = {"query_id": query, "item_id": np.tile(np.arange(ITEMS), QUERIES)}
    pq.write_table(pa.table(ids | columns), folder / "features.parquet")


def counts_of(log):
    rows = duckdb.read_parquet(str(log))
    by = "query_id, item_id, position"
    return rows.aggregate(f"{by}, count(*), sum(click)", by).to_arrow_table()


def seconds_of(work):
    """Return the seconds that something took, and the CPU seconds of the processes it started."""
    begin, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return time.perf_counter() - begin, cpu


def measure(way, folder, rounds):
    """Return a row of the table."""
    log = folder / f"{way}.parquet"
    command = [
        sys.executable, "-m", "countersample", "fit", str(log), "--features",
        str(folder / "features.parquet"), "-o", str(folder / "ranker.json"), *WAYS[way],
    ]  # fmt: skip
    runs = [
        seconds_of(lambda: subprocess.run(command, check=True, capture_output=True))
        for _ in range(rounds)
    ]
    counted = min(seconds_of(lambda: counts_of(log))[0] for _ in range(rounds))
    best, cpu = min(runs)
    return {
        "fit": way,
        "first s": round(runs[0][0], 1),
        "s": round(best, 1),
        "CPU s": round(cpu, 1),
        "counting alone s": round(counted, 2),
        "× counting": round(best / counted, 1),
    }


def text(report):
    return f"{report['log']}\n\n{table(report['rows'])}"


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    log = f"{options.sessions * SHOWN:,} impressions, {QUERIES:,} queries of {ITEMS} items"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, options.sessions)
        rows = [measure(way, folder, options.rounds) for way in WAYS]
    output({"log": log, "rows": rows}, text, as_json=options.json)


if __name__ == "__main__":
    main()
