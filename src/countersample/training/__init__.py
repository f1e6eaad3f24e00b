"""Training: examples × plan × objective × optimizer → weights, averages, history.

==============  ===============================================================
`options`       `TrainingOptions`: all settings, with defaults and checks
`loop`          `train`, `train_many` and their results; `risk`
`optimizers`    how a gradient becomes a step
`runs`          the state of runs, their kernel calls, their file
`variance`      the variance of the risk, and training that reduces it
==============  ===============================================================
"""

from countersample.training.loop import (
    DivergedError,
    History,
    TrainingResult,
    risk,
    train,
    train_many,
)
from countersample.training.optimizers import OPTIMIZERS, Optimizer
from countersample.training.options import TrainingOptions
from countersample.training.variance import Risk

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
