"""How fast `load_letor` reads LETOR text, and in how much memory, against its peers.

    python benchmarks/bench_letor.py [--megabytes 150] [--repeat 12] [--json]

Two files are generated: Yahoo-shaped (700 features, 220 of them not zero in a row) and
Istella-shaped (220 features, dense). All readers read the same files in the same process, in
turns, from the page cache; the best of the repeats counts. The same as seconds of CPU, of all cores
together, hangs less on what else the machine does. Memory is measured in a process of its own: the
peak resident size while reading, above the size before.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import peers
from output import make_parser, output

from countersample import RankingDataset, load_letor, save_letor
from countersample._environment import available_cores
from countersample.data.letor_reader import BLOCK, PADDING

BARS = {"pytorchltr 0.2.1 (C)": 3.0, "xgboost": 2.0}


def machine():
    """Return what the figures were measured on: CPU, cores, and how busy they were before."""
    names = Path("/proc/cpuinfo")
    lines = names.read_text().splitlines() if names.exists() else []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "CPU": found[0] if found else platform.processor() or platform.machine(),
        "compiled as": os.environ.get("NUMBA_CPU_NAME", "that CPU"),
        "cores": available_cores(),
        "load before": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }


def make_file(path, n_features, n_nonzero, items_a_query, megabytes):
    """Write about this many megabytes of rows with six-digit values."""
    rng = np.random.default_rng(0)
    n_rows = round(megabytes * 1e6 / (n_nonzero * 12.9))
    # not below 0.001, since pytorchltr refuses 1e-5
    features = np.round(0.001 + 0.999 * rng.random((n_rows, n_features), np.float32), 6)
    if n_nonzero < n_features:
        cut = np.partition(rng.random((1000, n_features), np.float32), n_nonzero - 1, axis=1)
        keep = cut[np.arange(n_rows) % 1000, n_nonzero - 1][:, None]
        for start in range(0, n_rows, 10_000):
            rows = slice(start, start + 10_000)
            mask = rng.random(features[rows].shape, np.float32) > keep[rows]
            features[rows][mask] = 0
    qid = np.arange(n_rows) // items_a_query
    save_letor(RankingDataset.from_arrays(X=features, y=qid % 5, qid=qid), path)


def measure(readers, path, repeat):
    """Return the best MB/s and least CPU seconds of each reader, the readers taking turns."""
    best = dict.fromkeys(readers, float("inf"))
    least = dict.fromkeys(readers, float("inf"))
    for _ in range(repeat):
        for name, read in readers.items():
            if name == "scikit-learn" and best[name] < float("inf"):
                continue  # once is enough: it takes longer than all others together
            begin, worked = time.perf_counter(), time.process_time()
            read(path)
            best[name] = min(best[name], time.perf_counter() - begin)
            least[name] = min(least[name], time.process_time() - worked)
    megabytes = path.stat().st_size / 1e6
    return {name: megabytes / seconds for name, seconds in best.items()}, least


def peak_memory(path):
    """Return the peak of reading a file in a new process, and the size of what was read."""
    command = [sys.executable, __file__, "--peak-of", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def memory(what):
    """Return a figure of this process's memory in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def report_peak(path):
    small = Path(tempfile.mkdtemp(), "small.txt")
    small.write_text("1 qid:1 1:1\n")
    load_letor(small)  # import and compile first
    before = memory("VmRSS")
    data = load_letor(path)
    peak = memory("VmHWM")
    arrays = data.features.nbytes + data.labels.nbytes + data.offsets.nbytes + data.query_ids.nbytes
    print(json.dumps({"peak": peak - before, "arrays": arrays}))


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--megabytes", type=float, default=150)
    parser.add_argument("--repeat", type=int, default=12)
    parser.add_argument("--peak-of", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of:
        report_peak(options.peak_of)
        return
    others, missing = peers.available()
    readers = {
        "countersample": load_letor,
        "countersample, 1 thread": lambda path: load_letor(path, threads=1),
        **others,
    }
    shapes = {"yahoo": (700, 220, 24), "istella": (220, 220, 103)}
    results = {"machine": machine(), "not available": missing}
    with tempfile.TemporaryDirectory() as folder:
        for shape, (n_features, n_nonzero, items) in shapes.items():
            path = Path(folder, f"{shape}.txt")
            make_file(path, n_features, n_nonzero, items, options.megabytes)
            load_letor(path)  # compile, and fill the page cache
            rates, worked = measure(readers, path, options.repeat)
            results[shape] = {"MB/s": rates, "CPU seconds": worked, "memory": peak_memory(path)}
            path.unlink()
    output(results, show, as_json=options.json)


def show(results):
    where = results.pop("machine")
    print(", ".join(f"{what}: {value}" for what, value in where.items()))
    for name, reason in results.pop("not available").items():
        print(f"{name} is not available here ({reason})")
    for shape, figures in results.items():
        rates, worked, memory = figures["MB/s"], figures["CPU seconds"], figures["memory"]
        own, own_work = rates["countersample"], worked["countersample"]
        print(f"\n{shape + '-shaped text':<30}{'MB/s':>8}  countersample is")
        for name, rate in rates.items():
            bar = f"  (bar: {BARS[name]:g})" if name in BARS else ""
            print(
                f"  {name:<28}{rate:>8,.0f}{own / rate:>9.1f} times as fast, "
                f"{worked[name] / own_work:.1f} by CPU time{bar}"
            )
        buffers = 2 * (BLOCK + PADDING)
        ratio = (memory["peak"] - buffers) / memory["arrays"]
        print(
            f"  peak memory {memory['peak'] / 1e6:,.0f} MB for arrays of "
            f"{memory['arrays'] / 1e6:,.0f} MB: {ratio:.2f} times plus a buffer of "
            f"{buffers / 1e6:.0f} MB  (bar: 1.5)"
        )


if __name__ == "__main__":
    main()
