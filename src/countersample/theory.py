"""The paper's theorems for a log: the error after T steps, and the steps to reach an error.

Theorems 1 and 3 are one statement. Stochastic gradient descent from w_1 = 0 with an unbiased plan,
a convex objective and the step size η gives an averaged iterate w̄ with

    E[R(w̄) − R(w*)] ≤ B·m·G / √T,      η = B / (m·G·√T),

where m = max m_i is the plan's largest multiplier (M for `ips` by click, M̄ for `countersample`),
G bounds the norm of every example's gradient, B bounds ‖w*‖ and T is the number of steps. The
theorems bound the worst case: they order the plans by it, and promise nothing about a particular
log.

Objectives with a convex λ are convex: rank, squared-rank, precision@k. The bounds on gradients hold
for all objectives with a bounded slope, so not for squared-rank.
"""

from __future__ import annotations

from math import ceil, isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np

from countersample._params import number
from countersample.data.matrices import check_no_missing
from countersample.errors import DataError, ParameterError
from countersample.objectives import get_objective

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.objectives import AnyObjective
    from countersample.plans import Examples, Plan

__all__ = [
    "gradient_bounds",
    "predicted_gain",
    "step_size",
    "steps_needed",
    "suboptimality_bound",
    "worst_case",
]


def gradient_bounds(
    dataset: RankingDataset, examples: Examples, *, objective: AnyObjective = "rank"
) -> Floats:
    """L_i = Σ_j share_j · λ'max · Σ_{d'≠d_j} ‖x_d' − x_d_j‖ ≥ ‖∇f_i(w)‖, whatever w.

    For a linear ranker, s = Xw. The sum over j is over the clicked items d_j of example i, with
    their shares in its weight. G = max L_i.

    Parameters
    ----------
    dataset : RankingDataset
    examples : Examples
        Of a log of that dataset.
    objective : str or Objective
        As for `countersample.train`; λ'max is the largest slope of its λ. An unbounded slope, such
        as with squared-rank, raises an error.

    Examples
    --------
    The clicked item is 5 away from one item and 1 from the other.

    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.plans import Examples
    >>> from countersample.theory import gradient_bounds
    >>> data = RankingDataset.from_arrays(X=[[0, 0], [3, 4], [0, 1]], y=[1, 0, 0], qid=[7, 7, 7])
    >>> log = ClickLog(query=[0], item=[0], propensity=[0.5])
    >>> gradient_bounds(data, Examples.of(log, "click"))
    array([6.])
    """
    loss = get_objective(objective)
    if not isfinite(loss.steepest):
        raise ParameterError(
            f"objective is {loss.name}, whose slope grows without end, expected one with a bounded "
            "slope, such as rank"
        )
    query = np.repeat(examples.query, np.diff(examples.starts))
    if query.max() >= dataset.n_queries or (examples.item >= dataset.query_sizes[query]).any():
        raise DataError("the examples have queries or items that are not in the dataset")
    check_no_missing(dataset)
    distances = np.zeros(dataset.n_items)
    for q in np.unique(examples.query):
        rows = slice(dataset.offsets[q], dataset.offsets[q + 1])
        distances[rows] = _summed_distances(dataset.features[rows])
    bounds = loss.steepest * distances[dataset.offsets[query] + examples.item]
    sums: Floats = np.add.reduceat(examples.weight_shares * bounds, examples.starts[:-1])
    return sums


def _summed_distances(features: NDArray[np.float32]) -> Floats:
    """Σ_d' ‖x_d' − x_d‖ for each item d of a query, by ‖a − b‖² = ‖a‖² + ‖b‖² − 2a·b."""
    # Relative to the first item, in float64: a common offset would cost digits.
    relative = features.astype(np.float64) - features[0]
    products = relative @ relative.T
    norms = np.diagonal(products)
    squares = norms[:, None] + norms - 2 * products
    summed: Floats = np.sqrt(np.maximum(squares, 0)).sum(axis=1)
    return summed


