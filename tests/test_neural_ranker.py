"""The neural ranker: what it learns, when it stops, errors of its own."""
# ruff: noqa: N806 (X is the field's name for it)

import numpy as np
import pytest
import torch
from conftest import SEED

from countersample import (
    CounterSampleRanker,
    PositionBias,
    RankingDataset,
    evaluate,
    simulate_clicks,
    synthetic,
)  # fmt: skip
from countersample.errors import ParameterError
from countersample.torch import NeuralRanker, networks
from countersample.torch.networks import MIN_DRAWS
from countersample.training import DivergedError

QUICK = {
    "hidden": (8,), "learning_rate": 0.01, "epochs": 5, "start": "zero", "safety": 0,
    "random_state": SEED,
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny():
    data = synthetic("tiny", n_queries=150, rng=SEED)
    return data, simulate_clicks(data, data.features[:, 0], 5000, rng=SEED)


def ndcg(ranker, data):
    return evaluate(ranker, data, "ndcg@10")["ndcg@10"]


# -- what it learns


def test_it_learns_what_no_linear_ranker_can():
    """An item is relevant where two features have the same sign."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(3000, 4))
    data = RankingDataset.from_arrays(
        X=X, y=3 * (X[:, 0] * X[:, 1] > 0.3), qid=np.arange(3000) // 10
    )
    learned, test = data.split(0.75, 0.25, rng=rng)
    log = simulate_clicks(
        learned, rng.random(learned.n_items), 20_000, bias=PositionBias(1.0), rng=rng
    )
    net = NeuralRanker(hidden=(32,), learning_rate=0.01, epochs=20, random_state=SEED).fit_log(
        learned, log
    )
    linear = CounterSampleRanker(random_state=SEED, steps=5000).fit_log(learned, log)
    assert ndcg(net, test) > ndcg(linear, test) + 0.15


def test_it_leaves_no_trace_in_torch(tiny):
    before = torch.get_rng_state(), torch.get_num_threads(), torch.is_grad_enabled()
    NeuralRanker(**QUICK | {"epochs": 1}).fit_log(*tiny)
    torch.testing.assert_close(torch.get_rng_state(), before[0])
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == before[1:]


# -- when it stops


def test_it_stops_when_held_out_clicks_gain_no_more(tiny):
    ranker = NeuralRanker(**QUICK | {"epochs": 300, "patience": 3}).fit_log(*tiny)
    history = ranker.history_
    best = int(history.value.argmax())
    assert len(history.steps) == best + 1 + 3 < 300
    assert ranker.n_steps_ == history.steps[best]
    assert len(history.steps) == len(history.objective) == len(history.value)
    assert (np.diff(history.steps, prepend=0) == -(-MIN_DRAWS // ranker.batch_size)).all()
    assert history.objective[-1] < history.objective[0]


def test_in_the_end_it_learns_from_everything(tiny, monkeypatch):
    data, log = tiny
    logs = []

    class Spied(networks.CounterSampler):
        def __init__(self, log, **options):
            logs.append(log)
            super().__init__(log, **options)

    monkeypatch.setattr(networks, "CounterSampler", Spied)
    NeuralRanker(**QUICK | {"clip": 0.3, "holdout": 0.25}).fit_log(data, log)
    part, everything = logs
    n_queries = len(np.unique(log.query))
    assert len(np.unique(part.query)) == pytest.approx(0.75 * n_queries, abs=1)
    assert everything.n_clicks == log.n_clicks
    assert part.propensity.min() == everything.propensity.min() == 0.3


# -- errors


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"hidden": 8}, "hidden is 8, expected the width of each hidden layer"),
        ({"hidden": (8, 0)}, r"hidden\[1\] is 0, expected a whole number of at least 1"),
        ({"method": "bounded"}, "method is 'bounded', expected one of countersample, ips, naive"),
        ({"device": "abacus"}, "device is 'abacus', expected one that PyTorch can use here"),
    ],
)
def test_parameters(tiny, params, message):
    with pytest.raises(ParameterError, match=message):
        NeuralRanker(**QUICK | params).fit_log(*tiny)


@pytest.mark.parametrize(("objective", "patience"), [("rank", 2), ("softmax", None)])
def test_divergence(tiny, objective, patience):
    ranker = NeuralRanker(
        **QUICK | {"learning_rate": 1e30, "objective": objective, "patience": patience}
    )
    with pytest.raises(DivergedError, match=r"diverged at step \d+ with learning rate 1e\+30"):
        ranker.fit_log(*tiny)


def test_a_transform_is_chosen_on_held_out_clicks(tiny):
    with pytest.raises(ParameterError, match="feature_transform is 'auto' without patience, exp"):
        NeuralRanker(feature_transform="auto", patience=None).fit_log(*tiny)
