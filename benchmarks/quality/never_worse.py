"""Whether the default ranker is ever worse than what was logged, or than naive training.

    python benchmarks/quality/never_worse.py --out never_worse.jsonl

Real judgements (MQ2008 and OHSUMED, five folds each, from the folder that holds the data), both
synthetic shapes, and long lists; a weak logging policy (three labelled queries) and a strong one
(half as many as the log has); 300 to 100,000 clicks; all items of a query shown, or the top 10.
Users examine rank r with probability 1/r, and click one in ten of the items that are not relevant.
Propensities are known. The policy was trained on queries of its own, where data is made up; where
it is real, on some of those in the log, for lack of others.

ours
    ``CounterSampleRanker`` with nothing set, from a log with impressions
naive
    SGD on clicks as they are, its learning rate the best of nine by held-out clicks as they are
search
    SGD on clicks weighted by 1/p (CounterSample by query), its learning rate the best of nine by
    held-out clicks: what the default was before. From 10,000 clicks on, for the first three logs

Values are nDCG@10 on queries not learned from, less that of the logging policy. The run goes on
where it was stopped; the table is of the rows there are.
"""

import argparse
import json
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
from worlds import FOLDERS, joined

from countersample import (
    ClickLog,
    CounterSampleRanker,
    RankingDataset,
    load_letor,
    metrics,
    synthetic,
    train,
    train_many,
)
from countersample.data.preprocessing import Normalizer
from countersample.evaluation import HeldOut
from countersample.metrics import ranks_of

SETS = ("MQ2008", "OHSUMED", "yahoo-like", "istella-like", "long lists")
CLICKS = (300, 1_000, 3_000, 10_000, 100_000)
MANY = 10_000  # from here on the search takes part
SEARCHED = 3  # logs of a cell
NOISE = 0.1
RATES = [10 ** (k / 2) for k in range(-8, 1)]
DRAWS = 30_000
N_TRAIN = {"yahoo-like": 300, "istella-like": 150, "long lists": 200}
N_TEST = 300


def data_of(name, case):
    """Return queries to learn from, to test on and to train a policy on, and what is relevant."""
    if name in FOLDERS:
        parts = [load_letor(FOLDERS[name] / f"S{k + 1}.txt.xz") for k in range(5)]
        turned = [parts[(case + k) % 5] for k in range(5)]
        learned = joined(turned[:-1])
        return learned, turned[-1], learned, 1
    n = N_TRAIN[name]
    if name == "long lists":
        dataset, relevant = long_lists(2 * n + N_TEST, case), 2
    else:
        dataset, relevant = synthetic(name, n_queries=2 * n + N_TEST, rng=1_000 + case), 3
    ends = np.split(np.arange(dataset.n_queries), [n, n + N_TEST])
    return (*(dataset.subset(queries) for queries in ends), relevant)


def long_lists(n_queries, case):
    """Return queries of 60 to 160 items."""
    rng = np.random.default_rng(2_000 + case)
    sizes = rng.integers(60, 160, n_queries)
    query = np.repeat(np.arange(n_queries), sizes)
    features = rng.gamma(0.6, 1, (len(query), 45)).astype(np.float32)
    scores = features @ (rng.normal(size=45) * (rng.random(45) < 0.3))
    noisy = (scores - scores.mean()) / scores.std() + 0.8 * rng.normal(size=len(query))
    return RankingDataset.from_arrays(features, np.digitize(noisy, [0.7, 1.6]), query)


def policy_of(dataset, relevant, *, strong, rng):
    """Return weights from the labels of half of the queries, or of three, for scaled features."""
    is_relevant = (dataset.labels >= relevant).astype(float)
    n = dataset.n_queries // 2 if strong else 3
    while True:
        of_query = np.isin(np.arange(dataset.n_queries), rng.choice(dataset.n_queries, n, False))
        rows = np.repeat(of_query, dataset.query_sizes)
        if is_relevant[rows].any():
            break
    x, y = dataset.features[rows].astype(float), is_relevant[rows]
    return np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ (y - y.mean()))


def clicks_on(dataset, scores, n_clicks, relevant, top, rng):
    """Return the log of what was shown: sessions of each query, clicks of each item."""
    rank = ranks_of(np.asarray(scores, np.float64), dataset.offsets)
    rows = np.flatnonzero(rank <= (top or len(rank)))
    chance = np.where(dataset.labels[rows] >= relevant, 1.0, NOISE) / rank[rows]
    query = np.searchsorted(dataset.offsets, rows, side="right") - 1
    n_sessions = round(n_clicks / chance.sum() * dataset.n_queries)
    asked = rng.multinomial(n_sessions, np.full(dataset.n_queries, 1 / dataset.n_queries))
    rows, chance, query = (each[asked[query] > 0] for each in (rows, chance, query))
    clicks = rng.binomial(asked[query], chance)
    return ClickLog(
        query, rows - dataset.offsets[query], 1 / rank[rows], clicks,
        position=rank[rows], impressions=asked[query], examination=1 / rank[rows],
        sessions=asked[query], n_sessions=n_sessions,
    )  # fmt: skip


