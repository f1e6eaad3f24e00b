"""Propensities: examination probabilities by position, estimated from clicks."""

from countersample.propensity.agreement import CrossCheck, cross_check
from countersample.propensity.contexts import ContextPropensities, estimate_by_context
from countersample.propensity.curve import Propensities
from countersample.propensity.estimation import estimate
from countersample.propensity.loading import load_propensities
from countersample.propensity.methods import METHODS
from countersample.propensity.power_law import PowerLaw, estimate_gamma
from countersample.propensity.regression import pair_ids
from countersample.propensity.support import Support, supported
from countersample.propensity.trust import TrustPropensities, estimate_trust, trust_correct

__all__ = [
    "METHODS",
    "ContextPropensities",
    "CrossCheck",
    "PowerLaw",
    "Propensities",
    "Support",
    "TrustPropensities",
    "cross_check",
    "estimate",
    "estimate_by_context",
    "estimate_gamma",
    "estimate_trust",
    "load_propensities",
    "pair_ids",
    "supported",
    "trust_correct",
]
