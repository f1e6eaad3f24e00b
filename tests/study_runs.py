"""A small study of regret, run to its end."""

import pyarrow.parquet as pq

from countersample.study.experiment import plan
from countersample.study.jobs import run, state_of
from countersample.study.results import gather, write_results
from countersample.study.store import Store

GRID = """
title = "Mine"
about = "A study."
kind = "regret"
datasets = ["tiny"]
methods = ["IPS-SGD", "CounterSample"]

[vary]
gamma = [0.5, 1.0]

[settings]
queries = 60
clicks = 400
epochs = 1.0
seeds = 2
evaluate_every = 20
learning_rates = [1e-3, 1e-2, 1e-1]
"""


def plan_grid(folder, text=GRID, **settings):
    (folder / "mine.toml").write_text(text)
    return plan([folder / "mine.toml"], scale="paper", settings=settings)


def finish(experiment, store, workers=1, reverse=False):
    work = experiment.work()
    state = state_of(work, store)
    jobs = list(state.missing.values())
    run(jobs[::-1] if reverse else jobs, store, workers=workers, is_done=state.done)
    return work


def run_study(folder, text=GRID, **settings):
    """Run a grid to its end; return its jobs, the folder of its results, the results, its rows."""
    experiment, store = plan_grid(folder, text, **settings), Store(folder)
    work = finish(experiment, store)
    write_results(experiment.studies, work, store, folder / "results.parquet")
    table = pq.read_table(folder / "results.parquet").to_pandas()
    return work, store, gather(experiment.studies[0], work, store), table


def jobs_of(work, stage):
    return [job for job in work.jobs.values() if job.stage == stage]