def search(dataset, log, *, temper, rng):
    """Return weights by the learning rate that held-out clicks, so weighted, prefer."""
    log = log.weighted().temper(temper).detached()
    settings = {"unit": "query", "steps": DRAWS, "temper": 1.0}
    held_out = HeldOut(dataset, log, "dcg@10", rng=rng)
    runs = [
        train_many(dataset, fold.train, learning_rates=RATES, workers=1, checkpoints=0, **settings)
        for fold in held_out.folds
    ]
    values = [
        held_out.value(
            held_out.sums(
                [
                    r.predict(f.validation.features)
                    for r, f in zip(of_rate, held_out.folds, strict=True)
                ]
            )
        )
        if all(r.diverged_at is None for r in of_rate)
        else -np.inf
        for of_rate in zip(*runs, strict=True)
    ]
    rate = RATES[int(np.argmax(values))]
    return train(dataset, log, learning_rate=rate, rng=rng, **settings).weights


def one(cell):
    """Return what came out for a set, a policy, a number of clicks, a page, and a log."""
    name, strong, n_clicks, top, case = cell
    warnings.simplefilter("ignore")
    learned, test, labelled, relevant = data_of(name, case)
    normalizer = Normalizer.fit(learned, "minmax")
    scaled, scaled_test = normalizer(learned), normalizer(test)
    rng = np.random.default_rng([case, strong, n_clicks, top or 0])
    seed = np.random.default_rng([case, strong])
    policy = policy_of(normalizer(labelled), relevant, strong=strong, rng=seed)
    log = clicks_on(learned, scaled.features @ policy, n_clicks, relevant, top, rng)

    def ndcg(scores):
        scores = np.asarray(scores, np.float64)
        return float(np.nanmean(metrics.ndcg(test.labels, scores, test.offsets, k=10)))

    base = ndcg(scaled_test.features @ policy)
    ours = CounterSampleRanker(random_state=case).fit_log(learned, log)
    found = {"ours": ndcg(ours.predict(test)) - base, "kept": ours.path_.kept}
    of_peers = {"naive": 0.0}
    if n_clicks >= MANY and case < SEARCHED:
        of_peers["search"] = 1.0
    for peer, temper in of_peers.items():
        weights = search(scaled, log, temper=temper, rng=np.random.default_rng(case))
        found[peer] = ndcg(scaled_test.features @ weights) - base
    return (
        dict(zip(("set", "strong", "clicks", "top", "log"), cell, strict=True))
        | {"policy": base}
        | found
    )


def table(rows):
    """Print the mean of each cell, and what the whole says."""
    cells = defaultdict(list)
    for row in rows:
        cells[row["set"], row["strong"], row["top"], row["clicks"]].append(row)
    head = f"{'data':13} {'policy':7} {'shown':>7} {'clicks':>8} {'logs':>5}"
    print(f"{head} {'ours':>8} {'worst':>8} {'naive':>8} {'search':>8} {'kept':>5}")
    for (name, strong, top, clicks), found in sorted(
        cells.items(),
        key=lambda each: (SETS.index(each[0][0]), each[0][1], each[0][2] or 0, each[0][3]),
    ):
        means = []
        for peer in ("naive", "search"):
            values = [row[peer] for row in found if peer in row]
            means.append(f"{np.mean(values):+8.3f}" if values else f"{'–':>8}")
        ours = [r["ours"] for r in found]
        print(
            f"{name:13} {'strong' if strong else 'weak':7} {f'top {top}' if top else 'all':>7} "
            f"{clicks:8,} {len(found):5} {np.mean(ours):+8.3f} {min(ours):+8.3f} {means[0]} "
            f"{means[1]} {np.mean([r['kept'] for r in found]):5.0%}"
        )
    ours = np.array([row["ours"] for row in rows])
    of_cells = {key: np.mean([r["ours"] for r in found]) for key, found in cells.items()}
    behind = {  # of a peer, on the same logs
        peer: {
            key: np.mean([r[peer] - r["ours"] for r in found if peer in r])
            for key, found in cells.items()
            if any(peer in r for r in found)
        }
        for peer in ("naive", "search")
    }
    print(
        f"\n{len(rows):,} logs, {len(cells)} cells: lowest mean {min(of_cells.values()):+.4f}, "
        f"cells below -.002: {sum(m < -0.002 for m in of_cells.values())}; logs below -.01: "
        f"{np.mean(ours < -0.01):.1%}, worst {ours.min():+.3f}"
    )
    for peer, margin in (("naive", 0.005), ("search", 0.0)):
        most = max(behind[peer].values(), default=0.0)
        print(
            f"{peer}: at most {most:+.4f} ahead of ours in the mean of a cell; by more than "
            f"{margin:g} in {sum(b > margin for b in behind[peer].values())} of "
            f"{len(behind[peer])} cells; over all cells ours is ahead by "
            f"{-np.mean(list(behind[peer].values())):+.4f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=int, default=10, help="of each cell")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--clicks", default=",".join(map(str, CLICKS)))
    parser.add_argument("--out", type=Path, default=Path("never_worse.jsonl"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.out.open()] if args.out.exists() else []
    done = {tuple(row[k] for k in ("set", "strong", "clicks", "top", "log")) for row in rows}
    clicks = [int(each) for each in args.clicks.split(",")]
    cells = [
        (name, strong, n, top, case)
        for case in range(args.logs)
        for name, strong, n, top in product(args.sets.split(","), (False, True), clicks, (None, 10))
    ]
    cells = [
        cell
        for cell in cells
        if cell not in done and (cell[0] not in FOLDERS or FOLDERS[cell[0]].is_dir())
    ]
    with ProcessPoolExecutor(args.workers) as pool, args.out.open("a") as file:
        for row in pool.map(one, cells):
            file.write(json.dumps(row) + "\n")
            file.flush()
            rows.append(row)
    table(rows)


if __name__ == "__main__":
    main()
