"""Draw a row within a block of ROWS neighbouring weights, without a table for the block.

An alias table over blocks of ROWS weights is ROWS times smaller than one over all weights. After a
block is drawn, its weights are read (they are one line of memory), and one of its rows is chosen by
halving: a half of the eight, a half of that half, one of two.
"""

import numpy as np

from countersample._arrays import Floats, Ints
from countersample._kernels.compiling import kernel, part

ROWS = 8  # 64 bytes: what a CPU reads at once
LEVELS = 3  # of halving: 8 rows, 4, 2, 1


@kernel()
def add_up(weights: Floats, total: Floats) -> None:
    """total_b = Σ v_i over the ROWS weights of block b; the last may have fewer."""
    for block in range(len(total)):
        added = 0.0
        for index in range(ROWS * block, min(ROWS * (block + 1), len(weights))):
            added += weights[index]
        total[block] = added


@kernel()
def draw(weights: Floats, last: Floats, drawn: Ints, uniforms: Floats) -> None:
    """Turn each block ``drawn[k]`` into one of its rows, by their weights.

    `last` is the last block, filled up with zeros; `uniforms` are (size, LEVELS), on [0, 1).
    """
    for k in range(len(drawn)):
        start = ROWS * drawn[k]
        if start + ROWS <= len(weights):
            drawn[k] = start + _row(weights, start, uniforms, k)
        else:
            drawn[k] = start + _row(last, 0, uniforms, k)


@part()
def _row(v: Floats, i: int, uniforms: Floats, k: int) -> int:
    """Return one of the rows i … i + 7, counted from i: a half of them, a half of that, a row."""
    first, second = v[i] + v[i + 1], v[i + 2] + v[i + 3]
    third, fourth = v[i + 4] + v[i + 5], v[i + 6] + v[i + 7]
    right = _is_right(first + second, third + fourth, uniforms[k, 0])
    row = 4 * right
    row += 2 * _is_right(third if right else first, fourth if right else second, uniforms[k, 1])
    return row + _is_right(v[i + row], v[i + row + 1], uniforms[k, 2])


@part()
def _is_right(left: float, right: float, uniform: float) -> int:
    """P(1) = right / (left + right), else 0.

    The smaller side is compared with the uniform number, because one minus its probability would
    lose its digits. A side of 0 is never chosen. There is no branch: a CPU could not predict it.
    """
    smaller = min(left, right)
    is_smaller = uniform * (left + right) < smaller
    return np.int64(is_smaller) ^ np.int64(left <= right)
