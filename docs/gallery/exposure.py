"""Exposure: an item that is rarely shown has a small propensity.

Nine of ten sessions of a query show the items A, B and C. One session of ten shows D, A and B.
Position k is examined with probability 1/k. Item D is examined in one session of ten, although it
is at the top whenever it is shown, so a click on it counts ten times. Weights by position alone
count it once.
"""

import numpy as np
from matplotlib.axes import Axes

from countersample.pages.charts import new_axes

RANKINGS = {("A", "B", "C"): 0.9, ("D", "A", "B"): 0.1}  # with their share of the sessions
ITEMS = ("A", "B", "C", "D")


def draw() -> Axes:
    """Compute the exposure of each item, and draw it beside the examination where it was shown."""
    exposure = dict.fromkeys(ITEMS, 0.0)
    shown = dict.fromkeys(ITEMS, 0.0)
    for ranking, share in RANKINGS.items():
        for position, item in enumerate(ranking, start=1):
            exposure[item] += share / position
            shown[item] += share
    place = np.arange(len(ITEMS))
    by_position = [exposure[item] / shown[item] for item in ITEMS]
    _, ax = new_axes(6.5, 3.2)
    ax.bar(place - 0.2, by_position, 0.4, color="#cfcfcf", label="examined, if shown")
    ax.bar(
        place + 0.2, list(exposure.values()), 0.4, color="#3b4a9b",
        label="examined in a session (propensity)",
    )  # fmt: skip
    for k, item in enumerate(ITEMS):
        text = f"a click counts {1 / exposure[item]:.1f}"
        ax.annotate(text, (k, max(by_position[k], exposure[item]) + 0.03), ha="center", fontsize=8)
    ax.set(xticks=place, xticklabels=ITEMS, xlabel="item", ylabel="probability", ylim=(0, 1.4))
    ax.legend(loc="upper center", ncols=2, fontsize=8)
    return ax
