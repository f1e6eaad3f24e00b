"""The linear ranker by its `safety`: the mean gain, and the share of logs that are worse.

    python benchmarks/quality/frontier.py [--logs 6] [--out frontier.jsonl] [--table]

MQ2008, OHSUMED (folds, from the folder beside the project), both synthetic shapes, and three worlds
that are made here: relevance with interactions, features with heavy tails, and lists of 200 items
of which few are relevant. All items of a query are shown, or the top 10, in nine of ten sessions by
one logging policy and in one of ten by another. A policy is trained on the labels of three queries
(weak) or of half of them (strong). Users examine rank r with probability 1/r and click one in ten
of the items that are not relevant. Propensities are known. Logs have 300 to 100,000 clicks.

The table has the mean nDCG@10 on queries that are not in the log, how far it is behind the best of
all rankers in a cell on average and in the worst cell, and the share of logs in which it is more
than 0.01 below the logging policy. ``paths`` is without the regression on click rates,
``regression`` that alone.

A log is a line of JSON in the results file, so that a stopped run goes on; ``--table`` only prints.
"""

import argparse
import json
import multiprocessing
import time
import zlib
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import worlds

from countersample import (
    ClickLog,
    CounterSampleRanker,
    PositionBias,
    RankingDataset,
    evaluate,
    synthetic,
    train,
)
from countersample.logs import join_features
from countersample.tuning.click_rates import regress_click_rates

SETS = (
    "MQ2008",
    "OHSUMED",
    "yahoo-like",
    "istella-like",
    "interactions",
    "heavy tails",
    "long lists",
)
QUERIES = {"yahoo-like": (200, 300), "istella-like": (120, 200), "long lists": (100, 120)}
MADE = (150, 300)  # queries to train on and to test on, of other worlds
CLICKS = (300, 1_000, 10_000, 100_000)
TOPS = (None, 10)
SAFETY = (0.95, 0.8, 0.65, 0.0)
WORSE = 0.01
GAMMA = 1.0
PROBE = 2_000  # sessions that tell how many clicks a session has


@lru_cache(2)
def datasets(name, case):
    """Return the queries to train on, those to test on, and the least relevant label."""
    if name in worlds.FOLDERS:
        return *worlds.fold_of(worlds.FOLDERS[name], case % worlds.FOLDS), 1
    n_train, n_test = QUERIES.get(name, MADE)
    n = n_train + n_test
    data = synthetic(name, n_queries=n, rng=case) if name.endswith("-like") else made(name, case, n)
    parts = data.split(n_train / n, n_test / n, rng=case)
    return *(part.normalized("query-minmax") for part in parts), 3


