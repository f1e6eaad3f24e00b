"""Propensities: examination probabilities by position, estimated from clicks."""

from countersample.propensity.agreement import CrossCheck, cross_check
from countersample.propensity.curve import Propensities
from countersample.propensity.estimation import METHODS, estimate, supported
from countersample.propensity.power_law import PowerLaw, estimate_gamma
from countersample.propensity.regression import pair_ids
from countersample.propensity.trust import trust_correct

__all__ = [
    "METHODS",
    "CrossCheck",
    "PowerLaw",
    "Propensities",
    "cross_check",
    "estimate",
    "estimate_gamma",
    "pair_ids",
    "supported",
    "trust_correct",
]