def worst_case(plan: Plan, bounds: ArrayLike) -> float:
    """Return max_i m_i·L_i over the examples that can be drawn: no sampled gradient is longer.

    At most m·G, with m = max m_i, and smallest for `bounded`, which makes m_i·L_i the same for all
    i. The theorems hold with it instead of m·G: give it as the gradient bound, with an m of 1.
    For the bounds L, (n,), see `gradient_bounds`.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.plans import Examples, bounded, countersample, ips
    >>> from countersample.theory import worst_case
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.25])
    >>> clicks = Examples.of(log, "click")
    >>> bounds = [3.0, 1.0]
    >>> for plan in (ips(clicks), countersample(clicks), bounded(clicks, bounds=bounds)):
    ...     print(plan.name, worst_case(plan, bounds))
    ips 4.0
    countersample 7.5
    bounded 3.5
    """
    lengths = plan.multipliers * np.asarray(bounds, np.float64)
    return float(lengths[plan.probabilities > 0].max())


def suboptimality_bound(
    *, max_multiplier: float, gradient_bound: float, radius: float, steps: int
) -> float:
    """Return B·m·G / √T ≥ E[R(w̄) − R(w*)] (Theorem 1 with m = M, Theorem 3 with m = M̄).

    Parameters
    ----------
    max_multiplier : float
        m, the plan's `max_multiplier`.
    gradient_bound : float
        G ≥ ‖∇f_i(w_t)‖, such as the largest of `gradient_bounds`.
    radius : float
        B ≥ ‖w*‖.
    steps : int
        T.

    Examples
    --------
    15 / √900:

    >>> from countersample.theory import suboptimality_bound
    >>> suboptimality_bound(max_multiplier=2.5, gradient_bound=6.0, radius=1.0, steps=900)
    0.5
    """
    _check_positive(
        max_multiplier=max_multiplier, gradient_bound=gradient_bound, radius=radius, steps=steps
    )
    return radius * max_multiplier * gradient_bound / sqrt(steps)


def step_size(*, max_multiplier: float, gradient_bound: float, radius: float, steps: int) -> float:
    """Return η = B / (m·G·√T), with which `suboptimality_bound` holds.

    The parameters, m, G, B and T, are as in `suboptimality_bound`.

    Examples
    --------
    >>> from countersample.theory import step_size
    >>> step_size(max_multiplier=2.5, gradient_bound=4.0, radius=1.0, steps=100)  # 1 / (10 · 10)
    0.01
    """
    _check_positive(
        max_multiplier=max_multiplier, gradient_bound=gradient_bound, radius=radius, steps=steps
    )
    return radius / (max_multiplier * gradient_bound * sqrt(steps))


def steps_needed(
    *, max_multiplier: float, gradient_bound: float, radius: float, epsilon: float
) -> int:
    """Return the smallest T with T ≥ (B·m·G / ε)², after which the bound is at most ε.

    m, G and B are as in `suboptimality_bound`.

    Examples
    --------
    >>> from countersample.theory import steps_needed
    >>> steps_needed(max_multiplier=2.5, gradient_bound=6.0, radius=1.0, epsilon=0.5)  # (15 / 0.5)²
    900
    """
    _check_positive(
        max_multiplier=max_multiplier, gradient_bound=gradient_bound, radius=radius, epsilon=epsilon
    )
    root = radius * max_multiplier * gradient_bound / epsilon
    _check_positive(steps=root * root)
    return ceil(root * root)


def predicted_gain(log: ClickLog) -> float:
    """Return (M / M̄)²: the ratio of the steps of IPS to CounterSample's, by the theorems.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.theory import predicted_gain
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.25])
    >>> round(predicted_gain(log), 6)  # (4 / 2.5)²
    2.56
    """
    return (log.max_weight / log.mean_weight) ** 2


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        number(name, value, above=0)
