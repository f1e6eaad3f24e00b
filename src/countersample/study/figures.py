"""Figures of a study of regret: learning curves, and the lead during training.

A line is a mean over runs, its band or bar the 95 % interval of that mean. Runs that diverged count
with an nDCG of 0 from there on; their panel has a note, and thin lines instead of an interval.
"""

from __future__ import annotations

import re
from textwrap import fill
from typing import TYPE_CHECKING, Any

from countersample.pages import charts
from countersample.pages.charts import figure_style, new_panels, save_figure, set_log, style_of
from countersample.study.grids import COMPARED, Grid, Value
from countersample.study.statistics import band, lead
from countersample.study.tables import DEFAULT_RANKER, column_title

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from countersample.study.results import StudyResult


def panel_title(grid: Grid, value: Value) -> str:
    """Return "γ = 0.5" for the axis "Position bias (γ)", "Batch size: 10", "Adam"."""
    if isinstance(value, str):
        return column_title(value)
    symbol = re.search(r"\((.+)\)$", grid.axis_title)
    before = f"{symbol[1]} = " if symbol else f"{grid.axis_title}: "
    return before + column_title(value)


@figure_style()
def draw_panels(result: StudyResult, stem: Path, *, log_x: bool = False) -> Figure:
    """Draw nDCG@10 against clicks drawn: one row per dataset, one column per value of the axis."""
    figure, panels = _new_grid(result, height=1.9 if len(result.grid.values) > 2 else 2.5)
    rows: list[tuple[Any, ...]] = []
    for row, dataset in zip(panels, result.datasets, strict=True):
        for axes, value in zip(row, result.grid.values, strict=True):
            rows += _draw_curves(axes, result, dataset, value)
        row[0].set_ylabel(f"{fill(dataset, 26)}\n{result.metric}")
        row[0].set_ylim(_limit_ndcg(result, dataset))
    for axes, value in zip(panels[-1], result.grid.values, strict=True):
        drawn = [each[3] for each in rows if each[1] == value]
        axes.set_xlim(min(drawn) if log_x else 0, max(drawn))
        if log_x:
            set_log(axes, "x")
        else:
            axes.locator_params(axis="x", nbins=5)
            axes.xaxis.set_major_formatter(charts.short_number)
    charts.add_legend(figure, panels[0, 0])
    save_figure(figure, stem, ("dataset", "value", "method", "drawn", "mean", "low", "high"), rows)
    return figure


@figure_style()
def draw_leads(result: StudyResult, stem: Path) -> None:
    """Draw the lead of CounterSample over IPS-SGD against clicks drawn, by logarithm."""
    figure, panels = _new_grid(result, height=1.9)
    rows: list[tuple[object, ...]] = []
    ips, sampled = COMPARED
    style, label = style_of(*sampled.look), f"lead of {sampled.name} over {ips.name}"
    for panel_row, dataset in zip(panels, result.datasets, strict=True):
        extremes = [0.0]
        for axes, value in zip(panel_row, result.grid.values, strict=True):
            cells = {method.name: result.cells[dataset, method.name, value] for method in COMPARED}
            drawn, runs = cells[sampled.name].drawn, cells[sampled.name].runs
            curve = band(lead(result, dataset, value), runs)
            notes = [f"{name}, {c.divergence}" for name, c in cells.items() if c.n_diverged]
            ends = () if notes else (curve.low, curve.high)
            charts.draw_band(axes, drawn, curve.mean, *ends, style=style, label=label)
            _annotate_corner(axes, notes)
            axes.axhline(0, color="black", lw=0.7, label="no lead")
            axes.set_xlim(drawn[0], drawn[-1])
            set_log(axes, "x")
            extremes += [curve.mean.min(), curve.mean.max(), *(end[-1] for end in ends)]
            rows += [(dataset, value, *point) for point in zip(drawn, *curve, strict=True)]
        room = 0.15 * (max(extremes) - min(extremes)) or 1.0
        panel_row[0].set_ylim(min(extremes) - room, max(extremes) + room)
        panel_row[0].set_ylabel(f"{dataset}\nlead in regret ×100")
    charts.add_legend(figure, panels[0, 0])
    save_figure(figure, stem, ("dataset", "value", "drawn", "mean", "low", "high"), rows)


def _new_grid(result: StudyResult, *, height: float) -> tuple[Figure, Any]:
    """Return a figure with one row per dataset and one titled column per value of the axis."""
    values = result.grid.values
    figure, panels = new_panels(
        len(result.datasets), len(values), sharey="row",
        width=min(9.5, max(5.5, 2.4 * len(values) + 0.6)),
        height=height * len(result.datasets) + 0.9,
    )  # fmt: skip
    for axes, value in zip(panels[0], values, strict=True):
        axes.set_title(panel_title(result.grid, value))
    figure.supxlabel("clicks drawn", fontsize=9)
    return figure, panels


def _draw_curves(
    axes: Axes, result: StudyResult, dataset: str, value: Value
) -> list[tuple[Any, ...]]:
    """Draw the curves of a panel; return its rows of the file of the figure."""
    notes, rows = [], []
    for method in result.grid.methods:
        cell = result.cells[dataset, method.name, value]
        style = style_of(*method.look)
        curve = band(cell.ndcg, cell.runs)
        # An interval over sound and diverged runs would cover the panel: draw each run instead.
        ends = () if cell.n_diverged else (curve.low, curve.high)
        charts.draw_band(axes, cell.drawn, curve.mean, *ends, style=style, label=method.name)
        points = zip(cell.drawn, *curve, strict=True)
        rows += [(dataset, value, method.name, *point) for point in points]
        if cell.n_diverged:
            axes.plot(cell.drawn, cell.ndcg.T, color=style.colour, lw=0.6, alpha=0.6)
            notes.append(f"{method.name}: {cell.n_diverged} of {len(cell.ndcg)} diverged")
    axes.axhline(result.best[dataset], color="black", lw=0.7, label="w* (all labels)")
    axes.axhline(
        result.policy[dataset], color="black", lw=0.9, ls=(0, (1, 2)), label="logging policy"
    )
    if result.nothing_set:
        mean = result.nothing_set[dataset, value].mean()
        axes.axhline(mean, color="black", lw=0.9, ls="-.", label=DEFAULT_RANKER)
    _annotate_corner(axes, notes)
    return rows


def _annotate_corner(axes: Axes, notes: Sequence[str]) -> None:
    if notes:
        axes.annotate("\n".join(notes), (0.97, 0.06), xycoords="axes fraction", ha="right",
                  va="bottom", fontsize=6.5)  # fmt: skip


def _limit_ndcg(result: StudyResult, dataset: str) -> tuple[float, float]:
    """Return the range of nDCG of a row: of the sound runs; a fall to 0 leaves it."""
    extremes = [result.policy[dataset], result.best[dataset]]
    extremes += [each.mean() for (name, _), each in result.nothing_set.items() if name == dataset]
    for (name, _, _), cell in result.cells.items():
        sound = cell.ndcg[cell.ndcg[:, -1] > 0]
        if name == dataset and len(sound):
            mean = sound.mean(axis=0)
            extremes += [float(mean.min()), float(mean.max())]
    margin = 0.05 * (max(extremes) - min(extremes)) or 0.01
    return min(extremes) - margin, max(extremes) + margin
