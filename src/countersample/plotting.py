"""Plots of propensities, click rates, weights, learning curves and gains.

Each function takes ``ax``, the Axes to draw on, or makes new ones with pyplot, and returns them.
Matplotlib is imported when something is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from countersample.defaults import CONFIDENCE
from countersample.pages.charts import (
    MAIN,
    MARKED,
    draw_band,
    figure_style,
    set_log,
    short_number,
    style_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.clicks import Diagnosis
    from countersample.evaluation import Gain
    from countersample.logs import PositionCounts
    from countersample.propensity import Propensities

__all__ = [
    "plot_click_rates",
    "plot_gain",
    "plot_learning_curve",
    "plot_propensities",
    "plot_weights",
    "wilson_interval",
]
_QUANTILE = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)  # half the width of a normal interval
_LEVEL_DASHES = ("-", (0, (4, 3)), (0, (1, 2)))
_OUTCOME_COLOURS = {"better": "#009E73", "worse": "#D55E00", "not shown": "#6E6E6E"}


@figure_style()
def plot_propensities(
    curves: Propensities | Mapping[str, Propensities],
    *,
    log: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the examination probability of each position with its interval.

    Parameters
    ----------
    curves : Propensities, or a mapping of names to them
        Such as `CrossCheck.estimates`; several are drawn beside each other.
    log : bool
        Whether the axis of propensities is logarithmic.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from countersample.plotting import plot_propensities
    >>> from countersample.propensity import Propensities
    >>> curve = Propensities([1, 0.5], low=[1, 0.4], high=[1, 0.6], n_impressions=[9, 9],
    ...                      method="all-pairs")
    >>> plot_propensities(curve).get_ylabel()
    'propensity, position 1 = 1'
    """
    ax = _new_axes() if ax is None else ax
    by_name = curves if isinstance(curves, Mapping) else {curves.method: curves}
    for at, (name, curve) in enumerate(by_name.items()):
        colour, marker = MARKED[at % len(MARKED)] if len(by_name) > 1 else (MAIN, "o")
        shift = 0.08 * (at - (len(by_name) - 1) / 2)
        low = np.maximum(curve.low, curve.value / 1000 if log else 0)  # a log axis has no 0
        error = np.abs(np.stack([low, curve.high]) - curve.value)
        ax.errorbar(curve.position + shift, curve.value, error, label=name, color=colour,
                    marker=marker, ms=4, lw=1.2, elinewidth=0.9, capsize=2)  # fmt: skip
    if log:
        set_log(ax, "y")
    else:
        ax.set_ylim(bottom=0)
    if len(by_name) > 1:
        ax.legend()
    _position_axis(ax)
    ax.set_ylabel("propensity, position 1 = 1")
    return ax


@figure_style()
def plot_click_rates(counts: PositionCounts, *, ax: Axes | None = None) -> Axes:
    """Draw the click rate of each position with its 95 % interval (Wilson's).

    Examples
    --------
    >>> from countersample.logs import PositionCounts
    >>> from countersample.plotting import plot_click_rates
    >>> counts = PositionCounts.from_columns(
    ...     query_id=["a", "a"], item_id=[7, 8], position=[1, 2], click=[6, 3],
    ...     impressions=[10, 10],
    ... )
    >>> plot_click_rates(counts).lines[0].get_ydata()
    array([0.6, 0.3])
    """
    ax = _new_axes() if ax is None else ax
    positions, impressions, clicks = counts.by_position
    rate = clicks / impressions
    low, high = wilson_interval(clicks, impressions)
    error = np.clip([rate - low, high - rate], 0, None)
    ax.errorbar(positions, rate, error, fmt="o-", color=MAIN, capsize=2, lw=1.5, ms=4)
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_formatter(lambda y, _: f"{100 * y:g} %")
    _position_axis(ax)
    ax.set_ylabel(f"click rate, with {100 * CONFIDENCE:g} % interval")
    return ax


@figure_style()
def plot_weights(diagnosis: Diagnosis, *, ax: Axes | None = None) -> Axes:
    """Draw the clicks by weight, of the result of `countersample.clicks.diagnose`.

    There is one bar per doubling of the weight, 1/propensity.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> from countersample.clicks import diagnose
    >>> from countersample.plotting import plot_weights
    >>> log = ClickLog(query=[0, 0, 1], item=[0, 1, 0], propensity=[1, 0.5, 1])
    >>> [float(bar.get_height()) for bar in plot_weights(diagnose(log)).patches]
    [2.0, 1.0]
    """
    ax = _new_axes() if ax is None else ax
    names = [f"{low:g}–{high:g}" for low, high, _ in diagnosis.histogram]
    bars = ax.bar(names, [clicks for _, _, clicks in diagnosis.histogram], color=MAIN)
    ax.bar_label(bars, fmt="{:,.0f}", fontsize=7, padding=1)
    ax.margins(y=0.1)
    ax.grid(visible=False, axis="x")
    ax.yaxis.set_major_formatter(short_number)
    if len(names) > 6:
        ax.tick_params(axis="x", labelrotation=45)
    ax.set(xlabel="weight, 1/propensity", ylabel="clicks")
    return ax


