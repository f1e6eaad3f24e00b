"""The paper's two-weight example (its section 5.5): regression with inverse propensity weights.

    R(w) = (1/50) Σ (1/p_i)·(x_i·w − y_i)²,   y_i = x_i·w*,   w* = (0.973, 1.144)

Targets have no noise, so w* is the optimum of every example and a method either reaches it or
diverges. IPS-SGD and CounterSample go 50 steps from w = 0, at the same learning rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks import ClickLog
from countersample.plans import Examples, make_plan
from countersample.study.design.grids import METHODS
from countersample.study.findings.claims import Verdict
from countersample.study.findings.statistics import SIGNIFICANT, holm
from countersample.study.findings.tables import Entry, Group, Row, Table, column_title, show_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from countersample.plans import Plan
    from countersample.study.findings.claims import Outcome, Source

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

OPTIMUM = (0.973, 1.144)
SAMPLES = 50
STEPS = 50
RATES = (0.003, 0.01, 0.03, 0.06, 0.1, 0.2)
COMPARED = (METHODS["IPS-SGD"], METHODS["CounterSample"])
_SOME = 0.01  # of the draws: fewer that stray are no sign of a large learning rate
START = float(np.linalg.norm(OPTIMUM))  # ‖w*‖: both begin at w = 0
_IPS, _SAMPLED = (method.name for method in COMPARED)


@dataclass(frozen=True, eq=False)
class Toy:
    """The data of the example.

    Attributes
    ----------
    features : float64 (50, 2)
    targets : float64 (50,)
    propensity : float64 (50,)
    optimum : float64 (2,)
    """

    features: Floats
    targets: Floats
    propensity: Floats
    optimum: Floats

    def plan(self, name: str) -> Plan:
        """Return how the plan of a name draws and scales the samples."""
        samples = np.arange(len(self.targets))
        log = ClickLog(samples, np.zeros_like(samples), self.propensity)
        return make_plan(name, Examples.of(log, "click"))

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
    toy: Toy, learning_rate: float, steps: int = STEPS, *, rng: np.random.Generator
) -> dict[str, Floats]:
    """Return the weights of both methods after each step, by name, (steps + 1, 2)."""
    many = many_trajectories(toy, learning_rate, (1, steps), rng)
    return {name: paths[0] for name, paths in many.items()}


def many_trajectories(
    toy: Toy, learning_rate: float, shape: tuple[int, int], rng: np.random.Generator
) -> dict[str, Floats]:
    """Return the paths of several runs by method, (n_runs, steps + 1, 2).

    Parameters
    ----------
    toy : Toy
    learning_rate : float
    shape : (n_runs, steps)
    rng : numpy Generator
    """
    paths = {}
    for method in COMPARED:
        plan = toy.plan(method.plan)
        drawn = plan.draw(shape[0] * shape[1], rng).reshape(shape)
        paths[method.name] = descend(
            toy.features[drawn], toy.targets[drawn], plan.multipliers[drawn], learning_rate
        )
    return paths


def toy_for_page(toy: Toy, rng: np.random.Generator, n_sets: int = 5) -> dict[str, Any]:
    """Return plain lists from which a page can compute the paths at any learning rate.

    Returns
    -------
    dict
        ``x``, ``y``, ``p``, ``optimum``, ``mean_weight`` (M̄), and ``draws``: for each set the
        samples that each plan draws, ``{"ips": [50 indices], "countersample": [50 indices]}``.
    """
    plans = {method.plan: toy.plan(method.plan) for method in COMPARED}
    return {
        "x": toy.features.tolist(),
        "y": toy.targets.tolist(),
        "p": toy.propensity.tolist(),
        "optimum": toy.optimum.tolist(),
        "mean_weight": float((1 / toy.propensity).mean()),
        "draws": [
            {name: plan.draw(STEPS, rng).tolist() for name, plan in plans.items()}
            for _ in range(n_sets)
        ],
    }


# -- over many draws -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ToyResult:
    """How far from the optimum both methods end, over draws of the data and of the samples.

    Attributes
    ----------
    rates : tuple of float
        The learning rates.
    distances, farthest : mapping of method to float64 (n_rates, n_draws)
        ‖w − w*‖ after the last step, and the largest on the way; infinite where the weights
        exploded.
    """

    rates: tuple[float, ...]
    distances: dict[str, Floats]
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
            plan = toy.plan(method.plan)
            i = plan.draw(STEPS, rng)
            drawn[method.name].append((toy.features[i], toy.targets[i], plan.multipliers[i]))
    distances, farthest = {}, {}
    for name, runs in drawn.items():
        features, targets, multipliers = (np.array(column) for column in zip(*runs, strict=True))
        paths = descend(features, targets, multipliers, by_rate)
        away = np.nan_to_num(np.linalg.norm(paths - OPTIMUM, axis=-1), nan=np.inf)
        distances[name], farthest[name] = away[..., -1], away.max(axis=-1)
    return ToyResult(tuple(rates), distances, farthest)


def toy_table(result: ToyResult) -> Table:
    """Make a table of the distances after the last step, and of how often runs are unstable."""

    def group(title: str, numbers: Mapping[str, Floats], digits: int | None) -> Group:
        rows = [
            Row(label, tuple(Entry(float(number), digits) for number in by_rate))
            for label, by_rate in numbers.items()
        ]
        return Group(title, tuple(rows))

    names, distances = (_IPS, _SAMPLED), result.distances
    nearer = (distances[_SAMPLED] < distances[_IPS]).mean(axis=1)
    medians = {name: np.median(distances[name], axis=1) for name in names}
    strayed = {name: 100 * result.strayed(name).mean(axis=1) for name in names}
    diverged = {name: 100 * result.diverged(name).mean(axis=1) for name in names}
    note = (
        f"Both start {START:.2f} from the optimum. A run strayed if it was farther away than that "
        "at some step, and diverged if it was at the end."
    )
    return Table(
        "toy",
        f"Two-weight example: {STEPS} steps, {len(distances[_IPS][0]):,} draws",
        "Learning rate",
        tuple(map(column_title, result.rates)),
        (
            group("Distance to the optimum, median", medians, None),
            group("Strayed, % of the draws", strayed, 1),
            group("Diverged, % of the draws", diverged, 1),
            group("Nearer to the optimum, % of the draws", {_SAMPLED: 100 * nearer}, 1),
        ),
        (note,),
    )


# -- verdicts ------------------------------------------------------------------------------------


def toy_verdicts(result: ToyResult) -> list[Verdict]:
    """Hold what the paper says of the example against the draws.

    Distances are compared by Wilcoxon's signed-rank test on their logarithms; how often runs stray
    or diverge by the sign test on the draws in which one method did and the other did not; with
    Holm's correction over the learning rates. Learning rates at which most runs of a method diverge
    have a verdict of their own.
    """
    ours, other = result.distances[_SAMPLED], result.distances[_IPS]
    hopeless = (result.diverged(_SAMPLED).mean(axis=1) > 0.5) | (
        result.diverged(_IPS).mean(axis=1) > 0.5
    )
    unsteady = ~hopeless & (result.strayed(_IPS).mean(axis=1) >= _SOME)
    nearer = _lower(*_compare_distances(ours[~hopeless], other[~hopeless]))
    medians = np.median([ours, other], axis=2)[:, ~hopeless]
    rates = np.array(result.rates)
    return [
        _verdict(
            f"{_SAMPLED} is nearer to the optimum than {_IPS} after {STEPS} steps, whatever the "
            "learning rate (where most runs do not diverge).",
            "paper",
            nearer,
            _listed("nearer", rates[~hopeless], nearer, medians, show_number) + ", medians.",
        ),
        _shares_verdict(
            f"Where learning rates make {_IPS} stray (get farther from the optimum than it began), "
            f"{_SAMPLED} does so less often.",
            "paper",
            rates[unsteady],
            (result.strayed(_SAMPLED)[unsteady], result.strayed(_IPS)[unsteady]),
        ),
        _shares_verdict(
            f"Where learning rates are so large that most runs diverge, {_SAMPLED} does so less "
            "often.",
            "beyond",
            rates[hopeless],
            (result.diverged(_SAMPLED)[hopeless], result.diverged(_IPS)[hopeless]),
        ),
    ]


def _shares_verdict(
    claim: str, source: Source, rates: Floats, runs: tuple[Bools, Bools]
) -> Verdict:
    fewer = _lower(*_compare_shares(*runs))
    shares = 100 * np.mean(runs, axis=2)
    evidence = _listed("less often", rates, fewer, shares, "{:.1f} %".format)
    return _verdict(claim, source, fewer, f"{evidence}, of the draws.")


def _compare_distances(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the median of log(a/b) and p of Wilcoxon's test, by learning rate."""
    from scipy import stats  # noqa: PLC0415 (slow to import)

    ratios = np.diff(np.log(np.minimum([b, a], np.finfo(np.float64).max)), axis=0)[0]
    return np.median(ratios, axis=1), np.array([stats.wilcoxon(row).pvalue for row in ratios])


