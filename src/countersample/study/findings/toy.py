"""The paper's two-weight example (its section 5.5): regression with inverse propensity weights.

    R(w) = (1/50) Σ (1/p_i)·(x_i·w − y_i)²,   y_i = x_i·w*,   w* = (0.973, 1.144)

Targets have no noise, so w* is the optimum of every example and a method either reaches it or
diverges. IPS-SGD and CounterSample go 50 steps from w = 0, at the same learning rates. The paper's
figure shows the iterates w_t; what its algorithms return is their average w̄.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks import ClickLog
from countersample.plans import Examples, make_plan
from countersample.study.design.grids import COMPARED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Bools, Floats
    from countersample.plans import Plan

OPTIMUM = (0.973, 1.144)
SAMPLES = 50
STEPS = 50
RATES = (0.003, 0.01, 0.03, 0.06, 0.1, 0.2)
PAGE_RATE = 0.03  # that the page begins with
_CHOICE = 101  # sets of draws that the first on the page is chosen from
START = float(np.linalg.norm(OPTIMUM))  # ‖w*‖: both begin at w = 0


@dataclass(frozen=True, eq=False)
class Toy:
    """The data of the example."""

    features: Floats  # (50, 2)
    targets: Floats  # (50,)
    propensity: Floats  # (50,)
    optimum: Floats  # (2,)

    def plan(self, name: str) -> Plan:
        """Return how the plan of a name draws and scales the samples."""
        samples = np.arange(len(self.targets))
        log = ClickLog(samples, np.zeros_like(samples), self.propensity)
        return make_plan(name, Examples.of(log, "click"))

    def draw(
        self, name: str, shape: tuple[int, ...], rng: np.random.Generator
    ) -> tuple[Floats, Floats, Floats]:
        """Draw samples by a plan: features (*shape, 2), targets and multipliers."""
        plan = self.plan(name)
        i = plan.draw(math.prod(shape), rng).reshape(shape)
        return self.features[i], self.targets[i], plan.multipliers[i]

    def risk(self, w: Floats) -> Floats:
        """R(w) = (1/n) Σ (1/p_i)·(x_i·w − y_i)², (…, 2) → (…)."""
        residuals = w @ self.features.T - self.targets
        risk: Floats = (residuals**2 / self.propensity).mean(axis=-1)
        return risk


def make_toy(rng: np.random.Generator) -> Toy:
    """Draw the data as the paper says: x ~ N(0, 1), p ~ U(0.05, 1), y = x·w*.

    Examples
    --------
    >>> toy = make_toy(np.random.default_rng(0))
    >>> toy.features.shape, float(toy.risk(toy.optimum))
    ((50, 2), 0.0)
    """
    features = rng.standard_normal((SAMPLES, 2))
    propensity = rng.uniform(0.05, 1.0, SAMPLES)
    optimum = np.array(OPTIMUM)
    return Toy(features, features @ optimum, propensity, optimum)


def descend(
    features: Floats, targets: Floats, multipliers: Floats, learning_rate: float | Floats
) -> Floats:
    """w_{t+1} = w_t − η·m_t·2(x_t·w_t − y_t)·x_t from w_1 = 0, for the samples drawn.

    Parameters
    ----------
    features : float64 (…, steps, 2)
    targets, multipliers : float64 (…, steps)
    learning_rate : float, or float64 of a shape that broadcasts with (…)

    Returns
    -------
    float64 (…, steps + 1, 2)
        Infinite or not a number where the weights explode that far.

    Examples
    --------
    One step with x = (1, 0), y = 1, m = 2 and η = 0.1: w = 0.1 · 2 · 2 · 1.

    >>> descend(np.array([[1.0, 0.0]]), np.array([1.0]), np.array([2.0]), 0.1)
    array([[0. , 0. ],
           [0.4, 0. ]])
    """
    shape = np.broadcast_shapes(targets.shape[:-1], np.shape(learning_rate))
    path = np.zeros((*shape, targets.shape[-1] + 1, 2))
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(targets.shape[-1]):
            x, w = features[..., t, :], path[..., t, :]
            error = (x * w).sum(axis=-1) - targets[..., t]
            scale = learning_rate * multipliers[..., t] * 2 * error
            path[..., t + 1, :] = w - scale[..., np.newaxis] * x
    return path


def trajectories(
    toy: Toy, learning_rate: float, shape: tuple[int, int], rng: np.random.Generator
) -> dict[str, Floats]:
    """Return the paths of (n_runs, steps) by method, (n_runs, steps + 1, 2)."""
    return {
        method.name: descend(*toy.draw(method.plan, shape, rng), learning_rate)
        for method in COMPARED
    }


def average(paths: Floats) -> Floats:
    """w̄ = (1/T) Σ_{t=1}^{T} w_t, the mean of the iterates before each step, (…, T + 1, 2) → (…, 2).

    Examples
    --------
    Two steps, from 0 to 1 to 5: both began at 0 and at 1.

    >>> average(np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]]))
    array([0.5, 0.5])
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean: Floats = paths[..., :-1, :].mean(axis=-2)
    return mean


