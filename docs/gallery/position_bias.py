"""Position bias: the same item is clicked less further down.

Users examine position k with probability 1/k. The item is relevant to half of the users, at every
position. Its click rate falls with the position, because a click needs examination and relevance.
Dividing the click rate by the examination probability gives the relevance back.
"""

import numpy as np
from matplotlib.axes import Axes

from countersample import PositionBias
from countersample.pages.charts import new_axes

RELEVANCE = 0.5
N_SESSIONS = 1000


def draw() -> Axes:
    """Simulate 1,000 sessions per position, and draw."""
    positions = np.arange(1, 11)
    examination = PositionBias(gamma=1.0).propensity(positions)
    rng = np.random.default_rng(0)
    click_rate = rng.binomial(N_SESSIONS, examination * RELEVANCE) / N_SESSIONS
    _, ax = new_axes(5.5, 3.3)
    ax.bar(positions, click_rate, color="#9aa7d6", label="click rate")
    ax.plot(
        positions, examination, color="black", marker="o", ms=3, label="examination probability"
    )
    ax.plot(
        positions, click_rate / examination, color="#c1440e", marker="s", ms=3,
        label="click rate / examination",
    )  # fmt: skip
    ax.set(xlabel="position", ylabel="probability", ylim=(0, 1.05), xticks=positions)
    ax.legend()
    return ax
