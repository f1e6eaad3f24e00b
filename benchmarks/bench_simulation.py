"""Simulated clicks a second, on one core, of the paper's position-based user.

    .venv/bin/python benchmarks/bench_simulation.py [--queries N] [--clicks N] [--json]

`simulate_clicks` is called as anyone would call it, and the best of five calls counts; ranking the
items is part of the time. The fingerprint of the dataset, which it computes once and the log
carries, has its own column. The peer is a plain NumPy loop over sessions, run just after on the
same data for a second. The authors' own simulator is quoted, not measured: 2,300 clicks a second,
from the paper's released code.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from output import make_parser, output, table

from countersample.clicks import PositionBias, simulate_clicks
from countersample.data import synthetic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample import RankingDataset

SHAPES = ("yahoo-like", "istella-like")
AUTHORS = 2300
REPEATS = 5


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--queries", type=int, default=5000, help="of each shape")
    parser.add_argument("--clicks", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = [measure(shape, options.queries, options.clicks, options.seed) for shape in SHAPES]
    output(rows, table, as_json=options.json)


def measure(shape: str, n_queries: int, n_clicks: int, seed: int) -> dict[str, Any]:
    data = synthetic(shape, n_queries=n_queries, rng=seed)
    scores = data.features @ np.random.default_rng(seed).normal(size=data.n_features)
    start = time.perf_counter()
    assert data.fingerprint  # noqa: S101 (computes it)
    fingerprint = time.perf_counter() - start
    simulate_clicks(data, scores, 1, rng=seed)  # compiles
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        simulate_clicks(data, scores, n_clicks, rng=seed)
        seconds.append(time.perf_counter() - start)
    ours, loop = n_clicks / min(seconds), numpy_loop(data, scores, seed)
    return {
        "shape": shape,
        "queries": data.n_queries,
        "items a query": round(data.n_items / data.n_queries, 1),
        "clicks/s": round(ours),
        "NumPy loop": round(loop),
        "times": round(ours / loop),
        "authors (quoted)": AUTHORS,
        "fingerprint ms": round(fingerprint * 1000),
    }


def numpy_loop(
    data: RankingDataset, scores: NDArray[Any], seed: int, lasting: float = 1.0
) -> float:
    """Clicks a second of the obvious simulator, with rankings and probabilities made beforehand."""
    chances, propensities = [], []
    for start, end in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        order = np.argsort(-scores[start:end], kind="stable")
        propensity = PositionBias().propensity(np.arange(1, end - start + 1))
        relevant = data.labels[start:end][order] >= 3
        chances.append(propensity * np.where(relevant, 1.0, 0.1))
        propensities.append(propensity)
    rng = np.random.default_rng(seed)
    log, n_found = [], 0
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < lasting:
        query = rng.integers(data.n_queries)
        clicked = np.flatnonzero(rng.random(len(chances[query])) < chances[query])
        log.append((query, clicked, propensities[query][clicked]))
        n_found += len(clicked)
    return n_found / passed


if __name__ == "__main__":
    main()
