"""How good a ranker is: on judged queries, and from clicks alone."""

from countersample.evaluation.counterfactual import Estimate, Gain, estimate, estimate_gain
from countersample.evaluation.doubly_robust import click_model
from countersample.evaluation.estimators import ESTIMATORS
from countersample.evaluation.judged import Ranker, evaluate, learning_curve

__all__ = [
    "ESTIMATORS",
    "Estimate",
    "Gain",
    "Ranker",
    "click_model",
    "estimate",
    "estimate_gain",
    "evaluate",
    "learning_curve",
]
