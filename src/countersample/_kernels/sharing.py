"""Work that threads share: a board from which whoever is free takes the next part.

Parts are numbered through. One thread, the leader, says how many of them are ready to be taken; all
take them, the leader too, and say when one is done. So nobody waits for a thread that has not come
yet or has no core to run on, unless it has taken a part. Who takes which part is chance: what is
made of a part must not depend on it.

A board is zeros int64 (BOARD,); its counters are read and written atomically.
"""

import os
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from countersample._arrays import Ints
from countersample._kernels.compiling import part
from countersample._kernels.sums import row_of

Value = Any  # of numba or llvmlite, which have no types
intrinsic: Any = extending.intrinsic

READY, TAKEN, DONE, OVER, BOARD = 0, 8, 16, 24, 32  # each in a line of memory of its own
PATIENCE = 1000  # looks at the board before the core is given to others


@part()
def take_part(board: Ints) -> int:
    """Return the number of a part that is now the caller's to do, or −1."""
    while True:
        taken = read(board, TAKEN)
        if taken >= read(board, READY):
            return -1
        if replace(board, TAKEN, taken, taken + 1):
            return taken


@part()
def wait_a_little(waited: int) -> int:
    """Return how often was waited; now and then the core is given to others."""
    if waited % PATIENCE == PATIENCE - 1:
        give_way()
    return waited + 1


@intrinsic
def read(_: Value, board: Value, counter: Value) -> Value:
    """Return a counter; what was written before it was, by others too, can be read after it."""

    def generate(context: Value, builder: Value, signature: Value, given: Value) -> Value:
        return builder.load_atomic(_at(context, builder, signature, given), "acquire", 8)

    return types.int64(board, counter), generate


@intrinsic
def write(_: Value, board: Value, counter: Value, __: Value) -> Value:
    """Set a counter to a value; whoever reads it can read what was written before."""

    def generate(context: Value, builder: Value, signature: Value, given: Value) -> Value:
        at = _at(context, builder, signature, given)
        builder.store_atomic(given[2], at, "release", 8)
        return context.get_dummy_value()

    return types.void(board, counter, types.int64), generate


@intrinsic
def count(_: Value, board: Value, counter: Value) -> Value:
    """Add one to a counter."""

    def generate(context: Value, builder: Value, signature: Value, given: Value) -> Value:
        at = _at(context, builder, signature, given)
        builder.atomic_rmw("add", at, ir.IntType(64)(1), "acq_rel")
        return context.get_dummy_value()

    return types.void(board, counter), generate


@intrinsic
def replace(_: Value, board: Value, counter: Value, __: Value, ___: Value) -> Value:
    """Set a counter from one value to another, unless it is no longer the one; return whether."""

    def generate(context: Value, builder: Value, signature: Value, given: Value) -> Value:
        at = _at(context, builder, signature, given)
        found = builder.cmpxchg(at, given[2], given[3], "acq_rel", "acquire")
        return builder.extract_value(found, 1)

    return types.boolean(board, counter, types.int64, types.int64), generate


@intrinsic
def give_way(_: Value) -> Value:
    """Let another thread have the core."""

    def generate(context: Value, builder: Value, _: Value, __: Value) -> Value:
        name = "SwitchToThread" if os.name == "nt" else "sched_yield"
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.void(), generate


def _at(context: Value, builder: Value, signature: Value, given: Value) -> Value:
    board, _ = row_of(context, builder, signature.args[0], given[0])
    return builder.gep(board, [given[1]])
