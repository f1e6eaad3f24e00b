"""The loop: examples × plan × objective × optimizer → weights, averages, history."""

from countersample.training.loop import train, train_many
from countersample.training.optimizers import OPTIMIZERS, Optimizer
from countersample.training.options import TrainingOptions
from countersample.training.results import DivergedError, History, TrainingResult
from countersample.training.risk import Risk, risk

__all__ = [
    "OPTIMIZERS",
    "DivergedError",
    "History",
    "Optimizer",
    "Risk",
    "TrainingOptions",
    "TrainingResult",
    "risk",
    "train",
    "train_many",
]
