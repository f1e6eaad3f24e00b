"""The alias method (Walker 1977): sample from n weights, O(n) to build and O(1) per draw.

Imagine n boxes of size 1, and weights with a mean of 1. Weights below 1 leave room in their box; a
weight above 1 gives its surplus to such boxes until its rest fits into its own. So each box holds
at most two indices: its own, up to `threshold`, and one other, `alias`. A draw picks a box
uniformly, and then one of its two indices by a second uniform number.
"""

import numpy as np

from countersample._arrays import Floats, Ints
from countersample._kernels.compiling import kernel, part


@kernel()
def build(threshold: Floats, alias: Ints) -> None:
    """Turn n weights of mean 1 into an alias table, in place and without further memory.

    Index i keeps its own draw with probability ``threshold[i]`` and else gives it to ``alias[i]``.
    Thresholds below 1 (small) are filled up by those of at least 1 (large), both scanned once from
    the front; a large one that has become small behind the scan is filled up at once.

    A heavy weight fills up many others. Its rest is stored together with its rounding error,
    because such errors would add up in a table of 10⁸.
    """
    n = len(threshold)
    for index in range(n):
        alias[index] = index
    large = _next_large(threshold, 0)
    left, error = threshold[large], 0.0  # left + error is the rest of the large weight
    scan = 0
    small = -1  # one that became small behind the scan
    while True:
        if small < 0:
            while scan < n and (threshold[scan] >= 1.0 or alias[scan] != scan):
                scan += 1
            if scan == n:
                break
            small = scan
        alias[small] = large
        left, lost = _two_sum(left, threshold[small] - 1.0)
        error += lost
        small = -1
        if left + error < 1.0:
            threshold[large] = left + error
            if large < scan:
                small = large
            large = _next_large(threshold, large + 1)
            if large == n:
                break
            left, error = threshold[large], 0.0
    # The remaining weights are 1 up to rounding, because the weights have a mean of 1.
    for index in range(n):
        if alias[index] == index:
            threshold[index] = 1.0


@part()
def _next_large(threshold: Floats, index: int) -> int:
    while index < len(threshold) and threshold[index] < 1.0:
        index += 1
    return index


@part()
def _two_sum(a: float, b: float) -> tuple[float, float]:
    """Return fl(a + b) and its rounding error, exactly (Knuth)."""
    total = a + b
    added = total - a
    return total, (a - (total - added)) + (b - added)


@kernel()
def draw(threshold: Floats, alias: Ints, indices: Ints, uniforms: Floats) -> None:
    """Turn uniform indices into draws: ``indices[k]`` becomes its alias if uniforms[k] ≥ threshold.

    Both are (size,), and uniform on 0..n−1 and on [0, 1).
    """
    for k in range(len(indices)):
        index = indices[k]
        if uniforms[k] >= threshold[index]:
            indices[k] = alias[index]


@kernel()
def probabilities(threshold: Floats, alias: Ints, total: Floats) -> None:
    """total_i = (threshold_i + Σ_{j: alias_j = i} (1 − threshold_j)) / n, by compensated sums."""
    n = len(threshold)
    error = np.zeros(n)
    for index in range(n):
        total[index] = threshold[index]
    for index in range(n):
        to = alias[index]
        total[to], lost = _two_sum(total[to], 1.0 - threshold[index])
        error[to] += lost
    for index in range(n):
        total[index] = (total[index] + error[index]) / n
