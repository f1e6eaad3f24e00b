"""Objectives and metrics from clicks, for LightGBM's and XGBoost's own training.

R(s) = κ Σ_clicks f(scores of the query, clicked item) / propensity. A click has a weight of its
own, and each pair that it makes with another item of its query carries that weight into the
gradients of both items. A weight per row, as LightGBM takes, is not the same: it multiplies all
that a row gets from all pairs, also from pairs in which the other item was clicked. A weight per
query, as XGBoost takes, cannot distinguish two clicks of a query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.defaults import METRIC
from countersample.errors import DataError, ParameterError
from countersample.metrics import parse_additive, rank_values, ranks_of
from countersample.objectives import get_loss, score_space
from countersample.plans import Examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.objectives import AnyLoss, ScoreSpace

    Derivatives = tuple[NDArray[np.float32], NDArray[np.float32]]
    BoostingObjective = Callable[[ArrayLike, Any], Derivatives]

METHODS = ("ips", "naive")

# The second-order term of an item is 1 on average when training begins.
MAX_LEAF = 1.0  # before it is multiplied by the learning rate
MIN_CURVATURE = 1e-3


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
        rows, in the same order. Labels, and a ``group`` or ``weight`` of the table, are not used.
    log : ClickLog
    objective : str, Objective or Loss
        f, one of `countersample.objectives.LOSSES`, ``"precision@k"``, or one of your own
        (`countersample.objectives.additive_objective`).
    method : {"ips", "naive"}
        Whether a click weighs 1/propensity or 1. Boosting uses all clicks in each round, so
        nothing is sampled: CounterSample and IPS are the same here.

    Returns
    -------
    function of (scores, the library's table)
        It returns the gradient and the second-order term of each row, float32 (n_rows,).

    Notes
    -----
    The factor κ makes the second-order term of an item 1 on average if all scores are equal, as it
    is for squared error. So ``lambda_l2``, ``min_sum_hessian_in_leaf`` or ``min_child_weight`` mean
    what they mean there. The term is h = max(curvature, |gradient|) + 0.001, with the curvature of
    `countersample.objectives.ScoreSpace`: no leaf divides by 0 or is larger than 1 before the
    learning rate, also for a pair that is far in the wrong order.

    Examples
    --------
    >>> import lightgbm as lgb
    >>> from countersample import simulate_clicks, synthetic
    >>> from countersample.gbdt import boosting_objective
    >>> data = synthetic("tiny", n_queries=200, rng=0)
    >>> log = simulate_clicks(data, policy=data.features[:, 0], n_clicks=5000, rng=0)
    >>> params = {"objective": boosting_objective(data, log), "verbosity": -1}
    >>> lgb.train(params, lgb.Dataset(data.features, label=data.labels), 50).num_trees()
    50
    """
    get_loss(objective)  # raises an error for an unknown one
    check_method(method)
    log.check(dataset)
    examples = Examples.of(log, "query")
    n_clicked = np.zeros(dataset.n_queries, np.int64)
    n_clicked[examples.query] = np.diff(examples.starts)
    starts = np.append(0, np.cumsum(n_clicked))
    weights = examples.weight if method == "ips" else examples.clicks

    def differentiate(scores: Floats, weights: Floats) -> ScoreSpace:
        return score_space(
            scores, dataset.offsets, starts, examples.item, weights, objective=objective
        )

    curvature = differentiate(np.zeros(dataset.n_items), weights).curvature.sum()
    n_items = dataset.query_sizes[n_clicked > 0].sum()
    weights = weights * (n_items / (curvature or n_items))

    # A function rather than an object: LightGBM makes a deep copy of its parameters.
    def compute_derivatives(scores: ArrayLike, _data: object) -> Derivatives:
        slopes = differentiate(_check_scores(scores, dataset), weights)
        second = np.maximum(slopes.curvature, np.abs(slopes.gradient) / MAX_LEAF) + MIN_CURVATURE
        return slopes.gradient.astype(np.float32), second.astype(np.float32)

    return compute_derivatives


def lightgbm_metric(
    dataset: RankingDataset, log: ClickLog, *, metric: str = METRIC
) -> Callable[[ArrayLike, Any], tuple[str, float, bool]]:
    """Σ_clicks λ(rank)/p / Σ_clicks 1/p, as a ``feval`` of ``lightgbm.train``.

    The ``snips`` estimate of `countersample.estimate`, for early stopping from clicks alone.

    Parameters
    ----------
    dataset : RankingDataset
        Queries that are not trained on; the only one of the ``valid_sets`` must have its rows, in
        the same order.
    log : ClickLog
        Clicks on them.
    metric : str
        "dcg", "dcg@k", "precision@k" or "arp".
    """
    compute = _make_metric(dataset, log, metric)
    is_higher_better = parse_additive(metric)[0] != "arp"
    return lambda scores, _data: (metric, compute(scores), is_higher_better)


def xgboost_metric(
    dataset: RankingDataset, log: ClickLog, *, metric: str = METRIC
) -> Callable[[ArrayLike, Any], tuple[str, float]]:
    """Σ_clicks λ(rank)/p / Σ_clicks 1/p, as the ``custom_metric`` of ``xgboost.train``.

    For parameters see `lightgbm_metric`, with ``evals`` in place of ``valid_sets``. Set
    ``maximize=True`` in ``xgboost.callback.EarlyStopping`` (False for "arp"), and
    ``disable_default_eval_metric`` among the parameters.
    """
    compute = _make_metric(dataset, log, metric)
    return lambda scores, _data: (metric, compute(scores))


def check_method(method: str) -> None:
    """Reject a method that boosting does not have."""
    if method not in METHODS:
        raise ParameterError(
            f"method is {method!r}, expected one of {', '.join(METHODS)}: boosting draws nothing, "
            "so that countersample and ips are the same"
        )


def _make_metric(dataset: RankingDataset, log: ClickLog, metric: str) -> Callable[..., float]:
    parse_additive(metric)  # raises an error for one that is not additive
    log.check(dataset)
    rows = dataset.offsets[log.query] + log.item
    weights = log.weights / log.weights.sum()

    def compute(scores: ArrayLike) -> float:
        ranks = ranks_of(_check_scores(scores, dataset), dataset.offsets)
        return float(rank_values(metric, ranks[rows]) @ weights)

    return compute


def _check_scores(scores: ArrayLike, dataset: RankingDataset) -> Floats:
    """Return the scores as float64 (n_items,); other shapes raise an error."""
    values = np.asarray(scores, np.float64)
    if values.shape != (dataset.n_items,):
        raise DataError(
            f"the library gives scores of shape {values.shape}, expected ({dataset.n_items},): "
            "train and evaluate on the rows of the dataset, all of them, in its order"
        )
    return values
