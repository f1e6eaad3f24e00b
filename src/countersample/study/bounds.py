"""Measured suboptimality beside the bounds of Theorems 1 and 3, with w* computed exactly.

    E[R(w̄_T) − R(w*)] ≤ B·m·G / √T      with steps of size η = B / (m·G·√T)

m is M for IPS-SGD and M̄ for CounterSample; B = ‖w*‖; G is the longest gradient that an example can
have. The problem is a small part of a log, so that a linear programme finds w*.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample.errors import DataError
from countersample.plans import Examples, make_plan
from countersample.study.claims import Findings, State, states_of, verdicts_of
from countersample.study.grids import COMPARED
from countersample.study.jobs import Job, WorkList
from countersample.study.statistics import INTERVAL, paired_test
from countersample.study.tables import Entry, Group, Row, Table, column_title, show_number
from countersample.theory import gradient_bounds, step_size, suboptimality_bound
from countersample.training import train_many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.study.report import Done, Section
    from countersample.study.sources import Study
    from countersample.study.store import Store

TESTS = ("bounded", "lower-bound", "nearer")  # of its claims
STEPS = (100, 1_000, 10_000, 100_000)
N_QUERIES = 40  # of the part of a log that is solved
N_FEATURES = 10
_IPS, _SAMPLED = (method.name for method in COMPARED)
_NO_MARGIN = 0.0  # any difference counts


def plan(study: Study, work: WorkList) -> None:
    """Plan a measurement on the first fold of each dataset."""
    for source in study.sources:
        log = work.clicks(source.folds[0], study.config, 0)
        config = {"steps": list(STEPS), "seeds": study.config.seeds}
        job = Job("bounds", f"bounds on {source.name}", config, measure, (log,))
        work.keep((study.name, source.name), job)


def write_up(study: Study, done: Done) -> Section:
    """Write the table and the verdicts."""
    results = {}
    for source in study.sources:
        (values,) = done.read(study.name, source.name)
        results[source.name] = Bounds(**values)
    verdicts = [
        verdict
        for name, result in results.items()
        for verdict in verdicts_of(study.grid, name, bounds_findings(result))
    ]
    return done.section(study, [bounds_table(results)], verdicts=tuple(verdicts))


# -- measuring -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bounds:
    """Measured suboptimality and the bounds, by method: plain values, as they are stored."""

    steps: Sequence[int]  # T
    excess: Mapping[str, Sequence[Sequence[float]]]  # (n_steps, n_seeds): R(w̄_T) − R(w*) per run
    bound: Mapping[str, Sequence[float]]  # (n_steps,): B·m·G / √T
    max_multiplier: Mapping[str, float]  # m: M for IPS-SGD, M̄ for CounterSample
    radius: float  # B
    gradient_bound: float  # G
    best: float  # R(w*)
    start: float  # R(0), where both methods begin
    n_queries: int  # the size of the problem
    n_features: int
    n_clicks: int


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
    pairs = log.merge()
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

    It has one constraint per feature, the primal one per hinge; w* is the price of these
    constraints. That R(w*) is the dual's optimum proves both right, and is checked.

    Raises
    ------
    DataError
        If the solver finds no solution.
    """
    from scipy.optimize import linprog  # noqa: PLC0415 (slow to import)

    solution = linprog(
        -np.ones(len(problem.cost)),
        A_eq=problem.differences.T,
        b_eq=np.zeros(problem.differences.shape[1]),
        bounds=np.column_stack([np.zeros_like(problem.cost), problem.cost]),
    )
    if solution.status == 0:
        best: Floats = -solution.eqlin.marginals
        least = problem.constant - solution.fun
        if np.isclose(problem.risk(best), least, rtol=1e-6, atol=0):
            return best
    raise DataError(f"the best weights of this log cannot be found ({solution.message})")


def small_problem(
    dataset: RankingDataset, log: ClickLog, n_queries: int = N_QUERIES, n_features: int = N_FEATURES
) -> tuple[RankingDataset, ClickLog]:
    """Return the first queries with clicks, the features that vary most in them, and their clicks.

    A feature varies by its variance within queries: what a query's items share ranks nothing.
    """
    queries = np.unique(log.query)[:n_queries]
    part = dataset.subset(queries)
    features = part.features.astype(np.float64)
    means = np.add.reduceat(features, part.offsets[:-1]) / part.query_sizes[:, np.newaxis]
    variance = ((features - np.repeat(means, part.query_sizes, axis=0)) ** 2).sum(axis=0)
    columns = np.sort(np.argsort(-variance, kind="stable")[:n_features])
    part = part.with_features(np.ascontiguousarray(part.features[:, columns]))
    clicks = log.of_queries(queries)
    query = np.searchsorted(queries, clicks.query)
    return part, clicks.replace(query=query, fingerprint=part.fingerprint)


