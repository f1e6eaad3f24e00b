"""Min-max normalisation over ragged blocks of rows."""

import numpy as np
from numpy.typing import NDArray

from countersample._kernels.compiling import kernel


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
