"""Scores of regression trees."""

import numpy as np
from numpy.typing import NDArray

from countersample._kernels.compiling import kernel

ROWS = 64  # that go through a tree together, while it is in cache


@kernel()
def add_up(
    features: NDArray[np.float32],
    roots: NDArray[np.int64],
    feature: NDArray[np.int32],
    threshold: NDArray[np.float32],
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    value: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """``out[row] += Σ_trees value of the leaf``; left where x[feature] ≤ threshold."""
    for begin in range(0, len(features), ROWS):
        end = min(begin + ROWS, len(features))
        for tree in range(len(roots)):
            for row in range(begin, end):
                node = roots[tree]
                while feature[node] >= 0:
                    if features[row, feature[node]] <= threshold[node]:
                        node = left[node]
                    else:
                        node = right[node]
                out[row] += value[node]
