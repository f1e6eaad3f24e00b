"""λ of every objective, and the gradient of λ(bound) in score space.

The rank of a clicked item d is at most 1 + Σ_{d'≠d} max(0, 1 − (s_d − s_d')), a sum of hinges over
the other items. An objective is a function λ of this bound. Its derivative by the score of another
item is λ'(bound) if the pair is violated (margin below 1), else 0; by the score of d it is minus
the sum of all others. A λ is a code, not a function, so that one kernel serves every objective.

Kernels call a λ that the user wrote by its address, and are compiled without it. The address is the
code of the objective, so one kernel in the cache serves every λ. A kernel checks for built-in
objectives first, so they cost nothing extra.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import cfunc, extending, njit, types
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from countersample._arrays import Floats
from countersample._kernels.codes import (
    DCG,
    DCG_PAPER,
    LOG_RANK,
    LOG_RANK_PAPER,
    OWN,
    RANK,
    SQUARED_RANK,
)
from countersample._kernels.compiling import kernel, part

LN2 = np.log(2.0)

Matrix = NDArray[np.float32]
Value = Any  # of numba or llvmlite, which have no types
intrinsic: Any = extending.intrinsic
VALUE, SLOPE, BEND = range(3)  # which of λ, λ' and max(0, λ'') to compute
STEP = 1e-4  # relative to the bound: the width of the difference quotient of the slope


def compile_weighting(
    value: Callable[[float], float], slope: Callable[[float], float]
) -> tuple[int, object]:
    """Return the address of λ, and an object that must live as long as the address is used.

    Raises
    ------
    ValueError
        If it cannot be compiled, with the message of the compiler.
    """
    compiled_value, compiled_slope = (  # numba itself may support others, such as math.log
        njit(error_model="numpy")(each) if isinstance(each, FunctionType) else each
        for each in (value, slope)
    )

    def weighting(bound: float, output: int) -> float:
        if output == VALUE:
            return 1.0 * compiled_value(bound)
        if output == SLOPE:
            return 1.0 * compiled_slope(bound)
        step = STEP * bound
        return max(0.0, (1.0 * compiled_slope(bound + step) - 1.0 * compiled_slope(bound)) / step)

    try:
        compiled = cfunc("float64(float64, int64)", error_model="numpy")(weighting)
    except NumbaError as error:
        lines = (line.strip() for line in str(error).splitlines())
        messages = [line for line in lines if line and not line.startswith("Failed in")]
        raise ValueError(messages[0] if messages else type(error).__name__) from error
    return compiled.address, compiled


@intrinsic
def own_weighting(_: Value, address: Value, bound: Value, output: Value) -> Value:  # noqa: ARG001 (numba inspects them)
    """Return λ, λ' or max(0, λ'') of a bound, from the function at an address."""

    def generate(_: Value, builder: Value, __: Value, args: Value) -> Value:
        number = ir.DoubleType()
        kind = ir.FunctionType(number, [number, ir.IntType(64)])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.float64(types.int64, types.float64, types.int64), generate


@part(error_model="numpy")
def weighting(code: int, bound: float) -> tuple[float, float, float]:
    """Return λ(bound), λ'(bound) and max(0, λ''(bound)) of the objective with this code."""
    if code == RANK:
        return bound, 1.0, 0.0
    if code in (LOG_RANK_PAPER, DCG_PAPER):
        bound += 1.0  # the item itself, which equation 2 of the paper counts
    if code in (LOG_RANK, LOG_RANK_PAPER):
        return np.log(bound), 1.0 / bound, 0.0
    if code in (DCG, DCG_PAPER):
        log = np.log(1.0 + bound)
        return -LN2 / log, LN2 / ((1.0 + bound) * log * log), 0.0
    if code == SQUARED_RANK:
        return bound * bound, 2.0 * bound, 2.0
    if code < 0:  # precision@k, with k = −code
        return max(0.0, bound + code), 1.0 if bound + code > 0.0 else 0.0, 0.0
    if code >= OWN:
        value, slope = own_weighting(code, bound, VALUE), own_weighting(code, bound, SLOPE)
        return value, slope, own_weighting(code, bound, BEND)
    raise ValueError("no objective has this code")


@part(error_model="numpy")
def value_of(code: int, bound: float) -> float:
    """Return λ(bound) of the objective with this code; a λ of the user is called once only."""
    return own_weighting(code, bound, VALUE) if code >= OWN else weighting(code, bound)[0]


@part(error_model="numpy")
def slope_of(code: int, bound: float) -> float:
    """Return λ'(bound) of the objective with this code; a λ of the user is called once only."""
    return own_weighting(code, bound, SLOPE) if code >= OWN else weighting(code, bound)[1]


@kernel(error_model="numpy")
def weightings(code: int, bounds: Floats, values: Floats, slopes: Floats) -> None:
    """Write λ and λ' of each of many bounds, (n,)."""
    for k in range(len(bounds)):
        values[k], slopes[k], _ = weighting(code, bounds[k])


@part(error_model="numpy")
def rank_bound(scores: Matrix, run: int, n_items: int, item: int) -> np.float32:
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

    The coefficient of the item itself becomes NaN if a score has overflowed. The scores are
    ``scores[run, :n_items]``: a view would cost as much as the work.
    """
    zero, one = np.float32(0.0), np.float32(1.0)
    clicked = scores[run, item]
    if code != RANK:
        bound = rank_bound(scores, run, n_items, item)
        share *= np.float32(slope_of(code, np.float64(bound)))
    n_violated = overflow = zero  # exact in any order: "reassoc" is safe
    for other in range(n_items):
        margin = clicked - scores[run, other]
        is_violated = margin < one
        out[run, other] += share if is_violated else zero
        n_violated += one if is_violated else zero
        overflow += zero * margin  # 0, or NaN if a margin is not finite
    # The item itself counts as violated, so the share that it got above cancels.
    out[run, item] -= share * n_violated + overflow


@kernel(error_model="numpy")
def coefficients(scores: Matrix, item: int, code: int, out: Matrix) -> None:
    """Add ∂λ(bound)/∂score to ``out[0]`` for one click, of scores (1, n_items)."""
    add_coefficients(scores, 0, scores.shape[1], item, np.float32(1.0), code, out)
