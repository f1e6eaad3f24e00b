"""Loops over rows of features: min-max normalisation per query, and scores of regression trees."""

import numpy as np
from numpy.typing import NDArray

from countersample._kernels.compiling import kernel

TREE_ROWS = 64  # that pass through a tree together, while it is in cache


@kernel()
def query_minmax(
    features: NDArray[np.float32], offsets: NDArray[np.int64], out: NDArray[np.float32]
) -> None:
    """``out = (x − min) / (max − min)`` per feature and query; 0 if max = min.

    NaN stays NaN, and is neither a minimum nor a maximum: comparisons with it are false.
    Offsets are strictly increasing, from 0 to n_items.
    """
    n_features = features.shape[1]
    low = np.empty(n_features)
    high = np.empty(n_features)
    for q in range(len(offsets) - 1):
        start, end = offsets[q], offsets[q + 1]
        for j in range(n_features):
            low[j] = np.inf
            high[j] = -np.inf
        for i in range(start, end):
            for j in range(n_features):
                if features[i, j] < low[j]:  # noqa: PLR1730 (min takes NaN for the smaller)
                    low[j] = features[i, j]
                if features[i, j] > high[j]:  # noqa: PLR1730 (as above)
                    high[j] = features[i, j]
        for j in range(n_features):
            high[j] = 1 / (high[j] - low[j]) if high[j] > low[j] else 0.0  # now the factor
        for i in range(start, end):
            for j in range(n_features):
                out[i, j] = (features[i, j] - low[j]) * high[j]


@kernel()
def add_up_trees(
    features: NDArray[np.float32], roots: NDArray[np.int64], feature: NDArray[np.int32],
    threshold: NDArray[np.float32], missing_left: NDArray[np.bool_], left: NDArray[np.int32],
    right: NDArray[np.int32], value: NDArray[np.float64], out: NDArray[np.float64],
) -> None:  # fmt: skip
    """``out[row] += Σ_trees value of the leaf``; left if x[feature] ≤ threshold.

    NaN goes left if missing_left is set.
    """
    for begin in range(0, len(features), TREE_ROWS):
        end = min(begin + TREE_ROWS, len(features))
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
