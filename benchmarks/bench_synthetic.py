"""Synthetic data on one core: items a second, peak memory and, if asked, how well rankers do.

    .venv/bin/python benchmarks/bench_synthetic.py [--queries N] [--ndcg] [--json]

Each shape has a process of its own; its time is the best of three calls. The peak is what they add
to the memory of the process, the features included. ``--queries 0`` makes the whole shapes (3 GB);
``--ndcg`` trains rankers as well (as much memory again, and a minute or two).
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from output import make_parser, output, table

from countersample.data.synthetic import SHAPES, synthetic
from countersample.metrics import ndcg

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample import RankingDataset

REPEATS = 3
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
N_SMALL = 5  # rankers trained on 0.1 % of the queries, each on queries of its own


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--queries", type=int, default=5000, help="0: as many as the shape has")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ndcg", action="store_true", help="train and evaluate linear rankers")
    options = parser.parse_args()
    jobs = [(name, options.queries or None, options.seed, options.ndcg) for name in SHAPES]
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of the processes started below
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        rows = pool.starmap(measure, jobs, chunksize=1)
    output(rows, table, as_json=options.json)


def measure(name: str, n_queries: int | None, seed: int, with_ndcg: bool) -> dict[str, Any]:
    synthetic(name, n_queries=1, rng=seed)  # cut points, and NumPy's own start
    before = peak_memory()
    seconds, data = [], None
    for _ in range(REPEATS):
        del data  # never two of them in memory
        start = time.perf_counter()
        data = synthetic(name, n_queries=n_queries, rng=seed)
        seconds.append(time.perf_counter() - start)
    row = {
        "shape": name,
        "queries": data.n_queries,
        "items": data.n_items,
        "seconds": round(min(seconds), 3),
        "items/s": round(data.n_items / min(seconds)),
        "output MB": round(data.features.nbytes / 2**20, 1),
        "peak MB": round((peak_memory() - before) / 2**20, 1),
    }
    return row | (rankers(data, seed) if with_ndcg else {})


def peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# -- how well rankers do -------------------------------------------------------------------------


def rankers(data: RankingDataset, seed: int) -> dict[str, float]:
    """Mean nDCG@10 on the last fifth of the queries, after min-max normalisation by query.

    Rankers are least squares on what differs within queries. Each gets the penalty that is best on
    the test queries, and the single feature is the best there too: all are as good as they can be.
    """
    data = data.normalized("query-minmax")
    n_train = data.n_queries * 4 // 5
    rows = slice(int(data.offsets[n_train]), None)
    features, labels = data.features[rows], data.labels[rows]
    offsets = data.offsets[n_train:] - data.offsets[n_train]

    def test(scores: NDArray[Any]) -> float:
        return float(np.nanmean(ndcg(labels, scores, offsets, k=10, no_relevant="skip")))

    def best(gram: NDArray[Any], moment: NDArray[Any]) -> float:
        unit = np.trace(gram) / len(gram) * np.eye(len(gram))
        weights = (np.linalg.solve(gram + penalty * unit, moment) for penalty in PENALTIES)
        return max(test(features @ w.astype(np.float32)) for w in weights)

    gram, moment = normal_equations(data, 0, n_train)
    correlation = moment / np.sqrt(np.diag(gram) + 1e-9)
    top = np.argsort(-abs(correlation))[:10]
    n_few = max(1, n_train // 1000)
    few = [normal_equations(data, k * n_few, (k + 1) * n_few) for k in range(N_SMALL)]
    figures = {
        "random": test(np.random.default_rng(seed).random(len(labels))),
        "one feature": max(test(np.sign(correlation[j]) * features[:, j]) for j in top),
        "0.1 % of queries": float(np.mean([best(*equations) for equations in few])),
        "all queries": best(gram, moment),
    }
    return {name: round(value, 3) for name, value in figures.items()}


def normal_equations(data: RankingDataset, first: int, end: int) -> tuple[NDArray[Any], ...]:
    """Σ x xᵀ and Σ x y over the items of queries first..end − 1, less the mean of their query."""
    gram, moment = np.zeros((data.n_features,) * 2), np.zeros(data.n_features)
    for start, stop in pairwise([*range(first, end, 256), end]):
        offsets = data.offsets[start : stop + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        x = centred(data.features[rows], offsets - offsets[0])
        y = centred(data.labels[rows, None], offsets - offsets[0])
        gram += x.T @ x
        moment += (x.T @ y)[:, 0]
    return gram, moment


def centred(values: NDArray[np.float32], offsets: NDArray[np.int64]) -> NDArray[np.float32]:
    sizes = np.diff(offsets)
    means = np.add.reduceat(values, offsets[:-1]) / sizes[:, None].astype(np.float32)
    return values - np.repeat(means, sizes, axis=0)


if __name__ == "__main__":
    main()
