"""Training on data that is three times as large as the memory it may use.

    .venv/bin/python benchmarks/bench_larger.py [--limit 1000]

A dataset folder of three times the limit (queries of the Yahoo shape, again and again) is mapped by
a process in a memory control group (cgroup v1 or v2; needs root), which counts the pages of the map
as well. It trains CounterSample by click, one core, on float32 features and on codes of 16 and of 8
bits, each after a second of steps that is not counted. The folder of 8 bits fits.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from output import make_parser, output, table

from countersample import ClickLog, RankingDataset, synthetic
from countersample.data.store import write_folder
from countersample.training import TrainingOptions, runs

QUERIES = 2_000  # that are repeated
TIMES = 3
SECONDS = 10.0
GROUP = f"countersample-{os.getpid()}"
ROOTS = {  # where limits are set, and the name of the limit
    Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes",
    Path("/sys/fs/cgroup"): "memory.max",
}


@contextmanager
def limited(megabytes):
    """Give the group of processes that may use so much memory."""
    for root, name in ROOTS.items():
        if (root / "cgroup.procs").exists():
            group = root / GROUP
            try:
                group.mkdir()
                (group / name).write_text(str(megabytes * 10**6))
            except OSError as error:
                sys.exit(f"{group}: no limit can be set there ({error.strerror}): run it as root")
            try:
                yield group
            finally:
                group.rmdir()
            return
    sys.exit("there are no memory control groups here, expected Linux with cgroup v1 or v2")


def make(folder, megabytes):
    """Write a folder of about so many megabytes of float32 features, and those of its codes."""
    some = synthetic("yahoo-like", n_queries=QUERIES, rng=0).normalized()
    n_times = -(-megabytes * 10**6 // some.features.nbytes)

    def fill(tape):
        tape.resize(n_times * some.features.size)
        for k in range(n_times):
            tape.flat[k * some.features.size : (k + 1) * some.features.size] = some.features.ravel()
        sizes = np.tile(some.query_sizes, n_times)
        return RankingDataset(
            tape.matrix(n_times * some.n_items, some.n_features), np.tile(some.labels, n_times),
            np.append(0, np.cumsum(sizes)), np.arange(len(sizes)),
        ), {}  # fmt: skip

    write_folder(folder / "32", fill)
    for bits in (16, 8):
        RankingDataset.open(folder / "32").compact(bits).save(folder / str(bits))


def forget(path):
    """Have the system let go of what it keeps of a file: else its pages count for who wrote it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def steps_a_second(folder):
    """Train for some seconds; return the speed and the peak of the process's own memory."""
    data = RankingDataset.open(folder)
    rng = np.random.default_rng(0)
    query = rng.integers(0, data.n_queries, 1_000_000)
    log = ClickLog(query, (rng.random(len(query)) * data.query_sizes[query]).astype(int),
                   1 / rng.integers(1, 40, len(query)))  # fmt: skip
    (setup,) = runs.Setup.of(data, log, TrainingOptions(steps=10**12, checkpoints=0))
    run = runs.Run(setup, [1e-4], rng)
    begin = time.perf_counter()
    while time.perf_counter() < begin + 1:
        run.advance()
    first, begin = run.step, time.perf_counter()
    while time.perf_counter() < begin + SECONDS:
        run.advance()
    return (run.step - first) / (time.perf_counter() - begin)


def measure(megabytes):
    rows = []
    with tempfile.TemporaryDirectory(dir=".") as made:
        make(Path(made), TIMES * megabytes)
        for bits in (32, 16, 8):
            folder = Path(made, str(bits)).resolve()
            size = (folder / "features.npy").stat().st_size
            forget(folder / "features.npy")
            with limited(megabytes) as group:
                command = [sys.executable, __file__, "--folder", str(folder)]
                enter = f"echo $$ > {group}/cgroup.procs && exec " + " ".join(command)
                done = subprocess.run(
                    ["/bin/sh", "-c", enter], capture_output=True, text=True, check=False
                )
                if done.returncode:
                    sys.exit(f"{bits} bits ended with {done.returncode}: {done.stderr[-500:]}")
            rows.append({
                "bits": bits, "MB of features": round(size / 1e6), "MB allowed": megabytes,
                "share": round(size / 1e6 / megabytes, 2),
                "steps/s": round(json.loads(done.stdout)),
            })  # fmt: skip
    return rows


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--limit", type=int, default=1_000, help="megabytes that may be used")
    parser.add_argument("--folder", type=Path, help="used by the benchmark itself")
    args = parser.parse_args()
    if args.folder:
        runs.CHUNK = 256
        print(json.dumps(steps_a_second(args.folder)))
        return
    output(measure(args.limit), table, as_json=args.json)


if __name__ == "__main__":
    main()