def _compare_shares(a: Bools, b: Bools) -> tuple[Floats, Floats]:
    """Return the share of a minus that of b and p of the sign test, by learning rate."""
    from scipy import stats  # noqa: PLC0415 (slow to import)

    only_a, only_b = (a & ~b).sum(axis=1), (b & ~a).sum(axis=1)
    p = [
        stats.binomtest(int(n_a), int(n_a + n_b)).pvalue if n_a + n_b else 1.0
        for n_a, n_b in zip(only_a, only_b, strict=True)
    ]
    return (only_a - only_b) / a.shape[1], np.array(p)


def _lower(difference: Floats, p: Floats) -> Ints:
    """Return 1 where the difference is significantly below 0, −1 where above, else 0."""
    signs: Ints = -np.sign(difference).astype(np.int64) * (holm(p) < SIGNIFICANT)
    return signs


def _verdict(claim: str, source: Source, holds: Ints, evidence: str) -> Verdict:
    outcome: Outcome = "not confirmed"
    if len(holds) and (holds > 0).all():
        outcome = "confirmed"
    elif (holds > 0).any() and not (holds < 0).any():
        outcome = "in part"
    return Verdict("toy", "", claim, source, outcome, evidence)


def _listed(
    word: str, rates: Floats, holds: Ints, numbers: Floats, show: Callable[[float], str]
) -> str:
    """Return "Nearer at 0.01 (1 against 2), …; no different at …; the opposite at …"."""
    parts = []
    for wanted, words in ((1, f"{word} at"), (0, "no different at"), (-1, "the opposite at")):
        places = [
            f"{column_title(float(rate))} ({show(ours)} against {show(other)})"
            for rate, sign, ours, other in zip(rates, holds, *numbers, strict=True)
            if sign == wanted
        ]
        if places:
            parts.append(f"{words} {', '.join(places)}")
    text = "; ".join(parts) or "at none of the learning rates tried"
    return text[:1].upper() + text[1:]
