"""The paper's two-weight example (its section 5.5): regression with inverse propensity weights.

    R(w) = (1/50) Σ (1/p_i)·(x_i·w − y_i)²,   y_i = x_i·w*,   w* = (0.973, 1.144)

Targets have no noise, so w* is the optimum of every example and a method either reaches it or
diverges. IPS-SGD and CounterSample go 50 steps from w = 0, at the same learning rates. The paper's
figure shows the iterates w_t; its algorithms return their average w̄.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks import ClickLog
from countersample.evaluation.comparison import holm
from countersample.pages.charts import add_legend, figure_style, new_panels, save_figure, style_of
from countersample.plans import Examples, make_plan
from countersample.study.claims import Findings, State, verdicts_of
from countersample.study.grids import COMPARED
from countersample.study.statistics import SIGNIFICANT
from countersample.study.tables import Entry, Group, Row, Table, column_title, show_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from countersample._arrays import Bools, Floats
    from countersample.study.report import Done, Section
    from countersample.study.sources import Study

TESTS = ("ends-nearer", "averages-nearer", "strays-less", "diverges-less")  # of its claims
OPTIMUM = (0.973, 1.144)
SAMPLES = 50
STEPS = 50
RATES = (0.003, 0.01, 0.03, 0.06, 0.1, 0.2)
START = float(np.linalg.norm(OPTIMUM))  # ‖w*‖, the first distance: both begin at w = 0
RUNS = 20  # in the figure
_FIGURE_RATES = (0.01, 0.03, 0.06)
_SLOW = 0.25  # of the first distance: if both stay farther away, the rate is too small to compare
_FEW = 0.01  # of the draws: if fewer stray, the rate is too small to compare
_IPS, _SAMPLED = (method.name for method in COMPARED)


def write_up(study: Study, done: Done) -> Section:
    """Run the example, which takes a second; draw it, and write the table and the verdicts."""
    rng = np.random.default_rng(0)
    draw_toy(make_toy(rng), done.figures / study.name, rng=rng)
    result = run_toy()
    picture = (
        study.name,
        "Paths of both methods over the contours of the risk, by learning rate",
        f"{RUNS} runs of each method; the run of median distance is a thick line.",
    )
    verdicts = verdicts_of(study.grid, "", toy_findings(result))
    return done.section(study, [toy_table(result)], [picture], verdicts=tuple(verdicts))


# -- the example ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Toy:
    """The data of the example."""

    features: Floats  # (50, 2)
    targets: Floats  # (50,)
    propensity: Floats  # (50,)

    def draw(
        self, name: str, shape: tuple[int, ...], rng: np.random.Generator
    ) -> tuple[Floats, Floats, Floats]:
        """Draw samples by a plan: features (*shape, 2), targets and multipliers."""
        samples = np.arange(len(self.targets))
        log = ClickLog(samples, np.zeros_like(samples), self.propensity)
        plan = make_plan(name, Examples.of(log, "click"))
        i = plan.draw(math.prod(shape), rng).reshape(shape)
        return self.features[i], self.targets[i], plan.multipliers[i]

    def risk(self, w: Floats) -> Floats:
        """R(w) = (1/n) Σ (1/p_i)·(x_i·w − y_i)², (…, 2) → (…)."""
        residuals = w @ self.features.T - self.targets
        risk: Floats = (residuals**2 / self.propensity).mean(axis=-1)
        return risk


def make_toy(rng: np.random.Generator) -> Toy:
    """Draw the data like the paper: x ~ N(0, 1), p ~ U(0.05, 1), y = x·w*.

    >>> toy = make_toy(np.random.default_rng(0))
    >>> toy.features.shape, float(toy.risk(np.array(OPTIMUM)))
    ((50, 2), 0.0)
    """
    features = rng.standard_normal((SAMPLES, 2))
    propensity = rng.uniform(0.05, 1.0, SAMPLES)
    return Toy(features, features @ np.array(OPTIMUM), propensity)


def descend(
    features: Floats, targets: Floats, multipliers: Floats, learning_rate: float | Floats
) -> Floats:
    """w_{t+1} = w_t − η·m_t·2(x_t·w_t − y_t)·x_t from w_1 = 0, for the samples drawn.

    Features are (…, steps, 2), targets and multipliers (…, steps), and the learning rate broadcasts
    with (…). The path is (…, steps + 1, 2), infinite or NaN after the weights explode.

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


