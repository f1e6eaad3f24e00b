"""Slow and obvious: a block of eight weights by its sum, then halves of it by their sums."""

import numpy as np

from countersample import AliasTable

ROWS = 8


def blocks_of(weights):
    """The weights in blocks, the last filled up with zeros, (n_blocks, 8)."""
    filled = np.zeros(-(-len(weights) // ROWS) * ROWS)
    filled[: len(weights)] = weights
    return filled.reshape(-1, ROWS)


def split(left, right):
    """The probabilities of both sides, as they are compared with a uniform number."""
    smaller = min(left, right) / (left + right) if left + right else 0.0
    return (smaller, 1 - smaller) if left <= right else (1 - smaller, smaller)


def within(block):
    """The probability of each row of a block."""
    if len(block) == 1:
        return np.ones(1)
    halves = np.split(block, 2)
    chances = split(*(half.sum() for half in halves))
    return np.concatenate(
        [chance * within(half) for chance, half in zip(chances, halves, strict=True)]
    )


def probabilities(weights):
    """P(i) = P(block of i) · P(i in its block), (n,)."""
    blocks = blocks_of(np.asarray(weights, np.float64) / np.max(weights))
    of_blocks = AliasTable(blocks.sum(axis=1)).probabilities
    return np.concatenate(
        [chance * within(block) for chance, block in zip(of_blocks, blocks, strict=True)]
    )[: len(weights)]


def row_of(block, uniforms):
    """The row of a block that three uniform numbers choose, one for each level."""
    if len(block) == 1:
        return 0
    left, right = np.split(block, 2)
    smaller = min(left.sum(), right.sum())
    is_smaller = uniforms[0] * (left.sum() + right.sum()) < smaller
    if is_smaller == (right.sum() < left.sum()):
        return len(left) + row_of(right, uniforms[1:])
    return row_of(left, uniforms[1:])


def draws(weights, size, rng):
    """What a table of these weights draws."""
    blocks = blocks_of(weights)
    drawn = AliasTable(blocks.sum(axis=1)).sample(size, rng)
    pairs = zip(drawn, rng.random((size, 3)), strict=True)
    return np.array([ROWS * block + row_of(blocks[block], uniforms) for block, uniforms in pairs])
