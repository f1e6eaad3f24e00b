"""Click rates by position.

What a raw log shows first. A rate that falls does not tell whether lower positions are examined
less or hold worse items: that takes items that moved.
"""

from matplotlib.axes import Axes

from countersample import synthetic
from countersample.clicks import simulate_impressions
from countersample.logs import read_impressions
from countersample.plotting import plot_click_rates


def draw() -> Axes:
    """Simulate a log of 5,000 sessions, count it, and draw."""
    data = synthetic("tiny", rng=0)
    table = simulate_impressions(data, data.features[:, 0], 5000, top=8, rng=0)
    return plot_click_rates(read_impressions(table).counts())
