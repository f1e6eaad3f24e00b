"""A page that shows 10 of 40 items: how true is the gain that `fit` claims.

``python benchmarks/quality/top_k_log.py`` makes logs whose truth is known. In each, features, the
weights that make items relevant, two rankers and all sessions are drawn anew: nine of ten sessions
show the top 10 by one feature, the others the top 10 by a ranker that is nearly right, and users
examine position k with probability 1/k. `fit_from_impressions` then makes a ranker from each log in
three ways:

estimated
    as anyone would call it: position bias is estimated from the log
known
    with the true examination probabilities
position-only
    estimated, but a click weighs by its position alone, as if every session had shown its item

The table says in how many logs the 95 % interval of the gain has the true gain of the ranker over
what was logged, both gains, and the true DCG@10 of the rankers. A log is a line of JSON in the
results file, so that a stopped run goes on, with more logs or more ways; ``--table`` only prints.
"""

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from countersample import CounterSampleError, PositionBias, RankingDataset
from countersample.clicks import PositionBased, simulate_impressions
from countersample.clicks.models import Steps
from countersample.fitting import fit_from_impressions
from countersample.logs import FeatureTable, read_impressions
from countersample.options import EvaluationOptions, PropensityOptions

SHARES = {"old": 0.9, "new": 0.1}
BIAS = PositionBias(gamma=1.0)
METRIC = "dcg@10"
N_FEATURES = 10
WAYS = {
    "estimated": {},
    "known": {"propensities": BIAS},
    "position-only": {"propensities": PropensityOptions(exposure="position-only")},
}
SIZES = ("queries", "items", "shown", "sessions")


class AsLabelled(PositionBased):
    """P(click) = bias(rank) · label: labels are probabilities to be clicked once examined."""

    def steps(self, labels, ranks):
        """Return examine = bias(rank), attract = label; always goes on."""
        on = np.ones(len(labels))
        return Steps(self._examination(ranks), labels.astype(np.float64), on, on)


def make(sizes, rng):
    """Return a dataset labelled with its relevance, and the impressions of two rankers."""
    shape = sizes["queries"], sizes["items"]
    features = rng.random((*shape, N_FEATURES), dtype=np.float32)
    weights = rng.normal(size=N_FEATURES)
    scores = features @ weights
    spread = (scores - scores.mean(1, keepdims=True)) / scores.std(1, keepdims=True)
    relevance = 0.05 + 0.6 / (1 + np.exp(-1.5 * spread))
    rankers = {
        "old": features[..., 0].ravel(),
        "new": (features @ (weights + 0.5 * rng.normal(size=N_FEATURES))).ravel(),
    }
    dataset = RankingDataset(
        features.reshape(-1, N_FEATURES),
        relevance.ravel(),
        np.arange(shape[0] + 1) * shape[1],
        np.arange(shape[0]),
    )
    table = simulate_impressions(
        dataset, rankers, sizes["sessions"], shares=SHARES, top=sizes["shown"], bias=BIAS,
        click_model=AsLabelled, relevant=0.01, rng=rng,  # labels are relevance
    )  # fmt: skip
    return dataset, table


def truth(dataset, table, shown):
    """Return the DCG of what was logged, and a function that gives that of a ranker."""
    query, item = table["query_id"].to_numpy(), table["item_id"].to_numpy()
    position = table["position"].to_numpy()
    relevance = dataset.labels[dataset.offsets[query] + item].astype(np.float64)
    n_sessions = np.bincount(query[position == 1], minlength=dataset.n_queries)
    logged = (relevance / np.log2(1 + position)).sum() / n_sessions.sum()
    often = np.repeat(n_sessions, dataset.query_sizes) / n_sessions.sum()

    def value(ranker):
        rank = ranker.rank(dataset)
        return float((np.where(rank <= shown, 1 / np.log2(1 + rank), 0) * dataset.labels) @ often)

    return float(logged), value


