"""One of every kind of ranker, quick to train, and clicks to train it on: a new kind is added here."""

from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
from conftest import SEED

from countersample import CounterSampleRanker, simulate_clicks, synthetic
from countersample.gbdt import GBDTRanker
from countersample.torch import NeuralRanker

_TREES = {"n_trees": 6, "patience": 2, "num_leaves": 4, "min_items_in_leaf": 1}

RANKERS = {
    "linear": partial(CounterSampleRanker, learning_rate=0.01, steps=100),
    "neural": partial(
        NeuralRanker, hidden=(4,), learning_rate=0.01, batch_size=250, epochs=2, patience=1
    ),
    "lightgbm": partial(
        GBDTRanker, backend="lightgbm", **_TREES, backend_params={"num_threads": 1}
    ),
    "xgboost": partial(GBDTRanker, backend="xgboost", **_TREES, backend_params={"nthread": 1}),
}
# The library that trains it, where there is one, and the extra that has it.
LIBRARIES = {
    "neural": ("torch", "torch"),
    "lightgbm": ("lightgbm", "gbdt"),
    "xgboost": ("xgboost", "gbdt"),
}


def is_trainable(kind):
    return kind not in LIBRARIES or find_spec(LIBRARIES[kind][0]) is not None


KINDS = [
    pytest.param(
        kind, marks=pytest.mark.skipif(not is_trainable(kind), reason=f"{kind} is not installed")
    )
    for kind in RANKERS
]


def make(kind, **params):
    return RANKERS[kind](**{"random_state": SEED} | params)


def tiny(n_queries=40):
    """Return a dataset, and clicks on rankings by its first feature."""
    dataset = synthetic("tiny", n_queries=n_queries, rng=SEED)
    return dataset, simulate_clicks(dataset, dataset.features[:, 0], 2000, rng=SEED)


def as_table(dataset, log):
    """Return features, clicks, query ids and propensities, a row for each item."""
    merged = log.merge()
    rows = dataset.offsets[merged.query] + merged.item
    y, propensity = np.zeros(dataset.n_items), np.ones(dataset.n_items)
    y[rows], propensity[rows] = merged.count, merged.propensity
    return dataset.features, y, np.repeat(dataset.query_ids, dataset.query_sizes), propensity
