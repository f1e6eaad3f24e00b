"""Measured suboptimality beside what Theorems 1 and 3 promise: its table, figure and verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample.pages.drawing import (
    add_legend,
    figure_style,
    new_panels,
    save_figure,
    set_log,
    style_of,
)
from countersample.study.design.grids import COMPARED
from countersample.study.findings.claims import Verdict
from countersample.study.findings.deciding import State, states_of
from countersample.study.findings.statistics import band, paired_test
from countersample.study.findings.tables import Entry, Group, Row, Table, column_title, show_number
from countersample.study.kinds.kind import Done, Kind
from countersample.study.report.page import Figure, Section
from countersample.study.running.jobs import Job, WorkList
from countersample.study.running.stages.bounds import STEPS, Bounds, measure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from countersample.study.design.sources import Study

_IPS, _SAMPLED = (method.name for method in COMPARED)
_NONE = 0.0  # the margin: any difference counts


def bounds_table(results: Mapping[str, Bounds]) -> Table:
    """Make a table of measured suboptimality and bounds: a group a dataset, a column a T."""
    (steps,) = {result.steps for result in results.values()}
    groups, notes = [], ["±: half the width of the 95 % interval of the mean over runs."]
    for dataset, result in results.items():
        rows = []
        for name, excess in result.excess.items():
            bound = result.bound[name]
            ratios = bound / excess.mean(axis=1)
            rows += [
                Row(f"{name}, measured", tuple(Entry.of_sample(runs, None) for runs in excess)),
                Row(f"{name}, bound", tuple(Entry(float(b), None) for b in bound)),
                Row("bound / measured", tuple(Entry(float(r), 1) for r in ratios)),
            ]
        groups.append(Group(dataset, tuple(rows)))
        largest, mean = _weights(result)
        notes.append(
            f"{dataset}: {result.n_clicks:,} clicks on {result.n_queries} queries with "
            f"{result.n_features} features; M = {show_number(largest)}, "
            f"M̄ = {show_number(mean)}, B = {show_number(result.radius)}, "
            f"G = {show_number(result.gradient_bound)}; R(0) − R(w*) = "
            f"{show_number(result.start - result.best)}."
        )
    return Table(
        "bounds",
        "Theorems 1 and 3: R(w̄_T) − R(w*), measured and bounded by B·m·G/√T",
        "Steps T",
        tuple(map(column_title, steps)),
        tuple(groups),
        tuple(notes),
    )


def _weights(result: Bounds) -> tuple[float, float]:
    """Return M and M̄."""
    return result.max_multiplier[_IPS], result.max_multiplier[_SAMPLED]


def bounds_verdicts(dataset: str, result: Bounds) -> list[Verdict]:
    """Hold the theorems against what was measured on a dataset."""
    means = {name: excess.mean(axis=1) for name, excess in result.excess.items()}
    # Each step count is a setting; runs are paired with a bound that does not vary, or by seed.
    below = [
        paired_test(runs, np.full(len(runs), bound), [("", seed) for seed in range(len(runs))])
        for name, excess in result.excess.items()
        for runs, bound in zip(excess, result.bound[name], strict=True)
    ]
    nearer = [
        paired_test(ours, other, [("", seed) for seed in range(len(ours))])
        for ours, other in zip(result.excess[_SAMPLED], result.excess[_IPS], strict=True)
    ]
    slack = {name: result.bound[name] / means[name] for name in means}
    largest, mean = _weights(result)
    ratio = largest / mean
    lead = means[_IPS] / means[_SAMPLED]
    last = column_title(result.steps[-1])

    where = ("bounds", dataset)
    return [
        Verdict.of(
            where,
            "The measured suboptimality of both methods is below the bound, whatever the number of "
            "steps.",
            "paper",
            states_of(below, "lower", _NONE),
            "; ".join(
                f"{name}'s bound is {show_number(float(s.min()))} to {show_number(float(s.max()))} "
                "times what was measured"
                for name, s in slack.items()
            )
            + ".",
        ),
        Verdict.of(
            where,
            f"The bound of {_SAMPLED} is lower, by M/M̄.",
            "paper",
            [State.HOLDS if ratio > 1 else State.ABSENT],
            f"M/M̄ = {show_number(largest)}/{show_number(mean)} = "
            f"{show_number(ratio)}, so the theorems ask {show_number(ratio**2)} times fewer steps "
            "of it.",
        ),
        Verdict.of(
            where,
            f"At the theorems' step sizes, {_SAMPLED} is nearer to the optimum than {_IPS}.",
            "beyond",
            states_of(nearer, "lower", _NONE),
            f"After {last} steps {show_number(float(means[_SAMPLED][-1]))} against "
            f"{show_number(float(means[_IPS][-1]))}, {show_number(float(lead[-1]))} times nearer.",
        ),
    ]


@figure_style()
def draw_bounds(results: Mapping[str, Bounds], stem: Path) -> None:
    """Draw measured suboptimality and bounds against T, both by logarithm, a panel a dataset."""
    figure, (panels,) = new_panels(1, len(results), width=max(4.5, 3.5 * len(results)), height=3.4)
    rows = []
    for axes, (dataset, result) in zip(panels, results.items(), strict=True):
        for method in COMPARED:
            colour, dash = style_of(*method.look)
            bound = result.bound[method.name]
            mean, low, high = band(result.excess[method.name].T)
            axes.errorbar(result.steps, mean, high - mean, color=colour, ls=dash, lw=1.5,
                          marker="o", ms=3.5, capsize=2, elinewidth=0.9,
                          label=f"{method.name}, measured")  # fmt: skip
            axes.plot(result.steps, bound, color=colour, ls=dash, lw=0.9,
                      marker="v", ms=4, mfc="white", label=f"{method.name}, bound")  # fmt: skip
            numbers = zip(result.steps, mean, low, high, bound, strict=True)
            rows += [(dataset, method.name, *row) for row in numbers]
        axes.axhline(result.start - result.best, color="black", lw=0.9, ls=(0, (1, 2)),
                     label="at the start, w = 0")  # fmt: skip
        axes.set(title=dataset, xlabel="steps T")
        set_log(axes, "x")
        set_log(axes, "y")
    panels[0].set_ylabel("$R(\\bar{w}_T) - R(w^*)$")
    add_legend(figure, panels[0])
    columns = ("dataset", "method", "steps", "mean", "low", "high", "bound")
    save_figure(figure, stem, columns, rows)


# -- the study -----------------------------------------------------------------------------------


class BoundsStudy(Kind):
    """The theorems, measured on a small part of a log of each dataset."""

    name = "bounds"

    def plan(self, study: Study, work: WorkList) -> None:
        """Plan a measurement on the first fold of each dataset."""
        for source in study.sources:
            log = work.clicks(source.folds[0], study.config, 0)
            config = {"steps": list(STEPS), "seeds": study.config.seeds}
            job = Job("bounds", f"bounds on {source.name}", config, measure, (log,))
            work.keep((study.name, source.name), job)

    def write_up(self, study: Study, done: Done) -> Section:
        """Make the table, the figure and the verdicts."""
        measured = {
            source.name: Bounds.from_dict(done.read(study.name, source.name)[0])
            for source in study.sources
        }
        draw_bounds(measured, done.figures / study.name)
        figure = Figure(
            done.figures / f"{study.name}.svg",
            "Measured suboptimality and the bounds of the theorems against steps",
            "Measured suboptimality (with intervals) and the bounds of Theorems 1 and 3.",
        )
        verdicts = (bounds_verdicts(name, bounds) for name, bounds in measured.items())
        return done.section(
            study,
            tables=(bounds_table(measured),),
            verdicts=tuple(verdict for of_dataset in verdicts for verdict in of_dataset),
            drawn=(study.name,),
            figures=(figure,),
        )
