"""The paper's two-weight example (its section 5.5): regression with inverse propensity weights.

    R(w) = (1/50) Σ (1/p_i)·(x_i·w − y_i)²,   y_i = x_i·w*,   w* = (0.973, 1.144)

Targets have no noise, so w* is the optimum of every example and a method either reaches it or
diverges. IPS-SGD and CounterSample go 50 steps from w = 0, at the same learning rates. The paper's
figure shows the iterates w_t; its algorithms return their average w̄.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from countersample.clicks import ClickLog
from countersample.pages.drawing import (
    add_legend,
    figure_style,
    new_panels,
    save_figure,
    style_of,
)
from countersample.plans import Examples, make_plan
from countersample.study.design.grids import COMPARED
from countersample.study.findings.claims import State, Verdict
from countersample.study.findings.statistics import SIGNIFICANT, holm
from countersample.study.findings.tables import Entry, Group, Row, Table, column_title, show_number
from countersample.study.kinds.kind import Done, Drawing, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from countersample._arrays import Bools, Floats, Ints
    from countersample.plans import Plan
    from countersample.study.design.sources import Study
    from countersample.study.findings.claims import Source
    from countersample.study.report import Section
    from countersample.study.running.jobs import WorkList

OPTIMUM = (0.973, 1.144)
SAMPLES = 50
STEPS = 50
RATES = (0.003, 0.01, 0.03, 0.06, 0.1, 0.2)
START = float(np.linalg.norm(OPTIMUM))  # ‖w*‖: both begin at w = 0
RUNS = 20  # in the figure
_FIGURE_RATES = (0.01, 0.03, 0.06)
_SLOW = 0.25  # of the distance at the start: if both stay farther away, the rate is too small
_SOME = 0.01  # of the draws: fewer that stray are no sign of a large learning rate
_IPS, _SAMPLED = (method.name for method in COMPARED)


class ToyStudy(Kind):
    """The two-weight example, which runs in a second when it is written up."""

    name = "toy"
    takes_data = False

    def plan(self, study: Study, work: WorkList) -> None:
        """Plan nothing."""

    def write_up(self, study: Study, done: Done) -> Section:
        """Run the example, draw it, and make the table and the verdicts."""
        rng = np.random.default_rng(0)
        toy = make_toy(rng)
        draw_toy(toy, done.figures / study.name, rng=rng)
        result = run_toy()
        drawing = Drawing(
            study.name,
            "Paths of both methods over the contours of the risk, by learning rate",
            f"{RUNS} runs of each method, and the one of median distance as a thick line.",
        )
        return done.section(
            study,
            tables=(toy_table(result),),
            verdicts=tuple(toy_verdicts(result)),
            drawings=(drawing,),
        )


# -- the example ---------------------------------------------------------------------------------


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
    """Draw the data like the paper: x ~ N(0, 1), p ~ U(0.05, 1), y = x·w*.

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
        Infinite or not a number from the step at which the weights explode.

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
    samples: dict[str, list[tuple[Floats, Floats, Floats]]] = {m.name: [] for m in COMPARED}
    for _ in range(n_draws):
        toy = make_toy(rng)
        for method in COMPARED:
            samples[method.name].append(toy.draw(method.plan, (STEPS,), rng))
    distances, averages, farthest = {}, {}, {}
    for name, runs in samples.items():
        features, targets, multipliers = (np.array(column) for column in zip(*runs, strict=True))
        paths = descend(features, targets, multipliers, by_rate)
        on_the_way = away(paths)
        distances[name], farthest[name] = on_the_way[..., -1], on_the_way.max(axis=-1)
        averages[name] = away(average(paths))
    return ToyResult(tuple(rates), distances, averages, farthest)


# -- the table -----------------------------------------------------------------------------------


