"""The hinge bound in score space: one clicked item's coefficient for every item of its query."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Sums may be taken in any order (so that they run in vector registers), but NaN stays NaN.
# A function that says nothing takes the flags of whichever caller is compiled first.
FAST = {"reassoc", "contract", "nsz"}

Matrix = NDArray[np.float32]


@njit(nogil=True, cache=True, fastmath=False, error_model="numpy")
def slope(code: int, bound: np.float32) -> np.float32:
    """λ'(bound) of the objective with this code: 0 is x, 1 is ln x, 2 is −1/log2(1 + x)."""
    if code == 0:
        return np.float32(1.0)
    if code == 1:
        return np.float32(1.0) / bound
    log = np.log(np.float32(1.0) + bound)
    return np.float32(0.6931471805599453) / ((np.float32(1.0) + bound) * log * log)


@njit(nogil=True, cache=True, fastmath=False, error_model="numpy")
def rank_bound(scores: Matrix, lane: int, n_items: int, item: int) -> np.float32:
    """1 + Σ_{d'≠d} max(0, 1 − (s_d − s_d')) for the item d."""
    one = np.float32(1.0)
    bound = np.float32(0.0)
    for other in range(n_items):  # the item itself adds 1 exactly: no fast arithmetic here
        bound += max(np.float32(0.0), one - (scores[lane, item] - scores[lane, other]))
    return bound


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def add_coefficients(
    scores: Matrix, lane: int, n_items: int, item: int, share: np.float32, code: int, out: Matrix
) -> None:
    """Add share · ∂λ(bound)/∂score to ``out[lane]`` for a click on `item`.

    What is added for the item itself is NaN where a score has overflowed. Scores are those in
    ``scores[lane, :n_items]``: a view would cost as much as the work.
    """
    zero = np.float32(0.0)
    clicked = scores[lane, item]
    if code != 0:
        share *= slope(code, rank_bound(scores, lane, n_items, item))
    violated = overflow = zero
    for other in range(n_items):
        margin = clicked - scores[lane, other]
        pair = share if margin < np.float32(1.0) else zero
        out[lane, other] += pair
        violated += pair
        overflow += zero * margin  # 0, or NaN for a margin that is not finite: it compares as any
    # The item itself is among the violated, so that its own share drops out.
    out[lane, item] -= violated + overflow
