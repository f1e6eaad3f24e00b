"""Rates of the path for logs that outgrow a machine: counted, joined, written, trained on.

    .venv/bin/python benchmarks/bench_scale.py [--rows N] [--features F] [--json]

A log of N impressions (2 million by default) and F features of each item (20) are made. DuckDB
counts the log; Spark, on two cores of this machine (``local[2]``), counts it, and then weighs the
clicks, joins the features and writes four shards, each in a process of its own. Two processes under
torchrun train a network (64, 32) on the shards, four epochs by 64 queries a step. CPU seconds are
of all processes of a step, Spark's Java and its start among them; they say more than seconds where
other work is going on. All is measured for a quarter of the log as well, which tells what starting
costs from what a million impressions more cost. The last column is the CPU time of a step for 10⁹
impressions, if that stays so.
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

ITEMS, SHOWN, IMPRESSIONS = 12, 10, 100  # of a query, of a session, of a query on average
BATCH, EPOCHS = 64, 4
GOAL = 10**9
PART = 4


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where to put the temporary folder")
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        what, folder = options.measure
        found = STEPS[what](Path(folder))
        if found:
            print(json.dumps(found))
        return
    n_rows = {"part": options.rows // PART, "whole": options.rows}
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="countersample-bench-") as folder:
        found: dict[str, list[dict[str, Any]]] = {}
        for name, n in n_rows.items():
            size = generate(Path(folder, name), n, options.features, options.seed)
            found[name] = [measured(what, Path(folder, name)) for what in STEPS]
            size |= shards_of(Path(folder, name))
    steps = [
        row(what, part, whole, n_rows)
        for what, part, whole in zip(STEPS, found["part"], found["whole"], strict=True)
    ]
    output({"size": size, "steps": steps}, text, as_json=options.json)


def text(report: dict[str, Any]) -> str:
    told = ", ".join(f"{name} {value:,}" for name, value in report["size"].items())
    return f"{told}\n\n{table(report['steps'], left=1)}"


def generate(folder: Path, n_rows: int, n_features: int, seed: int) -> dict[str, int]:
    """Write the log, a file for each million rows or so, and the features of all pairs."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(seed)
    n_queries = max(10, n_rows // IMPRESSIONS)
    (folder / "log").mkdir(parents=True)
    chunk = 100_000  # sessions
    for first in range(0, n_rows // SHOWN, chunk):
        n = min(chunk, n_rows // SHOWN - first)
        query = (n_queries * rng.random(n) ** 2).astype(np.int64)  # some are asked far more often
        item = rng.permuted(np.tile(np.arange(ITEMS), (n, 1)), axis=1)[:, :SHOWN]
        position = np.tile(np.arange(1, SHOWN + 1), n)
        wanted = np.random.default_rng(1).random((1000, ITEMS))[query % 1000][:, :, None]
        chance = np.take_along_axis(wanted[:, :, 0], item, axis=1).ravel() * 0.4 / position
        log = {
            "query_id": np.repeat(query, SHOWN), "item_id": item.ravel(), "position": position,
            "click": (rng.random(len(position)) < chance).astype(np.int8),
            "session": np.repeat(first + np.arange(n), SHOWN),
        }  # fmt: skip
        parquet.write_table(pa.table(log), folder / "log" / f"{first}.parquet")
    query, item = (part.ravel() for part in np.mgrid[:n_queries, :ITEMS])
    columns = {f"f{k}": rng.random(len(query), np.float32) for k in range(n_features)}
    parquet.write_table(
        pa.table({"query_id": query, "item_id": item} | columns), folder / "features.parquet"
    )
    log_bytes = sum(path.stat().st_size for path in (folder / "log").iterdir())
    return {"impressions": n_rows, "queries": n_queries, "pairs": len(query),
            "features": n_features, "log MB": log_bytes // 10**6,
            "features MB": (folder / "features.parquet").stat().st_size // 10**6}  # fmt: skip


def shards_of(folder: Path) -> dict[str, int]:
    from pyarrow import dataset

    found = dataset.dataset(folder / "shards", format="parquet")
    n_bytes = sum(Path(path).stat().st_size for path in found.files)
    n_rows = found.count_rows()
    return {"rows of the shards": n_rows, "shards MB": n_bytes // 10**6,
            "bytes a row": n_bytes // max(1, n_rows)}  # fmt: skip


def measured(what: str, folder: Path) -> dict[str, float]:
    """Measure a step in a process of its own."""
    command = [sys.executable]
    if what.startswith("train"):
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, __file__, "--measure", what, str(folder)], capture_output=True, text=True,
        check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{what} failed: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(
    what: str, part: dict[str, float], whole: dict[str, float], n_rows: dict[str, int]
) -> dict[str, Any]:
    """Return a row of the table; what grows with the log is told by its part and the whole."""
    grows = (whole["cpu"] - part["cpu"]) / (n_rows["whole"] - n_rows["part"])  # an impression
    return {
        "step": what,
        "seconds": round(whole["seconds"], 1),
        "CPU s": round(whole["cpu"], 1),
        "CPU s, part": round(part["cpu"], 1),
        "CPU s a million more": round(1e6 * grows, 2),
        "peak MB": round(whole["peak"] / 1e6),
        "steps/s": round(whole.get("steps/s", 0)),
        "CPU hours for 10^9": round(grows * GOAL / 3600, 1),
    }


def count_by_duckdb(folder: Path) -> dict[str, float]:
    from countersample.logs import read_impressions

    began = time.perf_counter()
    with read_impressions(folder / "log") as log:
        log.counts()
    return {"seconds": time.perf_counter() - began, "cpu": used(), "peak": peak()}


def count_by_spark(folder: Path) -> dict[str, float]:
    from countersample.logs import aggregation, read_impressions
    from countersample.logs.engines import find_engine

    spark = session()
    began = time.perf_counter()
    log = read_impressions(spark.read.parquet(str(folder / "log")))
    with find_engine("spark").store(aggregation.group(log.frame), "log") as groups:
        groups.to_native().count()
    return of_java(spark, began)


def write_by_spark(folder: Path) -> dict[str, float]:
    from countersample import PositionBias
    from countersample.logs import read_impressions, write_training_shards

    spark = session()
    began = time.perf_counter()
    log = read_impressions(spark.read.parquet(str(folder / "log")))
    features = spark.read.parquet(str(folder / "features.parquet"))
    write_training_shards(log, features, PositionBias(1.0), folder / "shards", n_shards=4)
    return of_java(spark, began)


def session() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "4g")
    for name, value in (("spark.ui.enabled", "false"), ("spark.sql.shuffle.partitions", "8")):
        builder = builder.config(name, value)
    return builder.getOrCreate()


def of_java(spark: Any, began: float) -> dict[str, float]:
    """Return the time of Python and of the Java that it started, and the memory of both."""
    seconds = time.perf_counter() - began
    java = spark.sparkContext._gateway.proc.pid  # noqa: SLF001 (there is no other way)
    status = Path(f"/proc/{java}/status").read_text()
    high = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    ticks = Path(f"/proc/{java}/stat").read_text().rpartition(")")[2].split()[11:13]
    cpu = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    spark.stop()
    return {"seconds": seconds, "cpu": cpu + used(), "peak": 1024 * high + peak()}


def train(folder: Path) -> dict[str, float] | None:
    from torch import distributed

    from countersample.torch import NeuralRanker, train_on_shards

    began = time.perf_counter()
    distributed.init_process_group("gloo")
    ends = []
    ranker = train_on_shards(
        NeuralRanker(batch_size=BATCH, epochs=EPOCHS, patience=None, random_state=0),
        folder / "shards",
        progress=lambda _what, _share: ends.append(time.perf_counter()),
    )
    mine = [None, None]
    distributed.all_gather_object(mine, (used(), peak()))
    is_first = distributed.get_rank() == 0
    distributed.destroy_process_group()
    if not is_first:
        return None
    rate = ranker.n_steps_ / EPOCHS * (EPOCHS - 1) / (ends[-1] - ends[0])  # the first compiles
    return {"seconds": time.perf_counter() - began, "cpu": sum(m[0] for m in mine),
            "peak": max(m[1] for m in mine), "steps/s": rate}  # fmt: skip


def used() -> float:
    """Return the CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak() -> float:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


STEPS = {
    "count (DuckDB)": count_by_duckdb,
    "count (Spark)": count_by_spark,
    "count, join, write (Spark)": write_by_spark,
    "train (torchrun, 2 processes)": train,
}


if __name__ == "__main__":
    main()
