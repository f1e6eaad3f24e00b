"""λ of every objective, and the hinge bound: one clicked item's coefficient for every item."""

import numpy as np
from numpy.typing import NDArray

from countersample._arrays import Floats
from countersample._kernels.codes import DCG, LOG_RANK, RANK
from countersample._kernels.compiling import kernel, part

LN2 = np.log(2.0)

Matrix = NDArray[np.float32]


@part(error_model="numpy")
def weighting(code: int, bound: float) -> tuple[float, float]:
    """λ(bound) and λ'(bound) of the objective with this code."""
    if code == RANK:
        return bound, 1.0
    if code == LOG_RANK:
        return np.log(bound), 1.0 / bound
    if code == DCG:
        log = np.log(1.0 + bound)
        return -LN2 / log, LN2 / ((1.0 + bound) * log * log)
    raise ValueError("no objective has this code")


@kernel(error_model="numpy")
def weightings(code: int, bounds: Floats) -> tuple[Floats, Floats]:
    """λ and λ' of each of many bounds, two arrays (n,)."""
    values, slopes = np.empty(len(bounds)), np.empty(len(bounds))
    for k in range(len(bounds)):
        values[k], slopes[k] = weighting(code, bounds[k])
    return values, slopes


@part(error_model="numpy")
def _rank_bound(scores: Matrix, run: int, n_items: int, item: int) -> np.float32:
    """1 + Σ_{d'≠d} max(0, 1 − (s_d − s_d')) for the item d."""
    one = np.float32(1.0)
    bound = np.float32(0.0)
    for other in range(n_items):  # the item itself adds 1 exactly
        bound += max(np.float32(0.0), one - (scores[run, item] - scores[run, other]))
    return bound


@part(fastmath={"reassoc"}, error_model="numpy")
def add_coefficients(
    scores: Matrix, run: int, n_items: int, item: int, share: np.float32, code: int, out: Matrix
) -> None:
    """Add share · ∂λ(bound)/∂score to ``out[run]`` for a click on `item`.

    What is added for the item itself is NaN where a score has overflowed. Scores are those in
    ``scores[run, :n_items]``: a view would cost as much as the work.
    """
    zero, one = np.float32(0.0), np.float32(1.0)
    clicked = scores[run, item]
    if code != RANK:
        bound = _rank_bound(scores, run, n_items, item)
        share *= np.float32(weighting(code, np.float64(bound))[1])
    n_violated = overflow = zero  # exact in whatever order they are added up: "reassoc" is safe
    for other in range(n_items):
        margin = clicked - scores[run, other]
        is_violated = margin < one
        out[run, other] += share if is_violated else zero
        n_violated += one if is_violated else zero
        overflow += zero * margin  # 0, or NaN for a margin that is not finite: it compares as any
    # The item itself is among the violated, so that its own share drops out.
    out[run, item] -= share * n_violated + overflow


@kernel(error_model="numpy")
def coefficients(scores: Matrix, item: int, code: int, out: Matrix) -> None:
    """Add ∂λ(bound)/∂score to ``out[0]`` for one click, of scores (1, n_items)."""
    add_coefficients(scores, 0, scores.shape[1], item, np.float32(1.0), code, out)
