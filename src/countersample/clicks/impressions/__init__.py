"""Logs of results shown and clicked: read, count, check, join to features."""

from countersample.clicks.impressions.aggregated import CountedDay, count_days
from countersample.clicks.impressions.aggregation import Problems
from countersample.clicks.impressions.checking import LogCheck
from countersample.clicks.impressions.counts import PositionCounts
from countersample.clicks.impressions.features import FeatureTable, read_features
from countersample.clicks.impressions.handle import Impressions
from countersample.clicks.impressions.joining import JoinReport, RowPropensities, join_features
from countersample.clicks.impressions.queries import join_query_ids
from countersample.clicks.impressions.reading import read_impressions
from countersample.clicks.impressions.shards import read_training_shards, write_training_shards
from countersample.clicks.impressions.suspicion import Suspicious

__all__ = [
    "CountedDay",
    "FeatureTable",
    "Impressions",
    "JoinReport",
    "LogCheck",
    "PositionCounts",
    "Problems",
    "RowPropensities",
    "Suspicious",
    "count_days",
    "join_features",
    "join_query_ids",
    "read_features",
    "read_impressions",
    "read_training_shards",
    "write_training_shards",
]
