"""Trees that ask for features as they come, before any normalisation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from countersample.errors import ParameterError
from countersample.scorers.trees import LEAF

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from countersample.data.normalize import Normalizer
    from countersample.scorers import TreesScorer

    Thresholds = NDArray[np.float32]

Node = TypeVar("Node")

_MOST_LEVELS = 300  # of a tree that is written as objects within objects
_INFINITY = int(np.float32(np.inf).view(np.int32))  # the bits of a float32 grow with it


def on_raw_features(trees: TreesScorer, normalizer: Normalizer | None) -> TreesScorer:
    """T = max {x : normalised x ≤ t}: the same scores, to the bit, from raw features.

    Normalising by column keeps the order of values, so each question "is the normalised value at
    most t?" is one about the value itself. T is found among all float32 numbers, so it is exact.
    Nodes where everything goes the same way are left out. Where only what is missing goes another
    way, that is right of the largest number there is.
    The normalizer is not one that normalises by query. A linear part is left out.
    """
    thresholds = _raw_thresholds(trees, normalizer)
    is_inner = trees.feature != LEAF
    if trees.missing_left is not None:
        trees, thresholds = _only_missing_apart(trees, thresholds)
    instead = np.arange(len(trees.feature))  # the node that does the work of each
    for node in np.flatnonzero(is_inner & ~np.isfinite(thresholds))[::-1]:
        child = trees.left[node] if thresholds[node] > 0 else trees.right[node]
        instead[node] = instead[child]
    return replace(
        trees,
        roots=instead[trees.roots],
        threshold=np.where(np.isfinite(thresholds), thresholds, np.float32(0)),
        left=np.where(is_inner, instead[trees.left], 0).astype(np.int32),
        right=np.where(is_inner, instead[trees.right], 0).astype(np.int32),
        base=None,
        base_missing=None,
    )


def _only_missing_apart(
    trees: TreesScorer, thresholds: Thresholds
) -> tuple[TreesScorer, Thresholds]:
    """Keep nodes in which what is missing goes one way and all else the other: it goes right."""
    assert trees.missing_left is not None  # noqa: S101 (only called where it is)
    all_left, none_left = thresholds == np.inf, thresholds == -np.inf
    turned = none_left & trees.missing_left
    apart = turned | (all_left & ~trees.missing_left)
    kept = replace(
        trees,
        left=np.where(turned, trees.right, trees.left),
        right=np.where(turned, trees.left, trees.right),
        missing_left=trees.missing_left & ~turned,
    )
    return kept, np.where(apart, np.finfo(np.float32).max, thresholds).astype(np.float32)


def fold(
    trees: TreesScorer, leaf: Callable[[int], Node], split: Callable[[int, Node, Node], Node]
) -> list[Node]:
    """Return each tree as what ``split`` makes of its root, and of what its children came to."""
    _check_depth(trees)
    made: dict[int, Node] = {}
    for node in range(len(trees.feature) - 1, -1, -1):  # children come after their parents
        if trees.feature[node] == LEAF:
            made[node] = leaf(node)
        else:
            made[node] = split(node, made[int(trees.left[node])], made[int(trees.right[node])])
    return [made[int(root)] for root in trees.roots]


def _check_depth(trees: TreesScorer) -> None:
    depth = np.zeros(len(trees.feature), np.int64)
    for parent in np.flatnonzero(trees.feature != LEAF):  # parents come before their children
        depth[[trees.left[parent], trees.right[parent]]] = depth[parent] + 1
    if depth.max(initial=0) > _MOST_LEVELS:
        raise ParameterError(
            f"a tree has {depth.max()} levels, expected at most {_MOST_LEVELS}, as readers of "
            "nested trees have stacks: export to ONNX (--to onnx), or train with fewer leaves"
        )


def _raw_thresholds(trees: TreesScorer, normalizer: Normalizer | None) -> Thresholds:
    """Return T of each node; ∞ where all finite values go left, −∞ where none does."""
    of_nodes = None if normalizer is None else normalizer.take(trees.feature.tolist())
    below = np.full(len(trees.feature), -_INFINITY, np.int64)  # goes left
    above = -below  # goes right
    while (is_open := above - below > 1).any():
        middle = np.where(is_open, (below + above) // 2, 0)
        values = _float_of(middle)
        if of_nodes is not None:
            with np.errstate(over="ignore"):
                values = of_nodes.transform(values[None])[0].astype(np.float64)
        goes_left = values <= trees.threshold
        below = np.where(is_open & goes_left, middle, below)
        above = np.where(is_open & ~goes_left, middle, above)
    return _float_of(np.where(above == _INFINITY, above, below)).astype(np.float32)


def _float_of(order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the float32 numbers at these positions of their order, in which 0 is the 0th."""
    sizes = np.abs(order).astype(np.int32).view(np.float32)
    return np.copysign(sizes, order).astype(np.float64)
