"""Work that threads share: a board of counters from which a free thread takes the next part.

Parts are numbered. One thread, the leader, writes how many of them are ready. All threads, with the
leader, take parts and count those that are done. So nobody waits for a thread that has not started
or has no core, unless it has taken a part. Which thread takes which part is chance, so the result
of a part must not depend on it.

A board is zeros int64 (BOARD,); its counters are read and written atomically.
"""

import os
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from countersample._arrays import Ints
from countersample._kernels.compiling import part
from countersample._kernels.vectors import row_of

Value = Any  # of numba or llvmlite, which have no types
intrinsic: Any = extending.intrinsic

READY, TAKEN, DONE, OVER, BOARD = 0, 8, 16, 24, 32  # one line of memory each
PATIENCE = 1000  # reads of the board before the core is released


@part()
def take_part(board: Ints) -> int:
    """Take a part and return its number, or −1 if none is ready."""
    while True:
        taken = read(board, TAKEN)
        if taken >= read(board, READY):
            return -1
        if replace(board, TAKEN, taken, taken + 1):
            return taken


@part()
def wait_a_little(waited: int) -> int:
    """Return the number of waits so far; release the core once per PATIENCE waits."""
    if waited % PATIENCE == PATIENCE - 1:
        give_way()
    return waited + 1


@intrinsic
def read(_: Value, board: Value, counter: Value) -> Value:
    """Return a counter; all writes before its last `write` are visible after it."""

    def generate(context: Value, builder: Value, signature: Value, args: Value) -> Value:
        return builder.load_atomic(_at(context, builder, signature, args), "acquire", 8)

    return types.int64(board, counter), generate


@intrinsic
def write(_: Value, board: Value, counter: Value, __: Value) -> Value:
    """Set a counter; a thread that reads it sees all earlier writes of this thread."""

    def generate(context: Value, builder: Value, signature: Value, args: Value) -> Value:
        at = _at(context, builder, signature, args)
        builder.store_atomic(args[2], at, "release", 8)
        return context.get_dummy_value()

    return types.void(board, counter, types.int64), generate


@intrinsic
def count(_: Value, board: Value, counter: Value) -> Value:
    """Add one to a counter."""

    def generate(context: Value, builder: Value, signature: Value, args: Value) -> Value:
        at = _at(context, builder, signature, args)
        builder.atomic_rmw("add", at, ir.IntType(64)(1), "acq_rel")
        return context.get_dummy_value()

    return types.void(board, counter), generate


@intrinsic
def replace(_: Value, board: Value, counter: Value, __: Value, ___: Value) -> Value:
    """Set a counter to a second value if it has the first; return whether it had."""

    def generate(context: Value, builder: Value, signature: Value, args: Value) -> Value:
        at = _at(context, builder, signature, args)
        result = builder.cmpxchg(at, args[2], args[3], "acq_rel", "acquire")
        return builder.extract_value(result, 1)

    return types.boolean(board, counter, types.int64, types.int64), generate


@intrinsic
def give_way(_: Value) -> Value:
    """Release the core to another thread."""

    def generate(context: Value, builder: Value, _: Value, __: Value) -> Value:
        name = "SwitchToThread" if os.name == "nt" else "sched_yield"
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.void(), generate


def _at(context: Value, builder: Value, signature: Value, args: Value) -> Value:
    board, _ = row_of(context, builder, signature.args[0], args[0])
    return builder.gep(board, [args[1]])
