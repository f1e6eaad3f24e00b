"""The lead of CounterSample over IPS-SGD in the course of training.

    lead(T) = Regret_IPS(T) − Regret_CounterSample(T),
    Regret(T) = mean_{t ≤ T} nDCG(w*) − nDCG(w̄_t)

Both have the learning rates that were chosen for whole runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample.pages.drawing import (
    add_legend,
    draw_band,
    figure_style,
    new_panels,
    save_figure,
    set_log,
    style_of,
)
from countersample.study.design.grids import COMPARED
from countersample.study.findings.figures import panel_title
from countersample.study.findings.statistics import band, common_runs, independent
from countersample.study.findings.tables import Entry, Group, Row, Table, column_title

if TYPE_CHECKING:
    from pathlib import Path

    from countersample._arrays import Floats, Ints
    from countersample.study.design.claims import Value
    from countersample.study.results import StudyResult

PARTS = (100, 10, 1)  # T over these are the lines of the table
_IPS, _SAMPLED = COMPARED
_NOTE = (
    "T is the number of clicks drawn in a whole run, for which the learning rates were chosen; the "
    "lead after T/10 is that of the same runs up to there. ±: half the width of its 95 % interval. "
    "–: no evaluation that early."
)


def has_leads(result: StudyResult) -> bool:
    """Whether a study has both methods."""
    return {_IPS, _SAMPLED} <= set(result.grid.methods)


def lead(result: StudyResult, dataset: str, value: Value) -> Floats:
    """100·mean_{s ≤ t} (nDCG_CounterSample − nDCG_IPS), by run and evaluation point t.

    Returns
    -------
    float64 (n_runs, n_points)
    """
    ips, sampled = (result.cells[dataset, method.name, value] for method in COMPARED)
    common_runs(ips, sampled)
    differences = np.cumsum(sampled.ndcg - ips.ndcg, axis=1)
    leads: Floats = 100 * differences / np.arange(1, differences.shape[1] + 1)
    return leads


def lead_note(result: StudyResult, dataset: str, value: Value) -> str:
    """Return how many runs of which method diverged; empty where none did."""
    cells = {method.name: result.cells[dataset, method.name, value] for method in COMPARED}
    notes = [f"{name}, {cell.divergence}" for name, cell in cells.items() if cell.n_diverged]
    return "; ".join(notes)


def point_at(drawn: Ints, part: int) -> int | None:
    """Return the last evaluation point up to T/part, if there is one.

    Examples
    --------
    >>> point_at(np.array([10, 20, 300]), 10), point_at(np.array([100, 200]), 100)
    (1, None)
    """
    before = int((drawn * part <= drawn[-1]).sum())
    return before - 1 if before else None


def leads_table(result: StudyResult) -> Table:
    """Make a table of the lead after T/100, T/10 and T clicks drawn, a column a setting."""
    grid = result.grid

    def entry(dataset: str, value: Value, part: int) -> Entry:
        cell = result.cells[dataset, _SAMPLED.name, value]
        point = point_at(cell.drawn, part)
        if point is None:
            return Entry(None)
        return Entry.of_sample(independent(lead(result, dataset, value)[:, point], cell.runs))

    def row(dataset: str, part: int) -> Row:
        label = "T" if part == 1 else f"T/{part}"
        return Row(label, tuple(entry(dataset, value, part) for value in grid.values))

    return Table(
        f"{grid.name}-lead",
        f"{grid.title}: lead of {_SAMPLED.name} over {_IPS.name}, the difference of their average "
        "regret ×100",
        grid.axis_title,
        tuple(map(column_title, grid.values)),
        tuple(
            Group(dataset, tuple(row(dataset, part) for part in PARTS))
            for dataset in result.datasets
        ),
        (_NOTE,),
    )


@figure_style()
def draw_leads(result: StudyResult, stem: Path) -> None:
    """Draw the lead against clicks drawn, by logarithm: a row a dataset, a column a value.

    A line is the mean over runs, its band the 95 % interval of that mean. Below 0 IPS-SGD is ahead.
    """
    values = result.grid.values
    figure, panels = new_panels(
        len(result.datasets), len(values), sharey="row",
        width=min(9.5, max(5.5, 2.4 * len(values) + 0.6)),
        height=1.9 * len(result.datasets) + 0.9,
    )  # fmt: skip
    rows: list[tuple[object, ...]] = []
    label = f"lead of {_SAMPLED.name} over {_IPS.name}"
    for of_dataset, dataset in zip(panels, result.datasets, strict=True):
        middles = [0.0]
        for axes, value in zip(of_dataset, values, strict=True):
            cell = result.cells[dataset, _SAMPLED.name, value]
            curve = band(lead(result, dataset, value), cell.runs)
            note = lead_note(result, dataset, value)
            # An interval over sound and fallen runs would cover the panel.
            ends = () if note else (curve.low, curve.high)
            style = style_of(*_SAMPLED.look)
            draw_band(axes, cell.drawn, curve.mean, *ends, style=style, label=label)
            axes.annotate(note.replace("; ", "\n"), (0.97, 0.06), xycoords="axes fraction",
                          ha="right", va="bottom", fontsize=6.5)  # fmt: skip
            axes.axhline(0, color="black", lw=0.7, label="no lead")
            axes.set_xlim(cell.drawn[0], cell.drawn[-1])
            set_log(axes, "x")
            middles += [curve.mean.min(), curve.mean.max(), *(end[-1] for end in ends)]
            points = zip(cell.drawn, *curve, strict=True)
            rows += [(dataset, value, *point) for point in points]
        room = 0.15 * (max(middles) - min(middles)) or 1.0
        of_dataset[0].set_ylim(min(middles) - room, max(middles) + room)
        of_dataset[0].set_ylabel(f"{dataset}\nlead in regret ×100")
    for axes, value in zip(panels[0], values, strict=True):
        axes.set_title(panel_title(result.grid, value))
    figure.supxlabel("clicks drawn", fontsize=9)
    add_legend(figure, panels[0, 0])
    save_figure(figure, stem, ("dataset", "value", "drawn", "mean", "low", "high"), rows)
