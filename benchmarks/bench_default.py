"""How long the default ranker takes, beside a search over learning rates and LightGBM.

``python benchmarks/bench_default.py`` fits ``CounterSampleRanker`` with nothing set on 1,000
queries and 100,000 clicks of each synthetic shape, with the scores of what was served as baseline.
Beside it, in the same process and in turns:

search
    the same learner with eight learning rates, found by successive halving on held-out clicks: a
    quarter of 30,000 steps for all, half of them for the better four, all for the better two
lightgbm
    100 trees of lambdarank on clicks, with ``position`` for their bias

Each is told the best of its rounds; nDCG@10 is on queries that were not learned from. With
``--memory`` it tells instead how much memory a fit needs, as a share of the features: 36,251
queries of the Yahoo shape, in a process of its own.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lightgbm
import numpy as np
from output import make_parser, output, table

from countersample import (
    ClickLog,
    CounterSampleRanker,
    PositionBias,
    RankingDataset,
    metrics,
    simulate_clicks,
    synthetic,
    train,
    train_many,
)
from countersample.data.preprocessing import Normalizer
from countersample.evaluation import HeldOut
from countersample.metrics import ranks_of

SHAPES = ("yahoo-like", "istella-like")
LEARNED, TESTED, CLICKS = 1_000, 300, 100_000
STEPS = 30_000
RATES = [1e-4 * 10 ** (k / 2) for k in range(8)]
LABELS = 31  # the largest that a count of clicks becomes


def world(shape, n_queries=LEARNED + TESTED, clicks=CLICKS):
    dataset = synthetic(shape, n_queries=n_queries, rng=1)
    test = dataset.subset(np.arange(n_queries - TESTED, n_queries))
    learned = dataset.subset(np.arange(n_queries - TESTED))
    scaled = Normalizer.fit(learned, "minmax")
    few = scaled(learned.subset(np.arange(5)))
    labels = ClickLog.from_labels(few, relevant=3)
    weights = train(few, labels, learning_rate=0.01, steps=1000, rng=0).weights
    scores = scaled(learned).features @ weights
    log = simulate_clicks(
        learned, scores, clicks, bias=PositionBias(1.0), relevant=3, rng=np.random.default_rng(0)
    )
    return learned, test, log, scores


def default(dataset, log, scores):
    return CounterSampleRanker(random_state=0).fit_log(dataset, log, baseline=scores).predict


def search(dataset, log, _):
    """Return a scorer at the learning rate that is left over by halving."""
    normalizer = Normalizer.fit(dataset, "minmax")
    scaled, log = normalizer(dataset), log.detached()
    held_out = HeldOut(scaled, log, rng=np.random.default_rng(0))
    rates = RATES
    for steps in (STEPS // 4, STEPS // 2, STEPS):
        by_fold = [
            train_many(scaled, fold.train, learning_rates=rates, unit="query", steps=steps)
            for fold in held_out.folds
        ]
        values = [
            held_out.value(held_out.sums(runs))
            if all(run.diverged_at is None for run in runs)
            else -np.inf
            for runs in zip(*by_fold, strict=True)
        ]
        rates = [rates[k] for k in np.argsort(values)[::-1][: max(1, len(rates) // 2)]]
    weights = train(scaled, log, learning_rate=rates[0], unit="query", steps=STEPS, rng=0).weights
    return lambda data: normalizer(data).features @ weights


def boosted(dataset, log, scores):
    clicks = np.bincount(dataset.offsets[log.query] + log.item, minlength=dataset.n_items)
    position = ranks_of(np.asarray(scores, np.float64), dataset.offsets) - 1
    data = lightgbm.Dataset(
        dataset.features, np.minimum(clicks, LABELS - 1), group=dataset.query_sizes,
        position=position,
    )  # fmt: skip
    settings = {"objective": "lambdarank", "verbose": -1, "label_gain": list(range(LABELS))}
    model = lightgbm.train(settings, data, 100)
    return lambda data: model.predict(data.features)


WAYS = {"default": default, "search": search, "lightgbm": boosted}


def measure(rounds):
    rows = []
    for shape in SHAPES:
        learned, test, log, scores = world(shape)
        seconds = {name: [] for name in WAYS}
        found = {}
        for _ in range(rounds):
            for name, way in WAYS.items():
                begin = time.perf_counter()
                scorer = way(learned, log, scores)
                seconds[name].append(time.perf_counter() - begin)
                values = np.asarray(scorer(test), np.float64)
                found[name] = float(
                    np.nanmean(metrics.ndcg(test.labels, values, test.offsets, k=10))
                )
        best = {name: min(each) for name, each in seconds.items()}
        rows += [
            {
                "shape": shape,
                "way": name,
                "seconds": round(best[name], 2),
                "default is faster, ×": round(best[name] / best["default"], 1),
                "nDCG@10": round(found[name], 4),
            }
            for name in WAYS
        ]
    return rows


def memory(folder=None):
    """Return the peak of a fit on mapped features, in a process that does nothing else."""
    if folder is None:
        with tempfile.TemporaryDirectory() as made:
            learned, _, log, scores = world("yahoo-like", 36_251, 1_000_000)
            learned.save(f"{made}/data")
            log.replace(fingerprint=None).save(f"{made}/log.parquet")
            np.save(f"{made}/scores.npy", scores)
            del learned, log, scores
            command = [sys.executable, __file__, "--memory", "--folder", made]
            return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    dataset = RankingDataset.open(f"{folder}/data")
    log = ClickLog.load(f"{folder}/log.parquet")
    scores = np.load(f"{folder}/scores.npy")
    begin = time.perf_counter()
    CounterSampleRanker(random_state=0).fit_log(dataset, log, baseline=scores)
    # Not of getrusage, which knows the peak of the process that this one was forked from, too.
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    return [
        {
            "rows": dataset.n_items,
            "features GB": round(dataset.features.nbytes / 2**30, 2),
            "peak GB": round(peak / 2**30, 2),
            "ratio": round(peak / dataset.features.nbytes, 2),
            "seconds": round(time.perf_counter() - begin, 1),
        }
    ]


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--folder", help="used by --memory itself")
    args = parser.parse_args()
    if args.folder:
        print(json.dumps(memory(args.folder)))
        return
    rows = memory() if args.memory else measure(args.rounds)
    output(rows, table, as_json=args.json)


if __name__ == "__main__":
    main()
