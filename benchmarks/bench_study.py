"""Time of the complete paper-scale optimizers study on the shape of Yahoo, on one core.

    .venv/bin/python benchmarks/bench_study.py [--queries N] [--steps N] [--json]

The study is planned as `countersample reproduce optimizers --scale paper` plans it. A slice of each
kind of work is timed: a few thousand steps of every method and optimizer, with one learning rate
and with the paper's 22 in shared passes; evaluations on validation and test data; simulation;
full supervision. The times are multiplied up to the study's own numbers of steps, points and logs.
The ranker with nothing set, which the paper has not, is left out.

The authors' code is quoted, not measured: 900 steps a second at batch size 1, 3,000 clicks a second
at batch size 10. Its time is that of the same runs at that rate; its evaluation and simulation are
left out.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import numpy as np
from output import make_parser, output

from countersample._progress import duration
from countersample.clicks import PositionBias, simulate_clicks
from countersample.data.synthetic import synthetic
from countersample.evaluation import learning_curve
from countersample.study.experiment import plan
from countersample.study.references import METRIC, logging_policy, supervised
from countersample.study.stages import length_of
from countersample.training import train_many

if TYPE_CHECKING:
    import argparse

AUTHORS = {1: 900.0, 10: 3000.0}  # clicks drawn a second, by batch size
REPEATS = 3


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--queries", type=int, default=36_251, help="2.4 GB at the full size")
    parser.add_argument("--steps", type=int, default=20_000, help="of a slice")
    parser.add_argument(
        "--clicks", type=int, default=1_000_000, help="of the log that is drawn from"
    )
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = [measure(study, options) for study in ("optimizers", "batch-sizes")]
    output(rows, table, as_json=options.json)


def measure(study: str, options: argparse.Namespace) -> dict[str, float | str]:
    work = plan([study], scale="paper", datasets=["yahoo-like"]).work()
    parts = synthetic("yahoo-like", n_queries=options.queries, rng=0)
    parts = parts.normalized().split(0.7, 0.1, 0.2, rng=0)
    seconds, peer = extrapolate(work, parts, options)
    return {"study": study, "jobs": len(work.jobs), "seconds": seconds, "authors": peer,
            "ratio": peer / seconds}  # fmt: skip


def extrapolate(work, parts, options) -> tuple[float, float]:
    train_set, vali, test = parts
    policy = logging_policy(train_set, fraction=0.001, seed=0)
    scores = train_set.features @ policy.astype(np.float32)
    log = simulate_clicks(train_set, scores, options.clicks, bias=PositionBias(1.0), rng=0)
    coefs = np.zeros((20, train_set.n_features))
    an_evaluation = {
        "tuning": best_of(lambda: learning_curve(coefs, vali, METRIC)) / len(coefs),
        "run": best_of(lambda: learning_curve(coefs, test, METRIC)) / len(coefs),
    }
    once = {
        "references": lambda: 10 * seconds_of(  # a tenth of its steps
            lambda: supervised(train_set, vali, steps=30_000, seed=0)
        ),
        "clicks": lambda: seconds_of(
            lambda: simulate_clicks(train_set, scores, 1_000_000, rng=0)
        ),
        **dict.fromkeys(("data", "levels", "ranker", "relevance"), lambda: 0.0),
    }  # fmt: skip
    known: dict[tuple, float] = {}
    ours = peer = 0.0
    for job in work.jobs.values():
        if job.stage in once:
            if (job.stage,) not in known:
                known[job.stage,] = once[job.stage]()
            ours += known[job.stage,]
            continue
        rates = job.config.get("learning_rates", [1e-6])
        steps, points = length_of(job)
        batch = job.config["batch_size"]
        n_draws = steps * batch
        kind = (job.stage, job.config["plan"], job.config["optimizer"], batch)
        if kind not in known:
            known[kind] = a_draw(train_set, log, job.config, rates, options.steps)
        ours += len(rates) * len(points) * an_evaluation[job.stage] + n_draws * known[kind]
        peer += len(rates) * n_draws / AUTHORS[min(batch, 10)]
    return ours, peer


def a_draw(train_set, log, config, rates, steps) -> float:
    """Seconds of one draw, for all learning rates together."""
    n_steps = steps // config["batch_size"]

    def work():
        train_many(
            train_set, log, learning_rates=rates, methods=[config["plan"]], steps=n_steps,
            optimizer=config["optimizer"], batch_size=config["batch_size"], workers=1,
        )  # fmt: skip

    fixed = best_of(  # the alias table, checks: not part of a draw
        lambda: train_many(
            train_set, log, learning_rates=rates, methods=[config["plan"]], steps=1,
            optimizer=config["optimizer"], workers=1,
        )
    )  # fmt: skip
    return (best_of(work) - fixed) / (n_steps * config["batch_size"])


def best_of(work) -> float:
    return min(seconds_of(work) for _ in range(REPEATS))


def seconds_of(work) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def table(rows) -> str:
    lines = ["study        jobs   countersample, one core   authors' code   ratio"]
    lines += [
        f"{row['study']:<11}  {row['jobs']:>4}   {duration(row['seconds']):>23}   "
        f"{duration(row['authors']):>13}   {row['ratio']:>5.0f}"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
