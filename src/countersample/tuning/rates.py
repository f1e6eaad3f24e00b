"""Which learning rates are tried: a grid around what theory says, open at both ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from countersample.errors import ParameterError
from countersample.plans import Examples
from countersample.theory import gradient_bounds, step_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.training import TrainingOptions

SAMPLED = 200  # queries in which the longest gradient is looked for
PER_DECADE = 2
FIRST = range(-2, 6)  # as many as training serves with one pass over memory


@dataclass(frozen=True)
class RateGrid:
    """The learning rates of one clip: η₀·10^(k/2) for any k, or those given."""

    clip: float | None
    centre: float = 1.0  # η₀
    given: tuple[float, ...] = ()  # the rates that k counts, where they were given

    @property
    def first(self) -> range:
        """The k to begin with."""
        return range(len(self.given)) if self.given else FIRST

    def rate(self, k: int) -> float:
        """Return a learning rate of the grid."""
        return self.given[k] if self.given else float(self.centre * 10 ** (k / PER_DECADE))

    def more(self, values: Mapping[int, float]) -> range:
        """Return the k to try next, by the values so far: none, where the best is well within."""
        best = max(values, key=lambda k: (values[k], -abs(k)))  # of equals, nearest to theory
        if self.given:
            return range(0)
        if values[best] == -np.inf or best == min(values):
            return range(min(values) - len(FIRST), min(values))
        if best == max(values):
            return range(best + 1, best + 1 + len(FIRST))
        return range(0)


def make_grid(
    dataset: RankingDataset,
    log: ClickLog,
    learning_rates: Sequence[float] | None,
    options: TrainingOptions,
    seed: int,
) -> RateGrid:
    """Return the grid of the clip that the options have; the arguments of `tune`."""
    clip = options.clip
    if learning_rates is None:
        clipped = log if clip is None else log.clip(clip)
        return RateGrid(clip, theoretical_rate(dataset, clipped, options, seed))
    if not len(learning_rates):
        raise ParameterError("learning_rates are empty, expected numbers above 0, or None")
    return RateGrid(clip, given=tuple(sorted(map(float, learning_rates))))


def theoretical_rate(
    dataset: RankingDataset, log: ClickLog, options: TrainingOptions, seed: int
) -> float:
    """η₀ = B / (m·G·√T), B being the radius or 1; an adaptive optimizer divides by m·G itself."""
    size = 1.0
    if options.optimizer == "sgd":
        plan = options.plan(Examples.of(log, options.unit))
        queries = np.random.default_rng(seed).permutation(np.unique(log.query))[:SAMPLED]
        sampled = Examples.of(log.of_queries(queries), options.unit)
        longest = gradient_bounds(dataset, sampled, objective=options.objective).max()
        size = plan.max_multiplier * float(longest) or 1.0
    reach = options.radius if np.isfinite(options.radius) else 1.0
    steps = options.n_steps(log.n_rows)
    return step_size(max_multiplier=1.0, gradient_bound=size, radius=reach, steps=steps)
