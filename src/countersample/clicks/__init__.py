"""Click logs, the laws of where users look, and simulated users."""

from countersample.clicks.bias import Bias, PositionBias, TableBias
from countersample.clicks.diagnosis import Diagnosis, diagnose
from countersample.clicks.log import ClickLog
from countersample.clicks.models import (
    USERS,
    Cascade,
    DynamicBayesian,
    NearRandom,
    Perfect,
    PositionBased,
    TrustBias,
    UserModel,
)
from countersample.clicks.simulation import simulate_clicks, simulate_impressions

__all__ = [
    "USERS",
    "Bias",
    "Cascade",
    "ClickLog",
    "Diagnosis",
    "DynamicBayesian",
    "NearRandom",
    "Perfect",
    "PositionBased",
    "PositionBias",
    "TableBias",
    "TrustBias",
    "UserModel",
    "diagnose",
    "simulate_clicks",
    "simulate_impressions",
]
