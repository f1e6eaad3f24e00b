"""The alias method (Walker 1977): O(n) to build, O(1) a draw."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@njit(nogil=True, cache=True)
def build(threshold: Floats, alias: Ints) -> None:
    """Turn n weights of mean 1 into an alias table, in place and without further memory.

    Place i keeps its own draw with probability ``threshold[i]`` and else gives it to ``alias[i]``.
    Places below 1 (small) are filled up by places of at least 1 (large), both scanned once from
    the front; a large place that has become small behind the scan is filled up at once.

    A heavy weight fills up many places. What is left of it is kept together with its rounding
    errors, which would add up in a table of 10⁸ places.

    Parameters
    ----------
    threshold : float64 (n,)
        The weights, of mean 1 and the largest at least 1, in; the thresholds, out.
    alias : int64 (n,), out
    """
    n = len(threshold)
    for place in range(n):
        alias[place] = place
    large = _next_large(threshold, 0)
    left, error = threshold[large], 0.0  # left + error is what is left of the large place
    scan = 0
    small = -1  # a place that became small behind the scan
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
    # What is left has a weight of 1 but for rounding: the weights have a mean of 1.
    for place in range(n):
        if alias[place] == place:
            threshold[place] = 1.0


@njit(nogil=True, cache=True)
def _next_large(threshold: Floats, place: int) -> int:
    while place < len(threshold) and threshold[place] < 1.0:
        place += 1
    return place


@njit(nogil=True, cache=True)
def _two_sum(a: float, b: float) -> tuple[float, float]:
    """Return fl(a + b) and its rounding error, exactly (Knuth)."""
    total = a + b
    added = total - a
    return total, (a - (total - added)) + (b - added)


@njit(nogil=True, cache=True)
def draw(threshold: Floats, alias: Ints, places: Ints, uniforms: Floats) -> None:
    """Turn uniform places into draws: ``places[k]`` becomes its alias if uniforms[k] ≥ threshold.

    Parameters
    ----------
    threshold : float64 (n,)
    alias : int64 (n,)
    places : int64 (size,)
        Uniform on 0..n−1, in; the draws, out.
    uniforms : float64 (size,)
        Uniform on [0, 1).
    """
    for k in range(len(places)):
        place = places[k]
        if uniforms[k] >= threshold[place]:
            places[k] = alias[place]


@njit(nogil=True, cache=True)
def probabilities(threshold: Floats, alias: Ints) -> Floats:
    """π_i = (threshold_i + Σ_{j: alias_j = i} (1 − threshold_j)) / n, with compensated sums.

    Parameters
    ----------
    threshold : float64 (n,)
    alias : int64 (n,)

    Returns
    -------
    float64 (n,)
    """
    n = len(threshold)
    total = threshold.copy()
    error = np.zeros(n)
    for place in range(n):
        to = alias[place]
        total[to], lost = _two_sum(total[to], 1.0 - threshold[place])
        error[to] += lost
    for place in range(n):
        total[place] = (total[place] + error[place]) / n
    return total
