"""What LightGBM and XGBoost do themselves with the same clicks.

They get a row for each policy, query and item that was shown, with the number of clicks as label
and as gain; the rows of a policy and query are a group. Where a page shows the top 10, they may get
all other items of the query as well, as not clicked. The number of trees is chosen as it is for our
own trees: parts of the queries are held out in turn, and what is best for all of them together is
grown on everything. It is chosen in two ways:

by their nDCG
    the library's own nDCG@10 of the clicks on the held-out rows, as its early stopping has it
by our estimate
    the held-out clicks by inverse propensity, those propensities estimated: `HeldOut`

Neither sees a label. Libraries break ties by the order of the rows. Held-out rows in the order
shown would reward a ranker that has ties in the order logged, so they are shuffled; so are rows to
learn from, but for XGBoost's `lambdarank_unbiased`, which takes their order for their position.
"""

import time
from dataclasses import dataclass

import numpy as np

from countersample import ClickLog
from countersample.evaluation import HeldOut

ROUNDS, PATIENCE = 500, 20
METRIC = "dcg@10"
JUDGES = 0.6  # of the queries, in three parts that are held out in turn
CHOOSING = 0.7  # of the time: three times on four fifths, and then once on everything
LEAVES, LEAST, BINS = 15, 50, 64
# As trees of `GBDTRanker` grow, on half of the rows and few features each; or slower, on all.
GROWTHS = {
    "sampled": {"rate": 0.1, "rows": 0.5, "features": 20},
    "whole": {"rate": 0.05, "rows": 1.0, "features": np.inf},
}
BY_NDCG, BY_ESTIMATE = "by their nDCG", "by our estimate"


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of some queries; those of a group are adjacent, `sizes` says how many they are."""

    features: np.ndarray
    label: np.ndarray
    position: np.ndarray
    sizes: np.ndarray

    @property
    def group(self):
        """The number of the group of each row."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def clicked_rows(world, is_wanted, *, order, rng):
    """Return what was shown of the queries that are wanted, in the order "shown" or "shuffled"."""
    train, shown = world.train, world.shown
    kept = np.flatnonzero(is_wanted[shown.query])
    row = (train.offsets[shown.query] + shown.item)[kept]
    group = (shown.policy * train.n_queries + shown.query)[kept]
    return _rows(train, row, shown.clicks[kept], shown.position[kept], group, order, rng)


def candidate_rows(world, is_wanted, *, order, rng):
    """Return what was shown, and below it as not clicked what the page had no room for."""
    train, shown = world.train, world.shown
    query = np.repeat(np.arange(train.n_queries), train.query_sizes)
    n_policies = shown.policy.max() + 1
    clicks = np.zeros((n_policies, train.n_items), int)
    position = np.full((n_policies, train.n_items), shown.position.max() + 1)
    row = train.offsets[shown.query] + shown.item
    clicks[shown.policy, row], position[shown.policy, row] = shown.clicks, shown.position
    is_there = np.zeros((n_policies, train.n_queries), bool)
    is_there[shown.policy, shown.query] = True  # a policy may have had no session of a query
    policy, row = np.nonzero(is_there[:, query] & is_wanted[query])
    group = policy * train.n_queries + query[row]
    return _rows(train, row, clicks[policy, row], position[policy, row], group, order, rng)


def labelled_rows(world, is_wanted, *, order, rng):
    """Return each query once, with its labels: full supervision."""
    train = world.train
    query = np.repeat(np.arange(train.n_queries), train.query_sizes)
    row = np.flatnonzero(is_wanted[query])
    return _rows(train, row, train.labels[row], np.ones(len(row), int), query[row], order, rng)


def _rows(train, row, label, position, group, order, rng):
    by_chance = rng.random(len(row))
    keys = (by_chance, position, group) if order == "shown" else (by_chance, group)
    sort = np.lexsort(keys)
    return Rows(
        train.features[row[sort]],
        label[sort].astype(int),
        position[sort],
        np.unique(group, return_counts=True)[1],
    )


def share_of_features(growth, n_features):
    """Return the share of the features that a tree is grown on: a fifth, but not too few."""
    return min(1.0, max(0.2, growth["features"] / n_features))


class LightGBM:
    """Trees of `lambdarank`, grown one by one on some rows, and judged on others.

    `whole` has the bins of the features, `to_score` are the features of held-out queries.
    """

    trains_in = "shuffled"

    def __init__(self, rows, whole=None, held_out=None, to_score=None, *, position=False, gain="n"):
        import lightgbm as lgb

        params = {"verbosity": -1, "feature_pre_filter": False, "force_col_wise": True}
        whole = None if whole is None else whole.train
        at = rows.position - 1 if position else None
        self.train = lgb.Dataset(
            rows.features, rows.label, group=rows.sizes, position=at, reference=whole, params=params
        )
        self._valid = []
        most = rows.label.max()
        if held_out is not None:
            most = max(most, held_out.label.max())
            for features, label, sizes in (
                (held_out.features, held_out.label, held_out.sizes),
                (to_score, np.zeros(len(to_score)), [len(to_score)]),
            ):
                valid = lgb.Dataset(features, label, group=sizes, reference=whole, params=params)
                self._valid.append(valid)
        gains = np.arange(int(most) + 1)
        self._params = {
            "objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "min_data_in_leaf": LEAST,
            "label_gain": {"n": gains, "2^n - 1": 2.0**gains - 1}[gain].tolist(), "num_threads": 1,
        } | params  # fmt: skip

    def begin(self, growth, seed):
        """Forget the trees."""
        import lightgbm as lgb

        self.train.construct()
        self._booster = lgb.Booster(
            self._params | {
                "learning_rate": growth["rate"], "num_leaves": LEAVES, "seed": seed,
                "bagging_fraction": growth["rows"], "bagging_freq": 1,
                "feature_fraction": share_of_features(growth, self.train.num_feature()),
            },
            self.train,
        )  # fmt: skip
        for k, dataset in enumerate(self._valid):
            self._booster.add_valid(dataset, str(k))
        return self

    def advance(self):
        """Grow a tree."""
        self._booster.update()

    def judged(self):
        """Return nDCG@10 of the clicks on the held-out rows, and the scores of what to score."""
        seen = []

        def see(scores, _data):
            seen.append(scores)
            return "", 0.0, True

        told = self._booster.eval_valid(see)
        return told[0][2], seen[1]

    def predict(self, features):
        """Return the scores of items."""
        return self._booster.predict(features)


