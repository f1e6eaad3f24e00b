"""The ranking of items, and the sums over ranks from which every metric is computed.

`rank` sorts the items of each query. `add_up` and `cascade` then sum, over the ranks, the *value*
of the item (a gain, a relevance of 0 or 1, a probability to stop) times the *weight* of the rank;
the weights end at the cut-off of the metric. The items of a query are the rows ``start:end``.

Items of equal score are *tied*. The rules by name are `TIE_RULES` in `countersample.metrics`, and
the default is in `countersample.defaults`; here they are two numbers. ``favour`` orders them: +1
the largest value first, -1 the smallest value first, 0 as in the data. With ``average`` a sum is
instead the exact mean over all orders of the tied items. One loop serves both: a sum goes over
blocks of ranks, and a block is one item or, with ``average``, all items with the same score.

Plain floating point (no fastmath), one thread, no randomness: same input, same bits. Indices are
not checked here; the callers pass checked arrays.
"""

import numpy as np

from countersample._arrays import Floats, Ints
from countersample._kernels.compiling import kernel, part

_RUN = 32  # up to this many items, insertion sort is faster than merge sort


@kernel()
def rank(
    values: Floats, scores: Floats, offsets: Ints, depth: int, favour: int, order: Ints
) -> None:
    """Write an order: ``order[offsets[q] + r - 1]`` is the row at rank r of query q, r = 1..depth.

    Items are ordered by score, largest first; then by value according to ``favour``; then by row.
    Ranks beyond the depth are undefined: with a small depth, ranking costs about O(n).
    """
    spare = np.empty(len(scores) if depth > _RUN else 0, np.int64)
    for query in range(len(offsets) - 1):
        start, end = offsets[query], offsets[query + 1]
        width = _RUN if depth > _RUN else max(end - start, 1)
        for run in range(start, end, width):
            _insert(values, scores, run, min(run + width, end), min(depth, width), favour, order)
        _merge(values, scores, start, end, width, favour, order, spare)


@kernel()
def add_up(
    values: Floats, scores: Floats, offsets: Ints, order: Ints, weights: Floats, average: bool,
    is_cumulative: bool, result: Floats,
) -> None:  # fmt: skip
    """Write Σ_r weight(r) · value(r) for each query, with value(r) of the item at rank r.

    If it is cumulative, Σ_r weight(r) · value(r) · Σ_{i≤r} value(i), for values of 0 or 1: with
    weight(r) = 1/r, the sum of the precisions at the ranks of the relevant items. The order is that
    of `rank`; with ``average`` it has to be complete.
    """
    for query in range(len(result)):
        start, end = offsets[query], offsets[query + 1]
        last = min(end, start + len(weights))
        total = above = 0.0  # above: the values above the block
        first = start
        while first < last:
            # A block may reach beyond the cut-off: its mean is over the items beyond as well.
            stop = _block_end(scores, order, first, end, average)
            n = stop - first
            block = 0.0  # the sum of the values of the block
            for position in range(first, stop):
                block += values[order[position]]
            mean, so_far, step = block / n, 1.0, 0.0
            if is_cumulative:
                # In a random order, an item of the block is relevant with probability block/n, and
                # then each other with this one (McSherry and Najork, ECIR 2008).
                so_far, step = above + 1.0, (block - 1.0) / max(n - 1, 1)
            for position in range(first, min(stop, last)):
                total += weights[position - start] * mean * (so_far + (position - first) * step)
            above += block
            first = stop
        result[query] = total


@kernel()
def cascade(
    values: Floats, scores: Floats, offsets: Ints, order: Ints, weights: Floats, average: bool,
    result: Floats,
) -> None:  # fmt: skip
    """Write Σ_r weight(r) · value(r) · Π_{i<r} (1 − value(i)) for each query, values in [0, 1].

    A user goes down the list, and stops at an item with its value as the probability.
    """
    # passed[j] is the probability to pass the first j items of a block in a random order: the mean
    # over all choices of j items of the product of their 1 − value (an elementary symmetric mean).
    # The user stops at the j-th of them with probability passed[j-1] − passed[j].
    passed = np.empty(len(weights) + 1)
    for query in range(len(result)):
        start, end = offsets[query], offsets[query + 1]
        last = min(end, start + len(weights))
        total = 0.0
        reached = 1.0  # the probability to reach the block
        first = start
        while first < last:
            stop = _block_end(scores, order, first, end, average)
            visible = min(stop, last) - first
            passed[0] = 1.0
            for j in range(1, visible + 1):
                passed[j] = 0.0
            through = 1.0
            for n in range(1, stop - first + 1):
                go_on = 1.0 - values[order[first + n - 1]]
                through *= go_on
                # The newest of n items is among the j chosen ones with probability j/n.
                for j in range(min(n, visible), 0, -1):
                    passed[j] += (j / n) * (go_on * passed[j - 1] - passed[j])
            for j in range(1, visible + 1):
                total += weights[first - start + j - 1] * reached * (passed[j - 1] - passed[j])
            reached *= through
            first = stop
        result[query] = total


@part()
def _block_end(scores: Floats, order: Ints, first: int, end: int, average: bool) -> int:
    stop = first + 1
    if average:
        while stop < end and scores[order[stop]] == scores[order[first]]:
            stop += 1
    return stop


@part()
def _insert(
    values: Floats, scores: Floats, start: int, end: int, depth: int, favour: int, order: Ints
) -> None:
    """Write the first ``depth`` of the rows start:end, by rank, to ``order[start:]``."""
    for row in range(start, end):
        position = min(row, start + depth - 1)
        if position < row and not _is_above(row, order[position], values, scores, favour):
            continue
        while position > start and _is_above(row, order[position - 1], values, scores, favour):
            order[position] = order[position - 1]
            position -= 1
        order[position] = row


@part()
def _merge(
    values: Floats, scores: Floats, start: int, end: int, width: int, favour: int, order: Ints,
    spare: Ints,
) -> None:  # fmt: skip
    """Merge the sorted runs of this width in ``order[start:end]``."""
    while width < end - start:
        for row in range(start, end):
            spare[row] = order[row]
        for run in range(start, end, 2 * width):
            left, middle = run, min(run + width, end)
            right, stop = middle, min(run + 2 * width, end)
            for position in range(run, stop):
                if right == stop or (
                    left < middle and _is_above(spare[left], spare[right], values, scores, favour)
                ):
                    order[position] = spare[left]
                    left += 1
                else:
                    order[position] = spare[right]
                    right += 1
        width *= 2


@part()
def _is_above(row: int, other: int, values: Floats, scores: Floats, favour: int) -> bool:
    """Return whether ``row`` ranks above ``other``. It is a total order: no two rows are equal."""
    # Compiles without branches in this order; testing favour first takes twice the time.
    if scores[row] != scores[other]:
        return scores[row] > scores[other]
    if values[row] != values[other] and favour != 0:
        return (values[row] > values[other]) == (favour > 0)
    return row < other
