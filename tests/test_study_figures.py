"""Figures of studies: that they draw what the results say, in the paper's layout."""

import itertools

import numpy as np
import pytest
from scipy import stats

from countersample.study import figures
from countersample.study.figures import draw_leads, draw_panels
from countersample.study.grids import METHODS, Grid
from countersample.study.results import Cell, StudyResult
from countersample.study.statistics import lead

NAMES = ("Biased-SGD", "IPS-SGD", "CounterSample")
FOLDS = ("Fold1", "Fold2", "Fold3")


def make_result(rng, *, values=(0.5, 1.5), axis="gamma", title="Position bias (γ)", diverged=()):
    """Two datasets, one with folds; runs at `diverged` (method, value): the first two fall to 0."""
    cells = {}
    for (dataset, folds), name, value in itertools.product(
        (("yahoo-like", ("",)), ("mq2008", FOLDS)), NAMES, values
    ):
        runs = tuple((fold, seed) for fold in folds for seed in range(3))
        ndcg = 0.7 - 0.05 / np.arange(1, 5) + 0.01 * rng.random((len(runs), 4))
        if (name, value) in diverged:
            ndcg[:2, 2:] = 0
        cells[dataset, name, value] = Cell(
            learning_rates=(1e-4,) * len(folds),
            drawn=np.array([100, 200, 300, 400]),
            ndcg=ndcg,
            best=np.full(len(runs), 0.75),
            runs=runs,
            n_diverged=2 if (name, value) in diverged else 0,
            seconds=rng.random(len(runs)) + 1,
        )
    grid = Grid(
        "made", "Made", "", "regret", methods=tuple(METHODS[name] for name in NAMES),
        axis=axis, axis_title=title, values=values,
    )  # fmt: skip
    both = ("yahoo-like", "mq2008")
    return StudyResult(grid, both, cells, dict.fromkeys(both, 0.75), dict.fromkeys(both, 0.6))


@pytest.fixture
def drawn(monkeypatch):
    """What was drawn last: the figure and the rows of its data, with nothing written."""
    drawing = {}

    def keep(figure, stem, columns, rows):
        drawing.update(figure=figure, stem=stem, columns=columns, rows=list(rows))

    monkeypatch.setattr(figures, "save_figure", keep)
    return drawing


def expected_band(cell, values):
    """Student's interval by scipy, over runs or over the means of folds."""
    folds = dict.fromkeys(fold for fold, _ in cell.runs)
    sample = values
    if len(folds) > 1:
        is_of = [[fold == of for of, _ in cell.runs] for fold in folds]
        sample = np.array([values[rows].mean() for rows in is_of])
    low, high = stats.t.interval(0.95, len(sample) - 1, sample.mean(), stats.sem(sample))
    return sample.mean(), low, high


def curve_of(axes, name):
    (line,) = (line for line in axes.lines if line.get_label() == name)
    return line.get_ydata()


class TestPanels:
    def test_rows_are_datasets_and_columns_are_values(self, rng, drawn):
        result = make_result(rng)
        draw_panels(result, "stem")
        panels = np.array(drawn["figure"].axes).reshape(2, 2)
        assert [axes.get_title() for axes in panels[0]] == ["γ = 0.5", "γ = 1.5"]
        assert [axes.get_ylabel() for axes in panels[:, 0]] == [
            "yahoo-like\nnDCG@10", "mq2008\nnDCG@10",
        ]  # fmt: skip
        for (row, dataset), (column, value), name in itertools.product(
            enumerate(result.datasets), enumerate(result.grid.values), NAMES
        ):
            cell = result.cells[dataset, name, value]
            assert curve_of(panels[row, column], name) == pytest.approx(cell.ndcg.mean(axis=0))
        for row in panels:
            assert row[0].get_ylim() == row[1].get_ylim()

    def test_divergence_is_noted_and_stays_in_the_mean(self, rng, drawn):
        result = make_result(rng, diverged=[("IPS-SGD", 1.5)])
        draw_panels(result, "stem")
        first, second, *_ = drawn["figure"].axes
        assert not first.texts
        assert [text.get_text() for text in second.texts] == ["IPS-SGD: 2 of 3 diverged"]
        cell = result.cells["yahoo-like", "IPS-SGD", 1.5]
        assert curve_of(second, "IPS-SGD")[-1] == pytest.approx(cell.ndcg[2, -1] / 3)
        thin = [line for line in second.lines if line.get_linewidth() < 0.7]
        assert len([line for line in thin if len(line.get_ydata()) == 4]) == 3  # each run
        low, _ = second.get_ylim()
        assert low > 0.5  # the fall to 0 does not squeeze what is of interest


def test_the_lead_is_drawn_with_its_data(rng, drawn):
    """Names as values, too."""
    result = make_result(rng, values=("sgd", "adam"), axis="optimizer", title="Optimizer")
    draw_leads(result, "stem")
    assert [axes.get_title() for axes in drawn["figure"].axes[:2]] == ["SGD", "Adam"]
    assert len(drawn["rows"]) == 2 * 2 * 4
    for dataset, value, clicks, *numbers in drawn["rows"]:
        cell = result.cells[dataset, "CounterSample", value]
        leads = lead(result, dataset, value)[:, cell.drawn.tolist().index(clicks)]
        assert numbers == pytest.approx(expected_band(cell, leads))
