"""Sampling from weights: an alias table, and rows within blocks of neighbouring weights.

The alias method (Walker 1977) takes O(n) to build and O(1) per draw. Imagine n boxes of size 1, and
weights with a mean of 1. Weights below 1 leave room in their box; a weight above 1 gives its
surplus to such boxes until its rest fits into its own. So each box holds at most two indices: its
own, up to `threshold`, and one other, `alias`. A draw picks a box uniformly, and then one of its
two indices by a second uniform number.

An alias table over blocks of ROWS neighbouring weights is ROWS times smaller than one over all
weights. After a block is drawn, its weights are read (they are one line of memory), and one of its
rows is chosen by halving: a half of the eight, a half of that half, one of two.
"""

import numpy as np

from countersample._arrays import Floats, Ints
from countersample._kernels.compiling import kernel, part

ROWS = 8  # of a block: 64 bytes, which a CPU reads at once
LEVELS = 3  # of halving: 8 rows, 4, 2, 1


@kernel()
def build(threshold: Floats, alias: Ints) -> None:
    """Turn n weights of mean 1 into an alias table, in place and without further memory.

    Index i keeps its own draw with probability ``threshold[i]`` and else gives it to ``alias[i]``.
    Thresholds below 1 (small) are filled up by thresholds of at least 1 (large), both scanned once
    from the front; a large one that has become small behind the scan is filled up at once.

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


# -- rows within blocks


@kernel()
def add_up_blocks(weights: Floats, total: Floats) -> None:
    """total_b = Σ v_i over the ROWS weights of block b; the last may have fewer."""
    for block in range(len(total)):
        added = 0.0
        for index in range(ROWS * block, min(ROWS * (block + 1), len(weights))):
            added += weights[index]
        total[block] = added


@kernel()
def draw_in_blocks(weights: Floats, last: Floats, drawn: Ints, uniforms: Floats) -> None:
    """Turn each block ``drawn[k]`` into one of its rows, by their weights.

    `last` is the last block, filled up with zeros; `uniforms` are (size, LEVELS), on [0, 1).
    """
    for k in range(len(drawn)):
        start = ROWS * drawn[k]
        if start + ROWS <= len(weights):
            drawn[k] = start + _row(weights, start, uniforms, k)
        else:
            drawn[k] = start + _row(last, 0, uniforms, k)


@part()
def _row(v: Floats, i: int, uniforms: Floats, k: int) -> int:
    """Return one of the rows i … i + 7, counted from i: a half of them, a half of that, a row."""
    first, second = v[i] + v[i + 1], v[i + 2] + v[i + 3]
    third, fourth = v[i + 4] + v[i + 5], v[i + 6] + v[i + 7]
    right = _is_right(first + second, third + fourth, uniforms[k, 0])
    row = 4 * right
    row += 2 * _is_right(third if right else first, fourth if right else second, uniforms[k, 1])
    return row + _is_right(v[i + row], v[i + row + 1], uniforms[k, 2])


@part()
def _is_right(left: float, right: float, uniform: float) -> int:
    """P(1) = right / (left + right), else 0.

    The smaller side is compared with the uniform number, because one minus its probability would
    lose its digits. A side of 0 is never chosen. There is no branch: a CPU could not predict it.
    """
    smaller = min(left, right)
    is_smaller = uniform * (left + right) < smaller
    return np.int64(is_smaller) ^ np.int64(left <= right)