def average(paths: Floats) -> Floats:
    """w̄ = (1/T) Σ_{t=1}^{T} w_t, the mean of the iterates before each step, (…, T + 1, 2) → (…, 2).

    Two steps, from 0 to 1 to 5: they began at 0 and at 1.

    >>> average(np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]]))
    array([0.5, 0.5])
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean: Floats = paths[..., :-1, :].mean(axis=-2)
    return mean


def measure_distance(w: Floats) -> Floats:
    """‖w − w*‖, (…, 2) → (…); infinite if the weights exploded."""
    with np.errstate(over="ignore", invalid="ignore"):
        distance: Floats = np.nan_to_num(np.linalg.norm(w - OPTIMUM, axis=-1), nan=np.inf)
    return distance


@dataclass(frozen=True, eq=False)
class ToyResult:
    """Distances from the optimum of both methods, over draws of the data and of the samples.

    All are by method, (n_rates, n_draws).
    """

    rates: tuple[float, ...]  # the learning rates
    distances: dict[str, Floats]  # ‖w − w*‖ after the last step; infinite if the weights exploded
    averages: dict[str, Floats]  # ‖w̄ − w*‖
    strayed: dict[str, Bools]  # whether a run was farther from the optimum than at the start
    diverged: dict[str, Bools]  # whether it ended farther from the optimum


def run_toy(*, seed: int = 0, n_draws: int = 1000, rates: Sequence[float] = RATES) -> ToyResult:
    """Run both methods at every learning rate on many draws of the example.

    A draw's data and samples are the same at every learning rate.
    """
    rng = np.random.default_rng(seed)
    samples: dict[str, list[tuple[Floats, Floats, Floats]]] = {m.name: [] for m in COMPARED}
    for _ in range(n_draws):
        toy = make_toy(rng)
        for method in COMPARED:
            samples[method.name].append(toy.draw(method.plan, (STEPS,), rng))
    result = ToyResult(tuple(rates), {}, {}, {}, {})
    for name, runs in samples.items():
        features, targets, multipliers = (np.array(column) for column in zip(*runs, strict=True))
        paths = descend(features, targets, multipliers, np.array(rates)[:, np.newaxis])
        distances = measure_distance(paths)
        result.distances[name] = distances[..., -1]
        result.averages[name] = measure_distance(average(paths))
        result.strayed[name] = distances.max(axis=-1) > START
        result.diverged[name] = distances[..., -1] > START
    return result


# -- table and verdicts --------------------------------------------------------------------------


def toy_table(result: ToyResult) -> Table:
    """Return a table of both distances, and of how often runs are unstable."""
    groups = []
    for title, samples in (
        ("Last iterate: median distance to w*", result.distances),
        ("Average w̄: median distance to w*", result.averages),
        ("Strayed, % of the draws", result.strayed),
        ("Diverged, % of the draws", result.diverged),
    ):
        rows = []
        for name in (_IPS, _SAMPLED):
            runs = samples[name]
            is_share = runs.dtype == bool
            numbers = 100 * runs.mean(axis=1) if is_share else np.median(runs, axis=1)
            digits = 1 if is_share else None
            rows.append(Row(name, tuple(Entry(float(number), digits) for number in numbers)))
        groups.append(Group(title, tuple(rows)))
    note = (
        f"Both start {START:.2f} from the optimum w*; the algorithms return the average of the "
        "iterates. A run strayed if it was farther away than that at some step, and diverged if it "
        "was at the end."
    )
    caption = f"Two-weight example: {STEPS} steps, {len(result.distances[_IPS][0]):,} draws"
    columns = tuple(map(column_title, result.rates))
    return Table("toy", caption, "Learning rate", columns, tuple(groups), (note,))


def toy_findings(result: ToyResult) -> Findings:
    """Test the statements about the example on the draws, by the names of `TESTS`.

    Distances are compared by Wilcoxon's signed-rank test on their logarithms, shares of runs that
    stray or diverge by the sign test, with Holm's correction over the learning rates. Rates at
    which most runs of a method diverge have a test of their own. Distances are not compared at
    rates too small to get anywhere in so few steps.
    """
    methods = (_SAMPLED, _IPS)
    diverging = np.any([result.diverged[name].mean(axis=1) > 0.5 for name in methods], axis=0)
    ends = [np.median(result.distances[name], axis=1) for name in methods]
    moving = ~diverging & (np.minimum(*ends) <= _SLOW * START)
    straying = ~diverging & (result.strayed[_IPS].mean(axis=1) >= _FEW)
    comparisons: list[tuple[Bools, Mapping[str, Any]]] = [
        (moving, result.distances),
        (moving, result.averages),
        (straying, result.strayed),
        (diverging, result.diverged),
    ]
    findings = {}
    for test, (at, samples) in zip(TESTS, comparisons, strict=True):
        ours, other = samples[_SAMPLED][at], samples[_IPS][at]
        compare = _compare_shares if ours.dtype == bool else _compare_distances
        difference, p = compare(ours, other)
        direction = np.where(difference < 0, State.HOLDS, State.OPPOSITE)
        states = np.where(holm(p) < SIGNIFICANT, direction, State.OPEN)
        findings[test] = (states, _list_rates(np.array(result.rates)[at], states, ours, other))
    return findings


def _compare_distances(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the median of log(a/b) and p of Wilcoxon's test, by learning rate."""
    from scipy import stats  # noqa: PLC0415 (slow to import)

    ratios = np.diff(np.log(np.minimum([b, a], np.finfo(np.float64).max)), axis=0)[0]
    return np.median(ratios, axis=1), np.array([stats.wilcoxon(row).pvalue for row in ratios])


