"""Click logs, the laws of where users look, and simulated users."""

from countersample.clicks.bias import PositionBias, PositionBiasCurve, TableBias
from countersample.clicks.diagnosis import Diagnosis, diagnose
from countersample.clicks.log import ClickLog
from countersample.clicks.models import (
    CLICK_MODELS,
    Cascade,
    ClickModel,
    DynamicBayesian,
    NearRandom,
    Perfect,
    PositionBased,
    TrustBias,
)
from countersample.clicks.simulation import simulate_clicks, simulate_impressions

__all__ = [
    "CLICK_MODELS",
    "Cascade",
    "ClickLog",
    "ClickModel",
    "Diagnosis",
    "DynamicBayesian",
    "NearRandom",
    "Perfect",
    "PositionBased",
    "PositionBias",
    "PositionBiasCurve",
    "TableBias",
    "TrustBias",
    "diagnose",
    "simulate_clicks",
    "simulate_impressions",
]
