"""Simulated users who walk down ranked lists: how far they come, and what they click.

The items of query q are the rows ``offsets[q]:offsets[q + 1]``, in the order in which they are
shown. Each item that a user reaches has three probabilities: ``click``, that it is clicked;
``after_click`` and ``after_skip``, that the user then continues to the next item.

A walk takes one random number per click, not one per item. From some item on, let S_j be the
product of *pass* = (1 − click) · after_skip over the first j items: the probability to pass them
all. For a uniform u, the user passes items as long as u < S_j. At the first item that is not
passed, u lies in [S_j, S_{j−1}): from S_{j−1} · (1 − click) up the user clicks, below it the user
leaves. The products from each item to the end of its list are computed beforehand. So a user who
passes all remaining items is done at once, and no item below a click is read.

Random numbers come from a NumPy Generator, and equal the values of its ``random()``. A kernel gets
two addresses as numbers, not the Generator itself: numba would look up the addresses with functions
of Python and ignore their errors. They fail if Ctrl-C was pressed, and the kernel would then call
the function at address 0.

One thread and plain floating point (no fastmath): same generator, same bytes. Indices are not
checked here; the callers pass checked arrays.
"""

import ctypes
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import extending, types
from numpy.typing import NDArray

from countersample._arrays import Floats, Ints
from countersample._kernels.compiling import kernel, part

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


@kernel()
def reach(
    offsets: Ints, click: Floats, after_click: Floats, after_skip: Floats, reached: Floats
) -> None:
    """Write Π over the items above of click · after_click + (1 − click) · after_skip, (n_items,).

    The probability that a user comes to an item; 1 at the top of each query.
    """
    for query in range(len(offsets) - 1):
        probability = 1.0
        for row in range(offsets[query], offsets[query + 1]):
            reached[row] = probability
            probability *= click[row] * after_click[row] + (1.0 - click[row]) * after_skip[row]


@kernel()
def clicks_until(
    source: Source, offsets: Ints, click: Floats, after_click: Floats, after_skip: Floats,
    queries: NDArray[np.int32], rows: Ints,
) -> None:  # fmt: skip
    """Write query and row of as many clicks as fit, in sessions of queries drawn uniformly.

    The last session is cut. Some item must have a positive click probability, or this never ends.
    """
    passed, to_end = np.empty(len(click)), np.empty(len(click))
    _pass(offsets, click, after_skip, passed, to_end)
    n_queries = len(offsets) - 1
    n_clicks = 0
    while n_clicks < len(rows):
        query = np.int64(uniform(source) * n_queries)
        start, end = offsets[query], offsets[query + 1]
        n_before = n_clicks
        n_clicks = _walk(source, start, end, click, after_click, passed, to_end, rows, n_clicks)
        for k in range(n_before, n_clicks):
            queries[k] = query


@kernel()
def clicks_shown(
    source: Source, offsets: Ints, click: Floats, after_click: Floats, after_skip: Floats,
    queries: Ints, clicked: NDArray[np.int8],
) -> None:  # fmt: skip
    """Write whether each item shown is clicked, in a session for each of ``queries``, (n_shown,).

    Items are in the order of their sessions. The array is all zeros before.
    """
    passed, to_end = np.empty(len(click)), np.empty(len(click))
    _pass(offsets, click, after_skip, passed, to_end)
    most = 0
    for k in range(len(queries)):
        most = max(most, offsets[queries[k] + 1] - offsets[queries[k]])
    rows = np.empty(most, np.int64)
    first = 0
    for k in range(len(queries)):
        start, end = offsets[queries[k]], offsets[queries[k] + 1]
        n_clicks = _walk(source, start, end, click, after_click, passed, to_end, rows, 0)
        for k_click in range(n_clicks):
            clicked[first + rows[k_click] - start] = 1
        first += end - start


@part()
def _pass(offsets: Ints, click: Floats, after_skip: Floats, passed: Floats, to_end: Floats) -> None:
    """Write (1 − click) · after_skip of each item, and its product from there to the last."""
    for query in range(len(offsets) - 1):
        product = 1.0
        for row in range(offsets[query + 1] - 1, offsets[query] - 1, -1):
            passed[row] = (1.0 - click[row]) * after_skip[row]
            product *= passed[row]
            to_end[row] = product


@part()
def _walk(
    source: Source, start: int, end: int, click: Floats, after_click: Floats, passed: Floats,
    to_end: Floats, rows: Ints, n_clicks: int,
) -> int:  # fmt: skip
    """Write the clicked rows of one walk to ``rows[n_clicks:]`` while they fit; return the end."""
    row = start
    while row < end and n_clicks < len(rows):
        u = uniform(source)
        if u < to_end[row]:
            break
        reached = 1.0
        while row < end and u < reached * passed[row]:
            reached *= passed[row]
            row += 1
        # The end may still be reached: the products are rounded in another order.
        if row == end or u < reached * (1.0 - click[row]):
            break
        rows[n_clicks] = row
        n_clicks += 1
        # No number is drawn if nothing is to be decided: most users always continue.
        if after_click[row] < 1.0 and uniform(source) >= after_click[row]:
            break
        row += 1
    return n_clicks
