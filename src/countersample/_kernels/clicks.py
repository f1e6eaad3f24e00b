"""Simulated users walking down ranked lists: how far they come, and what they click.

The items of query q are the rows ``offsets[q]:offsets[q + 1]``, here in the order in which they are
shown. At each item a user has come to, three probabilities say what happens next: ``click``, that
it is clicked; ``after_click`` and ``after_skip``, that the user then goes on to the next one.

A walk is drawn with one random number a click, not one an item. Starting from some item, S_j is the
product of *pass* = (1 − click) · after_skip over the first j items: the probability to pass them
all. For a uniform u, the user passes items as long as u < S_j. At the first one not passed, u lies
in [S_j, S_{j−1}); its part from S_{j−1} · (1 − click) up is a click, and the rest is to leave. The
products from each item to the end of its list are made beforehand: whoever passes all that is left
is done at once, and only what lies above a click is ever read.

Random numbers come from a NumPy Generator, handed in as `_kernels.uniforms.source_of` gives it:
what its own ``random()`` would return. One thread and plain floating point (no fastmath): same
generator, same bytes. Indices are not checked here; the callers pass checked arrays.
"""

import numpy as np
from numpy.typing import NDArray

from countersample._arrays import Floats, Ints
from countersample._kernels.compiling import kernel, part
from countersample._kernels.uniforms import Source, uniform


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
    source: Source,
    offsets: Ints,
    click: Floats,
    after_click: Floats,
    after_skip: Floats,
    queries: NDArray[np.int32],
    rows: Ints,
) -> None:
    """Write query and row of as many clicks as fit, in sessions of queries drawn uniformly.

    The last session is cut. Some item must have a chance of being clicked, or this never ends.
    """
    passed, to_end = np.empty(len(click)), np.empty(len(click))
    _pass(offsets, click, after_skip, passed, to_end)
    n_queries = len(offsets) - 1
    n_found = 0
    while n_found < len(rows):
        query = np.int64(uniform(source) * n_queries)
        start, end = offsets[query], offsets[query + 1]
        n_before = n_found
        n_found = _walk(source, start, end, click, after_click, passed, to_end, rows, n_found)
        for k in range(n_before, n_found):
            queries[k] = query


@kernel()
def clicks_shown(
    source: Source,
    offsets: Ints,
    click: Floats,
    after_click: Floats,
    after_skip: Floats,
    queries: Ints,
    clicked: NDArray[np.int8],
) -> None:
    """Write whether each item shown is clicked, in a session for each of ``queries``, (n_shown,).

    The items of the first session come first, then those of the second, and so on. The array is
    all zeros before.
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
        n_found = _walk(source, start, end, click, after_click, passed, to_end, rows, 0)
        for found in range(n_found):
            clicked[first + rows[found] - start] = 1
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
    source: Source,
    start: int,
    end: int,
    click: Floats,
    after_click: Floats,
    passed: Floats,
    to_end: Floats,
    rows: Ints,
    n_found: int,
) -> int:
    """Put the rows clicked on one walk at ``rows[n_found:]`` while they fit; return the new end."""
    row = start
    while row < end and n_found < len(rows):
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
        rows[n_found] = row
        n_found += 1
        # No number is drawn where there is nothing to decide: most users always go on.
        if after_click[row] < 1.0 and uniform(source) >= after_click[row]:
            break
        row += 1
    return n_found
