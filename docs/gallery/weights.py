"""The weights of a log.

A click counts 1/propensity. A few clicks far down the list have most of the weight: their largest
is M, which slows down IPS-SGD; the mean of all is M̄, which slows down CounterSample.
"""

from matplotlib.axes import Axes

from countersample import PositionBias, simulate_clicks, synthetic
from countersample.clicks import diagnose
from countersample.plotting import plot_weights


def draw() -> Axes:
    """Simulate 20,000 clicks with strong position bias, and draw."""
    data = synthetic("yahoo-like", n_queries=200, rng=0)
    log = simulate_clicks(data, data.features[:, 0], 20_000, bias=PositionBias(1.0), rng=0)
    ax = plot_weights(diagnose(log))
    ax.set_title(f"M = {log.max_weight:.0f}, M̄ = {log.mean_weight:.1f}")
    return ax
