"""The loop: examples × plan × objective × optimizer → weights, averages, history."""

from countersample.training.loop import train, train_many
from countersample.training.optimizers import OPTIMIZERS, Optimizer
from countersample.training.options import TrainingOptions
from countersample.training.results import DivergedError, History, TrainingResult

__all__ = [
    "OPTIMIZERS",
    "DivergedError",
    "History",
    "Optimizer",
    "TrainingOptions",
    "TrainingResult",
    "train",
    "train_many",
]
