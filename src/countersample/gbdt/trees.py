"""The trees of LightGBM and XGBoost as a `TreesScorer`, which gives the scores they give.

Trees that do more than compare a number with a threshold are a ParameterError.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import ParameterError
from countersample.scorers import TreesScorer
from countersample.scorers.trees import LEAF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    # feature, threshold, children, whether what is missing goes left; or a leaf's value
    Node = tuple[int, float, Any, Any, bool] | float

LIGHTGBM_ZERO = np.float32(1e-35)  # up to here, LightGBM takes a number for 0


def from_lightgbm(booster: Any) -> TreesScorer:  # noqa: ANN401 (the libraries have no types)
    """Return the trees of a ``lightgbm.Booster``, up to its best iteration.

    LightGBM goes left where x ≤ threshold, in float64. For x in float32 that is x ≤ the largest
    float32 that is not above the threshold. Numbers up to 1e-35 are 0 to it. What is missing goes
    the default way of the node, if the feature was missing in training at times (its missing_type
    is NaN), and where 0 goes if not (None).
    """
    model = booster.dump_model()

    def read(node: dict[str, Any]) -> Node:
        if "leaf_value" in node:
            if "leaf_coeff" in node:
                raise _not_plain("leaves with a linear model (linear_tree)")
            return float(node["leaf_value"])
        if node["decision_type"] != "<=":
            raise _not_plain("categorical features (categorical_feature)")
        if node["missing_type"] == "Zero":
            raise _not_plain("zeros that count as missing (zero_as_missing)")
        is_default = node["missing_type"] == "NaN"
        missing_left = bool(node["default_left"]) if is_default else node["threshold"] >= 0
        below = node["left_child"], node["right_child"]
        return node["split_feature"], node["threshold"], *below, missing_left

    if model["average_output"]:
        raise _not_plain("trees that are averaged (a random forest)")
    roots = [tree["tree_structure"] for tree in model["tree_info"]]
    return _forest(booster.num_feature(), [(root, read) for root in roots], _not_above)


def from_xgboost(booster: Any) -> TreesScorer:  # noqa: ANN401 (the libraries have no types)
    """Return the trees of an ``xgboost.Booster``, and its base score as one more of a single leaf.

    XGBoost goes left where x < threshold, in float32. That is x ≤ the float32 before it. What is
    missing goes the default way of the node.
    """
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    boosted = learner["gradient_booster"]
    if boosted["name"] != "gbtree":
        raise _not_plain(f"the booster {boosted['name']}")
    if "weight_drop" in boosted["model"]:  # dart, from XGBoost 3.4 on
        raise _not_plain("weights of their own (rate_drop, booster dart)")
    base_score = float(learner["learner_model_param"]["base_score"].strip("[]"))

    def reader(tree: dict[str, Any]) -> Callable[[int], Node]:
        if any(tree["split_type"]):
            raise _not_plain("categorical features")

        def read(node: int) -> Node:
            value = float(tree["split_conditions"][node])
            left, right = tree["left_children"][node], tree["right_children"][node]
            if left < 0:
                return value
            is_left = bool(tree["default_left"][node])
            return tree["split_indices"][node], value, left, right, is_left

        return read

    trees = boosted["model"]["trees"]
    forest = [(0, reader(tree)) for tree in trees]
    if base_score:
        forest.append((0, lambda _node: base_score))
    return _forest(booster.num_features(), forest, lambda t: _before(t.astype(np.float32)))


def _not_plain(what: str) -> ParameterError:
    return ParameterError(
        f"the trees have {what}, expected splits of numbers at a threshold, leaves of one value "
        "and a plain sum: leave out the parameter of the library that asks for it"
    )


def _forest(
    n_features: int,
    trees: Iterable[tuple[Any, Callable[[Any], Node]]],
    as_threshold: Callable[[NDArray[np.float64]], NDArray[np.float32]],
) -> TreesScorer:
    """Make one list of the nodes of trees, parents before children; `read` says what each is."""
    roots: list[int] = []
    nodes: list[tuple[int, float, float]] = []  # feature, threshold, value
    children: list[list[int]] = []
    missing_left: list[bool] = []
    for root, read in trees:
        roots.append(len(nodes))
        waiting: list[tuple[Any, int | None]] = [(root, None)]
        while waiting:
            node, parent = waiting.pop()
            if parent is not None:
                children[parent].append(len(nodes))
            children.append([])
            found = read(node)
            missing_left.append(isinstance(found, tuple) and found[4])
            if isinstance(found, tuple):
                feature, threshold, left, right, _ = found
                waiting += [(right, len(nodes)), (left, len(nodes))]
                nodes.append((feature, threshold, 0.0))
            else:
                nodes.append((LEAF, 0.0, found))
    features, thresholds, values = np.array(nodes, np.float64).reshape(-1, 3).T
    is_leaf = features == LEAF
    below = [pair or [0, 0] for pair in children]
    lefts, rights = np.array(below, np.int32).reshape(-1, 2).T
    return TreesScorer(
        n_features,
        np.array(roots, np.int64),
        features.astype(np.int32),
        np.where(is_leaf, np.float32(0), as_threshold(thresholds)),
        np.ascontiguousarray(lefts),
        np.ascontiguousarray(rights),
        np.ascontiguousarray(values),
        missing_left=np.array(missing_left, np.bool_),
    )


def _not_above(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the largest float32 that LightGBM does not take to be above each float64."""
    with np.errstate(over="ignore"):
        nearest = thresholds.astype(np.float32)
    found = np.where(nearest > thresholds, _before(nearest), nearest)
    in_zero = np.where(thresholds < 0, _before(-LIGHTGBM_ZERO), LIGHTGBM_ZERO)
    return np.where(np.abs(thresholds) <= LIGHTGBM_ZERO, in_zero, found)


def _before(values: NDArray[np.float32] | np.float32) -> NDArray[np.float32]:
    return np.nextafter(values, np.float32(-np.inf))