def run(sizes, seed, index, ways):
    """Return what is told and what is true of a log, by some ways to fit."""
    dataset, table = make(sizes, np.random.default_rng([seed, index]))
    logged, value = truth(dataset, table, sizes["shown"])
    unlabelled = RankingDataset(
        dataset.features, np.zeros(dataset.n_items), dataset.offsets, dataset.query_ids
    )
    items = np.tile(np.arange(sizes["items"]), sizes["queries"])
    features = FeatureTable(unlabelled, items, has_labels=False)
    row = {"log": index, "seed": seed, **sizes, "logged": logged, "ways": {}}
    for way in ways:
        begin = time.perf_counter()
        try:
            with read_impressions(table) as log:
                found = fit_from_impressions(
                    log,
                    features,
                    seed=index,
                    **WAYS[way],
                    evaluation=EvaluationOptions(metric=METRIC),
                )
        except CounterSampleError as error:
            row["ways"][way] = {"error": str(error)}
            continue
        of_ranker, gain = value(found.ranker), found.gain
        row["ways"][way] = {
            "claimed": gain.relative, "low": gain.relative_low, "high": gain.relative_high,
            "true": of_ranker / logged - 1, METRIC: of_ranker, "told of log": gain.logged.value,
            "seconds": round(time.perf_counter() - begin, 1),
        }  # fmt: skip
    return row


def read(path, sizes, seed):
    """Return the rows of logs of this seed and these sizes, by their numbers."""
    if not path.exists():
        return {}
    found = {}
    for row in map(json.loads, path.read_text("utf-8").splitlines()):
        if {"seed": seed, **sizes}.items() <= row.items():
            found.setdefault(row["log"], row)["ways"].update(row["ways"])
    return found


def run_all(options, sizes):
    done = read(options.out, sizes, options.seed)
    left = {}
    for index in range(options.logs):
        known = done[index]["ways"] if index in done else {}
        if missing := [way for way in options.ways if way not in known]:
            left[index] = missing
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=spawned) as pool:
        futures = [
            pool.submit(run, sizes, options.seed, index, ways) for index, ways in left.items()
        ]
        for n_done, future in enumerate(as_completed(futures), 1):
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(future.result()) + "\n")
            print(f"{n_done} of {len(left)} logs", flush=True)


def show(options, sizes):
    rows = list(read(options.out, sizes, options.seed).values())
    print(
        f"{'way':14} {'logs':>5} {'covered':>8} {'too low':>8} {'too high':>8} {'claimed':>9} "
        f"{'true':>9} {METRIC:>8} {'of known':>9}"
    )
    for way in options.ways:
        tried = [row["ways"] for row in rows if way in row["ways"]]
        failed = [ways[way]["error"] for ways in tried if "error" in ways[way]]
        found = [ways[way] for ways in tried if "error" not in ways[way]]
        both = [ways for ways in tried if METRIC in ways[way] and METRIC in ways.get("known", {})]
        share = np.mean([ways[way][METRIC] / ways["known"][METRIC] for ways in both] or [np.nan])
        if found:
            low, high, true, claimed, dcg = (
                np.array([each[key] for each in found])
                for key in ("low", "high", "true", "claimed", METRIC)
            )
            print(
                f"{way:14} {len(found):5} {np.mean((low <= true) & (true <= high)):8.1%} "
                f"{np.mean(high < true):8.1%} {np.mean(true < low):8.1%} {claimed.mean():+9.2%} "
                f"{true.mean():+9.2%} {dcg.mean():8.4f} {share:9.2%}"
            )
        if failed:
            print(f"{way:14} {len(failed):5} refused: {failed[0]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--jobs", type=int, default=1, help="logs at once")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--items", type=int, default=40, help="of a query")
    parser.add_argument("--shown", type=int, default=10, help="of them")
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("top_k_log.jsonl"))
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    sizes = {name: getattr(options, name) for name in SIZES}
    if not options.table:
        run_all(options, sizes)
    show(options, sizes)


if __name__ == "__main__":
    main()
