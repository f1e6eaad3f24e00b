"""Trees for other systems: on features before normalisation, and as nested objects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from countersample.errors import ParameterError
from countersample.scorers import LEAF

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from countersample.data.preprocessing import Normalizer
    from countersample.scorers import TreesScorer

    Thresholds = NDArray[np.float32]

Node = TypeVar("Node")

MAX_LEVELS = 300  # of a tree that is written as objects within objects
_INFINITY = int(np.float32(np.inf).view(np.int32))  # the bits of a float32 grow with it


def on_raw_features(trees: TreesScorer, normalizer: Normalizer | None) -> TreesScorer:
    """T = max {x : normalised x ≤ t}: the same scores, to the bit, from raw features.

    Normalising by column preserves the order of values, so "the normalised value is at most t" is a
    condition on the value itself. T is searched among all float32 numbers, so it is exact. Nodes
    where all values go the same way are left out. If only missing values go the other way, they go
    right, and the threshold is the largest number.
    The normalizer does not normalise by query. A linear part is left out.
    """
    thresholds = _raw_thresholds(trees, normalizer)
    is_inner = trees.feature != LEAF
    if trees.missing_left is not None:
        trees, thresholds = _separate_missing(trees, thresholds)
    target = np.arange(len(trees.feature))  # the node that replaces each
    for node in np.flatnonzero(is_inner & ~np.isfinite(thresholds))[::-1]:
        child = trees.left[node] if thresholds[node] > 0 else trees.right[node]
        target[node] = target[child]
    return replace(
        trees,
        roots=target[trees.roots],
        threshold=np.where(np.isfinite(thresholds), thresholds, np.float32(0)),
        left=np.where(is_inner, target[trees.left], 0).astype(np.int32),
        right=np.where(is_inner, target[trees.right], 0).astype(np.int32),
        base=None,
        base_missing=None,
    )


def _separate_missing(trees: TreesScorer, thresholds: Thresholds) -> tuple[TreesScorer, Thresholds]:
    """Return trees in which nodes that only separate missing values send them right."""
    assert trees.missing_left is not None  # noqa: S101 (checked by the caller)
    all_left, none_left = thresholds == np.inf, thresholds == -np.inf
    is_flipped = none_left & trees.missing_left
    is_apart = is_flipped | (all_left & ~trees.missing_left)
    flipped = replace(
        trees,
        left=np.where(is_flipped, trees.right, trees.left),
        right=np.where(is_flipped, trees.left, trees.right),
        missing_left=trees.missing_left & ~is_flipped,
    )
    return flipped, np.where(is_apart, np.finfo(np.float32).max, thresholds).astype(np.float32)


def depths(trees: TreesScorer) -> NDArray[np.int64]:
    """Return the level of each node; roots are at level 0."""
    depth = np.zeros(len(trees.feature), np.int64)
    for parent in np.flatnonzero(trees.feature != LEAF):  # parents come before their children
        depth[[trees.left[parent], trees.right[parent]]] = depth[parent] + 1
    return depth


def fold(
    trees: TreesScorer,
    leaf: Callable[[int], Node],
    split: Callable[[int, Node, Node], Node],
    max_levels: int = MAX_LEVELS,
) -> list[Node]:
    """Return ``split(root, left, right)`` of each tree, computed from the leaves up."""
    levels = depths(trees).max(initial=0)
    if levels > max_levels:
        raise ParameterError(
            f"a tree has {levels} levels, expected at most {max_levels}, because parsers of "
            "nested trees overflow: export to ONNX (--to onnx), or train with fewer leaves"
        )
    results: dict[int, Node] = {}
    for node in range(len(trees.feature) - 1, -1, -1):  # children come after their parents
        if trees.feature[node] == LEAF:
            results[node] = leaf(node)
        else:
            left, right = int(trees.left[node]), int(trees.right[node])
            results[node] = split(node, results[left], results[right])
    return [results[int(root)] for root in trees.roots]


def _raw_thresholds(trees: TreesScorer, normalizer: Normalizer | None) -> Thresholds:
    """Return T of each node; ∞ if all finite values go left, −∞ if none does."""
    per_node = None if normalizer is None else normalizer.take(trees.feature.tolist())
    below = np.full(len(trees.feature), -_INFINITY, np.int64)  # goes left
    above = -below  # goes right
    while (is_open := above - below > 1).any():
        middle = np.where(is_open, (below + above) // 2, 0)
        values = _float_of(middle)
        if per_node is not None:
            with np.errstate(over="ignore"):
                values = per_node.transform(values[None])[0].astype(np.float64)
        goes_left = values <= trees.threshold
        below = np.where(is_open & goes_left, middle, below)
        above = np.where(is_open & ~goes_left, middle, above)
    return _float_of(np.where(above == _INFINITY, above, below)).astype(np.float32)


def _float_of(order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the float32 numbers at these positions of their order, in which 0 is the 0th."""
    sizes = np.abs(order).astype(np.int32).view(np.float32)
    return np.copysign(sizes, order).astype(np.float64)
