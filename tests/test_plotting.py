"""Functions that draw: what is on the Axes is what was given."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from countersample import ClickLog, plotting
from countersample.clicks import diagnose
from countersample.logs import PositionCounts
from countersample.plotting import (
    plot_click_rates,
    plot_gain,
    plot_learning_curve,
    plot_propensities,
    plot_weights,
    wilson_interval,
)
from countersample.propensity import Propensities

CURVE = Propensities([1, 0.5, 0.2], low=[1, 0.4, 0.0], high=[1, 0.6, 0.3],
                     n_impressions=[9, 9, 9], method="all-pairs")  # fmt: skip
LOG = ClickLog(query=[0, 0, 1, 1], item=[0, 1, 0, 3], propensity=[1, 0.5, 1, 0.1])
COUNTS = PositionCounts.from_columns(
    query_id=["a"] * 3, item_id=[7, 8, 9], position=[1, 2, 4], click=[60, 30, 5],
    impressions=[100, 90, 80],
)  # fmt: skip
GAIN = SimpleNamespace(relative=0.1, relative_low=0.02, relative_high=0.2)
DRAWN = {  # every plot there is, with something to draw
    "plot_click_rates": (COUNTS,),
    "plot_gain": (GAIN,),
    "plot_learning_curve": ([10, 20], [0.5, 0.6]),
    "plot_propensities": (CURVE,),
    "plot_weights": (diagnose(LOG),),
}


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture
def ax():
    return Figure().add_subplot()


def intervals(ax, which=0):
    """The ends of error bars, (n, 2)."""
    segments = ax.containers[which].lines[2][0].get_segments()
    return np.array([segment[:, 1] for segment in segments])


def test_every_plot_is_tested():
    assert set(DRAWN) == {name for name in plotting.__all__ if name.startswith("plot_")}


@pytest.mark.parametrize("name", DRAWN)
def test_draws_where_it_is_told_to(name, ax):
    assert getattr(plotting, name)(*DRAWN[name], ax=ax) is ax
    assert not plt.get_fignums()
    assert ax.get_xlabel()


def test_propensities(ax):
    plot_propensities(CURVE, ax=ax)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[1, 1], [2, 0.5], [3, 0.2]])
    np.testing.assert_allclose(intervals(ax), [[1, 1], [0.4, 0.6], [0, 0.3]])
    assert ax.get_ylim()[0] == 0
    assert ax.get_legend() is None


def test_click_rates(ax):
    plot_click_rates(COUNTS, ax=ax)
    rate = np.array([60 / 100, 30 / 90, 5 / 80])
    np.testing.assert_allclose(ax.lines[0].get_xydata(), np.stack([[1, 2, 4], rate]).T)
    expected = wilson_interval(np.array([60, 30, 5]), np.array([100, 90, 80]))
    np.testing.assert_allclose(intervals(ax), np.transpose(expected))


def test_weights(ax):
    plot_weights(diagnose(LOG), ax=ax)
    assert [bar.get_height() for bar in ax.patches] == [2, 1, 0, 1]  # 1–2, 2–4, 4–8, 8–16
    ax.figure.canvas.draw()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1–2", "2–4", "4–8", "8–16"]


def test_runs_of_a_learning_curve_have_a_mean_and_a_range(ax):
    runs = np.array([[0.5, 0.75], [0.75, 1]])
    plot_learning_curve([100, 200], runs, metric="ndcg@10", ax=ax)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[100, 0.625], [200, 0.875]])
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == 0.5
    assert band[:, 1].max() == 1
    assert ax.get_ylabel() == "ndcg@10"


@pytest.mark.parametrize(
    ("low", "high", "colour"),
    [(0.02, 0.2, "#009e73"), (-0.2, -0.02, "#d55e00"), (-0.02, 0.2, "#6e6e6e")],
)
def test_gain(low, high, colour, ax):
    plot_gain(SimpleNamespace(relative=0.1, relative_low=low, relative_high=high), ax=ax)
    zero, interval, point = ax.lines
    assert zero.get_xdata() == [0, 0]
    assert list(interval.get_xdata()) == [low, high]
    assert list(point.get_xdata()) == [0.1]
    assert to_hex(point.get_color()) == colour
    assert ax.get_xlim()[0] < min(low, 0)


def test_wilson_interval_covers(rng):
    """A closed form, against the coverage that it stands for."""
    n, p = np.full(20_000, 200), 0.05
    low, high = wilson_interval(rng.binomial(n, p), n)
    assert 0.93 < ((low <= p) & (p <= high)).mean() < 0.97
