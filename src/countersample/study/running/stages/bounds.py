"""Suboptimality where w* is known exactly, and what Theorems 1 and 3 promise for it.

    E[R(w̄_T) − R(w*)] ≤ B·m·G / √T      with steps of size η = B / (m·G·√T)

m is M for IPS-SGD and M̄ for CounterSample. The problem is a small part of a log, so that a linear
programme finds w*; B = ‖w*‖, and G is the longest gradient that an example can have.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample.clicks import ClickLog
from countersample.errors import DataError
from countersample.plans import Examples, make_plan
from countersample.theory import gradient_bounds, step_size, suboptimality_bound
from countersample.training import train_many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.data import RankingDataset
    from countersample.study.running.jobs import Job
    from countersample.study.running.workbench import Workbench

STEPS = (100, 1_000, 10_000, 100_000)
QUERIES = 40
FEATURES = 10
METHODS = MappingProxyType({"IPS-SGD": "ips", "CounterSample": "countersample"})  # their plans


@dataclass(frozen=True, eq=False)
class Bounds:
    """What was measured, and the bounds, by method."""

    steps: tuple[int, ...]  # T
    excess: Mapping[str, Floats]  # (n_steps, n_seeds): R(w̄_T) − R(w*) of each run
    bound: Mapping[str, Floats]  # (n_steps,): B·m·G / √T
    max_multiplier: Mapping[str, float]  # m: M for IPS-SGD, M̄ for CounterSample
    radius: float  # B
    gradient_bound: float  # G
    best: float  # R(w*)
    start: float  # R(0), where both methods begin
    n_queries: int  # the size of the problem
    n_features: int
    n_clicks: int

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; `from_dict` takes them back."""
        arrays = {
            name: {method: array.tolist() for method, array in getattr(self, name).items()}
            for name in ("excess", "bound")
        }
        return {**vars(self), **arrays}

    @classmethod
    def from_dict(cls, known: Mapping[str, Any]) -> Bounds:
        """Return what `to_dict` has made plain."""
        arrays = {
            name: {method: np.array(values) for method, values in known[name].items()}
            for name in ("excess", "bound")
        }
        return cls(**{**known, **arrays, "steps": tuple(known["steps"])})


class Hinges(NamedTuple):
    """The risk of a log as a sum of hinges: R(w) = M̄ + Σ_h cost_h · max(0, 1 − difference_h·w)."""

    # (n_hinges, n_features): x_d − x_d' for every clicked item d and other item d' of its query.
    differences: Floats
    cost: Floats  # (n_hinges,): the weight of the clicks on d, divided by the number of clicks
    constant: float  # M̄, as the rank of an item starts at 1

    def risk(self, w: Floats) -> float:
        """R(w), with λ(x) = x."""
        violation = np.maximum(0.0, 1 - self.differences @ w)
        return self.constant + float(self.cost @ violation)


def hinges(dataset: RankingDataset, log: ClickLog) -> Hinges:
    """Return the hinges of all clicks of a log; clicks on the same item of a query are one."""
    pairs = log.merge("pair")
    differences, cost = [], []
    for query, item, weight in zip(pairs.query, pairs.item, pairs.weights, strict=True):
        rows = slice(dataset.offsets[query], dataset.offsets[query + 1])
        features = dataset.features[rows].astype(np.float64)
        differences.append(features[item] - np.delete(features, item, axis=0))
        cost.append(np.full(len(features) - 1, weight / log.n_clicks))
    return Hinges(np.vstack(differences), np.concatenate(cost), log.mean_weight)


def minimiser(problem: Hinges) -> Floats:
    """Return w* = argmin R(w), exactly, by the dual linear programme.

        max Σ_h α_h   such that   Σ_h α_h·difference_h = 0,  0 ≤ α_h ≤ cost_h

    It has a constraint a feature where the primal has one a hinge; w* is the price of these
    constraints. That R(w*) is the dual's optimum proves both right, and is checked.

    Raises
    ------
    DataError
        Where the solver finds no solution.
    """
    from scipy.optimize import linprog  # noqa: PLC0415 (slow to import)

    solved = linprog(
        -np.ones(len(problem.cost)),
        A_eq=problem.differences.T,
        b_eq=np.zeros(problem.differences.shape[1]),
        bounds=np.column_stack([np.zeros_like(problem.cost), problem.cost]),
    )
    if solved.status == 0:
        best: Floats = -solved.eqlin.marginals
        least = problem.constant - solved.fun
        if np.isclose(problem.risk(best), least, rtol=1e-6, atol=0):
            return best
    raise DataError(f"the best weights of this log cannot be found ({solved.message})")


def small_problem(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    n_queries: int = QUERIES,
    n_features: int = FEATURES,
) -> tuple[RankingDataset, ClickLog]:
    """Return the first queries with clicks, the features that vary most in them, and their clicks.

    A feature varies by its variance within queries: what a query's items share ranks nothing.
    """
    queries = np.unique(log.query)[:n_queries]
    part = dataset.subset(queries)
    features = part.features.astype(np.float64)
    means = np.add.reduceat(features, part.offsets[:-1]) / part.query_sizes[:, np.newaxis]
    variance = ((features - np.repeat(means, part.query_sizes, axis=0)) ** 2).sum(axis=0)
    kept = np.sort(np.argsort(-variance, kind="stable")[:n_features])
    part = part.with_features(np.ascontiguousarray(part.features[:, kept]))
    rows = np.isin(log.query, queries)
    count = None if log.count is None else log.count[rows]
    return part, ClickLog(
        np.searchsorted(queries, log.query[rows]), log.item[rows], log.propensity[rows], count,
        fingerprint=part.fingerprint,
    )  # fmt: skip


def measure_bounds(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    steps: Sequence[int] = STEPS,
    seeds: Sequence[int] = range(10),
) -> Bounds:
    """Train both methods as the theorems ask, on a small part of a log, and measure R(w̄_T) − R(w*).

    Features are normalised. Each T of `steps` has a step size of its own, and a run a seed.
    """
    part, clicks = small_problem(dataset, log)
    problem = hinges(part, clicks)
    best = minimiser(problem)
    examples = Examples.of(clicks, "click")
    radius = float(np.linalg.norm(best))
    longest = float(gradient_bounds(part, examples).max())
    largest, bound, excess = {}, {}, {}
    for name, plan_name in METHODS.items():
        plan = make_plan(plan_name, examples)
        largest[name] = plan.max_multiplier
        known = {"max_multiplier": plan.max_multiplier, "gradient_bound": longest, "radius": radius}
        promised, measured = [], []
        for n_steps in steps:
            promised.append(suboptimality_bound(**known, steps=n_steps))
            runs = train_many(
                part, clicks, methods=[plan_name], steps=n_steps, seeds=seeds, workers=1,
                learning_rates=[step_size(**known, steps=n_steps)],
            )  # fmt: skip
            measured.append([problem.risk(run.average_coef) - problem.risk(best) for run in runs])
        bound[name], excess[name] = np.array(promised), np.array(measured)
    return Bounds(
        tuple(steps), excess, bound, largest, radius, longest,
        problem.risk(best), problem.risk(np.zeros_like(best)),
        part.n_queries, part.n_features, round(clicks.n_clicks),
    )  # fmt: skip


def measure(bench: Workbench, job: Job, _: Progress) -> dict[str, Any]:
    """Measure the bounds on a click log: a job."""
    (log,) = job.needs
    steps, seeds = job.config["steps"], range(job.config["seeds"])
    train_set, _vali, _test = bench.data_of(log)
    return measure_bounds(train_set, bench.clicks(log), steps=steps, seeds=seeds).to_dict()
