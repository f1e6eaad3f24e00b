"""Learning curves of the methods on the same clicks.

Each method was trained on three simulated logs of 20,000 clicks, at the learning rate that is best
for it on these test queries (of six, half a decade apart); the band is the range over the logs.
Biased-SGD learns position bias, too; IPS-SGD is slowed down by the largest weight, CounterSample
by the mean weight only.
"""

import numpy as np
from matplotlib.axes import Axes

from countersample import PositionBias, learning_curve, simulate_clicks, synthetic, train
from countersample.plotting import plot_learning_curve

METHODS = {  # plan, unit, learning rate
    "Biased-SGD": ("naive", "click", 3e-5),
    "IPS-SGD": ("ips", "click", 3e-6),
    "CounterSample": ("countersample", "click", 3e-6),
    "CounterSample by query": ("countersample", "query", 3e-6),
}


def curves() -> tuple[np.ndarray, dict[str, np.ndarray], float]:
    """Return the steps, nDCG@10 on test queries by method, (3 logs, 24 points), and the logged."""
    data = synthetic("yahoo-like", n_queries=250, rng=0).normalized("query-minmax")
    learned, test = data.split(0.7, 0.3, rng=0)
    logs = [
        simulate_clicks(learned, learned.features[:, 0], 20_000, bias=PositionBias(1.0), rng=seed)
        for seed in range(3)
    ]
    found = {}
    for name, (method, unit, rate) in METHODS.items():
        runs = [
            train(learned, log, learning_rate=rate, method=method, unit=unit, steps=12_000,
                  checkpoints=24, rng=0)
            for log in logs
        ]  # fmt: skip
        means = [learning_curve(run.history.average_coef, test, "ndcg@10") for run in runs]
        found[name] = np.array(means)
    first_feature = np.eye(1, test.n_features)
    return runs[0].history.steps, found, float(learning_curve(first_feature, test, "ndcg@10")[0])


def draw() -> Axes:
    """Train, evaluate, and draw."""
    steps, found, logged = curves()
    ax = None
    for name, values in found.items():
        ax = plot_learning_curve(
            steps, values, label=name, method=METHODS[name][:2], metric="nDCG@10", ax=ax
        )
    ax.axhline(logged, color="black", lw=0.9, ls=":", label="what was logged")
    ax.legend(loc="lower right")
    return ax
