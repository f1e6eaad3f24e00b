"""The numbers that the page draws: thinned, rounded, as plain values for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.pages.drawing import STYLES
from countersample.study.design.grids import COMPARED
from countersample.study.findings.figures import axis_positions, panel_title, spacing, whole_band
from countersample.study.findings.leads import has_leads, lead, lead_note
from countersample.study.findings.statistics import band
from countersample.study.findings.tables import column_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from countersample._arrays import Floats
    from countersample.study.design.grids import Method
    from countersample.study.results import Cell, StudyResult

MOST_POINTS = 200  # of a line on the page; the data files have all
_DECIMALS = 6
_PADDING = 0.06  # of the range of an axis, left free above and below the lines


def thin(n_points: int) -> NDArray[np.intp]:
    """Return which points of a line to keep: all, or half evenly spaced and half by logarithm.

    The first and the last are always kept, and both axes, linear and logarithmic, stay smooth.

    Examples
    --------
    >>> thin(3).tolist()
    [0, 1, 2]
    >>> len(thin(100_000)) <= MOST_POINTS
    True
    """
    if n_points <= MOST_POINTS:
        return np.arange(n_points)
    half = MOST_POINTS // 2
    even = np.linspace(0, n_points - 1, half)
    by_logarithm = np.geomspace(1, n_points, half) - 1
    return np.unique(np.rint(np.concatenate([even, by_logarithm])).astype(np.intp))


def curves_data(result: StudyResult) -> dict[str, Any]:
    """Return the learning curves of a study: a row of panels a dataset, a panel a value.

    Where the values are numbers, regret against them comes with it.
    """
    grid = result.grid
    numeric = len(grid.values) > 1 and not any(isinstance(value, str) for value in grid.values)
    return {
        "methods": [_shown(method) for method in grid.methods],
        "rows": [_row(result, dataset) for dataset in result.datasets],
        "versus": _versus(result) if numeric else None,
        "lead": _leads(result) if has_leads(result) else None,
    }


def toy_data(toy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the two-weight example with its methods as they are shown."""
    methods = [_shown(method) for method in COMPARED]
    return {**toy, "methods": methods}


def _shown(method: Method) -> dict[str, str]:
    """Return a method's name, plan and the class of its lines in report.css."""
    style = "-".join(method.look) if method.look in STYLES else "other"
    return {"name": method.name, "plan": method.plan, "style": style}


# -- learning curves -----------------------------------------------------------------------------


def _row(result: StudyResult, dataset: str) -> dict[str, Any]:
    grid = result.grid
    rules = {"w*": result.best[dataset], "logging policy": result.policy[dataset]}
    panels, in_view = [], [np.array(list(rules.values()))]
    for value in grid.values:
        cells = [result.cells[dataset, method.name, value] for method in grid.methods]
        in_view += [cell.mean_curve for cell in cells if not cell.n_diverged]
        lines = [_curve(cell) for cell in cells]
        panels.append({"title": panel_title(grid, value), "lines": lines})
    return {
        "title": dataset,
        "rules": [{"label": label, "y": round(y, _DECIMALS)} for label, y in rules.items()],
        "range": _range(in_view),
        "panels": panels,
    }


def _curve(cell: Cell) -> dict[str, Any]:
    """Return a line: its mean with a band, or with each of its runs where some diverged.

    An interval over sound and fallen runs would cover the panel.
    """
    kept = thin(len(cell.drawn))
    runs = cell.ndcg[:, kept]
    mean, low, high = band(runs, cell.runs)
    return {
        "x": cell.drawn[kept].tolist(),
        "mean": _rounded(mean),
        "half": _rounded((high - low) / 2) if len(cell.runs) > 1 and not cell.n_diverged else None,
        "runs": [_rounded(run) for run in runs] if cell.n_diverged else [],
        "note": cell.divergence,
    }


# -- the lead --------------------------------------------------------------------------------------


def _leads(result: StudyResult) -> dict[str, Any]:
    ips, sampled = COMPARED
    rows = []
    for dataset in result.datasets:
        panels, in_view = [], [np.zeros(1)]
        for value in result.grid.values:
            cell = result.cells[dataset, sampled.name, value]
            kept = thin(len(cell.drawn))
            leads = lead(result, dataset, value)[:, kept]
            mean, low, high = band(leads, cell.runs)
            note = lead_note(result, dataset, value)
            in_view += [] if note else [mean, low[-1:], high[-1:]]
            line = {
                "x": cell.drawn[kept].tolist(),
                "mean": _rounded(mean),
                "half": _rounded((high - low) / 2) if len(cell.runs) > 1 and not note else None,
                "runs": [],
                "note": note,
            }
            panels.append({"title": panel_title(result.grid, value), "lines": [line]})
        rows.append({"title": dataset, "range": _range(in_view), "panels": panels})
    return {
        "methods": [_shown(sampled) | {"name": "lead"}],
        "title": f"Lead of {sampled.name} over {ips.name} in the course of training",
        "rows": rows,
    }


# -- regret against the axis ---------------------------------------------------------------------


def _versus(result: StudyResult) -> dict[str, Any]:
    grid = result.grid
    positions = axis_positions(grid.values).tolist()
    return {
        "axis": grid.axis_title,
        "log": spacing(grid.values) == "log",
        "ticks": [[x, column_title(v)] for x, v in zip(positions, grid.values, strict=True)],
        "panels": [_regrets(result, dataset, positions) for dataset in result.datasets],
    }


def _regrets(result: StudyResult, dataset: str, positions: list[float]) -> dict[str, Any]:
    lines, in_view = [], [0.0]
    for method in result.grid.methods:
        cells = [result.cells[dataset, method.name, value] for value in result.grid.values]
        mean, low, high = np.array([whole_band(100 * cell.regrets, cell) for cell in cells]).T
        sound = np.array([not cell.n_diverged for cell in cells])
        in_view += mean[sound].tolist()
        half = np.where(sound, (high - low) / 2, 0.0)
        diverged = [
            f"{cell.divergence} at {column_title(value)}"
            for cell, value in zip(cells, result.grid.values, strict=True)
            if cell.n_diverged
        ]
        lines.append(
            {
                "x": positions,
                "mean": _rounded(mean),
                "half": _rounded(half) if len(cells[0].runs) > 1 else None,
                "runs": [],
                "note": ", ".join(diverged),
            }
        )
    return {"title": dataset, "lines": lines, "range": _range([np.array(in_view)])}


# -- numbers -------------------------------------------------------------------------------------


def _range(in_view: Iterable[Floats]) -> list[float]:
    """Return the ends of an axis that shows these values with some room."""
    values = np.concatenate(list(in_view))
    low, high = float(values.min()), float(values.max())
    room = _PADDING * (high - low) or _PADDING
    return [round(low - room, _DECIMALS), round(high + room, _DECIMALS)]


def _rounded(values: Floats) -> list[float]:
    rounded: list[float] = np.round(values, _DECIMALS).tolist()
    return rounded
