"""The paper's two-weight example: how far both methods get over many draws, and what that says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample.pages.drawing import (
    add_legend,
    figure_style,
    new_panels,
    save_figure,
    style_of,
)
from countersample.study.design.grids import COMPARED
from countersample.study.findings.claims import Verdict
from countersample.study.findings.deciding import State
from countersample.study.findings.statistics import SIGNIFICANT, holm
from countersample.study.findings.tables import Entry, Group, Row, Table, column_title, show_number
from countersample.study.findings.toy import (
    START,
    STEPS,
    average,
    away,
    make_toy,
    run_toy,
    toy_for_page,
    trajectories,
)
from countersample.study.kinds.kind import Done, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from matplotlib.axes import Axes

    from countersample._arrays import Bools, Floats, Ints
    from countersample.study.design.sources import Study
    from countersample.study.findings.claims import Source
    from countersample.study.findings.toy import Toy, ToyResult
    from countersample.study.report.page import Section
    from countersample.study.running.jobs import WorkList

RUNS = 20  # that are drawn
_DRAWN_RATES = (0.01, 0.03, 0.06)
_SLOW = 0.25  # of the distance at the start: where both are farther away still, rates are too small
_SOME = 0.01  # of the draws: fewer that stray are no sign of a large learning rate
_IPS, _SAMPLED = (method.name for method in COMPARED)


class ToyStudy(Kind):
    """The two-weight example, made in a second as it is written up."""

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
        return done.section(
            study,
            tables=(toy_table(result),),
            verdicts=tuple(toy_verdicts(result)),
            drawn=(study.name,),
            toy=toy_for_page(toy, rng),
        )


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
    """Hold what the paper says of the example against the draws.

    Distances are compared by Wilcoxon's signed-rank test on their logarithms; how often runs stray
    or diverge by the sign test on the draws in which one method did and the other did not; with
    Holm's correction over the learning rates. Learning rates at which most runs of a method diverge
    have a verdict of their own; of distances nothing is asked where both are too slow to get
    anywhere in so few steps.
    """
    hopeless = (result.diverged(_SAMPLED).mean(axis=1) > 0.5) | (
        result.diverged(_IPS).mean(axis=1) > 0.5
    )
    unsteady = ~hopeless & (result.strayed(_IPS).mean(axis=1) >= _SOME)
    ends = [np.median(result.distances[name], axis=1) for name in (_SAMPLED, _IPS)]
    slow = ~hopeless & (np.minimum(*ends) > _SLOW * START)
    asked = ~hopeless & ~slow
    rates = np.array(result.rates)
    return [
        _distance_verdict(
            f"The last iterate of {_SAMPLED} is nearer to the optimum than that of {_IPS} after "
            f"{STEPS} steps, whatever the learning rate (where runs get somewhere, and most do not "
            "diverge).",
            result,
            result.distances,
            asked,
            slow,
        ),
        _distance_verdict(
            "So is the average w̄ of its iterates, which the algorithms return.",
            result,
            result.averages,
            asked,
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
    claim: str, result: ToyResult, distances: Mapping[str, Floats], asked: Bools, slow: Bools
) -> Verdict:
    ours, other = distances[_SAMPLED][asked], distances[_IPS][asked]
    nearer = _lower(*_compare_distances(ours, other))
    medians = np.median([ours, other], axis=2)
    rates = np.array(result.rates)
    evidence = _listed("nearer", rates[asked], nearer, medians, show_number) + ", medians."
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
    evidence = _listed("less often", rates, fewer, shares, "{:.1f} %".format)
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
    shown = np.where(difference < 0, State.HOLDS, State.OPPOSITE)
    states: Ints = np.where(holm(p) < SIGNIFICANT, shown, State.OPEN)
    return states


def _listed(
    word: str, rates: Floats, holds: Ints, numbers: Floats, show: Callable[[float], str]
) -> str:
    """Return "Nearer at 0.01 (1 against 2), …; no different at …; the opposite at …"."""
    parts = []
    for wanted, words in (
        (State.HOLDS, f"{word} at"),
        (State.OPEN, "no different at"),
        (State.OPPOSITE, "the opposite at"),
    ):
        found = [
            f"{column_title(float(rate))} ({show(ours)} against {show(other)})"
            for rate, sign, ours, other in zip(rates, holds, *numbers, strict=True)
            if sign == wanted
        ]
        if found:
            parts.append(f"{words} {', '.join(found)}")
    text = "; ".join(parts) or "at none of the learning rates tried"
    return text[:1].upper() + text[1:]


# -- the figure ----------------------------------------------------------------------------------


@figure_style()
def draw_toy(toy: Toy, stem: Path, *, rng: np.random.Generator) -> None:
    """Draw the paths of both methods over the contours of the risk, a panel a learning rate.

    Each method has several runs as thin lines, and as a thick one that whose end is the median. A
    path that leaves its panel goes on outside; a panel says how many stray, and how far the last
    iterate and the average are from the optimum. The samples drawn are the same at every learning
    rate.
    """
    figure, (panels,) = new_panels(1, len(_DRAWN_RATES), width=8.4, height=3.4, sharey="row")
    state = rng.bit_generator.state
    rows: list[tuple[object, ...]] = []
    for axes, rate in zip(panels, _DRAWN_RATES, strict=True):
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
    said = [
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
        said.append(f"{method.name:13} {last:>7} {mean:>7} {n_strayed:>7}")
    said.append("* runs that were farther than at the start")
    axes.plot(*toy.optimum, "*", color="black", ms=9, mec="white", mew=0.6, ls="none",
              label="optimum w*")  # fmt: skip
    axes.plot(0, 0, "o", color="black", mfc="white", ms=5, ls="none", label="start")
    axes.annotate("\n".join(said), (0.02, 0.02), xycoords="axes fraction", va="bottom", fontsize=6,
                  family="monospace",
                  bbox={"fc": "white", "ec": "none", "alpha": 0.85, "pad": 1.5})  # fmt: skip
    axes.set(xlim=sides[0][[0, -1]], ylim=sides[1][[0, -1]], aspect="equal")
    axes.grid(visible=False)
