"""LightGBM and XGBoost: grow one tree per step, and read their trees into a `TreesScorer`.

The scorer gives the scores that the library gives. Trees that do more than compare a number with a
threshold raise a ParameterError.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from countersample._environment import need
from countersample.errors import ParameterError
from countersample.scorers import LEAF, TreesScorer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample.data import RankingDataset
    from countersample.gbdt.objectives import BoostingObjective
    from countersample.scorers import LinearScorer

    # Feature, threshold, children, whether a missing value goes left; or the value of a leaf
    Node = tuple[int, float, Any, Any, bool] | float

# Other names that each library has for a parameter set here; force_row_wise excludes the other.
ALIASES: dict[str, dict[str, tuple[str, ...]]] = {
    "lightgbm": {
        "objective": ("objective_type", "app", "application", "loss"),
        "learning_rate": ("shrinkage_rate", "eta"),
        "num_leaves": ("num_leaf", "max_leaves", "max_leaf", "max_leaf_nodes"),
        "min_data_in_leaf": (
            "min_data_per_leaf", "min_data", "min_child_samples", "min_samples_leaf",
        ),
        "lambda_l2": ("reg_lambda", "lambda", "l2_regularization"),
        "feature_fraction": ("sub_feature", "colsample_bytree"),
        "bagging_fraction": ("sub_row", "subsample", "bagging"),
        "bagging_freq": ("subsample_freq",),
        "seed": ("random_seed", "random_state"),
        "force_col_wise": ("force_row_wise",),
        "verbosity": ("verbose",),
    },
    "xgboost": {"eta": ("learning_rate",), "lambda": ("reg_lambda",), "seed": ("random_state",)},
}  # fmt: skip
SOURCE_LINE = re.compile(r"^\[[\d:]+\] \S+: | at \S+, line \d+ \.$")  # of the library's own code
LIGHTGBM_ZERO = np.float32(1e-35)  # LightGBM treats smaller numbers as 0


def check_backend_params(backend: str, params: Mapping[str, Any]) -> None:
    """Reject an objective, under any name that the library has for it."""
    for name in ("objective", *ALIASES[backend].get("objective", ())):
        if name in params:
            raise ParameterError(
                f"backend_params has {name!r}, expected none: name it by the parameter objective"
            )


@contextmanager
def translate_errors(backend: str) -> Iterator[None]:
    """Turn the library's errors into a ParameterError."""
    library = need(backend)
    kind = library.basic.LightGBMError if backend == "lightgbm" else library.core.XGBoostError
    try:
        yield
    except kind as error:
        reason = SOURCE_LINE.sub("", str(error).strip().partition("\n")[0])
        raise ParameterError(
            f"{backend} refuses these settings: {reason}: look at backend_params"
        ) from error


class Boosting:
    """Trees that are boosted from a base, one per step: see `countersample.rankers.rounds.Rounds`.

    `settings` are the parameters of `GBDTRanker`, with all numbers decided and a seed. Items that
    are `held_out` are scored after each step. Scores start from those of the `base`, or from 0.
    """

    name: ClassVar[str]
    setting_names: ClassVar[Mapping[str, str]]  # the library's names of our settings
    constants: ClassVar[Mapping[str, Any]]  # parameters that are the same for all settings
    steps_per_round = 1

    def __init__(
        self,
        dataset: RankingDataset,
        objective: BoostingObjective,
        settings: Mapping[str, Any],
        held_out: RankingDataset | None = None,
        base: LinearScorer | TreesScorer | None = None,
    ) -> None:
        self._objective, self._base = objective, base
        self.steps, self.losses = [0], [np.nan]
        ours = {self.setting_names[name]: settings[name] for name in self.setting_names}
        # The user's parameters replace ours, under whatever name the library has for them.
        params, aliases = settings["backend_params"] or {}, ALIASES[self.name]
        defaults = {
            name: value
            for name, value in (ours | dict(self.constants)).items()
            if params.keys().isdisjoint(aliases.get(name, ()))
        }
        self._start(dataset, held_out, defaults | dict(params))

    def _start(
        self, dataset: RankingDataset, held_out: RankingDataset | None, params: dict[str, Any]
    ) -> None:
        """Make the library's tables and booster."""
        raise NotImplementedError

    def _add_tree(self) -> None:
        raise NotImplementedError

    def _read_trees(self) -> TreesScorer:
        raise NotImplementedError

    def held_out_scores(self) -> Floats:
        """Return the scores of the held-out items."""
        raise NotImplementedError

    def advance(self, _max_steps: int | None = None) -> None:
        """Add a tree."""
        self._add_tree()
        self.steps.append(self.steps[-1] + 1)
        self.losses.append(np.nan)  # the libraries compute none

    def scorer(self) -> TreesScorer:
        """Return the base and the trees as one scorer."""
        base, trees = self._base, self._read_trees()
        if base is None:
            return trees
        if isinstance(base, TreesScorer):
            return base.add_trees(trees)
        missing_left = None if base.missing is None else trees.missing_left
        return replace(
            trees, base=base.weights, base_missing=base.missing, missing_left=missing_left
        )

    def _base_scores(self, dataset: RankingDataset) -> Floats | None:
        return None if self._base is None else self._base.predict(dataset.features)


