"""On MQ2008 the methods come out in the paper's order: naive, IPS-SGD, CounterSample, by query.

Everything is as in the paper, but small: a linear logging policy made of a few queries with labels,
γ = 1, the learning rate of each method chosen on validation data, regret ×100 of the averaged
iterate against full supervision, averaged over the evaluation points of a run; five folds, several
seeds.
"""

import numpy as np
import pytest
from conftest import SEED
from scipy.stats import ttest_rel

from countersample import (
    ClickLog,
    PositionBias,
    evaluate,
    load_letor,
    simulate_clicks,
)
from countersample.training import train, train_many

SEEDS = (0, 1, 2, 3)
RATES = [10.0**k for k in (-5, -4.5, -4, -3.5, -3, -2.5, -2, -1.5, -1, -0.5, 0)]
METHODS = {  # name: method, unit
    "naive": ("naive", "click"),
    "IPS-SGD": ("ips", "click"),
    "CounterSample": ("countersample", "click"),
    "by query": ("countersample", "query"),
}
N_CLICKS, STEPS, POINTS = 50_000, 30_000, 15


@pytest.fixture(scope="module")
def folds(shared):
    """LETOR's rotation: three parts to train on, one to choose by, one to test on."""
    folds = [load_letor(shared / "mq2008", fold=fold) for fold in range(1, 6)]
    return [[part.normalized("query-minmax") for part in fold.values()] for fold in folds]


def ndcg(weights, data):
    return evaluate(data.features @ weights, data, "ndcg@10")["ndcg@10"]


def fully_supervised(data):
    """w of full supervision: of a few learning rates the one that ranks its own data best."""
    runs = train_many(
        data, ClickLog.from_labels(data), learning_rates=[1e-4, 1e-3, 1e-2], unit="query",
        steps=STEPS,
    )  # fmt: skip
    return max((run.weights for run in runs), key=lambda w: ndcg(w, data))


def mean_ndcg(run, data):
    return np.mean([ndcg(w, data) for w in run.history.average_coef])


def regrets(fold, best, seed):
    """Regret ×100 on test data of each method, with the best learning rate on validation data."""
    train_data, validation, test = fold
    rng = np.random.default_rng([SEED, seed])
    n_logged = max(2, train_data.n_queries // 100)
    judged = np.flatnonzero(np.add.reduceat(train_data.labels, train_data.offsets[:-1]) > 0)
    few = train_data.subset(rng.choice(judged, n_logged, replace=False))
    policy = train(few, ClickLog.from_labels(few), learning_rate=1e-3, steps=2000, rng=rng).weights
    log = simulate_clicks(
        train_data, train_data.features @ policy, N_CLICKS, bias=PositionBias(gamma=1.0),
        relevant=1, rng=rng,
    )  # fmt: skip
    found = {}
    for name, (method, unit) in METHODS.items():
        runs = train_many(
            train_data, log, learning_rates=RATES, methods=[method], unit=unit, steps=STEPS,
            checkpoints=POINTS, seeds=[int(rng.integers(2**31))],
        )  # fmt: skip
        sound = [run for run in runs if run.diverged_at is None]
        chosen = max(sound, key=lambda run: mean_ndcg(run, validation))
        found[name] = 100 * (best - mean_ndcg(chosen, test))
    return found


@pytest.fixture(scope="module")
def table(folds):
    """Regret by method, an array over seeds × folds."""
    best = [ndcg(fully_supervised(data), test) for data, _, test in folds]
    rows = [regrets(fold, b, seed) for seed in SEEDS for fold, b in zip(folds, best, strict=True)]
    return {name: np.array([row[name] for row in rows]) for name in METHODS}


def p_of_less(a, b):
    """How likely a difference as seen is, were the mean of a not below that of b (paired)."""
    return ttest_rel(a, b, alternative="less").pvalue


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in METHODS if name != "naive"])
def test_naive_is_worst(table, name):
    assert p_of_less(table[name], table["naive"]) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("better", "worse"), [("CounterSample", "IPS-SGD"), ("by query", "CounterSample")]
)
def test_order(table, better, worse):
    assert p_of_less(table[worse], table[better]) > 0.05  # nothing says the opposite
    noise = np.std(table[better] - table[worse], ddof=1) / np.sqrt(len(table[better]))
    assert table[better].mean() <= table[worse].mean() + noise
