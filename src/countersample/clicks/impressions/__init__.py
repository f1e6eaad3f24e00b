"""Raw logs of what was shown and clicked: reading, counting, checking, joining to features."""

from countersample.clicks.impressions.aggregation import Problems
from countersample.clicks.impressions.checking import LogCheck, Support
from countersample.clicks.impressions.counts import PositionCounts
from countersample.clicks.impressions.features import FeatureTable, read_features
from countersample.clicks.impressions.joining import JoinReport, RowPropensities, join_features
from countersample.clicks.impressions.reading import Impressions, read_impressions

__all__ = [
    "FeatureTable",
    "Impressions",
    "JoinReport",
    "LogCheck",
    "PositionCounts",
    "Problems",
    "RowPropensities",
    "Support",
    "join_features",
    "read_features",
    "read_impressions",
]
