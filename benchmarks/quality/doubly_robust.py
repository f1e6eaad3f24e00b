"""Doubly robust training against IPS: nDCG@10 on unseen queries, by the number of clicks.

``python benchmarks/quality/doubly_robust.py`` runs what is not in its results file yet (a line of
JSON for each ranker, so that a stopped run goes on) and prints Markdown tables; ``--table`` only
prints. Data and policies are those of `worlds.py` on the Yahoo shape, with γ = 1.5 and propensities
that are known. Three kinds of rankers learn from the same logs:

- linear, at its best stop: a path without a learning rate (DoG) from zero, at the checkpoint that
  the test labels like best. It shows what is in the weights, apart from where to stop.
- linear: the same at the checkpoint that held-out clicks choose, as a user has to.
- trees: LightGBM, at the best of some numbers of trees.

The last table has DR with a tenth of the clicks less IPS, log by log.
"""

import argparse
import json
import os
from itertools import pairwise, product
from pathlib import Path

for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):  # before anything reads them
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402
from comparison import METRIC, read, with_interval  # noqa: E402
from worlds import make  # noqa: E402

from countersample import PositionBias, evaluate, train  # noqa: E402
from countersample.evaluation import HeldOut, doubly_robust_log  # noqa: E402
from countersample.gbdt import GBDTRanker  # noqa: E402
from countersample.logs import join_features  # noqa: E402

GAMMA = 1.5
CLICKS = (100, 1_000, 10_000, 100_000)
SESSIONS_A_CLICK = 2.3  # about, in these worlds
STEPS = 4_000
CHECKPOINTS = np.unique(np.geomspace(10, STEPS, 20).astype(int)).tolist()
TREES = (10, 30, 100)
KINDS = ("linear, best stop", "linear", "trees, best stop")


def default_clip(log):
    return min(1.0, 10 / np.sqrt(sum(dict(zip(log.query, log.sessions, strict=True)).values())))


# What is trained on, of a dataset and a log of all that was shown in it.
WEIGHTS = {
    "naive": lambda _, log: log.weighted().replace(propensity=np.ones(len(log.weighted()))),
    "IPS": lambda _, log: log.weighted(),
    "IPS, clipped": lambda _, log: log.weighted().clip(default_clip(log)),
    "DR": lambda dataset, log: doubly_robust_log(dataset, log, rng=0),
}


def path(dataset, log):
    """Return the weights at each checkpoint."""
    run = train(
        dataset, log.detached(), optimizer="dog", unit="query", steps=STEPS,
        checkpoints=CHECKPOINTS, rng=0,
    )  # fmt: skip
    return run.history.average_coef


def ndcg(scores, test):
    return evaluate(scores, test, METRIC, ties="expected")[METRIC]


def linear(world, log, weigh):
    """Return nDCG at the best checkpoint, and at the one that held-out clicks choose."""
    whole = path(world.train, weigh(world.train, log))
    found = [ndcg(world.test.features @ weights, world.test) for weights in whole]
    held_out = HeldOut(world.train, log, "dcg@10", rng=np.random.default_rng(0))
    paths = [
        path(world.train, weigh(world.train, log.of_queries(fold.queries, exclude=True)))
        for fold in held_out.folds
    ]
    values = [
        held_out.value(
            held_out.sums(
                [
                    fold.validation.features @ of_fold[k]
                    for fold, of_fold in zip(held_out.folds, paths, strict=True)
                ]
            )
        )
        for k in range(len(CHECKPOINTS))
    ]
    return max(found), found[int(np.argmax(values))]


def trees(world, log, weigh):
    clicks = weigh(world.train, log)
    return max(
        ndcg(
            GBDTRanker(n_trees=n, patience=None, random_state=0)
            .fit_log(world.train, clicks)
            .predict(world.test),
            world.test,
        )
        for n in TREES
    )


def run(options):
    done = {(row["case"], row["clicks"]) for row in read(options.out)}
    for case, clicks in product(range(options.logs), CLICKS):
        if (case, clicks) in done:
            continue
        world = make(
            "yahoo-like", case=case, gamma=GAMMA, n_sessions=round(clicks * SESSIONS_A_CLICK)
        )
        log, _ = join_features(world.counts, PositionBias(GAMMA), world.train, keep="shown")
        row = {"case": case, "clicks": clicks, "policy": ndcg(world.policy, world.test)}
        for name, weigh in WEIGHTS.items():
            found = (*linear(world, log, weigh), trees(world, log, weigh))
            row[name] = dict(zip(KINDS, found, strict=True))
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)


def show(options):
    by_cell = {(row["case"], row["clicks"]): row for row in read(options.out)}
    cases = sorted({case for case, _ in by_cell})

    def values(clicks, name, kind):
        return {case: by_cell[case, clicks][name][kind] for case in cases
                if (case, clicks) in by_cell}  # fmt: skip

    policy = np.mean([row["policy"] for row in by_cell.values()])
    for kind in KINDS:
        print(f"| {kind} | {' | '.join(WEIGHTS)} |\n|---{'|--:' * len(WEIGHTS)}|")
        for clicks in CLICKS:
            cells = [with_interval(list(values(clicks, name, kind).values())) for name in WEIGHTS]
            print(f"| {clicks:,} clicks | {' | '.join(cells)} |")
        print()
    print(f"The logging policy has {policy:.4f}.\n")
    print(f"| DR with a tenth, less IPS | {' | '.join(KINDS)} |\n|---{'|--:' * len(KINDS)}|")
    for tenth, clicks in pairwise(CLICKS):
        cells = []
        for kind in KINDS:
            robust, plain = values(tenth, "DR", kind), values(clicks, "IPS", kind)
            both = [
                robust[case] - plain[case] for case in cases if case in robust and case in plain
            ]
            cells.append(with_interval(both, sign="+"))
        print(f"| {tenth:,} against {clicks:,} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("doubly_robust.jsonl"))
    parser.add_argument("--logs", type=int, default=4)
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    if not options.table:
        run(options)
    show(options)


if __name__ == "__main__":
    main()
