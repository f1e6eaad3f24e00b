"""The libraries, one tree at a time."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._extras import need
from countersample.errors import ParameterError
from countersample.gbdt.trees import from_lightgbm, from_xgboost
from countersample.scorers import TreesScorer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from countersample._arrays import Floats
    from countersample.data import RankingDataset
    from countersample.gbdt.objectives import BoostingObjective
    from countersample.scorers import LinearScorer

# What each library also calls a parameter that is set here; force_row_wise excludes the other.
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
    "xgboost": {
        "eta": ("learning_rate",),
        "lambda": ("reg_lambda",),
        "seed": ("random_state",),
    },
}  # fmt: skip
PLACE = re.compile(r"^\[[\d:]+\] \S+: | at \S+, line \d+ \.$")  # in the library's own source


def check_backend_params(backend: str, params: Mapping[str, Any]) -> None:
    """Refuse an objective, under any name that the library has for it."""
    for name in ("objective", *ALIASES[backend].get("objective", ())):
        if name in params:
            raise ParameterError(
                f"backend_params has {name!r}, expected none: name it by the parameter objective"
            )


@contextmanager
def plain_errors(backend: str) -> Iterator[None]:
    """Turn the library's own errors into one of ours."""
    library = need(backend)
    refusal = library.basic.LightGBMError if backend == "lightgbm" else library.core.XGBoostError
    try:
        yield
    except refusal as error:
        reason = PLACE.sub("", str(error).strip().partition("\n")[0])
        raise ParameterError(
            f"{backend} refuses these settings: {reason}: look at backend_params"
        ) from error


def _with_own(backend: str, params: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters, but for those that the user's own set, under whatever name."""
    aliases = ALIASES[backend]
    kept = {name for name in params if own.keys().isdisjoint(aliases.get(name, ()))}
    return {name: value for name, value in params.items() if name in kept} | dict(own)


def _scores_of(base: LinearScorer | TreesScorer | None, dataset: RankingDataset) -> Floats | None:
    """Return the score of each item, from which trees are boosted."""
    return None if base is None else base.predict(dataset.features)


def _on_top(base: LinearScorer | TreesScorer | None, trees: TreesScorer) -> TreesScorer:
    """Return what scores by both."""
    if base is None:
        return trees
    if isinstance(base, TreesScorer):
        return base.plus(trees)
    missing_left = None if base.missing is None else trees.missing_left
    return replace(trees, base=base.weights, base_missing=base.missing, missing_left=missing_left)


class LightGBM:
    """Boosting by LightGBM, from a base: see `countersample.rankers._stopping.Rounds`."""

    def __init__(
        self,
        dataset: RankingDataset,
        objective: BoostingObjective,
        settings: Mapping[str, Any],
        held_out: RankingDataset | None = None,
        base: LinearScorer | TreesScorer | None = None,
    ) -> None:
        lightgbm = need("lightgbm")
        defaults = {
            "objective": "none",
            "learning_rate": settings["learning_rate"],
            "num_leaves": settings["num_leaves"],
            "min_data_in_leaf": settings["min_items_in_leaf"],
            "min_data_in_bin": 1,
            "feature_pre_filter": False,
            "lambda_l2": settings["l2"],
            "feature_fraction": settings["feature_fraction"],
            "bagging_fraction": settings["bagging_fraction"],
            "bagging_freq": 1,
            "seed": settings["seed"],
            "deterministic": True,
            "force_col_wise": True,
            "verbosity": -1,
        }
        params = _with_own("lightgbm", defaults, settings["backend_params"] or {})
        table = lightgbm.Dataset(
            np.asarray(dataset.features), label=np.zeros(dataset.n_items), params=params,
            init_score=_scores_of(base, dataset),
        )  # fmt: skip
        self._objective, self._base = objective, base
        self._booster = lightgbm.Booster(params, table)
        if held_out is not None:
            validation = table.create_valid(
                np.asarray(held_out.features), label=np.zeros(held_out.n_items), params=params,
                init_score=_scores_of(base, held_out),
            )  # fmt: skip
            self._booster.add_valid(validation, "held out")

    def advance(self) -> None:
        """Add a tree."""
        self._booster.update(fobj=self._objective)

    def held_out_scores(self) -> Floats:
        """Return the scores of the items that were held out."""
        seen: list[Floats] = []

        def see(scores: Floats, _data: object) -> tuple[str, float, bool]:
            seen.append(scores)
            return "", 0.0, True

        self._booster.eval_valid(see)
        return seen[0]

    def scorer(self) -> TreesScorer:
        """Return what was learned."""
        return _on_top(self._base, from_lightgbm(self._booster))


class XGBoost:
    """Boosting by XGBoost, from a base: see `countersample.rankers._stopping.Rounds`."""

    def __init__(
        self,
        dataset: RankingDataset,
        objective: BoostingObjective,
        settings: Mapping[str, Any],
        held_out: RankingDataset | None = None,
        base: LinearScorer | TreesScorer | None = None,
    ) -> None:
        xgboost = need("xgboost")
        defaults = {
            "eta": settings["learning_rate"],
            "max_leaves": settings["num_leaves"],
            "grow_policy": "lossguide",
            "max_depth": 0,
            # A sum of second-order terms, which are 1 an item on average when training begins
            "min_child_weight": settings["min_items_in_leaf"],
            "lambda": settings["l2"],
            "colsample_bytree": settings["feature_fraction"],
            "subsample": settings["bagging_fraction"],
            "seed": settings["seed"],
            "tree_method": "hist",
            "base_score": 0.0,
            "disable_default_eval_metric": True,
            "verbosity": 0,
        }
        params = _with_own("xgboost", defaults, settings["backend_params"] or {})
        self._objective, self._base = objective, base
        self._table, self._held_out = (
            None if each is None
            else xgboost.DMatrix(np.asarray(each.features), base_margin=_scores_of(base, each))
            for each in (dataset, held_out)
        )  # fmt: skip
        cache = [each for each in (self._table, self._held_out) if each is not None]
        self._booster = xgboost.Booster(params, cache)
        self._n_trees = 0

    def advance(self) -> None:
        """Add a tree."""
        self._booster.update(self._table, self._n_trees, self._objective)
        self._n_trees += 1

    def held_out_scores(self) -> Floats:
        """Return the scores of the items that were held out."""
        scores = self._booster.predict(self._held_out, output_margin=True)
        return np.asarray(scores, np.float64)

    def scorer(self) -> TreesScorer:
        """Return what was learned."""
        return _on_top(self._base, from_xgboost(self._booster))


BACKENDS: dict[str, type[LightGBM | XGBoost]] = {"lightgbm": LightGBM, "xgboost": XGBoost}
