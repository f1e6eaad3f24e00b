"""The risk of weights on a click log, and how much the examples vary that it is the mean of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.objectives import get_objective
from countersample.training.options import TrainingOptions
from countersample.training.runs import Setup, as_read
from countersample.training.variance import Spread

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset


@dataclass(frozen=True)
class Risk:
    """R(w) over the examples of a log, and how much they vary.

    Attributes
    ----------
    mean : float
        R(w) = ū.
    deviation : float
        √S, the standard deviation of the n values u_i.
    n : int
    """

    mean: float
    deviation: float
    n: int

    @property
    def standard_error(self) -> float:
        """√(S/n)."""
        return float(self.deviation / np.sqrt(self.n))

    def regularised(self, variance: float) -> float:
        """J = ū + variance · √(S/n), what is minimised with ``variance=``."""
        return self.mean + variance * self.standard_error


def risk(
    dataset: RankingDataset,
    log: ClickLog,
    weights: ArrayLike,
    *,
    options: TrainingOptions | None = None,
    **settings: Any,  # noqa: ANN401 (the fields of TrainingOptions)
) -> Risk:
    """R(w) = (1/n) Σ u_i with u_i = (n/N)·v_i·f_i(w), and the standard deviation of u.

    Parameters
    ----------
    dataset, log
        As for `train`.
    weights : array-like (n_features,)
        As `train` gives them: with `scale`, those of the scaled features.
    options, **settings
        As for `train`; method, unit, objective, clip, temper and scale matter.

    Examples
    --------
    Lists of two and three items whose scores are equal have f of 2 and 3; weights are 1 and 2.

    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.training import risk
    >>> features = [[1], [0], [1], [0], [0]]
    >>> data = RankingDataset.from_arrays(X=features, y=[0] * 5, qid=[1, 1, 2, 2, 2])
    >>> found = risk(data, ClickLog([0, 1], [0, 0], [1, 0.5]), [0.0])
    >>> found.mean, round(found.deviation, 3)  # of 1·2 and 2·3
    (4.0, 2.828)
    """
    no_steps = {"steps": 1, "epochs": None, "checkpoints": 0}
    chosen = TrainingOptions.of(options, settings | no_steps | {"start": weights})
    (setup,) = Setup.of(dataset, log, chosen)
    spread = setup.spread or Spread.of(setup.examples, setup.plan)
    width = dataset.n_features
    features, factors = as_read(dataset, chosen.scale_of(width))
    w = chosen.start_of(width)[None]
    code = get_objective(chosen.objective).code
    ((mean, square),) = spread.moments(features, dataset.offsets, factors, w, code)
    return Risk(float(mean), float(np.sqrt(square)), len(setup.examples))
