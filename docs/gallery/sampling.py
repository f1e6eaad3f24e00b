"""Why sampling: steps of one size instead of a few huge ones.

Each bar is a training step. IPS-SGD draws every click equally often and multiplies its gradient by
1/propensity: a few steps are huge, and the learning rate has to suit the largest. CounterSample
draws clicks in proportion to 1/propensity, and every step has the mean weight. Both have the same
sum on average.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from countersample import PositionBias, simulate_clicks, synthetic
from countersample.plans import Examples, make_plan

N_STEPS = 60


def draw() -> Axes:
    """Draw 60 steps of each plan on the same log."""
    data = synthetic("yahoo-like", n_queries=100, rng=0)
    log = simulate_clicks(data, data.features[:, 0], 5000, bias=PositionBias(1.0), rng=0)
    examples = Examples.of(log, "click")
    figure = Figure(figsize=(5.5, 3.6), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True, sharey=True)
    for ax, name, title in (
        (upper, "ips", "IPS-SGD: clicks drawn equally often"),
        (lower, "countersample", "CounterSample: clicks drawn in proportion to 1/propensity"),
    ):
        plan = make_plan(name, examples)
        rng = np.random.default_rng(1)
        drawn = rng.choice(len(plan.probabilities), N_STEPS, p=plan.probabilities)
        ax.bar(np.arange(N_STEPS), plan.multipliers[drawn], color="#3b4a9b")
        ax.set_title(title, fontsize=9)
        ax.set_ylabel("step weight")
    lower.set_xlabel("training step")
    return lower
