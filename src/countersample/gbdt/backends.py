"""The libraries, one tree at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from countersample._extras import need
from countersample.gbdt.objectives import lightgbm_objective, xgboost_objective
from countersample.gbdt.trees import from_lightgbm, from_xgboost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.scorers import TreesScorer

    Floats = NDArray[np.float64]


class Boosting(Protocol):
    """Trees that grow."""

    def grow(self) -> None:
        """Add a tree."""

    def held_out_scores(self) -> Floats:
        """Return the scores of the items that were held out."""

    def scorer(self) -> TreesScorer:
        """Return what was learned."""


class LightGBM:
    """Boosting by LightGBM.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
    settings : Settings
        What both libraries have, see `GBDTRanker`.
    held_out : RankingDataset, optional
        Items whose scores are kept up to date.
    """

    def __init__(
        self,
        dataset: RankingDataset,
        log: ClickLog,
        settings: Mapping[str, Any],
        held_out: RankingDataset | None = None,
    ) -> None:
        lightgbm = need("lightgbm")
        params = {
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
        } | settings["backend_params"]
        table = lightgbm.Dataset(dataset.features, label=np.zeros(dataset.n_items), params=params)
        self._booster = lightgbm.Booster(params, table)
        if held_out is not None:
            labels = np.zeros(held_out.n_items)
            judged = table.create_valid(held_out.features, label=labels, params=params)
            self._booster.add_valid(judged, "held out")
        self._objective = lightgbm_objective(
            dataset, log, objective=settings["objective"], method=settings["method"]
        )

    def grow(self) -> None:
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
        return from_lightgbm(self._booster)


class XGBoost:
    """Boosting by XGBoost: the parameters are those of `LightGBM`."""

    def __init__(
        self,
        dataset: RankingDataset,
        log: ClickLog,
        settings: Mapping[str, Any],
        held_out: RankingDataset | None = None,
    ) -> None:
        xgboost = need("xgboost")
        params = {
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
        } | settings["backend_params"]
        self._table = xgboost.DMatrix(dataset.features)
        self._held_out = None if held_out is None else xgboost.DMatrix(held_out.features)
        cache = [each for each in (self._table, self._held_out) if each is not None]
        self._booster = xgboost.Booster(params, cache)
        self._objective = xgboost_objective(
            dataset, log, objective=settings["objective"], method=settings["method"]
        )
        self._n_trees = 0

    def grow(self) -> None:
        """Add a tree."""
        self._booster.update(self._table, self._n_trees, self._objective)
        self._n_trees += 1

    def held_out_scores(self) -> Floats:
        """Return the scores of the items that were held out."""
        scores = self._booster.predict(self._held_out, output_margin=True)
        return np.asarray(scores, np.float64)

    def scorer(self) -> TreesScorer:
        """Return what was learned."""
        return from_xgboost(self._booster)


BACKENDS: dict[str, Callable[..., Boosting]] = {"lightgbm": LightGBM, "xgboost": XGBoost}
