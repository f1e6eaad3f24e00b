"""Networks of a study: plain SGD against the linear kernel and a NumPy twin; their runs."""

from dataclasses import replace
from itertools import cycle

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import twins_training
from made_training import METHODS, close, random_problem, small_shop
from study_runs import GRID, finish
from twins_plans import features_of

from countersample._progress import Progress
from countersample.errors import CounterSampleError
from countersample.plans import Examples, make_plan
from countersample.study.experiment import plan
from countersample.study.reproduction import write_artifacts
from countersample.study.stages import Run
from countersample.study.store import Store
from countersample.torch.networks import train_networks
from countersample.training import TrainingOptions, train_many

RATES = (0.003, 0.01)
STEPS = 40
PAIRS = pytest.mark.parametrize(
    ("method", "unit"), list(zip(METHODS, cycle(["click", "query"]), strict=False))
)

NETWORKS = GRID.replace("gamma = [0.5, 1.0]", "hidden = [0, 3]").replace(
    "[settings]", '[settings]\nscorer = "network"\nbatch_size = 4'
)


def train_nets(dataset, log, options, hidden, rates=RATES, seed=7):
    return train_networks(
        dataset, log, learning_rates=rates, hidden=hidden, seed=seed, options=options,
        progress=Progress.of(None),
    )  # fmt: skip


def options_of(method, unit, **more):
    steps = list(range(1, STEPS + 1))
    return TrainingOptions(
        method=method, unit=unit, batch_size=5, steps=STEPS, checkpoints=steps, **more
    )


@PAIRS
def test_without_a_hidden_layer_it_is_the_linear_kernel(rng, method, unit):
    data, log = random_problem(rng)
    options = options_of(method, unit)
    ours = train_nets(data, log, options, hidden=0)
    kernel = train_many(data, log, learning_rates=RATES, seeds=[7], options=options)
    for rate, network, linear in zip(RATES, ours, kernel, strict=True):
        # Where a margin is a kink, rounding decides: the twin says from which step on.
        twin, _ = twins_training.train(
            data, log, learning_rate=rate, steps=STEPS, method=method, unit=unit,
            objective="rank", optimizer="sgd", batch_size=5, seed=7,
        )  # fmt: skip
        n = len(twin)
        assert n >= 1
        weights = np.array([scorer.weights[-1][0] for scorer in network.scorers])
        close(weights[:n], linear.history.coef[:n])
        close(weights[:n], twin)
        assert network.steps.tolist() == linear.history.steps.tolist()


def slopes_of(scores, examples, sampling, i):
    """m_i Σ_j share_j ∂f_j/∂s for the rank, and the distance of the nearest kink."""
    slopes, nearest = np.zeros(len(scores)), 1.0
    for j in range(examples.starts[i], examples.starts[i + 1]):
        clicked, weight = examples.item[j], sampling.multipliers[i] * sampling.shares[j]
        for other in range(len(scores)):
            if other != clicked:
                margin = scores[clicked] - scores[other]
                nearest = min(nearest, abs(margin - 1))
                slopes[other] += weight * (margin < 1)
                slopes[clicked] -= weight * (margin < 1)
    return slopes, nearest


def twin_network(data, log, first, rate, method, unit):
    """(W, b, a) after each step up to the first kink, by hand in float64."""
    examples = Examples.of(log, unit)
    sampling = make_plan(method, examples)
    weight, bias, last = first.astype(float), np.zeros(len(first)), np.zeros(len(first))
    for batch in twins_training.draws(sampling, STEPS, 5, 7):
        changes = [np.zeros_like(each) for each in (weight, bias, last)]
        for i in batch:
            x = features_of(data, examples.query[i]).astype(float)
            z = x @ weight.T + bias
            units = np.maximum(z, 0)
            slopes, nearest = slopes_of(units @ last, examples, sampling, i)
            if min(nearest, np.abs(z).min()) < twins_training.KINK / 10:
                return
            through = np.outer(slopes, last) * (z > 0)
            gradients = (through.T @ x, through.sum(0), units.T @ slopes)
            changes = [c + g / len(batch) for c, g in zip(changes, gradients, strict=True)]
        weight, bias, last = (
            each - rate * change for each, change in zip((weight, bias, last), changes, strict=True)
        )
        yield weight, bias, last


@PAIRS
def test_with_a_hidden_layer_it_is_backpropagation_by_hand(rng, method, unit):
    compared = 0
    while compared < 30:  # steps; problems end at a kink
        data, log = random_problem(rng)
        tiny = replace(options_of(method, unit), steps=1, checkpoints=[1])
        (still,) = train_nets(data, log, tiny, hidden=6, rates=[1e-30])
        first = still.scorers[0].weights[0]
        for rate, network in zip(
            RATES, train_nets(data, log, options_of(method, unit), hidden=6), strict=True
        ):
            for result, twin in zip(
                network.scorers, twin_network(data, log, first, rate, method, unit), strict=False
            ):
                ours = (result.weights[0], result.biases[0], result.weights[1][0])
                for one, other in zip(ours, twin, strict=True):
                    close(one, other)
                compared += 1


def test_one_that_explodes_does_not_end_the_others():
    data, log = small_shop()
    options = options_of("ips", "click")
    wild, calm = train_nets(data, log, options, hidden=4, rates=[1e38, 0.01])
    (alone,) = train_nets(data, log, options, hidden=4, rates=[0.01])
    assert wild.diverged_at is not None
    assert [scorer is None for scorer in wild.scorers] == [
        step >= wild.diverged_at for step in wild.steps
    ]
    assert calm.diverged_at is None
    close(calm.scorers[-1].weights[0], alone.scorers[-1].weights[0])
    settings = {"metric": "ndcg@10", "no_relevant": "zero"}
    assert Run(wild).curve(data, settings)[-1] == 0


def test_an_error_of_the_progress_stops_it(rng):
    def show(_what, _share):
        raise CounterSampleError("stopped")

    options = replace(options_of("ips", "click"), steps=200, checkpoints=[200])
    with pytest.raises(CounterSampleError, match="stopped"):
        train_networks(
            *random_problem(rng), learning_rates=[0.01], hidden=0, seed=0, options=options,
            progress=Progress(show),
        )  # fmt: skip


def test_a_study_of_networks_is_written_up(tmp_path):
    (tmp_path / "mine.toml").write_text(NETWORKS)
    experiment, store = plan([tmp_path / "mine.toml"], scale="paper"), Store(tmp_path / "out")
    store.claim(experiment.identity())
    work = finish(experiment, store)
    artifacts = write_artifacts(experiment, work, store, commands=("this",))
    assert "its last iterate" in artifacts.report.read_text(encoding="utf-8")
    table = pq.read_table(store.folder / "results.parquet").to_pandas()
    assert set(zip(table.scorer, table.hidden, strict=True)) == {("network", 0), ("network", 3)}
    assert set(table.version_torch) == {torch.__version__}


def test_clipping_is_that_of_the_kernel(rng):
    data, log = random_problem(rng)
    options = replace(options_of("ips", "click", clip=0.5), checkpoints=[1])
    (ours,) = train_nets(data, log, options, hidden=0, rates=[0.01])
    (kernel,) = train_many(data, log, learning_rates=[0.01], seeds=[7], options=options)
    close(ours.scorers[0].weights[-1][0], kernel.history.coef[0])
