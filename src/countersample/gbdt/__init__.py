"""Gradient boosting on click logs: objectives and metrics for LightGBM and XGBoost, and a ranker.

======================  ======================================================================
`GBDTRanker`            boosted trees as a scikit-learn estimator, on either library
`boosting_objective`    weights by inverse propensity per pair, inside your own training
`lightgbm_metric`       the value of the ranker from held-out clicks, for early stopping
`xgboost_metric`        the same for XGBoost
======================  ======================================================================

The libraries are the extra ``gbdt``. Only training imports them: a fitted ranker scores without.
"""

from countersample.gbdt.gbdt_ranker import GBDTRanker
from countersample.gbdt.objectives import boosting_objective, lightgbm_metric, xgboost_metric

__all__ = ["GBDTRanker", "boosting_objective", "lightgbm_metric", "xgboost_metric"]
