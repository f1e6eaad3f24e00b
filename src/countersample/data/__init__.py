"""Labelled (judged) queries: reading, writing, keeping, normalising and making them."""

from countersample.data.dataset import RankingDataset
from countersample.data.letor import load_letor, save_letor
from countersample.data.synthetic import synthetic

__all__ = [
    "RankingDataset",
    "load_letor",
    "save_letor",
    "synthetic",
]