def toy_table(result: ToyResult) -> Table:
    """Make a table of both distances, and of how often runs are unstable."""

    def group(title: str, numbers: Mapping[str, Floats], digits: int | None) -> Group:
        rows = [
            Row(label, tuple(Entry(float(number), digits) for number in by_rate))
            for label, by_rate in numbers.items()
        ]
        return Group(title, tuple(rows))

    names = (_IPS, _SAMPLED)
    last, of_average = (
        {name: np.median(distances[name], axis=1) for name in names}
        for distances in (result.distances, result.averages)
    )
    nearer = {
        f"{_SAMPLED}, {what}": 100 * (distances[_SAMPLED] < distances[_IPS]).mean(axis=1)
        for what, distances in (("last", result.distances), ("average", result.averages))
    }
    strayed = {name: 100 * result.strayed(name).mean(axis=1) for name in names}
    diverged = {name: 100 * result.diverged(name).mean(axis=1) for name in names}
    note = (
        f"Both start {START:.2f} from the optimum w*; the algorithms return the average of the "
        "iterates. A run strayed if it was farther away than that "
        "at some step, and diverged if it was at the end."
    )
    return Table(
        "toy",
        f"Two-weight example: {STEPS} steps, {len(result.distances[_IPS][0]):,} draws",
        "Learning rate",
        tuple(map(column_title, result.rates)),
        (
            group("Last iterate: median distance to w*", last, None),
            group("Average w̄: median distance to w*", of_average, None),
            group("Strayed, % of the draws", strayed, 1),
            group("Diverged, % of the draws", diverged, 1),
            group(f"Nearer than {_IPS}, % of the draws", nearer, 1),
        ),
        (note,),
    )


# -- verdicts ------------------------------------------------------------------------------------


