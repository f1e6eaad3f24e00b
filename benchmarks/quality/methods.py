"""The rankers that are compared: each takes a world and a seed, and scores its test items.

Ours get the click log with propensities "known" or "estimated", and choose how far to clip by
held-out clicks (``clip="auto"``). LightGBM and XGBoost themselves are in `libraries.py`. All have
the same time, `BUDGET`: theirs stop there, ours have so few trees, epochs and steps that they stay
below it.
"""

import time
from dataclasses import dataclass, field
from functools import lru_cache, partial

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


@lru_cache(maxsize=1)
def linear_of(world, seed):
    """Return the linear ranker with estimated propensities, and the seconds that it took."""
    begin = time.process_time()
    ranker = linear(world, clip="auto", random_state=seed)
    ranker.fit_log(world.train, world.log("estimated"))
    return ranker, time.process_time() - begin


def with_estimated(world, seed, **_):
    ranker, seconds = linear_of(world, seed)
    chosen = {"clip": ranker.clip_, "seconds": round(seconds, 2)}
    return {"": Ranked(ranker.predict(world.test), chosen)}


def with_others(propensities, method, world, seed, **_):
    ranker = linear(world, method=method, clip="auto", random_state=seed)
    ranker.fit_log(world.train, world.log(propensities))
    return {"": Ranked(ranker.predict(world.test), {"clip": ranker.clip_})}


def clipped(make, world, seed, **_):
    """As ``clip="auto"`` does, but a linear ranker chooses once for all rankers of a log."""
    chooser, seconds = linear_of(world, seed)
    begin = time.process_time()
    ranker = make(world, clip=chooser.clip_, random_state=seed)
    ranker.fit_log(world.train, world.log("estimated"))
    seconds += time.process_time() - begin
    chosen = {"clip": chooser.clip_, "seconds": round(seconds, 2)}
    return {"": Ranked(ranker.predict(world.test), chosen)}


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
    "linear, naive": partial(with_others, "none", "naive"),
    "linear, known propensities": partial(with_others, "known", "countersample"),
    "linear": with_estimated,
    "neural": partial(clipped, network),
    "trees": partial(clipped, trees),
    **{name: partial(theirs, library) for name, library in LIBRARIES.items()},
    **WITH_UNSHOWN,
}
FROM_LABELS = {
    "full supervision: linear": partial(supervised, linear),
    "full supervision: LightGBM": supervised_lambdarank,
}
METHODS = FROM_CLICKS | FROM_LABELS
