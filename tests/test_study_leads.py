"""The lead of CounterSample over IPS-SGD in the course of training."""

import csv

import numpy as np
import pytest
from study_results import METHODS, make_runs

from countersample.study.design.grids import COMPARED, Grid
from countersample.study.findings.figures import draw_leads
from countersample.study.findings.statistics import has_leads, lead, point_at
from countersample.study.findings.tables import leads_table
from countersample.study.results import Cell, StudyResult

DRAWN = np.array([10, 100, 200, 500, 1000])


def made(methods=METHODS, values=(0.5, 1.0)):
    """IPS-SGD stays at 0.6; CounterSample is 0.05, 0.04, … 0.01 ahead, by run a little more."""
    cells = {}
    for method in methods:
        ahead = np.array([5, 4, 3, 2, 1]) / 100 if method.name == "CounterSample" else 0.0
        by_run = np.array([[0.0], [0.01], [0.02]]) if method.name == "CounterSample" else 0.0
        for value in values:
            cells["a", method.name, value] = Cell(
                (1e-3,), DRAWN, 0.6 + ahead + by_run + np.zeros((3, 5)), np.full(3, 0.8),
                make_runs(), 0, np.ones(3),
            )  # fmt: skip
    grid = Grid(
        "mine", "Mine", "", "regret", methods=methods, reference="IPS-SGD", axis="gamma",
        axis_title="Position bias (γ)", values=values,
    )  # fmt: skip
    return StudyResult(grid, ("a",), cells, {"a": 0.8}, {"a": 0.5})


def test_the_lead_is_the_difference_of_regrets_up_to_there():
    """Means of 5; 5, 4; 5, 4, 3; … and 1 more from run to run."""
    result = made()
    leads = lead(result, "a", 1.0)
    assert leads[0] == pytest.approx([5, 4.5, 4, 3.5, 3])
    assert leads[2] - leads[0] == pytest.approx([2] * 5)
    ips, sampled = (result.cells["a", method.name, 1.0].regrets for method in COMPARED)
    assert leads[:, -1] == pytest.approx(100 * (ips - sampled))


def test_where_the_table_looks():
    """T is 1000: 10 is T/100, 100 is T/10."""
    assert [point_at(DRAWN, part) for part in (100, 10, 1)] == [0, 1, 4]
    assert point_at(DRAWN[1:], 100) is None


def test_table():
    table = leads_table(made())
    (group,) = table.groups
    assert [row.label for row in group.rows] == ["T/100", "T/10", "T"]
    assert [row.entries[1].value for row in group.rows] == pytest.approx([6, 5.5, 4])
    # Runs are 1 apart: s = 1, and t with 2 degrees of freedom is 4.303.
    assert group.rows[0].entries[0].half_width == pytest.approx(4.303 / np.sqrt(3), rel=1e-3)


def test_figure_and_its_data(tmp_path):
    draw_leads(made(), tmp_path / "lead")
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".pdf", ".png", ".svg"}
    with (tmp_path / "lead.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(DRAWN)
    assert [float(row["mean"]) for row in rows[:5]] == pytest.approx([6, 5.5, 5, 4.5, 4])
    assert [float(row["drawn"]) for row in rows[:5]] == DRAWN.tolist()


def test_a_study_without_one_of_the_two_has_none():
    without = made(tuple(method for method in METHODS if method.name != "IPS-SGD"))
    assert not has_leads(without)
