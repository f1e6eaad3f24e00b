"""Scores of an ensemble of regression trees, in blocks of rows that share each tree in cache."""

import numpy as np
from numpy.typing import NDArray

from countersample._kernels.compiling import kernel

ROWS = 64  # that pass through a tree together, while it is in cache


@kernel()
def add_up(
    features: NDArray[np.float32],
    roots: NDArray[np.int64],
    feature: NDArray[np.int32],
    threshold: NDArray[np.float32],
    missing_left: NDArray[np.bool_],
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    value: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """``out[row] += Σ_trees value of the leaf``; left if x[feature] ≤ threshold.

    NaN goes left if missing_left is set.
    """
    for begin in range(0, len(features), ROWS):
        end = min(begin + ROWS, len(features))
        for tree in range(len(roots)):
            for row in range(begin, end):
                node = roots[tree]
                while feature[node] >= 0:
                    x = features[row, feature[node]]
                    if x <= threshold[node] or (x != x and missing_left[node]):  # noqa: PLR0124
                        node = left[node]
                    else:
                        node = right[node]
                out[row] += value[node]
