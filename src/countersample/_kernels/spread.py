"""Mean and variance of the risk of single examples, for K runs at a time.

One pass over the queries with clicks computes λ(bound) of each clicked item for all runs; a second
pass over the examples computes their moments. Every sum has the order that it has for a single run,
so a run gets the same bytes whatever other runs are computed with it.
"""

import numpy as np
from numpy.typing import NDArray

from countersample._arrays import Floats, Ints
from countersample._kernels.compiling import kernel
from countersample._kernels.objectives import rank_bound, value_of
from countersample._kernels.training import Matrix, Vector, score_rows
from countersample._kernels.updates import narrow


@kernel(error_model="numpy")
def spread(
    features: Matrix,
    offsets: Ints,
    query: NDArray[np.int32],
    item: NDArray[np.int32],
    pair: Ints,
    starts: Ints,
    shares: Vector,
    levels: Vector,
    scale: Floats,
    w: Floats,
    objective: int,
    moments: Floats,
) -> None:
    """Write ū = (1/n) Σ u_i and Σ (u_i − ū)² / (n − 1) of each run.

    u_i = level_i Σ_j share_j λ(bound_j), over the clicked items j of example i.

    Parameters
    ----------
    features, offsets, scale
        As `_kernels.training.take_steps` takes them.
    query, item : int32 (n_pairs,)
        The clicked items, each once, by query.
    pair : int64 (n_clicked,)
        The position in `query` and `item` of each clicked item of the examples.
    starts, shares, levels
        Of the n examples, as in `take_steps`.
    w : float64 (K, width)
    objective : int
    moments : float64 (K, 2)
        Written to.
    """
    n_runs, width = w.shape
    small = np.empty((n_runs, width), np.float32)
    for run in range(n_runs):
        narrow(w, scale, small, run)
    most = 0
    for position in range(len(offsets) - 1):
        most = max(most, offsets[position + 1] - offsets[position])
    scores = np.empty((n_runs, most), np.float32)
    values = np.empty((n_runs, len(query)))
    n_items = 0
    for k in range(len(query)):
        start = offsets[query[k]]
        if k == 0 or query[k] != query[k - 1]:
            n_items = offsets[query[k] + 1] - start
            score_rows(features, start, n_items, small, start, 0, scores)
        for run in range(n_runs):
            bound = np.float64(rank_bound(scores, run, n_items, np.int64(item[k])))
            values[run, k] = value_of(objective, bound)
    n = len(starts) - 1
    u = np.empty(n)
    for run in range(n_runs):
        total = 0.0
        for i in range(n):
            value = 0.0
            for j in range(starts[i], starts[i + 1]):
                value += shares[j] * values[run, pair[j]]
            u[i] = levels[i] * value
            total += u[i]
        mean = total / n
        squares = 0.0
        for i in range(n):
            squares += (u[i] - mean) * (u[i] - mean)
        moments[run, 0], moments[run, 1] = mean, squares / (n - 1)
