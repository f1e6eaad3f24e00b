"""One of every kind of ranker, quick to train, and clicks to train it on.

A new kind is added to `RANKERS`; the tests ``test_rankers_*.py`` then run over it.
"""

from functools import cache, partial

import numpy as np
import pytest
from conftest import SEED
from requirements import is_available, skip_without

from countersample import CounterSampleRanker, simulate_clicks, synthetic
from countersample.data.preprocessing import SCALINGS
from countersample.gbdt import GBDTRanker
from countersample.torch import NeuralRanker

_TREES = {"n_trees": 6, "patience": 2, "num_leaves": 4, "min_items_in_leaf": 1, "safety": 0}

_NETWORK = {"hidden": (4,), "learning_rate": 0.01, "batch_size": 250, "epochs": 2, "patience": 1}
RANKERS = {
    "linear": partial(CounterSampleRanker, learning_rate=0.01, steps=100),
    "neural": partial(NeuralRanker, **_NETWORK, safety=0),
    "lightgbm": partial(
        GBDTRanker, backend="lightgbm", **_TREES, backend_params={"num_threads": 1}
    ),
    "xgboost": partial(GBDTRanker, backend="xgboost", **_TREES, backend_params={"nthread": 1}),
}
# The library that trains each kind, and the extra that installs it.
LIBRARIES = {
    "neural": ("torch", "torch"),
    "lightgbm": ("lightgbm", "gbdt"),
    "xgboost": ("xgboost", "gbdt"),
}
# Ways to bring features to scale; trees take no transforms.
SCALINGS = [{"normalize": how} for how in (None, *SCALINGS)] + [
    {"normalize": how, "feature_transform": transform}
    for how, transform in [
        ("minmax", "log"), ("query-minmax", "log"), ("standard", "root"), (None, "quantile"),
    ]
]  # fmt: skip
TRAINABLE = [kind for kind in RANKERS if kind not in LIBRARIES or is_available(LIBRARIES[kind][0])]


def each_of(kinds):
    """Run a test for each kind whose library is installed."""
    return pytest.mark.parametrize("kind", [pytest.param(k, marks=marks_of(k)) for k in kinds])


def marks_of(kind):
    """Return the marks of tests of this kind: skipped if its library is missing."""
    return [skip_without(LIBRARIES[kind][0])] if kind in LIBRARIES else []


every = each_of(RANKERS)


def each_scaling(test):
    """Run a test with every scaling for the linear ranker, and with one or two for the others."""
    some = {"linear": SCALINGS, "neural": SCALINGS[-2:], "lightgbm": SCALINGS[:1],
            "xgboost": SCALINGS[1:2]}  # fmt: skip
    pairs = [(kind, scaling) for kind, scalings in some.items() for scaling in scalings]
    cases = [pytest.param(k, s, marks=marks_of(k), id=f"{k}-{s}") for k, s in pairs]
    return pytest.mark.parametrize(("kind", "scaling"), cases)(test)


def make(kind, **params):
    return RANKERS[kind](**{"random_state": SEED} | params)


@cache
def tiny():
    """Return a dataset, and clicks on rankings by its first feature."""
    dataset = synthetic("tiny", n_queries=40, rng=SEED)
    return dataset, simulate_clicks(dataset, dataset.features[:, 0], 2000, rng=SEED)


@cache
def table():
    """Return the same as rows: features, clicks, query ids and propensities."""
    dataset, log = tiny()
    merged = log.merge()
    rows = dataset.offsets[merged.query] + merged.item
    y, propensity = np.zeros(dataset.n_items), np.ones(dataset.n_items)
    y[rows], propensity[rows] = merged.count, merged.propensity
    return dataset.features, y, np.repeat(dataset.query_ids, dataset.query_sizes), propensity


@cache
def fitted(kind):
    """Return a ranker that is trained once: not to be changed."""
    return make(kind).fit_log(*tiny())


def fit(ranker, table):
    X, y, qid, propensity = table  # noqa: N806 (X is the field's name for it)
    return ranker.fit(X, y, qid=qid, propensity=propensity)
