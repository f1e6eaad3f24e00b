"""Training one ranker on one core and on more, batch by batch.

    .venv/bin/python benchmarks/bench_cores.py [--workers 2] [--rounds 30] [--json]

Threads share the parts of a batch. The same steps, CounterSample by click, SGD, on data of the
shape of Yahoo and Istella that is far larger than the cache, of 32 bits and as codes of 8 bits.
"bound" is what the memory and the cores of the machine give at best: as many runs as threads, each
by itself. All take turns in short bursts, and the best burst of each counts.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from output import make_parser, output, table

from countersample import simulate_clicks, synthetic
from countersample._environment import available_cores
from countersample.training import TrainingOptions, runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from countersample import ClickLog, RankingDataset

SHAPES = ("yahoo-like", "istella-like")
BATCH_SIZES = (10, 50)
BURST = 10_000  # examples
BAR = 1.6  # for two cores and batches of 50


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--queries", type=int, default=4000, help="of each shape")
    parser.add_argument("--clicks", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=available_cores())
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    runs.CHUNK = BURST
    rows: list[dict[str, Any]] = []
    for shape in SHAPES:
        data = synthetic(shape, n_queries=options.queries, rng=options.seed).normalized()
        scores = data.features @ np.random.default_rng(options.seed).normal(size=data.n_features)
        log = simulate_clicks(data, scores, options.clicks, rng=options.seed)
        for bits, each in ((32, data), (8, data.compact(8))):
            for batch_size in BATCH_SIZES:
                found = measure(each, log, batch_size, options.workers, options.rounds)
                rows.append({"shape": shape, "bits": bits, "batch": batch_size, **found})
    output({"workers": options.workers, "rows": rows}, text, as_json=options.json)


def measure(
    data: RankingDataset, log: ClickLog, batch_size: int, workers: int, rounds: int
) -> dict[str, float]:
    """Return examples a second, and how much faster more threads are."""
    options = TrainingOptions(steps=10**12, checkpoints=0, batch_size=batch_size)
    (setup,) = runs.Setup.of(data, log, options)

    def run(seed: int, workers: int = 1) -> runs.Run:
        return runs.Run(setup, [1e-3], np.random.default_rng(seed), workers=workers)

    alone, shared, others = run(0), run(0, workers), [run(k) for k in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        seconds = best_of(rounds, [
            alone.advance, shared.advance,
            lambda: list(pool.map(runs.Run.advance, others)),
        ])  # fmt: skip
    if alone.state["w"].tobytes() != shared.state["w"].tobytes():
        raise AssertionError("other weights with more threads")
    one, more, side_by_side = seconds
    return {
        "one/s": BURST / one, "more/s": BURST / more, "ratio": one / more,
        "bound": workers * one / side_by_side,
    }  # fmt: skip


def best_of(rounds: int, calls: list[Callable[[], object]]) -> list[float]:
    best = [np.inf] * len(calls)
    for _ in range(rounds):
        for k, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[k] = min(best[k], time.perf_counter() - start)
    return best


def text(report: dict[str, Any]) -> str:
    lines = [
        {
            "shape": row["shape"], "bits": row["bits"], "batch": row["batch"],
            "examples/s, one core": int(row["one/s"]),
            f"{report['workers']} cores": int(row["more/s"]),
            "ratio": f"{row['ratio']:.2f}", "bound": f"{row['bound']:.2f}",
            "bar": f"{BAR}" if row["batch"] == 50 and report["workers"] == 2 else "",
        }
        for row in report["rows"]
    ]  # fmt: skip
    return table(lines, left=1)


if __name__ == "__main__":
    main()