def _compare_shares(a: Bools, b: Bools) -> tuple[Floats, Floats]:
    """Return the share of a minus the share of b and p of the sign test, by learning rate."""
    from scipy import stats  # noqa: PLC0415 (slow to import)

    only_a, only_b = (a & ~b).sum(axis=1), (b & ~a).sum(axis=1)
    p = [
        stats.binomtest(int(n_a), int(n_a + n_b)).pvalue if n_a + n_b else 1.0
        for n_a, n_b in zip(only_a, only_b, strict=True)
    ]
    return (only_a - only_b) / a.shape[1], np.array(p)


def _list_rates(rates: Floats, states: Floats, ours: Floats, other: Floats) -> str:
    """Return "Lower at 0.01 (1 against 2), …; no different at …; higher at …"."""
    is_share = ours.dtype == bool

    def describe(runs: Floats) -> str:
        return f"{100 * runs.mean():.1f} %" if is_share else show_number(float(np.median(runs)))

    parts = []
    titles = {State.HOLDS: "lower", State.OPEN: "no different", State.OPPOSITE: "higher"}
    for state, title in titles.items():
        texts = [
            f"{column_title(float(rates[k]))} ({describe(ours[k])} against {describe(other[k])})"
            for k in np.flatnonzero(states == state)
        ]
        if texts:
            parts.append(f"{title} at {', '.join(texts)}")
    text = "; ".join(parts) or "at none of the learning rates tried"
    unit = "shares of the draws" if is_share else "medians"
    return f"{text[:1].upper()}{text[1:]}; {unit}."


# -- the figure ----------------------------------------------------------------------------------


@figure_style()
def draw_toy(toy: Toy, stem: Path, *, rng: np.random.Generator) -> None:
    """Draw the paths of both methods over the contours of the risk, one panel per learning rate.

    The run whose end is the median is a thick line. The samples are the same at every rate.
    """
    figure, (panels,) = new_panels(1, len(_FIGURE_RATES), width=8.4, height=3.4, sharey="row")
    samples = {method.name: toy.draw(method.plan, (RUNS, STEPS), rng) for method in COMPARED}
    rows: list[tuple[object, ...]] = []
    for axes, rate in zip(panels, _FIGURE_RATES, strict=True):
        paths = {name: descend(*sample, rate) for name, sample in samples.items()}
        _draw_paths(axes, toy, paths)
        axes.set_title(f"learning rate {column_title(rate)}")
        axes.set_xlabel("$w_1$")
        rows += [
            (rate, name, run, step, *w)
            for name, runs in paths.items()
            for run, path in enumerate(runs)
            for step, w in enumerate(path)
        ]
    panels[0].set_ylabel("$w_2$")
    add_legend(figure, panels[0])
    save_figure(figure, stem, ("learning rate", "method", "run", "step", "w1", "w2"), rows)


def _draw_paths(axes: Axes, toy: Toy, paths: Mapping[str, Floats]) -> None:
    reach = 1.05 * START
    sides = [np.linspace(centre - reach, centre + reach, 121) for centre in np.array(OPTIMUM) / 2]
    risk = toy.risk(np.stack(np.meshgrid(*sides), axis=-1))
    levels = toy.risk(np.zeros(2)) * np.geomspace(0.01, 4, 9)
    axes.contour(*sides, risk, levels, colors="black", linewidths=0.4, alpha=0.35)
    for method in COMPARED:
        runs, style = paths[method.name], style_of(*method.look)
        typical = runs[np.argsort(measure_distance(runs)[:, -1])[RUNS // 2]]
        axes.plot(*runs.T, color=style.colour, lw=0.5, alpha=0.35)
        axes.plot(*typical.T, color=style.colour, lw=1.5, ls=style.dash, marker=".", ms=4,
                  label=method.name)  # fmt: skip
    axes.plot(*OPTIMUM, "*", color="black", ms=9, mec="white", mew=0.6, ls="none",
              label="optimum w*")  # fmt: skip
    axes.plot(0, 0, "o", color="black", mfc="white", ms=5, ls="none", label="start")
    axes.set(xlim=sides[0][[0, -1]], ylim=sides[1][[0, -1]], aspect="equal")
    axes.grid(visible=False)
