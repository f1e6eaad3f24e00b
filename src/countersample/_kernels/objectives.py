"""The hinge bound in score space: one clicked item's coefficient for every item of its query."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Sums may be taken in any order (so that they run in vector registers), but NaN stays NaN.
FAST = {"reassoc", "contract", "nsz"}

Vector = NDArray[np.float32]


@njit(nogil=True, cache=True)
def slope(code: int, bound: np.float32) -> np.float32:
    """λ'(bound) of the objective with this code: 0 is x, 1 is ln x, 2 is −1/log2(1 + x)."""
    if code == 0:
        return np.float32(1.0)
    if code == 1:
        return np.float32(1.0) / bound
    log = np.log(np.float32(1.0) + bound)
    return np.float32(0.6931471805599453) / ((np.float32(1.0) + bound) * log * log)


@njit(nogil=True, cache=True, fastmath=FAST)
def add_coefficients(
    scores: Vector, n_items: int, item: int, share: np.float32, code: int, out: Vector
) -> None:
    """Add share · ∂λ(bound)/∂score to ``out[:n_items]`` for a click on `item`."""
    one = np.float32(1.0)
    zero = np.float32(0.0)
    missing = one - scores[item]
    if code != 0:
        bound = zero
        for other in range(n_items):
            bound += max(zero, scores[other] + missing)
        share *= slope(code, bound)  # the item itself has added the 1 of the bound
    violated = zero
    for other in range(n_items):
        pair = share if scores[other] + missing > zero else zero
        out[other] += pair
        violated += pair
    out[item] -= violated  # which the item itself is part of, so that its own share drops out
