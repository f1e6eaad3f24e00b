"""A round of boosting with our objective beside one with LightGBM's built-in ``lambdarank``.

    .venv/bin/python benchmarks/bench_gbdt.py [--rounds 10] [--repeat 3] [--threads N] [--json]

Both get the same rows and the same settings of trees (LightGBM's own but for 31 leaves of at least
50 items, all features, all items). ``lambdarank`` has the number of clicks on an item as its label;
ours has the click log. "round" is what a whole round takes, the growing of the tree included:
seconds of a training without those of making the data set, by the number of rounds, best of the
repeats, in turns. "gradient" is a call of our objective alone, on the scores after those rounds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import lightgbm as lgb
import numpy as np
from output import make_parser, output

from countersample import ClickLog, simulate_clicks, synthetic, train
from countersample._environment import available_cores
from countersample.gbdt import boosting_objective

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from countersample import RankingDataset

SHAPES = {"yahoo-like": 2000, "istella-like": 1000}  # queries
OBJECTIVES = ("smooth-log-rank", "rank", "dcg", "smooth-dcg", "softmax", "lambda-dcg")
N_CLICKS = 200_000


def make_clicks(dataset: RankingDataset) -> ClickLog:
    scaled = dataset.normalized("minmax")
    few = scaled.subset(np.unique(ClickLog.from_labels(dataset, relevant=3).query)[:20])
    policy = train(
        few, ClickLog.from_labels(few, relevant=3), learning_rate=0.01, steps=1000, rng=0
    )
    return simulate_clicks(dataset, scaled.features @ policy.weights, N_CLICKS, relevant=3, rng=0)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def measure(shape: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    dataset = synthetic(shape, n_queries=SHAPES[shape], rng=0)
    log = make_clicks(dataset)
    rows = dataset.offsets[log.query] + log.item
    clicks = np.bincount(rows, minlength=dataset.n_items)
    params = {
        "num_leaves": 31, "min_data_in_leaf": 50, "num_threads": arguments.threads,
        "verbosity": -1, "force_row_wise": True, "metric": "none",
    }  # fmt: skip
    table = lgb.Dataset(
        dataset.features, label=np.minimum(clicks, 30), group=dataset.query_sizes, params=params
    ).construct()
    objectives = {name: boosting_objective(dataset, log, objective=name) for name in OBJECTIVES}
    named = {"LightGBM lambdarank": "lambdarank", **objectives}
    seconds: dict[str, list[float]] = {name: [] for name in named}
    gradient: dict[str, float] = {}
    for _ in range(arguments.repeat):
        for name, objective in named.items():
            given = params | {"objective": objective}
            spent, booster = timed(lambda p=given: lgb.train(p, table, arguments.rounds))
            seconds[name].append(spent / arguments.rounds)
            if name in objectives:
                scores = booster.predict(dataset.features)
                of_call = min(timed(lambda f=objective, s=scores: f(s, table))[0] for _ in range(5))
                gradient[name] = min(of_call, gradient.get(name, np.inf))
    built_in = min(seconds["LightGBM lambdarank"])
    return [
        {
            "shape": shape, "items": dataset.n_items, "features": dataset.n_features,
            "clicked": len(np.unique(rows)), "objective": name, "round": min(spent),
            "gradient": gradient.get(name), "ratio": min(spent) / built_in,
        }
        for name, spent in seconds.items()
    ]  # fmt: skip


def show(rows: list[dict[str, Any]]) -> None:
    shape = None
    for row in rows:
        if row["shape"] != shape:
            shape = row["shape"]
            print(f"\n{shape}: {row['items']:,} items, {row['clicked']:,} clicked, ", end="")
            print(f"{row['features']} features")
            print(f"{'objective':24}{'round':>12}{'gradient':>12}{'ratio':>8}")
        alone = "–" if row["gradient"] is None else f"{1000 * row['gradient']:.1f} ms"
        whole = f"{1000 * row['round']:.1f} ms"
        print(f"{row['objective']:24}{whole:>12}{alone:>12}{row['ratio']:>8.2f}")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="trees of a training")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=available_cores())
    arguments = parser.parse_args()
    rows = [row for shape in SHAPES for row in measure(shape, arguments)]
    output(rows, show, as_json=arguments.json)


if __name__ == "__main__":
    main()
