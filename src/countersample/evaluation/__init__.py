"""How good a ranker is: on labelled (judged) queries, and from clicks alone."""

from countersample.data.scoring import Ranker
from countersample.evaluation.ab_plan import ABPlan, plan_ab_test
from countersample.evaluation.comparing import Comparison, Difference, compare
from countersample.evaluation.counterfactual import Estimate, Gain, estimate, estimate_gain
from countersample.evaluation.doubly_robust import relevance_model
from countersample.evaluation.estimators import ESTIMATORS, logged_values
from countersample.evaluation.held_out import Fold, HeldOut
from countersample.evaluation.labelled import QueryValues, evaluate, learning_curve
from countersample.evaluation.robust_weights import doubly_robust_log

__all__ = [
    "ESTIMATORS",
    "ABPlan",
    "Comparison",
    "Difference",
    "Estimate",
    "Fold",
    "Gain",
    "HeldOut",
    "QueryValues",
    "Ranker",
    "compare",
    "doubly_robust_log",
    "estimate",
    "estimate_gain",
    "evaluate",
    "learning_curve",
    "logged_values",
    "plan_ab_test",
    "relevance_model",
]
