"""Seconds on one core to the regret at which the paper's runs of IPS-SGD end.

    .venv/bin/python benchmarks/bench_to_regret.py [--results FILE] [--queries N] [--json]

Steps come from the study at the paper's scale (docs/results/paper.parquet, made by `countersample
reproduce position-bias --scale paper`; γ = 1, plain SGD, five logs): the first evaluation at which
the mean curve of a method has the nDCG@10 that IPS-SGD has after its last draw. The speed is
measured here, on data of the same shape and size in 16 bits, as the study has it: every method at
the learning rate that was chosen for it, on one core, in seconds of processor time.
CounterSampleRanker is a whole `fit_log`, held-out clicks and all; where it ends is in
docs/results/position-bias-nothing-set.csv.

The authors' code is quoted, not measured: 900 steps a second at batch size 1.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
from machine import ROOT
from output import make_parser, output, table
from pyarrow import compute, parquet

from countersample import CounterSampleRanker, PositionBias, simulate_clicks, synthetic, train
from countersample.data.compact import linear_scores
from countersample.plans import PLANS, Examples
from countersample.study.references import logging_policy

AUTHORS = 900.0  # steps a second
METHODS = {"Biased-SGD": "naive", "IPS-SGD": "ips", "CounterSample": "countersample"}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "docs/results/paper.parquet")
    parser.add_argument("--data", default="yahoo-like", choices=("yahoo-like", "istella-like"))
    parser.add_argument("--queries", type=int, help="of the data that is timed; the study's")
    parser.add_argument("--steps", type=int, default=300_000, help="that are timed")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    found = curves(options.results, options.data)
    target = found["IPS-SGD"]["ndcg"][-1]
    train_set = training_queries(options.data, options.queries)
    log = clicks(train_set)
    rows = []
    for method, plan in METHODS.items():
        curve = found[method]
        reached = np.flatnonzero(curve["ndcg"] >= target)
        steps = int(curve["drawn"][reached[0]]) if len(reached) else None
        speed = steps_a_second(train_set, log, plan, curve["rate"], options.steps)
        rows.append(
            {
                "method": method,
                "steps to it": steps or "not reached",
                "items a step": round(items_a_step(train_set, log, plan), 1),
                "steps a second": round(speed),
                "seconds": round(steps / speed, 1) if steps else "–",
                "authors' code, seconds": round(steps / AUTHORS) if steps else "–",
                "times faster": round(speed / AUTHORS),
            }
        )
    begin = time.process_time()
    CounterSampleRanker(random_state=0).fit_log(train_set, log)
    results = {
        "nDCG@10 of IPS-SGD at its end": round(float(target), 4),
        "methods": rows,
        "CounterSampleRanker, whole fit, seconds": round(time.process_time() - begin, 1),
    }
    output(results, as_text, as_json=options.json)


def curves(path: Path, dataset: str) -> dict[str, dict]:
    """Return the mean curve of each method at γ = 1, and its learning rate."""
    rows = parquet.read_table(path)
    wanted = {"study": "position-bias", "dataset": dataset, "value": "1.0"}
    for column, value in wanted.items():
        rows = rows.filter(compute.equal(rows[column], value))
    found = {}
    for method in METHODS:
        own = rows.filter(compute.equal(rows["method"], method))
        drawn, ndcg = own["drawn"].to_numpy(), own["ndcg"].to_numpy()
        points, where = np.unique(drawn, return_inverse=True)
        mean = np.bincount(where, ndcg) / np.bincount(where)
        found[method] = {"drawn": points, "ndcg": mean, "rate": own["learning_rate"][0].as_py()}
    return found


def training_queries(shape: str, n_queries: int | None):
    data = synthetic(shape, n_queries=n_queries, rng=0).normalized()
    return data.split(0.7, 0.1, 0.2, rng=0)[0].compact(16)


def clicks(train_set):
    policy = logging_policy(train_set, fraction=0.001, seed=0)
    scores = linear_scores(policy[None].astype(np.float32), train_set.features)[0]
    return simulate_clicks(train_set, scores, 1_000_000, bias=PositionBias(1.0), rng=0)


def items_a_step(train_set, log, plan: str) -> float:
    """Σ π·n of the items that a step reads: heavy clicks are far down, and so on long lists."""
    examples = Examples.of(log, "click")
    return float(PLANS[plan](examples).probabilities @ train_set.query_sizes[examples.query])


def steps_a_second(train_set, log, plan: str, rate: float, steps: int) -> float:
    def seconds(n: int) -> float:
        begin = time.process_time()
        train(train_set, log, method=plan, learning_rate=rate, steps=n, rng=0)
        return time.process_time() - begin

    seconds(1)  # compiles
    fixed = min(seconds(1) for _ in range(3))  # the alias table, checks: not a step
    return steps / (min(seconds(steps) for _ in range(3)) - fixed)


def as_text(results) -> str:
    target = results["nDCG@10 of IPS-SGD at its end"]
    whole = results["CounterSampleRanker, whole fit, seconds"]
    return (
        f"To nDCG@10 {target}, where IPS-SGD ends:\n\n{table(results['methods'], left=1)}\n\n"
        f"CounterSampleRanker with nothing set: {whole} s for a whole fit"
    )


if __name__ == "__main__":
    main()
