"""Custom objectives: R(s) = κ Σ_clicks f(scores of the query, clicked item) / propensity.

A click has a weight of its own, and each pair that it makes with another item of its query carries
that weight into the gradients of both. A weight a row, as LightGBM takes, is not the same: it
multiplies all that a row got from all pairs, those in which another item was clicked as well. A
weight a query, as XGBoost takes, cannot tell one click from another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import DataError, ParameterError
from countersample.objectives import get_loss, score_space
from countersample.plans import Examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.objectives import ScoreSpace
    from countersample.objectives.losses import AnyLoss

    Derivatives = tuple[NDArray[np.float32], NDArray[np.float32]]
    BoostingObjective = Callable[[ArrayLike, Any], Derivatives]

METHODS = ("ips", "naive")

# The second-order term of an item is 1 on average when training begins.
LARGEST_STEP = 1.0  # of a leaf, before it is multiplied by the learning rate
FLOOR = 1e-3


def boosting_objective(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    objective: AnyLoss = "smooth-log-rank",
    method: str = "ips",
) -> BoostingObjective:
    """R(s) = κ Σ_clicks f(s, clicked item) / propensity, as LightGBM and XGBoost take it.

    It is the ``objective`` among the parameters of ``lightgbm.train``, and the ``obj`` of
    ``xgboost.train``.

    Parameters
    ----------
    dataset : RankingDataset
        The rows of the library's table (``lightgbm.Dataset``, ``xgboost.DMatrix``) must be its
        rows, in the same order. Its labels do not matter, and neither does a ``group`` or
        ``weight`` that the library's table has.
    log : ClickLog
    objective : str, Objective or Loss
        f, one of `countersample.objectives.LOSSES`, ``"precision@k"``, or one of your own
        (`countersample.objectives.additive_objective`).
    method : {"ips", "naive"}
        Whether a click weighs 1/propensity or 1. Boosting uses all clicks in each round, so
        nothing is drawn: CounterSample and IPS are the same here.

    Returns
    -------
    function of (scores, the library's table)
        Gives the gradient and the second-order term of each row, float32 (n_rows,).

    Notes
    -----
    The factor κ makes the second-order term of an item 1 on average where all scores are equal, as
    it is for squared error, so that the settings of the libraries that are measured in it
    (``lambda_l2``, ``min_sum_hessian_in_leaf``; ``lambda``, ``min_child_weight``) mean what they
    mean there, whatever the objective, the number of clicks and their weights.

    The second-order term is safe: h = max(curvature, |gradient|) + 0.001. The curvature is that of
    `countersample.objectives.ScoreSpace`, never negative. Where it vanishes but the gradient does
    not, as for a pair that is far in the wrong order, a Newton step would be huge; this way no leaf
    is larger than 1 before the learning rate, and no leaf divides by 0.

    Examples
    --------
    >>> import lightgbm as lgb
    >>> import xgboost as xgb
    >>> from countersample import evaluate, simulate_clicks, synthetic
    >>> from countersample.gbdt import boosting_objective
    >>> data = synthetic("tiny", n_queries=200, rng=0)
    >>> log = simulate_clicks(data, policy=data.features[:, 0], n_clicks=5000, rng=0)
    >>> params = {"objective": boosting_objective(data, log), "verbosity": -1}
    >>> table = lgb.Dataset(data.features, label=data.labels)
    >>> by_lightgbm = lgb.train(params, table, 50).predict(data.features)
    >>> matrix = xgb.DMatrix(data.features)
    >>> booster = xgb.train({"eta": 0.1}, matrix, 50, obj=boosting_objective(data, log))
    >>> before, *after = (
    ...     evaluate(scores, data, "ndcg@10")["ndcg@10"]
    ...     for scores in (data.features[:, 0], by_lightgbm, booster.predict(matrix))
    ... )
    >>> min(after) > before
    True
    """
    get_loss(objective)  # refuses what is not known
    check_method(method)
    log.check(dataset)
    examples = Examples.of(log, "query")
    clicked = np.zeros(dataset.n_queries, np.int64)
    clicked[examples.query] = np.diff(examples.starts)
    starts = np.append(0, np.cumsum(clicked))
    weights = examples.weight if method == "ips" else examples.clicks

    def derivatives(scores: Floats, weights: Floats) -> ScoreSpace:
        return score_space(
            scores, dataset.offsets, starts, examples.item, weights, objective=objective
        )

    at_first = derivatives(np.zeros(dataset.n_items), weights)
    n_concerned = dataset.query_sizes[clicked > 0].sum()
    weights = weights * (n_concerned / (at_first.curvature.sum() or n_concerned))

    # A function rather than an object: LightGBM makes a deep copy of its parameters.
    def derivatives_of(scores: ArrayLike, _data: object) -> Derivatives:
        given = np.asarray(scores, np.float64)
        check_rows(given, dataset)
        found = derivatives(given, weights)
        second = np.maximum(found.curvature, np.abs(found.gradient) / LARGEST_STEP) + FLOOR
        return found.gradient.astype(np.float32), second.astype(np.float32)

    return derivatives_of


def check_method(method: str) -> None:
    """Refuse a method that boosting does not have."""
    if method not in METHODS:
        raise ParameterError(
            f"method is {method!r}, expected one of {', '.join(METHODS)}: boosting draws nothing, "
            "so that countersample and ips are the same"
        )


def check_rows(scores: Floats, dataset: RankingDataset) -> None:
    """Refuse scores that are not of the items of a dataset."""
    if scores.shape != (dataset.n_items,):
        raise DataError(
            f"the library gives scores of shape {scores.shape}, expected ({dataset.n_items},): "
            "train and evaluate on the rows of the dataset, all of them, in its order"
        )