class LightGBM(Boosting):
    """Boosting by LightGBM."""

    name = "lightgbm"
    setting_names: ClassVar = {
        "learning_rate": "learning_rate", "num_leaves": "num_leaves", "l2": "lambda_l2",
        "min_items_in_leaf": "min_data_in_leaf", "feature_fraction": "feature_fraction",
        "bagging_fraction": "bagging_fraction", "seed": "seed",
    }  # fmt: skip
    constants: ClassVar = {
        "objective": "none", "min_data_in_bin": 1, "feature_pre_filter": False, "bagging_freq": 1,
        "deterministic": True, "force_col_wise": True, "verbosity": -1,
    }  # fmt: skip

    def _start(
        self, dataset: RankingDataset, held_out: RankingDataset | None, params: dict[str, Any]
    ) -> None:
        lightgbm = need("lightgbm")
        table = lightgbm.Dataset(
            np.asarray(dataset.features), label=np.zeros(dataset.n_items), params=params,
            init_score=self._base_scores(dataset),
        )  # fmt: skip
        self._booster = lightgbm.Booster(params, table)
        if held_out is not None:
            validation = table.create_valid(
                np.asarray(held_out.features), label=np.zeros(held_out.n_items), params=params,
                init_score=self._base_scores(held_out),
            )  # fmt: skip
            self._booster.add_valid(validation, "held out")

    def _add_tree(self) -> None:
        self._booster.update(fobj=self._objective)

    def held_out_scores(self) -> Floats:
        """Return the scores of the held-out items, which LightGBM only passes to a metric."""
        scores: list[Floats] = []

        def keep(values: Floats, _data: object) -> tuple[str, float, bool]:
            scores.append(values)
            return "", 0.0, True

        self._booster.eval_valid(keep)
        return scores[0]

    def _read_trees(self) -> TreesScorer:
        return from_lightgbm(self._booster)


class XGBoost(Boosting):
    """Boosting by XGBoost."""

    name = "xgboost"
    setting_names: ClassVar = {
        "learning_rate": "eta", "num_leaves": "max_leaves", "l2": "lambda",
        # A sum of second-order terms, which are 1 per item on average when training begins
        "min_items_in_leaf": "min_child_weight", "feature_fraction": "colsample_bytree",
        "bagging_fraction": "subsample", "seed": "seed",
    }  # fmt: skip
    constants: ClassVar = {
        "grow_policy": "lossguide", "max_depth": 0, "tree_method": "hist", "base_score": 0.0,
        "disable_default_eval_metric": True, "verbosity": 0,
    }  # fmt: skip

    def _start(
        self, dataset: RankingDataset, held_out: RankingDataset | None, params: dict[str, Any]
    ) -> None:
        xgboost = need("xgboost")
        tables = [
            xgboost.DMatrix(np.asarray(each.features), base_margin=self._base_scores(each))
            for each in (dataset, held_out)
            if each is not None
        ]
        self._table, self._held_out = tables[0], tables[-1]
        self._booster = xgboost.Booster(params, tables)

    def _add_tree(self) -> None:
        self._booster.update(self._table, self.steps[-1], self._objective)

    def held_out_scores(self) -> Floats:
        """Return the scores of the held-out items."""
        scores = self._booster.predict(self._held_out, output_margin=True)
        return np.asarray(scores, np.float64)

    def _read_trees(self) -> TreesScorer:
        return from_xgboost(self._booster)


BACKENDS: dict[str, type[Boosting]] = {"lightgbm": LightGBM, "xgboost": XGBoost}


# -- Trees -----------------------------------------------------------------------------------------


