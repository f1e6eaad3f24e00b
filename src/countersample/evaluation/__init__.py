"""How good a ranker is: on labelled queries, and from clicks alone (off-policy evaluation).

===================  ==========================================================================
`labels`             means of metrics over labelled queries (`evaluate`, `learning_curve`)
`estimators`         the value of a ranker from logged clicks: ips, snips, beta-ips, clipped, dr
`comparison`         several rankers by the same clicks; the gain over the logging policy
`verdict`            better, worse, not shown, or none: one rule for all commands
`holdout`            candidates evaluated by the clicks of held-out queries
`bootstrap`          resampling of sessions or queries, and intervals
`control_variates`   less noise where the mean weight is known from more clicks
`doubly_robust`      a model of relevance beside the clicks, to evaluate and to train
`ab_plan`            the sessions that an A/B test needs to confirm a gain
===================  ==========================================================================
"""

from countersample.data.dataset import Ranker
from countersample.evaluation.ab_plan import ABPlan, plan_ab_test
from countersample.evaluation.comparison import Comparison, Gain, compare, estimate_gain
from countersample.evaluation.doubly_robust import doubly_robust_log, relevance_model
from countersample.evaluation.estimators import (
    ESTIMATORS,
    Estimate,
    EstimateOptions,
    estimate,
    logged_values,
)
from countersample.evaluation.holdout import Fold, HeldOut
from countersample.evaluation.labels import QueryValues, evaluate, learning_curve
from countersample.evaluation.verdict import Difference, Verdict, decide

__all__ = [
    "ESTIMATORS",
    "ABPlan",
    "Comparison",
    "Difference",
    "Estimate",
    "EstimateOptions",
    "Fold",
    "Gain",
    "HeldOut",
    "QueryValues",
    "Ranker",
    "Verdict",
    "compare",
    "decide",
    "doubly_robust_log",
    "estimate",
    "estimate_gain",
    "evaluate",
    "learning_curve",
    "logged_values",
    "plan_ab_test",
    "relevance_model",
]
