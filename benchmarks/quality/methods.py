"""The rankers that are compared: each takes a world and a seed, and scores its test items.

Ours get the click log with propensities "known" or "estimated", and choose how far to clip by
held-out clicks (``clip="auto"``). The libraries' own get the same clicks as rows of a policy, query
and item, in the order shown, with the number of clicks as label (and gain), and choose the number
of trees by nDCG@10 of the clicks on a fifth of the queries.
"""

from functools import partial

import numpy as np

from countersample import ClickLog, CounterSampleRanker
from countersample.gbdt import GBDTRanker
from countersample.torch import NeuralRanker

ROUNDS, PATIENCE = 500, 50
LEARNING_RATE, LEAVES, LEAST = 0.05, 15, 50
HOLDOUT = 0.2
TREES = 300  # of ours, which grow six times: for each fifth of the queries, and at last


def logging(world, _seed):
    return world.policy


def ours(make, propensities, world, seed):
    log = world.log(propensities)
    ranker = make(clip="auto", random_state=seed).fit_log(world.train, log)
    return ranker.predict(world.test)


def supervised(make, world, seed):
    """Full supervision: a user who sees everything and clicks an item as often as its label."""
    labels = ClickLog.from_labels(world.train)
    return make(random_state=seed).fit_log(world.train, labels).predict(world.test)


class Rows:
    """A table for the libraries: rows of a group are adjacent, groups of held-out queries last."""

    def __init__(self, world, seed, *, full):
        train, shown = world.train, world.shown
        if full:  # each query once, by its labels
            query = np.repeat(np.arange(train.n_queries), train.query_sizes)
            row, label, group = np.arange(train.n_items), train.labels, query
            position = row - train.offsets[query] + 1
        else:
            query, label, position = shown.query, shown.clicks, shown.position
            row = train.offsets[query] + shown.item
            group = shown.policy * train.n_queries + query
        held_out = np.random.default_rng(seed).random(train.n_queries) < HOLDOUT
        order = np.lexsort((position, group, held_out[query]))
        self.features, self.label = train.features[row[order]], label[order].astype(int)
        self.position, self.group = position[order], group[order]
        self.n_train = int((~held_out[query]).sum())

    def part(self, held_out):
        """Return features, labels, positions and sizes of groups, of one of the two parts."""
        rows = slice(self.n_train, None) if held_out else slice(self.n_train)
        sizes = np.diff(np.flatnonzero(np.diff(self.group[rows], prepend=-1, append=-1)))
        return self.features[rows], self.label[rows], self.position[rows], sizes


def lightgbm(world, seed, *, full=False, with_position=False):
    import lightgbm as lgb

    rows = Rows(world, seed, full=full)
    gains = list(range(int(rows.label.max()) + 1))
    params = {
        "objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "verbosity": -1, "seed": seed,
        "learning_rate": LEARNING_RATE, "num_leaves": LEAVES, "min_data_in_leaf": LEAST,
        "label_gain": [2.0**gain - 1 for gain in gains] if full else gains,
    }  # fmt: skip
    sets = []
    for held_out in (False, True):
        features, label, position, sizes = rows.part(held_out)
        at = position - 1 if with_position else None
        sets.append(
            lgb.Dataset(features, label, group=sizes, position=at, params={"verbosity": -1},
                        reference=sets[0] if sets else None)
        )  # fmt: skip
    stop = lgb.early_stopping(PATIENCE, verbose=False)
    model = lgb.train(params, sets[0], ROUNDS, valid_sets=[sets[1]], callbacks=[stop])
    return model.predict(world.test.features)


def xgboost(world, seed, *, full=False):
    import xgboost as xgb

    rows = Rows(world, seed, full=full)
    params = {
        "objective": "rank:ndcg", "eval_metric": "ndcg@10", "eta": LEARNING_RATE, "seed": seed,
        "tree_method": "hist", "grow_policy": "lossguide", "max_leaves": LEAVES, "max_depth": 0,
        "ndcg_exp_gain": full, "lambdarank_unbiased": not full, "verbosity": 0,
    }  # fmt: skip
    sets = []
    for held_out in (False, True):
        features, label, _, sizes = rows.part(held_out)
        query = np.repeat(np.arange(len(sizes)), sizes)
        sets.append(xgb.DMatrix(features, label, qid=query))
    model = xgb.train(
        params, sets[0], ROUNDS, evals=[(sets[1], "validation")], verbose_eval=False,
        early_stopping_rounds=PATIENCE,
    )  # fmt: skip
    best = (0, model.best_iteration + 1)
    return model.predict(xgb.DMatrix(world.test.features), iteration_range=best)


LINEAR = {
    "IPS-SGD": partial(CounterSampleRanker, method="ips", unit="click"),
    "CounterSample": partial(CounterSampleRanker, unit="click"),
    "CounterSample by query": partial(CounterSampleRanker, unit="query"),
}
OURS = LINEAR | {
    "neural": NeuralRanker,
    "ours on LightGBM": partial(GBDTRanker, backend="lightgbm", n_trees=TREES, patience=30),
    "ours on XGBoost": partial(GBDTRanker, backend="xgboost", n_trees=TREES, patience=30),
}

METHODS = (
    {"logging policy": logging}
    | {"naive linear": partial(ours, partial(LINEAR["CounterSample"], method="naive"), "none")}
    | {name: partial(ours, make, "known") for name, make in OURS.items()}
    | {f"{name}, estimated": partial(ours, make, "estimated") for name, make in OURS.items()}
    | {
        "LightGBM lambdarank, naive": lightgbm,
        "LightGBM lambdarank, position": partial(lightgbm, with_position=True),
        "XGBoost rank:ndcg, unbiased": xgboost,
        "full supervision: linear": partial(supervised, LINEAR["CounterSample by query"]),
        "full supervision: neural": partial(supervised, NeuralRanker),
        "full supervision: ours on LightGBM": partial(supervised, OURS["ours on LightGBM"]),
        "full supervision: LightGBM": partial(lightgbm, full=True),
        "full supervision: XGBoost": partial(xgboost, full=True),
    }
)
