"""Uniform numbers of a NumPy Generator in compiled code.

A kernel gets two addresses as numbers, not the Generator itself. numba would look up the addresses
with functions of Python and ignore their errors. They fail if Ctrl-C was pressed, and the kernel
would then call the function at address 0.
"""

import ctypes
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import extending, types

Value = Any  # of numba or llvmlite, which have no types
intrinsic: Any = extending.intrinsic
Source: TypeAlias = tuple[int, int]  # the function that makes the next number, and its state


def source_of(rng: np.random.Generator) -> Source:
    """Return the addresses in a Generator, which must live as long as they are used."""
    interface = rng.bit_generator.ctypes
    function = ctypes.cast(interface.next_double, ctypes.c_void_p).value
    return int(function or 0), int(interface.state_address)


@intrinsic
def uniform(_: Value, source: Value) -> Value:
    """Return the next number on [0, 1), as ``random()`` of the Generator does."""

    def generate(_: Value, builder: Value, __: Value, args: Value) -> Value:
        number, address = ir.DoubleType(), ir.IntType(64)
        kind = ir.FunctionType(number, [address])
        function, state = (builder.extract_value(args[0], index) for index in range(2))
        return builder.call(builder.inttoptr(function, kind.as_pointer()), [state])

    return types.float64(source), generate