def made(name, case, n_queries):
    """Return a world whose most relevant items are those with the highest scores in a query."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), case])
    n_items, n_features, most = (200, 60, 12) if name == "long lists" else (25, 40, 6)
    shape = n_queries * n_items, n_features
    features = rng.normal(size=shape) + np.repeat(
        rng.normal(size=(n_queries, shape[1])), n_items, 0
    )
    weights = rng.normal(size=n_features) * (rng.random(n_features) < 0.4)
    scores = features @ weights
    if name == "interactions":
        scores *= 0.5 / scores.std()
        for first, second in rng.integers(n_features, size=(6, 2)):
            scores += 0.35 * features[:, first] * np.maximum(features[:, second], 0)
    scores = scores / scores.std() + 0.7 * rng.normal(size=len(scores))
    if name == "heavy tails":
        features = np.exp(1.2 * features)
    if name == "long lists":
        features[rng.random(shape) < 0.6] = 0
    rank = (-scores.reshape(n_queries, n_items)).argsort(axis=1).argsort(axis=1)
    n_relevant = rng.integers(1, most, size=(n_queries, 1))
    labels = np.where(rank < n_relevant, 3, 0).ravel()
    query = np.repeat(np.arange(n_queries), n_items)
    return RankingDataset.from_arrays(features, labels, query)


def make(name, case, top, n_clicks, *, is_strong):
    """Return the data to train on and to test on, the log, and scores of the policy on the test."""
    learned, tested, relevant = datasets(name, case)
    rng = np.random.default_rng([case, n_clicks, bool(top), is_strong])
    labelled = np.unique(ClickLog.from_labels(learned, relevant=relevant).query)
    n = min(len(labelled), max(worlds.FEW, len(labelled) // 2 if is_strong else 0))
    policies = []
    for _ in worlds.TRAFFIC:
        few = learned.subset(rng.choice(labelled, n, replace=False))
        labels = ClickLog.from_labels(few, relevant=relevant)
        policies.append(train(few, labels, learning_rate=0.01, steps=1000, rng=rng).weights)

    def show(n_sessions, rng):
        parts = [
            worlds.show(learned, learned.features @ w, GAMMA, relevant, top,
                         max(1, round(share * n_sessions)), rng)
            for w, share in zip(policies, worlds.TRAFFIC, strict=True)
        ]  # fmt: skip
        policy = np.repeat([0, 1], [len(part[0]) for part in parts])
        return worlds.Shown(policy, *(np.concatenate(each) for each in zip(*parts, strict=True)))

    rate = show(PROBE, np.random.default_rng(0)).clicks.sum() / PROBE
    shown = show(max(20, round(n_clicks / rate)), rng)
    counts = worlds.World(name, learned, tested, GAMMA, np.empty(0), shown).counts
    log = join_features(counts, PositionBias(GAMMA), learned, keep="shown")[0]
    return learned, tested, log, tested.features @ policies[0]


def run(name, top, n_clicks, is_strong, case):
    """Return the nDCG@10 of each ranker on a log."""
    learned, tested, log, policy = make(name, case, top, n_clicks, is_strong=is_strong)
    rankers = {"paths": {"click_rates": False}} | {f"safety {s:g}": {"safety": s} for s in SAFETY}
    scores, seconds = {"logging policy": policy}, {}
    for label, settings in rankers.items():
        begin = time.process_time()
        ranker = CounterSampleRanker(random_state=case, **settings).fit_log(learned, log)
        scores[label] = ranker.predict(tested)
        seconds[label] = round(time.process_time() - begin, 3)
    scores["regression"] = tested.features @ regress_click_rates(learned, log)[-1]
    values = {
        label: evaluate(np.asarray(each, np.float64), tested, "ndcg@10", ties="expected")["ndcg@10"]
        for label, each in scores.items()
    }
    cell = {"data": name, "top": top, "clicks": n_clicks, "strong": is_strong, "log": case}
    return cell | {"ndcg@10": values, "seconds": seconds}


def read(path):
    return (
        [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    )


def key(row):
    return tuple(row[name] for name in ("data", "top", "clicks", "strong", "log"))


def show(rows):
    cells = defaultdict(list)
    for row in rows:
        cells[key(row)[:-1]].append(row["ndcg@10"])
    labels = list(rows[0]["ndcg@10"])
    means = np.array(
        [[np.mean([log[each] for log in logs]) for each in labels] for logs in cells.values()]
    )
    behind = means.max(axis=1, keepdims=True) - means
    of_logs = [row["ndcg@10"] for row in rows]
    few = np.array([row["clicks"] < 1_000 for row in rows])
    print(f"{len(rows)} logs, {len(cells)} cells")
    heads = ["nDCG@10", "behind", "worst cell", "worse, 300", "1,000+", "CPU s"]
    print(f"{'ranker':16}" + "".join(f"{each:>12}" for each in heads))
    for k, label in enumerate(labels):
        change = np.array([values[label] - values["logging policy"] for values in of_logs])
        seconds = [row["seconds"][label] for row in rows if label in row["seconds"]]
        numbers = [f"{each:.4f}" for each in (means[:, k].mean(), *summary(behind[:, k]))]
        numbers += [f"{np.mean(change[part] < -WORSE):.1%}" for part in (few, ~few) if part.any()]
        numbers += [f"{np.mean(seconds):.2f}"] if seconds else []
        print(f"{label:16}" + "".join(f"{each:>12}" for each in numbers))


def summary(values):
    return values.mean(), values.max()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=6, help="of each cell")
    parser.add_argument("--data", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--out", type=Path, default=Path("frontier.jsonl"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    done = {key(row) for row in read(options.out)}
    todo = [
        (*cell, case)
        for case in range(options.logs)
        for cell in product(options.data, TOPS, CLICKS, (False, True))
        if (*cell, case) not in done and worlds.is_here(cell[0])
    ]
    if todo and not options.table:
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, mp_context=spawned) as pool:
            futures = [pool.submit(run, *each) for each in todo]
            for n_done, future in enumerate(as_completed(futures), 1):
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(future.result()) + "\n")
                if n_done % 50 == 0 or n_done == len(todo):
                    print(f"{n_done:,} of {len(todo):,} logs", flush=True)
    rows = read(options.out)
    if rows:
        show(rows)


if __name__ == "__main__":
    main()