def measure_bounds(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    steps: Sequence[int] = STEPS,
    seeds: Sequence[int] = range(10),
) -> Bounds:
    """Measure R(w̄_T) − R(w*) of both methods at the theorems' step sizes, on a part of a log.

    Features are normalised. Each T of `steps` has its own step size, and one run per seed.
    """
    part, clicks = small_problem(dataset, log)
    problem = hinges(part, clicks)
    optimum = minimiser(problem)
    least = problem.risk(optimum)
    examples = Examples.of(clicks, "click")
    radius = float(np.linalg.norm(optimum))
    longest = float(gradient_bounds(part, examples).max())
    multipliers, bound = {}, {}
    excess: dict[str, list[list[float]]] = {}
    for method in COMPARED:
        largest = make_plan(method.plan, examples).max_multiplier
        size = {"max_multiplier": largest, "gradient_bound": longest, "radius": radius}
        multipliers[method.name] = largest
        bound[method.name] = [suboptimality_bound(**size, steps=n_steps) for n_steps in steps]
        excess[method.name] = []
        for n_steps in steps:
            runs = train_many(
                part, clicks, methods=[method.plan], steps=n_steps, seeds=seeds, workers=1,
                learning_rates=[step_size(**size, steps=n_steps)],
            )  # fmt: skip
            excess[method.name].append([problem.risk(run.average_coef) - least for run in runs])
    return Bounds(
        tuple(steps), excess, bound, multipliers, radius, longest,
        least, problem.risk(np.zeros_like(optimum)),
        part.n_queries, part.n_features, round(clicks.n_clicks),
    )  # fmt: skip


def measure(store: Store, job: Job, _: Progress) -> dict[str, Any]:
    """Measure the bounds on a click log: a job of a study."""
    (log,) = job.needs
    steps, seeds = job.config["steps"], range(job.config["seeds"])
    train_set, _vali, _test = store.data_of(log)
    return asdict(measure_bounds(train_set, store.clicks(log), steps=steps, seeds=seeds))


# -- table and verdicts --------------------------------------------------------------------------


def bounds_table(results: Mapping[str, Bounds]) -> Table:
    """Return a table of measured suboptimality and bounds: a group per dataset, a column per T."""
    (steps,) = {tuple(result.steps) for result in results.values()}
    groups, notes = [], [f"±: half the width of the {INTERVAL} of the mean over runs."]
    for dataset, result in results.items():
        rows = []
        for name in (_IPS, _SAMPLED):
            excess, bound = np.array(result.excess[name]), np.array(result.bound[name])
            ratios = bound / excess.mean(axis=1)
            rows += [
                Row(f"{name}, measured", tuple(Entry.of_sample(runs, None) for runs in excess)),
                Row(f"{name}, bound", tuple(Entry(float(b), None) for b in bound)),
                Row("bound / measured", tuple(Entry(float(r), 1) for r in ratios)),
            ]
        groups.append(Group(dataset, tuple(rows)))
        largest, mean = (result.max_multiplier[name] for name in (_IPS, _SAMPLED))
        notes.append(
            f"{dataset}: {result.n_clicks:,} clicks on {result.n_queries} queries with "
            f"{result.n_features} features; M = {show_number(largest)}, "
            f"M̄ = {show_number(mean)}, B = {show_number(result.radius)}, "
            f"G = {show_number(result.gradient_bound)}; R(0) − R(w*) = "
            f"{show_number(result.start - result.best)}."
        )
    title = "Theorems 1 and 3: R(w̄_T) − R(w*), measured and bounded by B·m·G/√T"
    columns = tuple(map(column_title, steps))
    return Table("bounds", title, "Steps T", columns, tuple(groups), tuple(notes))


def bounds_findings(result: Bounds) -> Findings:
    """Compare the theorems with the measurements, by the names of `TESTS`.

    Each step count is a setting.
    """
    excess = {name: np.array(runs) for name, runs in result.excess.items()}
    bound = {name: np.array(numbers) for name, numbers in result.bound.items()}

    def compare(first: Floats, second: Floats) -> list[State]:
        """Return whether the first are below the second, paired by seed, per step count."""
        seeds = [("", seed) for seed in range(first.shape[1])]
        tests = [paired_test(a, b, seeds) for a, b in zip(first, second, strict=True)]
        return states_of(tests, "lower", _NO_MARGIN)

    runs, bounds = np.vstack([*excess.values()]), np.concatenate([*bound.values()])
    below = compare(runs, np.broadcast_to(bounds[:, np.newaxis], runs.shape))
    slack = {name: bound[name] / runs.mean(axis=1) for name, runs in excess.items()}
    times = "; ".join(
        f"{name}'s bound is {show_number(float(s.min()))} to {show_number(float(s.max()))} times "
        "the measurement"
        for name, s in slack.items()
    )
    largest, mean = (result.max_multiplier[name] for name in (_IPS, _SAMPLED))
    ratio = largest / mean
    ours, other = (float(excess[name][-1].mean()) for name in (_SAMPLED, _IPS))
    lower = (
        f"M/M̄ = {show_number(largest)}/{show_number(mean)} = {show_number(ratio)}, so by the "
        f"theorems it needs {show_number(ratio**2)} times fewer steps."
    )
    nearer = (
        f"After {column_title(result.steps[-1])} steps {show_number(ours)} against "
        f"{show_number(other)}, {show_number(other / ours)} times nearer."
    )
    return {
        "bounded": (below, f"{times}."),
        "lower-bound": ([State.HOLDS if ratio > 1 else State.ABSENT], lower),
        "nearer": (compare(excess[_SAMPLED], excess[_IPS]), nearer),
    }
