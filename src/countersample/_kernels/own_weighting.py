"""A λ that the user wrote: kernels call it by its address, and are compiled without it.

The address is the code of the objective, a number like any other. So one kernel in the cache serves
every λ. A kernel checks for built-in objectives first, so they cost nothing extra.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from llvmlite import ir
from numba import cfunc, extending, njit, types
from numba.core.errors import NumbaError

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
