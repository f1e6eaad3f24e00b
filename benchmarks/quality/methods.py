"""The rankers that are compared: each takes a world and a seed, and scores its test items.

Ours get the click log with propensities "known" or "estimated". LightGBM and XGBoost themselves are
in `libraries.py`. All have the same time, `BUDGET`: theirs stop there, ours have so few trees,
epochs and steps that they stay below it.
"""

from dataclasses import dataclass, field
from functools import partial

import libraries
import numpy as np

from countersample import ClickLog, CounterSampleRanker
from countersample.gbdt import GBDTRanker
from countersample.torch import NeuralRanker

BUDGET = 10.0  # seconds of one core, for everything but the making of the world
# What stays within the budget; None is the default.
STEPS = {"OHSUMED": 6_000, "yahoo-like": 8_000, "istella-like": 6_000}
EPOCHS = {"OHSUMED": 10, "yahoo-like": 12, "istella-like": 10}
TREES = {"yahoo-like": 100, "istella-like": 75}


def linear(world, **settings):
    return CounterSampleRanker(unit="query", steps=STEPS.get(world.name), **settings)


def network(world, **settings):
    return NeuralRanker(epochs=EPOCHS.get(world.name, 20), **settings)


def trees(world, **settings):
    return GBDTRanker(
        n_trees=TREES.get(world.name, 200), patience=libraries.PATIENCE,
        backend_params={"force_col_wise": True}, **settings,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Ranked:
    """Scores of the test items, and what was chosen on the way."""

    scores: np.ndarray
    chosen: dict = field(default_factory=dict)


def logging(world, _seed, **_):
    return {"": Ranked(world.policy)}


def from_clicks(make, propensities, world, seed, **_):
    ranker = make(world, random_state=seed).fit_log(world.train, world.log(propensities))
    return {"": Ranked(ranker.predict(world.test))}


def supervised(make, world, seed, **_):
    """Full supervision: a user who sees everything and clicks an item as often as its label."""
    labels = ClickLog.from_labels(world.train)
    ranker = make(world, random_state=seed).fit_log(world.train, labels)
    return {"": Ranked(ranker.predict(world.test))}


def theirs(library, world, seed, **options):
    """Return the scores by how the number of trees was chosen."""
    n_trees, scores = libraries.learn(library, world, seed, **options)
    return {way: Ranked(scores[way], {"trees": n_trees[way]}) for way in n_trees}


def supervised_lambdarank(world, seed, *, growth, budget, **_):
    library = partial(libraries.LightGBM, gain="2^n - 1")
    options = {"growth": growth, "budget": budget, "rows_of": libraries.labelled_rows}
    return theirs(library, world, seed, **options)


LIBRARIES = {
    "LightGBM lambdarank": partial(libraries.LightGBM),
    "LightGBM lambdarank, position": partial(libraries.LightGBM, position=True),
    "XGBoost rank:ndcg, unbiased": partial(libraries.XGBoost),
}
# Of a page that shows the top 10
WITH_UNSHOWN = {
    f"{name}, with what was not shown": partial(theirs, library, rows_of=libraries.candidate_rows)
    for name, library in LIBRARIES.items()
}
# A method may give several rankings, by how it chose.
FROM_CLICKS = {
    "logging policy": logging,
    "linear, naive": partial(from_clicks, partial(linear, method="naive"), "none"),
    "linear, known propensities": partial(from_clicks, linear, "known"),
    "linear": partial(from_clicks, linear, "estimated"),
    "neural": partial(from_clicks, network, "estimated"),
    "trees": partial(from_clicks, trees, "estimated"),
    **{name: partial(theirs, library) for name, library in LIBRARIES.items()},
    **WITH_UNSHOWN,
}
FROM_LABELS = {
    "full supervision: linear": partial(supervised, linear),
    "full supervision: LightGBM": supervised_lambdarank,
}
METHODS = FROM_CLICKS | FROM_LABELS
