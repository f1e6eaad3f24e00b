"""Learning rates: which is chosen, and for full supervision a grid that is open at both ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample.plans import Examples
from countersample.theory import gradient_bounds, step_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countersample._arrays import Bools, Floats
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.training import TrainingOptions

SAMPLED = 200  # queries in which the longest gradient is looked for
PER_DECADE = 2
FIRST = range(-2, 6)  # as many as training serves with one pass over memory
EQUAL = 1e-4  # of a metric: what tables do not show


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


class Chosen(NamedTuple):
    """Which of several rates is taken, and those beside it that are alike: by index."""

    rate: int
    first: int
    last: int


def choose(values: Floats, usable: Bools) -> Chosen:
    """Choose a rate by the values of each query, (n_rates, n_queries).

    The best is that of the highest mean. Those beside it are *equal* where their mean is as high
    but for 0.0001, and of equal ones the middle is taken: at rates so small that only the length of
    the weights differs, the rankings are the same. They are *alike* where the mean of the
    differences by query is within its standard error.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.array([[0.1, 0.3], [0.5, 0.7], [0.5, 0.7], [0.5, 0.7], [0.5, 0.6]])
    >>> choose(values, np.ones(5, bool))
    Chosen(rate=2, first=1, last=3)
    """
    means = np.where(usable, values.mean(axis=1), -np.inf)
    best = int(means.argmax())
    behind = values[best] - values
    errors = behind.std(axis=1) / np.sqrt(behind.shape[1])
    first, last = _around(best, usable & (means >= means[best] - EQUAL))
    alike = usable & (behind.mean(axis=1) <= np.maximum(errors, EQUAL))
    return Chosen((first + last) // 2, *_around(best, alike))


def _around(index: int, holds: Bools) -> tuple[int, int]:
    """Return the first and the last of those that hold without a gap around one that does."""
    gaps = np.flatnonzero(~holds)
    before, after = gaps[gaps < index], gaps[gaps > index]
    first = int(before[-1]) + 1 if len(before) else 0
    return first, int(after[0]) - 1 if len(after) else len(holds) - 1
