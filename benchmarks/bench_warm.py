"""A day's update of a ranker: from yesterday's, and anew from all days.

``python benchmarks/bench_warm.py`` makes ten days of clicks in the Yahoo shape and one day more,
today, of a million impressions: 100,000 sessions of 200 of the 600 queries, each with the ten
items that a ranker of a few labels puts first. Four rankers, all with nothing set:

yesterday
    trained on the ten days
warm
    yesterday's, which goes on with today (``warm_start=True``)
today
    trained anew on today alone
all
    trained anew on all eleven days

nDCG@10 is that of queries that nobody learned from, by what users want today. In the first world
that is as on all days before. In the second it changes overnight: half of what makes an item
relevant is another mix of features. ``--logs`` worlds of each kind are made; times are CPU seconds
of training, of which only the ratios mean something.
"""

import time
from copy import copy

import numpy as np
from output import make_parser, output, table

from countersample import (
    ClickLog,
    CounterSampleRanker,
    RankingDataset,
    evaluate,
    synthetic,
    train,
)
from countersample.data.preprocessing import Normalizer
from countersample.metrics import ranks_of

LEARNED, TESTED, A_DAY, DAYS = 600, 200, 200, 10
SESSIONS, TOP = 100_000, 10


def drifted(dataset, rng):
    """Return the dataset with labels of the same shares, half by another mix of features."""
    features = Normalizer.fit(dataset, "standard")(dataset).features
    old, new = dataset.labels + rng.random(dataset.n_items), features @ rng.normal(size=(700,))
    mixed = (old - old.mean()) / old.std() + (new - new.mean()) / new.std()
    labels = np.empty_like(dataset.labels)
    labels[np.argsort(mixed)] = np.sort(dataset.labels)
    return RankingDataset(dataset.features, labels, dataset.offsets, dataset.query_ids)


def served(dataset):
    """Return the scores of a ranker that knows the labels of twenty queries."""
    scaled = Normalizer.fit(dataset, "minmax")(dataset)
    few = scaled.subset(np.arange(20))
    labels = ClickLog.from_labels(few, relevant=3)
    return scaled.features @ train(few, labels, learning_rate=0.01, steps=1000, rng=0).weights


def day(dataset, ranks, rng):
    """Return what was shown and clicked on a day, a row for each query and item of a page."""
    queries = rng.choice(LEARNED, A_DAY, replace=False)
    sessions = np.zeros(dataset.n_queries, np.int64)
    sessions[queries] = rng.multinomial(SESSIONS, np.full(A_DAY, 1 / A_DAY))
    query = np.repeat(np.arange(dataset.n_queries), dataset.query_sizes)
    rows = np.flatnonzero((sessions[query] > 0) & (ranks <= TOP))
    examined = 1 / ranks[rows]
    wanted = np.where(dataset.labels[rows] >= 3, 1.0, 0.1)
    shown = sessions[query[rows]]
    return ClickLog(
        query[rows], rows - dataset.offsets[query[rows]], examined,
        rng.binomial(shown, examined * wanted), position=ranks[rows], impressions=shown,
    )  # fmt: skip


def ndcg(ranker, test):
    return evaluate(ranker.predict(test), test, "ndcg@10")["ndcg@10"]


def world(seed, *, drifts):
    """Return the nDCG@10 of each ranker, and the seconds of its training."""
    rng = np.random.default_rng(seed)
    whole = synthetic("yahoo-like", n_queries=LEARNED + TESTED, rng=int(rng.integers(2**31)))
    after = drifted(whole, rng) if drifts else whole
    ranks = ranks_of(served(whole), whole.offsets)
    before = ClickLog.concat([day(whole, ranks, rng) for _ in range(DAYS)])
    today = day(after, ranks, rng)
    test = after.subset(np.arange(LEARNED, LEARNED + TESTED))
    found, seconds = {}, {}

    def fit(name, ranker, log):
        queries, index = np.unique(log.query, return_inverse=True)  # as a log of that time has
        begin = time.process_time()
        ranker.fit_log(whole.subset(queries), log.replace(query=index))
        found[name], seconds[name] = ndcg(ranker, test), time.process_time() - begin
        return ranker

    yesterday = fit("yesterday", CounterSampleRanker(warm_start=True, random_state=0), before)
    fit("warm", copy(yesterday), today)
    fit("today", CounterSampleRanker(random_state=0), today)
    fit("all", CounterSampleRanker(random_state=0), ClickLog.concat([before, today]))
    return found, seconds


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--logs", type=int, default=3)
    args = parser.parse_args()
    rows = []
    tiny = synthetic("tiny", rng=0)  # for what is compiled at first use
    CounterSampleRanker(random_state=0).fit_log(tiny, ClickLog.from_labels(tiny))
    for drifts in (False, True):
        runs = [world(seed, drifts=drifts) for seed in range(args.logs)]
        for name in runs[0][0]:
            values = [found[name] for found, _ in runs]
            ratios = [taken["all"] / taken[name] for _, taken in runs]
            rows.append({
                "world": "drifted" if drifts else "the same",
                "ranker": name,
                "nDCG@10": round(float(np.mean(values)), 4),
                "least": round(min(values), 4),
                "CPU seconds": round(float(np.mean([taken[name] for _, taken in runs])), 1),
                "times faster than all": round(float(np.mean(ratios)), 2),
            })  # fmt: skip
    output(rows, lambda rows: table(rows, left=2), as_json=args.json)


if __name__ == "__main__":
    main()
