"""Examination probabilities, by every method that a log supports.

Three rankers served the same queries, so that items moved between positions. Every estimator that
can use this is drawn with its intervals, beside the position-bias curve of the simulation, 1/rank.
"""

import numpy as np
from matplotlib.axes import Axes

from countersample import synthetic
from countersample.clicks import simulate_impressions
from countersample.logs import PositionCounts
from countersample.plotting import plot_propensities
from countersample.propensity import cross_check


def draw() -> Axes:
    """Simulate three rankers, estimate, and draw."""
    data = synthetic("tiny", rng=0)
    noise = np.random.default_rng(0).standard_normal((3, data.n_items))
    logs = [
        simulate_impressions(data, data.labels + 2 * noise[i], 20_000, top=5, noise=0.2, rng=i)
        for i in range(3)
    ]
    counts = PositionCounts.from_columns(**{
        name: np.concatenate([log[name].to_numpy() for log in logs])
        for name in ("query_id", "item_id", "position", "click")
    })  # fmt: skip
    check = cross_check(counts, n_bootstrap=50, rng=0)
    ax = plot_propensities(check.estimates, log=True)
    positions = np.arange(1, 6)
    ax.plot(positions, 1 / positions, color="grey", lw=0.8, ls=":", label="the truth, 1/rank")
    ax.legend()
    return ax
