"""Click logs, position-bias curves, click models, logging policies and their simulation."""

from countersample.clicks.bias import PositionBias, PositionBiasCurve, TableBias
from countersample.clicks.diagnosis import Diagnosis, diagnose
from countersample.clicks.log import ClickLog
from countersample.clicks.models import (
    CLICK_MODELS,
    Cascade,
    ClickModel,
    DependentClick,
    DynamicBayesian,
    NearRandom,
    Perfect,
    PositionBased,
    TrustBias,
)
from countersample.clicks.policies import LoggingPolicy, Ranked, Shuffled, Swapped, TeamDraft
from countersample.clicks.relevance import FewRelevantWarning
from countersample.clicks.simulation import simulate_clicks, simulate_impressions

__all__ = [
    "CLICK_MODELS",
    "Cascade",
    "ClickLog",
    "ClickModel",
    "DependentClick",
    "Diagnosis",
    "DynamicBayesian",
    "FewRelevantWarning",
    "LoggingPolicy",
    "NearRandom",
    "Perfect",
    "PositionBased",
    "PositionBias",
    "PositionBiasCurve",
    "Ranked",
    "Shuffled",
    "Swapped",
    "TableBias",
    "TeamDraft",
    "TrustBias",
    "diagnose",
    "simulate_clicks",
    "simulate_impressions",
]