def from_lightgbm(booster: Any) -> TreesScorer:  # noqa: ANN401 (the libraries have no types)
    """Return the trees of a ``lightgbm.Booster``, up to its best iteration.

    LightGBM goes left if x ≤ threshold, in float64. For x in float32 that is x ≤ the largest
    float32 that is not above the threshold. Numbers up to 1e-35 are 0 to it. A missing value goes
    the default way of the node if the feature was missing in training at times (its missing_type
    is NaN), and the way of 0 if not (None).
    """
    model = booster.dump_model()

    def read(node: dict[str, Any]) -> Node:
        if "leaf_value" in node:
            if "leaf_coeff" in node:
                raise _unsupported("leaves with a linear model (linear_tree)")
            return float(node["leaf_value"])
        if node["decision_type"] != "<=":
            raise _unsupported("categorical features (categorical_feature)")
        if node["missing_type"] == "Zero":
            raise _unsupported("zeros that count as missing (zero_as_missing)")
        has_default = node["missing_type"] == "NaN"
        missing_left = bool(node["default_left"]) if has_default else node["threshold"] >= 0
        children = node["left_child"], node["right_child"]
        return node["split_feature"], node["threshold"], *children, missing_left

    if model["average_output"]:
        raise _unsupported("trees that are averaged (a random forest)")
    roots = [tree["tree_structure"] for tree in model["tree_info"]]
    return _make_forest(booster.num_feature(), [(root, read) for root in roots], _round_down)


def from_xgboost(booster: Any) -> TreesScorer:  # noqa: ANN401 (the libraries have no types)
    """Return the trees of an ``xgboost.Booster``, and its base score as one more of a single leaf.

    XGBoost goes left if x < threshold, in float32. That is x ≤ the float32 before it. A missing
    value goes the default way of the node.
    """
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    model = learner["gradient_booster"]
    if model["name"] != "gbtree":
        raise _unsupported(f"the booster {model['name']}")
    if "weight_drop" in model["model"]:  # dart, from XGBoost 3.4 on
        raise _unsupported("weights of their own (rate_drop, booster dart)")
    base_score = float(learner["learner_model_param"]["base_score"].strip("[]"))

    def make_reader(tree: dict[str, Any]) -> Callable[[int], Node]:
        if any(tree["split_type"]):
            raise _unsupported("categorical features")

        def read(node: int) -> Node:
            value = float(tree["split_conditions"][node])
            left, right = tree["left_children"][node], tree["right_children"][node]
            if left < 0:
                return value
            is_left = bool(tree["default_left"][node])
            return tree["split_indices"][node], value, left, right, is_left

        return read

    forest = [(0, make_reader(tree)) for tree in model["model"]["trees"]]
    if base_score:
        forest.append((0, lambda _node: base_score))
    return _make_forest(
        booster.num_features(), forest, lambda values: _previous_float(values.astype(np.float32))
    )


def _unsupported(part: str) -> ParameterError:
    return ParameterError(
        f"the trees have {part}, expected splits of numbers at a threshold, leaves of one value "
        "and a plain sum: leave out the parameter of the library that asks for it"
    )


def _make_forest(
    n_features: int,
    trees: Iterable[tuple[Any, Callable[[Any], Node]]],
    round_thresholds: Callable[[NDArray[np.float64]], NDArray[np.float32]],
) -> TreesScorer:
    """Return trees as one list of nodes, parents before children; each is its root and a reader."""
    roots: list[int] = []
    nodes: list[tuple[int, float, float, bool]] = []  # feature, threshold, value, missing left
    children: list[list[int]] = []
    for root, read in trees:
        roots.append(len(nodes))
        stack: list[tuple[Any, int | None]] = [(root, None)]
        while stack:
            key, parent = stack.pop()
            if parent is not None:
                children[parent].append(len(nodes))
            children.append([])
            node = read(key)
            if isinstance(node, tuple):
                feature, threshold, left, right, missing_left = node
                stack += [(right, len(nodes)), (left, len(nodes))]
                nodes.append((feature, threshold, 0.0, missing_left))
            else:
                nodes.append((LEAF, 0.0, node, False))
    features, thresholds, values, missing = np.array(nodes, np.float64).reshape(-1, 4).T
    lefts, rights = np.array([pair or [0, 0] for pair in children], np.int32).reshape(-1, 2).T
    return TreesScorer(
        n_features,
        np.array(roots, np.int64),
        features.astype(np.int32),
        np.where(features == LEAF, np.float32(0), round_thresholds(thresholds)),
        np.ascontiguousarray(lefts),
        np.ascontiguousarray(rights),
        np.ascontiguousarray(values),
        missing_left=missing.astype(np.bool_),
    )


def _round_down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the largest float32 that LightGBM does not take to be above each float64."""
    with np.errstate(over="ignore"):
        nearest = thresholds.astype(np.float32)
    below = np.where(nearest > thresholds, _previous_float(nearest), nearest)
    at_zero = np.where(thresholds < 0, _previous_float(-LIGHTGBM_ZERO), LIGHTGBM_ZERO)
    return np.where(np.abs(thresholds) <= LIGHTGBM_ZERO, at_zero, below)


def _previous_float(values: NDArray[np.float32] | np.float32) -> NDArray[np.float32]:
    return np.nextafter(values, np.float32(-np.inf))
