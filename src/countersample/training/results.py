"""What training gives: weights, their history, or the error of weights that exploded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._frames import Tabular
from countersample._version import __version__
from countersample.errors import CounterSampleError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.training.options import TrainingOptions


class DivergedError(CounterSampleError):
    """Training whose weights exploded: the learning rate is too large.

    Attributes
    ----------
    step : int
        The step at which it happened.
    learning_rate : float
    """

    def __init__(self, step: int, learning_rate: float) -> None:
        self.step = step
        self.learning_rate = learning_rate
        super().__init__(
            f"training diverged at step {step:,} with learning rate {learning_rate:g}: "
            "take a smaller one"
        )

    def __reduce__(self) -> tuple[type[DivergedError], tuple[int, float]]:
        return DivergedError, (self.step, self.learning_rate)  # so that it can leave a process


@dataclass(frozen=True, eq=False)
class History(Tabular):
    """The weights at the steps asked for; NaN from where they exploded.

    Attributes
    ----------
    steps : int64 (n,)
    coef, average_coef : float64 (n, n_features)
    """

    steps: NDArray[np.int64]
    coef: Floats
    average_coef: Floats

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: a row for each step and feature."""
        n_steps, n_features = self.coef.shape
        return {
            "step": np.repeat(self.steps, n_features),
            "feature": np.tile(np.arange(n_features), n_steps),
            "coef": self.coef.ravel(),
            "average_coef": self.average_coef.ravel(),
        }


@dataclass(frozen=True, eq=False)
class TrainingResult(Tabular):
    """What training gives.

    Attributes
    ----------
    coef : float64 (n_features,)
        w, the weights after the last step; NaN if they exploded.
    average_coef : float64 (n_features,)
        w̄, the mean of the weights over all steps, the algorithms' answer; NaN if they exploded.
    n_steps : int
        The steps taken.
    diverged_at : int or None
        The step at which the weights exploded; None for a sound run.
    history : History
    learning_rate : float
    options : TrainingOptions
        With its own `start`. Weights are of the features as `scale` has them.
    seed : int or None
        What the random numbers came from, where it was a number.
    fingerprint : str or None
        That of the data, as the log has it.
    """

    coef: Floats
    average_coef: Floats
    n_steps: int
    diverged_at: int | None
    history: History
    learning_rate: float
    options: TrainingOptions
    seed: int | None
    fingerprint: str | None

    @property
    def weights(self) -> Floats:
        """w̄, or w where it was trained with ``average=False``."""
        return self.average_coef if self.options.average else self.coef

    @property
    def weights_at(self) -> Floats:
        """The same at the steps of the history, (n, n_features)."""
        return self.history.average_coef if self.options.average else self.history.coef

    @property
    def settings(self) -> dict[str, Any]:
        """All that it was trained with, as plain values, with the version of this package."""
        return self.options.to_dict() | {
            "learning_rate": self.learning_rate,
            "seed": self.seed,
            "dataset": self.fingerprint,
            "version": __version__,
        }

    def predict(self, features: ArrayLike) -> Floats:
        """Return the score w̄·(x·scale) of each row, (n_rows,), so that it can be evaluated."""
        scale = 1.0 if self.options.scale is None else np.asarray(self.options.scale, np.float64)
        return np.asarray(features, np.float64) @ (self.weights * scale)

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: a row for each feature."""
        features = np.arange(len(self.coef))
        return {"feature": features, "coef": self.coef, "average_coef": self.average_coef}
