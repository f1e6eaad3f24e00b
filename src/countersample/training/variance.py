"""Variance-regularised training: the objective of POEM (Swaminathan and Joachims, 2015).

    J(w) = ū + λ·√(S/n),    u_i = (n/N)·v_i·f_i(w),    ū = R(w),    S = Σ (u_i − ū)² / (n − 1)

over the n examples of a log. √S is below its tangent at S_k, and −ū² below its own at ū_k. So, for
weights w_k and with κ = λ·√n / ((n − 1)·√S_k),

    J(w) ≤ Q_k(w) = (1/n) Σ ((1 − κ·ū_k)·u_i + κ·u_i²/2) + constant,    J(w_k) = Q_k(w_k)

and weights with a smaller Q_k than w_k have a smaller J. The gradient of Q_k is the mean of
(1 + κ·(u_i − ū_k))·∇u_i: the plan's draws and multipliers, times the factor in brackets. A step
uses u_i at its current weights, and ū_k and S_k at the start of its round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from countersample._arrays import Floats, Ints
    from countersample.plans import Examples, Plan

# √S_k is at least this share of the root mean square of u. A tangent to √S at a larger S is a bound
# as well, and κ stays small if all u are alike. In logs u vary by more than their mean.
MIN_DEVIATION = 0.1


@dataclass(frozen=True)
class Risk:
    """R(w) over the examples of a log, and how much they vary: the result of `risk`."""

    mean: float
    """R(w) = ū."""
    deviation: float
    """√S, the standard deviation of the n values u_i."""
    n: int

    @property
    def standard_error(self) -> float:
        """√(S/n)."""
        return float(self.deviation / np.sqrt(self.n))

    def regularised(self, variance: float) -> float:
        """J = ū + variance · √(S/n), the objective with ``variance=``."""
        return self.mean + variance * self.standard_error


@dataclass(frozen=True, eq=False)
class Spread:
    """The contributions u_i of the examples to the risk: the input of its mean and variance."""

    query: NDArray[np.int32]  # the clicked items, each once, by query
    item: NDArray[np.int32]
    pair: Ints  # the index among these of each clicked item of the examples
    starts: Ints
    shares: NDArray[np.float32]
    levels: NDArray[np.float32]  # n·π·m: times Σ_j share_j f_j it is u

    @classmethod
    def of(cls, examples: Examples, plan: Plan) -> Spread:
        """Return the spread of examples; those that the plan never draws count 0."""
        n = len(examples)
        if n < 2:
            raise DataError(
                f"the log has {n} example, expected two or more: one has no variance, leave out "
                "variance"
            )
        query = examples.query
        if examples.first is not None:
            query = np.repeat(query, np.diff(examples.starts))
        order = np.lexsort((examples.item, query))
        by_query, by_item = query[order], examples.item[order]
        is_new = np.ones(len(order), bool)
        is_new[1:] = (by_query[1:] != by_query[:-1]) | (by_item[1:] != by_item[:-1])
        pair = np.empty(len(order), np.int64)
        pair[order] = np.cumsum(is_new) - 1
        levels = n * plan.probabilities * plan.multipliers
        return cls(
            by_query[is_new], by_item[is_new], pair, examples.starts,
            plan.shares.astype(np.float32), levels.astype(np.float32),
        )  # fmt: skip

    @property
    def n_queries(self) -> int:
        """The number of queries with clicks, which one pass reads."""
        return int(np.count_nonzero(np.diff(self.query))) + 1

    def moments(
        self, features: NDArray[Any], offsets: Ints, scale: Floats, w: Floats, objective: int
    ) -> Floats:
        """Return ū and S at the weights of each run, (K, n_features) → (K, 2)."""
        from countersample._kernels.training import risk_moments  # noqa: PLC0415 (imports numba)

        moments = np.empty((len(w), 2))
        risk_moments(
            features, offsets, self.query, self.item, self.pair, self.starts, self.shares,
            self.levels, scale, w, objective, moments,
        )  # fmt: skip
        return moments

    def tilts(self, moments: Floats, variance: float) -> Floats:
        """Return κ and ū of each run, (K, 2) → (K, 2); κ = 0 for a run that has exploded."""
        n = len(self.levels)
        mean, square = moments[:, 0], moments[:, 1]
        with np.errstate(invalid="ignore", over="ignore"):
            least = MIN_DEVIATION * np.sqrt(mean**2 + square)
            deviation = np.maximum(np.sqrt(square), least)
        is_sound = np.isfinite(deviation) & (deviation > 0)
        kappa = np.zeros(len(moments))
        kappa[is_sound] = variance * np.sqrt(n) / ((n - 1) * deviation[is_sound])
        return np.column_stack([kappa, np.where(is_sound, mean, 0.0)])
