"""Propensities: examination probabilities by position, estimated from clicks."""

from countersample.propensity.agreement import CrossCheck, cross_check
from countersample.propensity.contexts import estimate_by_context
from countersample.propensity.curves import (
    ContextPropensities,
    Propensities,
    TrustPropensities,
    load_propensities,
)
from countersample.propensity.estimation import (
    PowerLaw,
    Support,
    estimate,
    estimate_gamma,
    estimate_trust,
    supported,
)
from countersample.propensity.estimators import METHODS, pair_ids

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
]
