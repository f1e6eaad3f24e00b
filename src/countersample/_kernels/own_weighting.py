"""A λ of the user's own, compiled: kernels call it by its address, and are compiled without it.

The address is the code of the objective, a number like any other: a kernel that is kept on disk
serves every λ, and those that are built in are told apart before it and cost what they did.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from llvmlite import ir
from numba import cfunc, extending, njit, types
from numba.core.errors import NumbaError

Value = Any  # of numba or llvmlite, which have no types
intrinsic: Any = extending.intrinsic
VALUE, SLOPE, BEND = range(3)  # what is asked of it
STEP = 1e-4  # of the bound: over so much the slope's rise is taken


def compile_weighting(
    value: Callable[[float], float], slope: Callable[[float], float]
) -> tuple[int, object]:
    """Return the address of λ, and what has to be kept for it to stay there.

    ValueError, with what the compiler says, where it cannot be compiled.
    """
    of_value, of_slope = (  # what is no function of Python's, such as math.log, numba may know
        njit(error_model="numpy")(each) if isinstance(each, FunctionType) else each
        for each in (value, slope)
    )

    def weighting(bound: float, asked: int) -> float:
        if asked == VALUE:
            return 1.0 * of_value(bound)
        if asked == SLOPE:
            return 1.0 * of_slope(bound)
        step = STEP * bound
        return max(0.0, (1.0 * of_slope(bound + step) - 1.0 * of_slope(bound)) / step)

    try:
        compiled = cfunc("float64(float64, int64)", error_model="numpy")(weighting)
    except NumbaError as error:
        lines = (line.strip() for line in str(error).splitlines())
        said = [line for line in lines if line and not line.startswith("Failed in")]
        raise ValueError(said[0] if said else type(error).__name__) from error
    return compiled.address, compiled


@intrinsic
def own_weighting(_: Value, address: Value, bound: Value, asked: Value) -> Value:  # noqa: ARG001 (numba looks at them)
    """λ, λ' or max(0, λ'') of a bound, by the function at an address."""

    def generate(_: Value, builder: Value, __: Value, given: Value) -> Value:
        number = ir.DoubleType()
        kind = ir.FunctionType(number, [number, ir.IntType(64)])
        return builder.call(builder.inttoptr(given[0], kind.as_pointer()), given[1:])

    return types.float64(types.int64, types.float64, types.int64), generate
