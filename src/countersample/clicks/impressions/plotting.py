"""The click rate of each position as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample._files import atomic_path
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from countersample.clicks.impressions.counts import PositionCounts

_Z = 1.959963984540054  # of a 95 % interval


def wilson_interval(
    clicks: NDArray[np.int64], impressions: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Wilson's 95 % interval of a rate: (p̂ + z²/2n ± z√(p̂(1−p̂)/n + z²/4n²)) / (1 + z²/n).

    >>> low, high = wilson_interval(np.array([5]), np.array([10]))
    >>> round(float(low[0]), 3), round(float(high[0]), 3)
    (0.237, 0.763)
    """
    n = impressions.astype(np.float64)
    rate = clicks / n
    middle = rate + _Z**2 / (2 * n)
    half = _Z * np.sqrt(rate * (1 - rate) / n + _Z**2 / (4 * n**2))
    scale = 1 + _Z**2 / n
    return np.maximum((middle - half) / scale, 0), np.minimum((middle + half) / scale, 1)


def draw_click_rates(counts: PositionCounts, path: Path) -> None:
    """Draw the click rate of each position with its 95 % interval into ``path`` (.png)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 (heavy)
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    if path.suffix != ".png":
        raise ParameterError(f"{path}: the picture is a PNG, expected a name that ends in .png")
    positions, impressions, clicks = counts.by_position
    rate = clicks / impressions
    low, high = wilson_interval(clicks, impressions)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    errors = np.clip([rate - low, high - rate], 0, None)
    axes.errorbar(positions, rate, yerr=errors, fmt="o-", color="#0072B2", capsize=2, lw=1.5, ms=4)
    axes.set_xlabel("position")
    axes.set_ylabel("click rate, with 95 % interval")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda y, _: f"{100 * y:g} %")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