def away(w: Floats) -> Floats:
    """‖w − w*‖, (…, 2) → (…); infinite where the weights exploded."""
    with np.errstate(over="ignore", invalid="ignore"):
        distance: Floats = np.nan_to_num(np.linalg.norm(w - OPTIMUM, axis=-1), nan=np.inf)
    return distance


def toy_for_page(toy: Toy, rng: np.random.Generator, n_sets: int = 5) -> dict[str, Any]:
    """Return plain lists from which a page can compute the paths at any learning rate.

    The first set of draws, which the page shows first, is a common one: of a hundred and one it has
    the median ratio of both methods' distances to the optimum, at the learning rate the page begins
    with.

    Returns
    -------
    dict
        ``x``, ``y``, ``p``, ``optimum``, ``mean_weight`` (M̄), ``rate`` to begin with, and
        ``draws``: for each set the samples that each plan draws, ``{"ips": [50 indices],
        "countersample": [50 indices]}``.
    """
    plans = {method.plan: toy.plan(method.plan) for method in COMPARED}
    sets = [{name: plan.draw(STEPS, rng) for name, plan in plans.items()} for _ in range(_CHOICE)]
    ends = {
        name: away(
            descend(toy.features[i], toy.targets[i], plan.multipliers[i], PAGE_RATE)[..., -1, :]
        )
        for name, plan in plans.items()
        for i in [np.array([drawn[name] for drawn in sets])]
    }
    ips, sampled = (np.log(ends[method.plan]) for method in COMPARED)
    common = int(np.argsort(ips - sampled)[_CHOICE // 2])
    shown = [sets[common], *(drawn for k, drawn in enumerate(sets) if k != common)][:n_sets]
    return {
        "x": toy.features.tolist(),
        "y": toy.targets.tolist(),
        "p": toy.propensity.tolist(),
        "optimum": toy.optimum.tolist(),
        "mean_weight": float((1 / toy.propensity).mean()),
        "rate": PAGE_RATE,
        "draws": [{name: i.tolist() for name, i in drawn.items()} for drawn in shown],
    }


# -- over many draws -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ToyResult:
    """How far from the optimum both methods end, over draws of the data and of the samples."""

    rates: tuple[float, ...]  # the learning rates
    # ‖w − w*‖ by method, (n_rates, n_draws): after the last step, of the average w̄, and the largest
    # on the way; infinite where the weights exploded.
    distances: dict[str, Floats]
    averages: dict[str, Floats]
    farthest: dict[str, Floats]

    def strayed(self, method: str) -> Bools:
        """Which runs were farther from the optimum than at the start at some step."""
        return self.farthest[method] > START

    def diverged(self, method: str) -> Bools:
        """Which runs ended farther from the optimum than they began, (n_rates, n_draws)."""
        return self.distances[method] > START


def run_toy(*, seed: int = 0, n_draws: int = 1000, rates: Sequence[float] = RATES) -> ToyResult:
    """Run both methods at every learning rate on many draws of the example.

    A draw's data and samples are the same at every learning rate.
    """
    rng = np.random.default_rng(seed)
    by_rate = np.array(rates)[:, np.newaxis]
    drawn: dict[str, list[tuple[Floats, Floats, Floats]]] = {m.name: [] for m in COMPARED}
    for _ in range(n_draws):
        toy = make_toy(rng)
        for method in COMPARED:
            drawn[method.name].append(toy.draw(method.plan, (STEPS,), rng))
    distances, averages, farthest = {}, {}, {}
    for name, runs in drawn.items():
        features, targets, multipliers = (np.array(column) for column in zip(*runs, strict=True))
        paths = descend(features, targets, multipliers, by_rate)
        on_the_way = away(paths)
        distances[name], farthest[name] = on_the_way[..., -1], on_the_way.max(axis=-1)
        averages[name] = away(average(paths))
    return ToyResult(tuple(rates), distances, averages, farthest)
