"""Simulated click logs with known truth, for comparisons of rankers.

A world is labelled data, cut into a part to train on and one to test on, and the log of users on
the first. In nine of ten sessions they were shown the items of a query in the order of one policy,
in one of ten in that of another (an A/B test): all of them, or the top 10. They examined rank r
with probability (1/r)^γ, and clicked one in ten of the items that are not relevant.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from countersample import (
    ClickLog,
    PositionBias,
    RankingDataset,
    load_letor,
    propensity,
    synthetic,
    train,
)
from countersample.clicks import simulate_impressions
from countersample.logs import PositionCounts, join_features

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
FOLDERS = {"MQ2008": DATA / "mq2008", "OHSUMED": DATA / "ohsumed"}
FOLDS = 5
TRAFFIC = (0.9, 0.1)  # of each policy
DEPTH = 10  # positions that say how fast attention falls
N_TRAIN, N_TEST = 120, 300  # queries of synthetic data
SESSIONS = 160  # a query
FEW = 3  # queries, whose labels a policy is trained on


@dataclass(frozen=True, eq=False)
class Shown:
    """What was shown and clicked, a row for each policy, query and item, in the order shown."""

    policy: np.ndarray
    query: np.ndarray
    item: np.ndarray
    position: np.ndarray
    impressions: np.ndarray
    clicks: np.ndarray


@dataclass(frozen=True, eq=False)
class World:
    """Data to learn from and to test on, the log, and what ranked in it.

    `policy` holds the scores of the first policy on the test data, (n_items,).
    """

    name: str
    train: RankingDataset
    test: RankingDataset
    gamma: float
    policy: np.ndarray
    shown: Shown

    @cached_property
    def counts(self):
        """What `fit` comes down to: impressions and clicks of each query, item and position."""
        shown = self.shown
        return PositionCounts.from_columns(
            self.train.query_ids[shown.query], shown.item, shown.position, shown.clicks,
            shown.impressions,
        )  # fmt: skip

    def log(self, propensities):
        """Return the click log, with propensities "known", "estimated" or "none" (all 1).

        A click weighs 1/ρ, with ρ the probability that its item is examined in a session of its
        query: by both policies, in as many sessions as each had.
        """
        if propensities == "none":
            ones = np.ones(self.shown.position.max())
            return join_features(self.counts, ones, self.train, exposure="position-only")[0]
        bias = PositionBias(self.gamma) if propensities == "known" else self.estimated()
        return join_features(self.counts, bias, self.train, exposure="policy-aware")[0]

    def estimated(self):
        """Return the position-bias curve by what the log says: `estimate_gamma`."""
        return propensity.estimate_gamma(self.counts, depth=DEPTH, rng=0).bias


def is_here(name):
    """Return whether the data can be had: real data lies beside the project."""
    return name not in FOLDERS or FOLDERS[name].is_dir()


def make(name, *, case, gamma, top=None, n_sessions=None):
    """Return a world by the name of its data; `case` is the fold of real data, or a seed.

    By default there are 160 sessions a query.
    """
    if name in FOLDERS:
        train, test, relevant = (*fold_of(FOLDERS[name], case), 1)
    else:
        share = N_TRAIN / (N_TRAIN + N_TEST)
        dataset = synthetic(name, n_queries=N_TRAIN + N_TEST, rng=case)
        train, test = (
            part.normalized("query-minmax") for part in dataset.split(share, 1 - share, rng=case)
        )
        relevant = 3
    rng = np.random.default_rng(case)
    weights = [_policy(train, relevant, rng) for _ in TRAFFIC]
    n_sessions = SESSIONS * train.n_queries if n_sessions is None else n_sessions
    parts = [
        show(train, train.features @ w, gamma, relevant, top, round(share * n_sessions), rng)
        for w, share in zip(weights, TRAFFIC, strict=True)
    ]
    policy = np.repeat(np.arange(len(TRAFFIC)), [len(part[0]) for part in parts])
    shown = Shown(policy, *(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return World(name, train, test, gamma, test.features @ weights[0], shown)


def fold_of(folder, fold):
    """Return four parts to train on and one to test on: nothing looks at labels to choose."""
    parts = [
        load_letor(folder / f"S{k + 1}.txt.xz").normalized("query-minmax") for k in range(FOLDS)
    ]
    turned = [parts[(fold + k) % FOLDS] for k in range(FOLDS)]
    return joined(turned[:-1]), turned[-1]


def joined(parts):
    sizes = np.concatenate([part.query_sizes for part in parts])
    return RankingDataset(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.append(0, np.cumsum(sizes)),
        np.concatenate([part.query_ids for part in parts]),
    )


def _policy(dataset, relevant, rng):
    """Return the weights of a ranker that was trained on the labels of a few queries."""
    labelled = np.unique(ClickLog.from_labels(dataset, relevant=relevant).query)
    few = dataset.subset(rng.choice(labelled, FEW, replace=False))
    labels = ClickLog.from_labels(few, relevant=relevant)
    return train(few, labels, learning_rate=0.01, steps=1000, rng=rng).weights


def show(dataset, scores, gamma, relevant, top, n_sessions, rng):
    """Return query, item, position, impressions and clicks of each item, in the order shown."""
    table = simulate_impressions(
        dataset, scores, n_sessions,
        bias=PositionBias(gamma), relevant=relevant, top=top, rng=rng,
    )  # fmt: skip
    order = {query: k for k, query in enumerate(dataset.query_ids.tolist())}
    ids, code = np.unique(table["query_id"].to_numpy(), return_inverse=True)
    query = np.array([order[each] for each in ids.tolist()])[code]
    position, item = table["position"].to_numpy(), table["item_id"].to_numpy()
    row = dataset.offsets[query] + position - 1
    impressions = np.bincount(row, minlength=dataset.n_items)
    clicks = np.bincount(row, weights=table["click"].to_numpy(), minlength=dataset.n_items)
    items = np.zeros(dataset.n_items, np.int64)
    items[row] = item
    of_row = np.repeat(np.arange(dataset.n_queries), dataset.query_sizes)
    position_of_row = np.arange(dataset.n_items) - dataset.offsets[of_row] + 1
    seen = impressions > 0
    columns = (of_row, items, position_of_row, impressions, clicks.astype(np.int64))
    return tuple(column[seen] for column in columns)
