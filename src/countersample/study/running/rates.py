"""Learning rates for full supervision: a grid around what theory says, open at both ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from countersample.plans import Examples
from countersample.theory import gradient_bounds, step_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.training import TrainingOptions

SAMPLED = 200  # queries in which the longest gradient is looked for
PER_DECADE = 2
FIRST = range(-2, 6)  # as many as training serves with one pass over memory


@dataclass(frozen=True)
class RateGrid:
    """The learning rates η₀·10^(k/2) for any k."""

    centre: float  # η₀

    def rate(self, k: int) -> float:
        """Return a learning rate of the grid."""
        return float(self.centre * 10 ** (k / PER_DECADE))

    def more(self, values: Mapping[int, float]) -> range:
        """Return the k to try next, by the values so far: none, where the best is well within."""
        best = max(values, key=lambda k: (values[k], -abs(k)))  # of equals, nearest to theory
        if values[best] == -np.inf or best == min(values):
            return range(min(values) - len(FIRST), min(values))
        if best == max(values):
            return range(best + 1, best + 1 + len(FIRST))
        return range(0)


def theoretical_rate(
    dataset: RankingDataset, log: ClickLog, options: TrainingOptions, seed: int
) -> float:
    """η₀ = 1 / (m·G·√T), for SGD."""
    plan = options.plan(Examples.of(log, options.unit))
    queries = np.random.default_rng(seed).permutation(np.unique(log.query))[:SAMPLED]
    sampled = Examples.of(log.of_queries(queries), options.unit)
    longest = float(gradient_bounds(dataset, sampled, objective=options.objective).max())
    return step_size(
        max_multiplier=1.0, gradient_bound=plan.max_multiplier * longest or 1.0, radius=1.0,
        steps=options.n_steps(log.n_rows),
    )  # fmt: skip
