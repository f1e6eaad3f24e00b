"""Labelled queries: datasets, their files, preprocessing, and synthetic data."""

from countersample.data.dataset import RankingDataset
from countersample.data.letor import load_letor, save_letor
from countersample.data.synthetic import synthetic

__all__ = [
    "RankingDataset",
    "load_letor",
    "save_letor",
    "synthetic",
]
