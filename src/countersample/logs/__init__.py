"""Logs of results shown and clicked: read, count, check, join to features."""

from countersample.logs.aggregated import CountedDay, count_days
from countersample.logs.aggregation import Problems
from countersample.logs.checks import LogCheck, Suspicious
from countersample.logs.columns import join_query_ids
from countersample.logs.counts import PositionCounts
from countersample.logs.features import FeatureTable, read_features
from countersample.logs.findings import Finding
from countersample.logs.impressions import Impressions, read_impressions
from countersample.logs.joins import JoinReport, RowPropensities, join_features
from countersample.logs.shards import read_training_shards, write_training_shards

__all__ = [
    "CountedDay",
    "FeatureTable",
    "Finding",
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
