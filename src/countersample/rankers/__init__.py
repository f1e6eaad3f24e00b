"""Rankers in the habits of scikit-learn, and their files."""

from countersample.rankers.base import ClickRanker, OneQueryWarning, UnfittedRankerError
from countersample.rankers.linear import CounterSampleRanker
from countersample.rankers.loading import load_ranker

__all__ = [
    "ClickRanker",
    "CounterSampleRanker",
    "OneQueryWarning",
    "UnfittedRankerError",
    "load_ranker",
]
