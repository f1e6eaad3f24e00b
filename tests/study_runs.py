"""A small study of regret, run to its end."""

from countersample.study.running.runner import run, state_of

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


def finish(experiment, store, workers=1, reverse=False):
    work = experiment.work()
    state = state_of(work, store)
    jobs = list(state.missing.values())
    run(jobs[::-1] if reverse else jobs, store, workers=workers, is_done=state.done)
    return work
