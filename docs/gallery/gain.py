"""The gain of a ranker, from clicks alone.

A ranker was trained on the clicks of some queries. The clicks of others say how much better it is
than what was logged, without a label: counterfactual (off-policy) evaluation.
"""

import numpy as np
from matplotlib.axes import Axes

from countersample import ClickLog, PositionBias, estimate_gain, simulate_clicks, synthetic, train
from countersample.clicks import simulate_impressions
from countersample.plotting import plot_gain


def draw() -> Axes:
    """Train on half of the queries, estimate on the others, and draw."""
    data = synthetic("tiny", n_queries=400, rng=0).normalized()
    learned, other = data.split(0.5, 0.5, rng=0)
    clicks = simulate_clicks(learned, learned.features[:, 0], 10_000, rng=0)
    ranker = train(learned, clicks, learning_rate=1e-3, steps=20_000, unit="query", rng=0)

    table = simulate_impressions(other, other.features[:, 0], 5000, rng=1)
    columns = {name: table[name].to_numpy() for name in table.column_names}
    log = ClickLog(
        query=np.searchsorted(other.query_ids, columns["query_id"]),
        item=columns["item_id"],
        propensity=PositionBias().propensity(columns["position"]),
        count=columns["click"],
        session=columns["session"],
        position=columns["position"],
    )
    return plot_gain(estimate_gain(other.features @ ranker.weights, log, other, rng=0))
