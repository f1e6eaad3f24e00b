"""Steps whose batches threads share: each part is done once, and they end alike."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import numpy as np
import pytest
from numba import njit
from numpy.testing import assert_allclose, assert_array_equal
from trained_bytes import problem

from countersample import train, train_many
from countersample._kernels import sharing
from countersample.errors import ParameterError
from countersample.training import OPTIMIZERS, TrainingOptions, runs

STEPS = 60


def options(optimizer="sgd", **settings):
    return {"steps": STEPS, "optimizer": optimizer, "checkpoints": 4, **settings}


@pytest.fixture(scope="module")
def data_and_log():
    return problem(width=23)


@pytest.mark.parametrize(
    ("optimizer", "workers"), [*zip(OPTIMIZERS, cycle([2, 3, 16, 40]), strict=False)]
)
def test_any_number_of_threads_ends_with_the_same_bytes(data_and_log, optimizer, workers):
    settings = options(optimizer, batch_size=50, unit="query", radius=3.0)
    found = [
        train(*data_and_log, learning_rate=0.002, rng=0, workers=n, **settings)
        for n in (1, workers)
    ]
    for of in ("coef", "average_coef"):
        assert_array_equal(getattr(found[0], of), getattr(found[1], of))
    assert_array_equal(found[0].history.coef, found[1].history.coef)


@pytest.mark.parametrize(("batch_size", "parts"), [(1, 1), (3, 1), (10, 4), (5000, 16)])
def test_a_batch_is_the_mean_of_its_examples(data_and_log, batch_size, parts):
    """Of one step from 0, where every hinge is active: −η times the mean of single gradients."""
    data, log = data_and_log
    assert runs.count_parts(batch_size) == parts
    (setup,) = runs.Setup.of(data, log, TrainingOptions(steps=1, batch_size=batch_size))
    drawn = setup.plan.draw(batch_size, np.random.default_rng(7))
    examples, gradients = setup.examples, []
    for k in drawn:
        start, end = data.offsets[examples.query[k] :][:2]
        x = data.features[start:end].astype(float)
        clicked = x[examples.item[examples.starts[k]]]
        gradients.append(setup.multipliers[k] * (x - clicked).sum(axis=0))
    found = train(data, log, learning_rate=0.5, steps=1, batch_size=batch_size, rng=7, workers=2)
    assert_allclose(found.coef, -0.5 * np.mean(gradients, axis=0), rtol=1e-4, atol=1e-5)


def test_all_diverge_and_nobody_waits(data_and_log):
    data, log = data_and_log
    huge = 1e30
    found = train_many(data, log, learning_rates=[huge], workers=4, **options(batch_size=50))
    assert found[0].diverged_at is not None


def test_a_leader_that_fails_lets_its_helpers_go(data_and_log, monkeypatch):
    data, log = data_and_log
    (setup,) = runs.Setup.of(data, log, TrainingOptions(steps=STEPS, batch_size=50))
    run = runs.Run(setup, [0.01], np.random.default_rng(0), workers=3)
    from countersample._kernels import training

    compiled = training.take_steps

    def failing(*given):
        if given[-1]:
            raise KeyboardInterrupt
        return compiled(*given)

    monkeypatch.setattr(training, "take_steps", failing)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        run.advance()
    assert threading.active_count() == before


@pytest.mark.parametrize("workers", [0, 1.5, True, "all"])
def test_workers_that_are_no_number_are_refused(data_and_log, workers):
    with pytest.raises(ParameterError, match=r"workers is .*whole number"):
        train(*data_and_log, learning_rate=0.1, workers=workers, **options())


@njit(nogil=True)
def do_parts(board, done, leads, n_rounds):
    """Add one to what was done of each part; the leader readies seven parts a round."""
    n_ready, waited = 0, 0
    while True:
        part = sharing.take_part(board)
        if part >= 0:
            done[part] += 1
            sharing.count(board, sharing.DONE)
        elif leads and sharing.read(board, sharing.DONE) == n_ready:
            if n_ready == 7 * n_rounds:
                sharing.write(board, sharing.OVER, 1)
                return
            n_ready += 7
            sharing.write(board, sharing.READY, n_ready)
        elif not leads and sharing.read(board, sharing.OVER) == 1:
            return
        else:
            waited = sharing.wait_a_little(waited)


@pytest.mark.parametrize("n_helpers", [0, 1, 5])
def test_every_part_is_done_once(n_helpers):
    rounds = 2000
    board, done = np.zeros(sharing.BOARD, np.int64), np.zeros(7 * rounds, np.int64)
    with ThreadPoolExecutor(n_helpers + 1) as pool:
        helping = [pool.submit(do_parts, board, done, False, rounds) for _ in range(n_helpers)]
        do_parts(board, done, True, rounds)
        for each in helping:
            each.result(timeout=300)
    assert_array_equal(done, 1)