@figure_style()
def plot_learning_curve(
    steps: ArrayLike,
    values: ArrayLike,
    *,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    label: str = "",
    method: tuple[str, str] = ("countersample", "click"),
    metric: str = "",
    levels: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a metric during training; call it once per method, on the same Axes.

    Parameters
    ----------
    steps : array (n_points,)
    values : array (n_points,) or (n_runs, n_points)
        The mean of several runs is drawn, within their range.
    low, high : arrays (n_points,), optional
        The ends of an interval, drawn as a band.
    label : str
        The name in the legend.
    method : pair of str
        Plan and unit, which determine colour and dashes.
    metric : str
        The label of the axis.
    levels : mapping of str to float, optional
        Horizontal lines to compare with, by name.
    ax : matplotlib Axes, optional

    Examples
    --------
    >>> from countersample.plotting import plot_learning_curve
    >>> ax = plot_learning_curve([100, 200], [[0.5, 0.75], [0.75, 1]], metric="ndcg@10")
    >>> ax.lines[0].get_ydata()
    array([0.625, 0.875])
    """
    ax = _new_axes() if ax is None else ax
    runs = np.atleast_2d(np.asarray(values, np.float64))
    if low is None and len(runs) > 1:
        low, high = runs.min(axis=0), runs.max(axis=0)
    draw_band(ax, steps, runs.mean(axis=0), low, high, style=style_of(*method), label=label)
    for (name, level), dash in zip((levels or {}).items(), _LEVEL_DASHES, strict=False):
        ax.axhline(level, color="black", lw=0.9, ls=dash, label=name)
    ax.xaxis.set_major_formatter(short_number)
    if ax.get_legend_handles_labels()[1]:
        ax.legend()
    ax.set(xlabel="steps", ylabel=metric)
    return ax


@figure_style()
def plot_gain(gain: Gain, *, ax: Axes | None = None) -> Axes:
    """Draw the relative gain over the current ranker, of the result of `estimate_gain`.

    It is drawn with its interval, beside 0.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from countersample.plotting import plot_gain
    >>> gain = SimpleNamespace(relative=0.16, relative_low=0.14, relative_high=0.18)
    >>> plot_gain(gain).get_xlabel()
    'gain over your current ranker'
    """
    ax = _new_axes(height=1.2) if ax is None else ax
    low, high = gain.relative_low, gain.relative_high
    outcome = "better" if low > 0 else "worse" if high < 0 else "not shown"
    colour = _OUTCOME_COLOURS[outcome]
    ax.axvline(0, color="black", lw=0.9, ls=(0, (4, 3)))
    ax.plot([low, high], [0, 0], color=colour, lw=5, alpha=0.5, solid_capstyle="round")
    ax.plot(gain.relative, 0, "o", color=colour, ms=7)
    ax.margins(x=0.12)
    ax.set(yticks=[], xlabel="gain over your current ranker")
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_formatter(lambda x, _: f"{100 * x:+g} %" if x else "0")
    ax.locator_params(axis="x", nbins=5)
    return ax


def wilson_interval(
    clicks: NDArray[np.int64], impressions: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Return Wilson's 95 % interval of a rate: (p̂ + z²/2n ± z√(p̂(1−p̂)/n + z²/4n²)) / (1 + z²/n).

    >>> low, high = wilson_interval(np.array([5]), np.array([10]))
    >>> round(float(low[0]), 3), round(float(high[0]), 3)
    (0.237, 0.763)
    """
    n = impressions.astype(np.float64)
    rate = clicks / n
    middle = rate + _QUANTILE**2 / (2 * n)
    half = _QUANTILE * np.sqrt(rate * (1 - rate) / n + _QUANTILE**2 / (4 * n**2))
    whole = 1 + _QUANTILE**2 / n
    return np.maximum((middle - half) / whole, 0), np.minimum((middle + half) / whole, 1)


def _new_axes(width: float = 5.5, height: float = 3.3) -> Axes:
    from matplotlib import pyplot as plt  # noqa: PLC0415 (heavy)

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def _position_axis(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 (heavy)

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("position")
