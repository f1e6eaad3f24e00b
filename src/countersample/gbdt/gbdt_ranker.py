"""Boosted trees as an estimator: `GBDTRanker`, on LightGBM or XGBoost.

A library grows one tree per step (`Boosting`). Its trees are read into a `TreesScorer`, which gives
the scores that the library gives. Trees that do more than compare a number with a threshold raise a
ParameterError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from countersample._environment import need
from countersample._params import choice, number, whole_number
from countersample.clicks import ClickLog
from countersample.defaults import CONFIDENCE, HOLDOUT, METRIC
from countersample.errors import ParameterError
from countersample.gbdt.objectives import boosting_objective, check_method
from countersample.rankers import CounterSampleRanker
from countersample.rankers.checks import COUNT, MIN_PROPENSITY, either
from countersample.rankers.rounds import RoundsRanker
from countersample.rankers.task import scale_base, weigh_clicks
from countersample.scorers import LEAF, LinearScorer, TreesScorer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.gbdt.objectives import BoostingObjective
    from countersample.objectives import Loss, Objective
    from countersample.rankers.checks import Check
    from countersample.rankers.task import Task, Tasks
    from countersample.scorers import Scorer

    # Feature, threshold, children, whether a missing value goes left; or the value of a leaf
    Node = tuple[int, float, Any, Any, bool] | float

# "auto" requires a tenth of the items that a tree is grown on per leaf, up to 50
MAX_AUTO_LEAF, AUTO_LEAVES = 50, 10
MAX_SEED = 2**31 - 1
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


def _check_mapping(name: str, value: object) -> None:
    if not isinstance(value, Mapping | None):
        raise ParameterError(f"{name} is {value!r}, expected a dict of parameters, or None")


@dataclass(kw_only=True, eq=False, repr=False)
class GBDTRanker(RoundsRanker):
    """score(x) = base·x + Σ_trees value of the leaf of x, minimising (1/N) Σ_clicks f / propensity.

    Boosted trees learned from clicks, by LightGBM or XGBoost, each pair of a click and another item
    of its query weighted by the inverse propensity of that click (`boosting_objective`). They are
    boosted from the imitation of the logging policy or from zero. The start and the number of
    trees, which may be 0, are chosen without labels: trees grow on a part of the clicked queries
    while the clicks of the others measure whether they help, and then on everything.

    Parameters
    ----------
    backend : {"lightgbm", "xgboost"}
        The library that trains. A fitted ranker scores without it.
    method : {"ips", "naive"}
        Whether a click weighs 1/propensity or 1, in training and in the choice of the number of
        trees. Each tree uses all clicks, so nothing is sampled: CounterSample and IPS are the same.
    objective : str, Objective or Loss
        f, one of `countersample.objectives.LOSSES`, ``"precision@k"``, or one of your own
        (`countersample.objectives.additive_objective`).
    start : {"auto", "served", "linear", "zero"}
        The base of the trees: the imitation of the logging policy, the default
        `CounterSampleRanker` trained on the same clicks, or nothing. "auto" tries the policy, if it
        is known, and nothing. See `countersample.rankers.task` for the scale of a base.
    n_trees : int
        The maximum number of trees; with ``patience=None``, their number.
    learning_rate : float
        The factor of the leaves.
    num_leaves : int
        The maximum per tree.
    min_items_in_leaf : "auto" or int
        "auto" is a tenth of the items that a tree is grown on, at least 1 and at most 50. For
        XGBoost, the least second-order term of a leaf, which is 1 per item on average at first.
    l2 : float
        Weight decay of leaves: added to the second-order term of each leaf.
    feature_fraction : "auto" or float in (0, 1]
        The share of features drawn for each tree; "auto" is a fifth, but at least 20 features.
    bagging_fraction : float in (0, 1]
        The share of items drawn for each tree.
    patience : int or None
        The number of trees without a better estimate after which no more are tried. None grows
        `n_trees` on everything at once, from zero if `start` is "auto", and holds out nothing.
    holdout : float in (0, 0.5]
        The share of the clicked queries per fold, as the nearest of 1/2, 1/3, …. Enough folds are
        held out in turn to reach 1,000 queries.
    backend_params : dict, optional
        Other parameters of the library, which replace those set here; not the objective.
    warm_start : bool
        Whether `fit` of a fitted ranker continues from it, whatever `start` is: its trees stay, and
        up to `n_trees` more are boosted from their scores. With none it is a candidate.
    doubly_robust, metric, clip, temper, safety, normalize, random_state
        See `ClickRanker` and `CounterSampleRanker`.

    Attributes
    ----------
    scorer_ : TreesScorer
    n_trees_ : int
        0 if no trees are shown to be better than what they are boosted from.
    start_ : {"served", "linear", "zero", "previous"}
    history_ : RoundHistory or None
        The estimate by the number of trees; None without patience, and in a loaded ranker.
    and the attributes of `ClickRanker`

    Examples
    --------
    >>> from countersample import simulate_clicks, synthetic
    >>> from countersample.gbdt import GBDTRanker
    >>> data = synthetic("tiny", n_queries=200, rng=0)
    >>> log = simulate_clicks(data, policy=data.features[:, 0], n_clicks=5000, rng=0)
    >>> GBDTRanker(n_trees=100, random_state=0).fit_log(data, log).start_
    'zero'
    """

    kind: ClassVar[str] = "boosted"
    _round_name: ClassVar[str] = "trees"
    _limit_name: ClassVar[str] = "n_trees"
    _scorer_type: ClassVar[type[Scorer]] = TreesScorer
    _takes_missing: ClassVar[bool] = True
    _learned: ClassVar[Mapping[str, Check]] = {
        "n_trees_": COUNT,
        "start_": partial(choice, options=("served", "linear", "zero", "previous")),
        "clip_": MIN_PROPENSITY,
    }
    _checks: ClassVar[Mapping[str, Check]] = {
        "backend": partial(choice, options=("lightgbm", "xgboost")),
        "method": lambda _name, value: check_method(value),
        "start": partial(choice, options=("auto", "served", "linear", "zero")),
        "n_trees": partial(whole_number, least=1),
        "num_leaves": partial(whole_number, least=2),
        "min_items_in_leaf": either("auto", check=whole_number, least=1),
        "feature_fraction": either("auto", check=number, above=0, most=1),
        "bagging_fraction": partial(number, above=0, most=1),
        "backend_params": _check_mapping,
    }

    backend: str = "lightgbm"
    method: str = "ips"
    objective: str | Objective | Loss = "smooth-log-rank"
    start: str = "auto"
    n_trees: int = 1000
    learning_rate: float = 0.1
    num_leaves: int = 15
    min_items_in_leaf: int | str = "auto"
    l2: float = 0.0
    feature_fraction: float | str = "auto"
    bagging_fraction: float = 0.5
    patience: int | None = 50
    holdout: float = HOLDOUT
    metric: str = METRIC
    clip: float | None = None
    temper: float = 1.0
    doubly_robust: bool = False
    safety: float = CONFIDENCE
    normalize: str | None = None
    backend_params: Mapping[str, Any] | None = None
    warm_start: bool = False
    random_state: int | np.random.Generator | None = None

    def _train(self, tasks: Tasks, rng: np.random.Generator, progress: Progress) -> Task:
        check_backend_params(self.backend, self.backend_params or {})
        self._settings = self.get_params() | {"seed": int(rng.integers(MAX_SEED))}
        if self.method == "naive":
            ones = np.ones(tasks.log.n_rows)
            log = tasks.log.replace(propensity=ones, examination=None)
            tasks = replace(tasks, log=log, _latest=None)
        with translate_errors(self.backend):
            task, n_trees = self._train_rounds(tasks, rng, progress)
        scorer = cast("TreesScorer", self.scorer_)
        previous = task.previous if self.start_ == "previous" else None
        if task.imputer is None and getattr(previous, "missing_left", None) is None:
            # Nothing was missing in training, so trees do not know where to send it.
            self.scorer_ = scorer = replace(scorer, missing_left=None)
        self.n_trees_ = n_trees + (previous.n_trees if isinstance(previous, TreesScorer) else 0)
        if scorer.base is None and not scorer.is_inner.any():
            raise ParameterError(
                f"no tree has a split: min_items_in_leaf is {self._settings['min_items_in_leaf']} "
                f"and a tree is grown on {self._settings['n_items']} items, expected a number that "
                "allows a useful split: set a smaller one, or a larger bagging_fraction, or use "
                "more clicks"
            )
        return task

    def _prepare(self, task: Task, fold_clicks: Sequence[ClickLog]) -> None:
        """Decide the settings that depend on the number of features and items."""
        settings = self._settings
        if self.feature_fraction == "auto":
            settings["feature_fraction"] = min(1.0, max(0.2, 20 / task.dataset.n_features))
        sizes = task.dataset.query_sizes
        n_items = min(
            int(sizes[np.unique(clicks.query)].sum()) for clicks in (task.clicks, *fold_clicks)
        )
        n_items = settings["n_items"] = int(self.bagging_fraction * n_items)  # drawn for a tree
        largest = max(1, n_items // 2)
        if isinstance(self.min_items_in_leaf, str):  # "auto"
            settings["min_items_in_leaf"] = min(MAX_AUTO_LEAF, max(1, n_items // AUTO_LEAVES))
        elif self.min_items_in_leaf > largest:
            raise ParameterError(
                f"min_items_in_leaf is {self.min_items_in_leaf}, expected at most {largest}, half "
                f"of the {n_items} items that a tree is grown on (the share bagging_fraction of "
                "the items of clicked queries, less those held out): set 'auto' or a smaller number"
            )

    def _begin(
        self,
        task: Task,
        start: str,
        rng: np.random.Generator,  # noqa: ARG002 (the library has a seed of its own)
        held_out: RankingDataset | None = None,
    ) -> Boosting:
        """Begin to boost on the queries that have clicks; others would only fill up leaves."""
        clicks = self._weigh(task)
        queries, index = np.unique(clicks.query, return_inverse=True)
        dataset = task.dataset.subset(queries)
        objective = boosting_objective(
            dataset, ClickLog(index, clicks.item, clicks.propensity, clicks.count),
            objective=self.objective, method=self.method,
        )  # fmt: skip
        base = self._base(task, start)
        return BACKENDS[self.backend](dataset, objective, self._settings, held_out, base)

    def _weigh(self, task: Task) -> ClickLog:
        """Return the training clicks; doubly robust weights are clipped already."""
        clip = None if self.doubly_robust else self.clip
        return weigh_clicks(task.clicks, clip=clip, temper=self.temper)

    def _base(self, task: Task, start: str) -> LinearScorer | TreesScorer | None:
        """Return the scorer that trees are boosted from; None for zero."""
        if start == "previous" and isinstance(task.previous, TreesScorer):
            return task.previous
        if start == "linear":
            weights = self._linear_weights(task)
        elif start == "served" and task.served is not None:
            weights = task.served.weights
        else:
            return None
        clicks = self._weigh(task)
        return task.linear_scorer(
            scale_base(weights, task.filled, clicks, objective=self.objective)
        )

    def _linear_weights(self, task: Task) -> Floats:
        """Return the weights of the default linear ranker, for features that are not scaled."""
        linear = CounterSampleRanker(
            method="naive" if self.method == "naive" else "countersample",
            safety=self.safety, metric=self.metric, holdout=self.holdout, clip=self.clip,
            doubly_robust=self.doubly_robust, random_state=self._settings["seed"],
        ).fit_log(task.full, task.full_log, baseline=task.baseline)  # fmt: skip
        normalizer = linear.preprocessing_.normalizer
        if normalizer is None or normalizer.scale is None:
            return linear.weights_
        scale = np.array(normalizer.scale)  # w·(x − shift)/scale ranks as (w/scale)·x
        weights: Floats = np.divide(
            linear.weights_, scale, where=scale > 0, out=np.zeros(len(scale))
        )
        return weights

    def _libraries(self) -> tuple[str, ...]:
        return (self.backend,)


# -- Libraries -------------------------------------------------------------------------------------


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
            f"{backend} rejects these settings: {reason}: check backend_params"
        ) from error


class Boosting:
    """Trees that are boosted from a base, one per step: see `countersample.rankers.rounds.Rounds`.

    `settings` are the parameters of `GBDTRanker`, with all numbers decided and a seed. Items that
    are `held_out` are scored after each step. Scores start from the `base`, or from 0.
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
        "and a plain sum: leave out the parameter of the library that sets it"
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