class XGBoost:
    """Trees of `rank:ndcg` with `lambdarank_unbiased`; otherwise as `LightGBM`."""

    trains_in = "shown"

    def __init__(self, rows, whole=None, held_out=None, to_score=None):
        import xgboost as xgb

        whole = None if whole is None else whole.train

        def table(features, label=None, group=None):
            return xgb.QuantileDMatrix(
                features, label, qid=group, ref=whole, max_bin=BINS, nthread=1
            )

        self.train = table(rows.features, rows.label, rows.group)
        self._valid = []
        if held_out is not None:
            self._valid.append(table(held_out.features, held_out.label, held_out.group))
            self._valid.append(table(to_score))

    def begin(self, growth, seed):
        """Forget the trees."""
        import xgboost as xgb

        self._booster = xgb.Booster(
            {
                "objective": "rank:ndcg", "eval_metric": "ndcg@10", "lambdarank_unbiased": True,
                "ndcg_exp_gain": False, "tree_method": "hist", "max_bin": BINS, "seed": seed,
                "grow_policy": "lossguide", "max_depth": 0, "max_leaves": LEAVES,
                "eta": growth["rate"], "subsample": growth["rows"],
                "colsample_bytree": share_of_features(growth, self.train.num_col()),
                "verbosity": 0, "nthread": 1,
            },
            [self.train, *self._valid],
        )  # fmt: skip
        self._n_trees = 0
        return self

    def advance(self):
        """Grow a tree."""
        self._booster.update(self.train, self._n_trees)
        self._n_trees += 1

    def judged(self):
        """Return nDCG@10 of the clicks on the held-out rows, and the scores of what to score."""
        told = self._booster.eval_set([(self._valid[0], "rows")], self._n_trees)
        scores = self._booster.predict(self._valid[1], output_margin=True)
        return float(told.rsplit(":", 1)[1]), scores

    def predict(self, features):
        """Return the scores of items."""
        import xgboost as xgb

        return self._booster.predict(xgb.DMatrix(features), output_margin=True)


def curves(folds, held_out, growth, seed, *, until):
    """Grow a tree for each part in turn, until neither value has been better for a while.

    Returns both values after each tree, (n_trees, 2): by their nDCG and by our estimate. No tree is
    begun after `until`, in seconds of this process.
    """
    growing = [fold.begin(growth, seed) for fold in folds]
    values = []
    while len(values) < ROUNDS and (not values or time.process_time() < until):
        for each in growing:
            each.advance()
        own, scores = zip(*(each.judged() for each in growing), strict=True)
        values.append((np.mean(own), held_out.value(held_out.sums(scores))))
        if len(values) - 1 - np.argmax(values, axis=0).max() >= PATIENCE:
            break
    return np.array(values)


def learn(
    library, world, seed, *, budget, order="shuffled", growth="sampled", rows_of=clicked_rows
):
    """Return the number of trees that each way chose, and their scores of the test items.

    ``order`` is that of held-out rows, ``growth`` how a tree grows, ``budget`` in seconds of this
    process.
    """
    begin, growth = time.process_time(), GROWTHS[growth]
    rng = np.random.default_rng(seed)
    n_queries, trains_in = world.train.n_queries, library.func.trains_in
    is_labelled = rows_of is labelled_rows
    log = ClickLog.from_labels(world.train) if is_labelled else world.log("estimated")
    held_out = HeldOut(world.train, log, METRIC, least_queries=int(JUDGES * n_queries), rng=rng)
    everything = rows_of(world, np.ones(n_queries, bool), order=trains_in, rng=rng)
    whole = library(everything)
    folds = []
    for fold in held_out.folds:
        is_held_out = np.zeros(n_queries, bool)
        is_held_out[fold.queries] = True
        rows = rows_of(world, ~is_held_out, order=trains_in, rng=rng)
        judged = rows_of(world, is_held_out, order=order, rng=rng)
        folds.append(library(rows, whole, judged, fold.validation.features))
    values = curves(folds, held_out, growth, seed, until=begin + CHOOSING * budget)
    ways = zip((BY_NDCG, BY_ESTIMATE), 1 + values.argmax(axis=0), strict=True)
    n_trees = {way: int(found) for way, found in ways}
    grown, scores = whole.begin(growth, seed), {}
    for tree in range(1, max(n_trees.values()) + 1):
        grown.advance()
        for way, last in n_trees.items():
            if tree == last:
                scores[way] = grown.predict(world.test.features)
    return n_trees, scores
