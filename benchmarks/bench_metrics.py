"""nDCG@10 of 1,000,000 items in 40,000 queries: this package, ranx and scikit-learn in one run.

    .venv/bin/python benchmarks/bench_metrics.py [--json]

All rank the same scores, without ties, and all give the same mean, which is checked. Each time is
the best of some calls after a first one; ranx is given data it has made ready (its "data" time is
not in its "time") and all cores, the others one core. The second table is the price of compiling:
the first call in a new process, with no compiled code kept and with compiled code kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from output import make_parser, output

from countersample.metrics import ndcg

if TYPE_CHECKING:
    from collections.abc import Callable

N_QUERIES, SIZE, K = 40_000, 25, 10

FIRST_CALL = """
import time
start = time.perf_counter()
from countersample.metrics import METRICS, ndcg
ndcg([1, 0], [0.1, 0.2], [0, 2])
first = time.perf_counter() - start
for metric in METRICS.values():
    metric([1, 0], [0.1, 0.2], [0, 2])
print(first, time.perf_counter() - start)
"""


def make_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make grades as skewed as in web search, and scores without ties."""
    rng = np.random.default_rng(0)
    n_items = N_QUERIES * SIZE
    labels = rng.choice(5, n_items, p=[0.5, 0.25, 0.15, 0.07, 0.03]).astype(np.float32)
    scores = rng.permutation(n_items).astype(np.float32)
    return labels, scores, np.arange(0, n_items + 1, SIZE)


def timed(call: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Return the best time of some calls after a first one, and the mean that they gave."""
    mean = float(np.mean(call()))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return {"seconds": min(times), "mean": mean}


def bench_ours(labels: np.ndarray, scores: np.ndarray, offsets: np.ndarray, ties: str) -> dict:
    return timed(lambda: ndcg(labels, scores, offsets, k=K, ties=ties), repeats=15)


def bench_scikit_learn(labels: np.ndarray, scores: np.ndarray, *, ignore_ties: bool) -> dict:
    from sklearn.metrics import ndcg_score

    # It takes a matrix, which only queries of one size make, and has linear gains only.
    gains = np.exp2(labels.reshape(N_QUERIES, SIZE)) - 1
    matrix = scores.reshape(N_QUERIES, SIZE)
    return timed(
        lambda: ndcg_score(gains, matrix, k=K, ignore_ties=ignore_ties),
        repeats=5 if ignore_ties else 1,
    )


def bench_ranx(labels: np.ndarray, scores: np.ndarray) -> dict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ranx import Qrels, Run, evaluate

        start = time.perf_counter()
        items = [f"d{i}" for i in range(SIZE)]
        grades, ranked = Qrels(by_query(labels.astype(int), items)), Run(by_query(scores, items))
        seconds = time.perf_counter() - start
        return timed(lambda: evaluate(grades, ranked, f"ndcg_burges@{K}"), repeats=5) | {
            "data_seconds": seconds
        }


def by_query(values: np.ndarray, items: list[str]) -> dict[str, dict[str, float]]:
    rows = values.reshape(N_QUERIES, SIZE).tolist()
    return {f"q{q}": dict(zip(items, row, strict=True)) for q, row in enumerate(rows)}


def bench_first_calls() -> dict[str, dict[str, float]]:
    """Return the seconds from the import to the end of the first nDCG, and of every metric."""
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("nothing kept", "compiled code kept"):
            output = subprocess.run(
                [sys.executable, "-c", FIRST_CALL],
                env={**os.environ, "NUMBA_CACHE_DIR": folder},
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            first, all_metrics = map(float, output.split())
            result[name] = {"ndcg": first, "all metrics": all_metrics}
    return result


def run() -> dict[str, Any]:
    labels, scores, offsets = make_data()
    ours = "countersample"
    peers: dict[str, tuple[str, Callable[[], dict]]] = {
        f"{ours}, ties in file order": (
            "countersample",
            lambda: bench_ours(labels, scores, offsets, "file"),
        ),
        "ranx, all cores": ("ranx", lambda: bench_ranx(labels, scores)),
        "scikit-learn, ties ignored": (
            "sklearn",
            lambda: bench_scikit_learn(labels, scores, ignore_ties=True),
        ),
        f"{ours}, ties averaged": (
            "countersample",
            lambda: bench_ours(labels, scores, offsets, "expected"),
        ),
        "scikit-learn, ties averaged": (
            "sklearn",
            lambda: bench_scikit_learn(labels, scores, ignore_ties=False),
        ),
    }
    results = {
        name: bench() if find_spec(module) else None for name, (module, bench) in peers.items()
    }
    means = [result["mean"] for result in results.values() if result]
    if max(means) - min(means) > 1e-6:
        raise SystemExit(f"the means differ: {means}")
    fastest = next(iter(results.values()))["seconds"]
    for result in filter(None, results.values()):
        result["ratio"] = result["seconds"] / fastest
    return {"ndcg@10": results, "first call": bench_first_calls()}


def show(report: dict[str, Any]) -> None:
    results = report["ndcg@10"]
    print(f"nDCG@{K} of {N_QUERIES * SIZE:,} items in {N_QUERIES:,} queries\n")
    print(f"{'':44}{'time':>10}{'ratio':>9}{'mean':>10}{'data':>9}")
    for name, result in results.items():
        if result is None:
            print(f"{name:44}{'not installed':>19}")
            continue
        data = f"{result['data_seconds']:.1f} s" if "data_seconds" in result else ""
        print(
            f"{name:44}{result['seconds']:>8.3f} s{result['ratio']:>8.1f}x"
            f"{result['mean']:>10.6f}{data:>9}"
        )
    print(f"\n{'first call in a new process':44}{'nDCG':>10}{'all metrics':>14}")
    for name, seconds in report["first call"].items():
        print(f"{name:44}{seconds['ndcg']:>8.2f} s{seconds['all metrics']:>12.2f} s")


def main() -> None:
    parser = make_parser(__doc__)
    arguments = parser.parse_args()
    report = run()
    output(report, show, as_json=arguments.json)


if __name__ == "__main__":
    main()