def toy_verdicts(result: ToyResult) -> list[Verdict]:
    """Test the paper's statements about the example on the draws.

    Distances are compared by Wilcoxon's signed-rank test on their logarithms; how often runs stray
    or diverge by the sign test on the draws in which one method did and the other did not; with
    Holm's correction over the learning rates. Learning rates at which most runs of a method diverge
    have their own verdict; distances are not compared if both methods are too slow to get anywhere
    in so few steps.
    """
    hopeless = (result.diverged(_SAMPLED).mean(axis=1) > 0.5) | (
        result.diverged(_IPS).mean(axis=1) > 0.5
    )
    unsteady = ~hopeless & (result.strayed(_IPS).mean(axis=1) >= _SOME)
    ends = [np.median(result.distances[name], axis=1) for name in (_SAMPLED, _IPS)]
    slow = ~hopeless & (np.minimum(*ends) > _SLOW * START)
    comparable = ~hopeless & ~slow
    rates = np.array(result.rates)
    return [
        _distance_verdict(
            f"The last iterate of {_SAMPLED} is nearer to the optimum than that of {_IPS} after "
            f"{STEPS} steps, whatever the learning rate (where runs get somewhere, and most do not "
            "diverge).",
            result,
            result.distances,
            comparable,
            slow,
        ),
        _distance_verdict(
            "So is the average w̄ of its iterates, which the algorithms return.",
            result,
            result.averages,
            comparable,
            slow,
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


def _distance_verdict(
    claim: str, result: ToyResult, distances: Mapping[str, Floats], comparable: Bools, slow: Bools
) -> Verdict:
    ours, other = distances[_SAMPLED][comparable], distances[_IPS][comparable]
    nearer = _lower(*_compare_distances(ours, other))
    medians = np.median([ours, other], axis=2)
    rates = np.array(result.rates)
    evidence = _list_rates("nearer", rates[comparable], nearer, medians, show_number) + ", medians."
    if slow.any():
        too_small = ", ".join(column_title(float(rate)) for rate in rates[slow])
        evidence += (
            f" Not asked at {too_small}: in the median neither method covers "
            f"{100 * (1 - _SLOW):.0f} % of the way."
        )
    return Verdict.of(("toy", ""), claim, "paper", nearer, evidence)


def _shares_verdict(
    claim: str, source: Source, rates: Floats, runs: tuple[Bools, Bools]
) -> Verdict:
    fewer = _lower(*_compare_shares(*runs))
    shares = 100 * np.mean(runs, axis=2)
    evidence = _list_rates("less often", rates, fewer, shares, "{:.1f} %".format)
    return Verdict.of(("toy", ""), claim, source, fewer, f"{evidence}, of the draws.")


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
    """Return whether each difference is significantly below 0, above, or neither (`State`)."""
    direction = np.where(difference < 0, State.HOLDS, State.OPPOSITE)
    states: Ints = np.where(holm(p) < SIGNIFICANT, direction, State.OPEN)
    return states


def _list_rates(
    word: str, rates: Floats, holds: Ints, numbers: Floats, show: Callable[[float], str]
) -> str:
    """Return "Nearer at 0.01 (1 against 2), …; no different at …; the opposite at …"."""
    parts = []
    for wanted, words in (
        (State.HOLDS, f"{word} at"),
        (State.OPEN, "no different at"),
        (State.OPPOSITE, "the opposite at"),
    ):
        texts = [
            f"{column_title(float(rate))} ({show(ours)} against {show(other)})"
            for rate, sign, ours, other in zip(rates, holds, *numbers, strict=True)
            if sign == wanted
        ]
        if texts:
            parts.append(f"{words} {', '.join(texts)}")
    text = "; ".join(parts) or "at none of the learning rates tried"
    return text[:1].upper() + text[1:]


# -- the figure ----------------------------------------------------------------------------------


@figure_style()
def draw_toy(toy: Toy, stem: Path, *, rng: np.random.Generator) -> None:
    """Draw the paths of both methods over the contours of the risk, one panel per learning rate.

    Each method has several runs as thin lines, and as a thick one that whose end is the median. A
    path that leaves its panel goes on outside; a panel says how many stray, and how far the last
    iterate and the average are from the optimum. The samples drawn are the same at every learning
    rate.
    """
    figure, (panels,) = new_panels(1, len(_FIGURE_RATES), width=8.4, height=3.4, sharey="row")
    state = rng.bit_generator.state
    rows: list[tuple[object, ...]] = []
    for axes, rate in zip(panels, _FIGURE_RATES, strict=True):
        rng.bit_generator.state = state
        runs = trajectories(toy, rate, (RUNS, STEPS), rng)
        _draw_paths(axes, toy, runs)
        axes.set_title(f"learning rate {column_title(rate)}")
        axes.set_xlabel("$w_1$")
        rows += [
            (rate, name, run, step, *w)
            for name, paths in runs.items()
            for run, path in enumerate(paths)
            for step, w in enumerate(path)
        ]
    panels[0].set_ylabel("$w_2$")
    add_legend(figure, panels[0])
    save_figure(figure, stem, ("learning rate", "method", "run", "step", "w1", "w2"), rows)


def _draw_paths(axes: Axes, toy: Toy, runs: Mapping[str, Floats]) -> None:
    reach = 1.05 * START
    sides = [np.linspace(centre - reach, centre + reach, 121) for centre in toy.optimum / 2]
    risk = toy.risk(np.stack(np.meshgrid(*sides), axis=-1))
    levels = toy.risk(np.zeros(2)) * np.geomspace(0.01, 4, 9)
    axes.contour(*sides, risk, levels, colors="black", linewidths=0.4, alpha=0.35)
    lines = [
        f"median distance to w* of {RUNS} runs",
        f"{'':13} {'last w':>7} {'average':>7} strayed*",
    ]
    for method in COMPARED:
        paths, style = runs[method.name], style_of(*method.look)
        on_the_way = away(paths)
        typical = paths[np.argsort(on_the_way[:, -1])[RUNS // 2]]
        axes.plot(*paths.T, color=style.colour, lw=0.5, alpha=0.35)
        axes.plot(*typical.T, color=style.colour, lw=1.5, ls=style.dash, marker=".", ms=4,
                  label=method.name)  # fmt: skip
        n_strayed = int((on_the_way.max(axis=1) > START).sum())
        ends = (float(np.median(each)) for each in (on_the_way[:, -1], away(average(paths))))
        last, mean = (f"{end:.2g}" for end in ends)
        lines.append(f"{method.name:13} {last:>7} {mean:>7} {n_strayed:>7}")
    lines.append("* runs that were farther than at the start")
    axes.plot(*toy.optimum, "*", color="black", ms=9, mec="white", mew=0.6, ls="none",
              label="optimum w*")  # fmt: skip
    axes.plot(0, 0, "o", color="black", mfc="white", ms=5, ls="none", label="start")
    axes.annotate("\n".join(lines), (0.02, 0.02), xycoords="axes fraction", va="bottom", fontsize=6,
                  family="monospace",
                  bbox={"fc": "white", "ec": "none", "alpha": 0.85, "pad": 1.5})  # fmt: skip
    axes.set(xlim=sides[0][[0, -1]], ylim=sides[1][[0, -1]], aspect="equal")
    axes.grid(visible=False)
