"""Metrics for the libraries' own early stopping: the value of a ranker from held-out clicks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.evaluation.ranking import parse_additive, rank_values, ranks_of
from countersample.gbdt.objectives import check_rows
from countersample.options import METRIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset


def lightgbm_metric(
    dataset: RankingDataset, log: ClickLog, *, metric: str = METRIC
) -> Callable[[ArrayLike, Any], tuple[str, float, bool]]:
    """Σ_clicks λ(rank)/p / Σ_clicks 1/p, as a ``feval`` of ``lightgbm.train``.

    The ``snips`` estimate of `countersample.estimate`: what one relevant item gains under the
    ranker that is being trained, from clicks alone.

    Parameters
    ----------
    dataset : RankingDataset
        Queries that are not trained on; the only one of the ``valid_sets`` must have its rows, in
        the same order.
    log : ClickLog
        Clicks on them.
    metric : str
        "dcg", "dcg@k", "precision@k" or "arp".

    Returns
    -------
    function of (scores, lightgbm.Dataset)
        Gives the name, the value, and whether larger is better.

    Examples
    --------
    >>> import lightgbm as lgb
    >>> from countersample import ClickLog, synthetic
    >>> from countersample.gbdt import lightgbm_metric, boosting_objective
    >>> data, held_out = synthetic("tiny", n_queries=300, rng=0).split(0.7, 0.3, rng=0)
    >>> log, held_out_log = ClickLog.from_labels(data), ClickLog.from_labels(held_out)
    >>> learned = lgb.Dataset(data.features, label=data.labels)
    >>> booster = lgb.train(
    ...     {"objective": boosting_objective(data, log), "verbosity": -1},
    ...     learned,
    ...     num_boost_round=500,
    ...     valid_sets=[lgb.Dataset(held_out.features, label=held_out.labels, reference=learned)],
    ...     feval=lightgbm_metric(held_out, held_out_log),
    ...     callbacks=[lgb.early_stopping(20, verbose=False)],
    ... )
    >>> booster.best_iteration < 500
    True
    """
    value = _estimate_of(dataset, log, metric)
    is_higher_better = parse_additive(metric)[0] != "arp"
    return lambda scores, _data: (metric, value(scores), is_higher_better)


def xgboost_metric(
    dataset: RankingDataset, log: ClickLog, *, metric: str = METRIC
) -> Callable[[ArrayLike, Any], tuple[str, float]]:
    """Σ_clicks λ(rank)/p / Σ_clicks 1/p, as the ``custom_metric`` of ``xgboost.train``.

    Early stopping has to be told that larger is better (smaller, for "arp"):
    ``xgboost.callback.EarlyStopping(rounds=20, maximize=True)``.

    Parameters
    ----------
    dataset, log, metric
        As for `lightgbm_metric`, with ``evals`` for ``valid_sets``.

    Returns
    -------
    function of (scores, xgboost.DMatrix)
        Gives the name and the value.

    Examples
    --------
    >>> import xgboost as xgb
    >>> from countersample import ClickLog, synthetic
    >>> from countersample.gbdt import xgboost_metric, boosting_objective
    >>> data, held_out = synthetic("tiny", n_queries=300, rng=0).split(0.7, 0.3, rng=0)
    >>> log, held_out_log = ClickLog.from_labels(data), ClickLog.from_labels(held_out)
    >>> booster = xgb.train(
    ...     {"eta": 0.1, "disable_default_eval_metric": True},
    ...     xgb.DMatrix(data.features),
    ...     num_boost_round=500,
    ...     obj=boosting_objective(data, log),
    ...     evals=[(xgb.DMatrix(held_out.features), "validation")],
    ...     custom_metric=xgboost_metric(held_out, held_out_log),
    ...     callbacks=[xgb.callback.EarlyStopping(rounds=20, maximize=True)],
    ...     verbose_eval=False,
    ... )
    >>> booster.best_iteration < 499
    True
    """
    value = _estimate_of(dataset, log, metric)
    return lambda scores, _data: (metric, value(scores))


def _estimate_of(
    dataset: RankingDataset, log: ClickLog, metric: str
) -> Callable[[ArrayLike], float]:
    parse_additive(metric)  # refuses what is not additive
    log.check(dataset)
    rows = dataset.offsets[log.query] + log.item
    weights = log.weights / log.weights.sum()

    def value(scores: ArrayLike) -> float:
        given = np.asarray(scores, np.float64)
        check_rows(given, dataset)
        ranks = ranks_of(given, dataset.offsets)[rows]
        return float(rank_values(metric, ranks) @ weights)

    return value
