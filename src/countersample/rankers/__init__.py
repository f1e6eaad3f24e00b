"""Rankers in the habits of scikit-learn, and their files."""

from countersample.rankers.base import ClickRanker, UnfittedRankerError
from countersample.rankers.linear import CounterSampleRanker
from countersample.rankers.loading import load_ranker

__all__ = ["ClickRanker", "CounterSampleRanker", "UnfittedRankerError", "load_ranker"]
