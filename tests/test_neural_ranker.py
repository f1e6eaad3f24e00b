"""The neural ranker: what it learns, when it stops, errors of its own."""
# ruff: noqa: N806 (X is the field's name for it)

import numpy as np
import pytest
import torch
from conftest import SEED

from countersample import (
    ClickLog,
    CounterSampleRanker,
    PositionBias,
    RankingDataset,
    evaluate,
    simulate_clicks,
    synthetic,
    train,
)  # fmt: skip
from countersample.errors import ParameterError
from countersample.objectives import OBJECTIVES
from countersample.torch import ClickDataset, NeuralRanker, click_loss, networks
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


@pytest.fixture(scope="module")
def fitted(tiny):
    return NeuralRanker(**QUICK).fit_log(*tiny)


def ndcg(ranker, data):
    return evaluate(ranker, data, "ndcg@10")["ndcg@10"]


def by_chance(data, rng):
    return np.mean([ndcg(rng.random(data.n_items), data) for _ in range(20)])


# -- a linear net is the linear ranker


@pytest.mark.parametrize(
    ("objective", "method", "unit"),
    [
        (objective, ("countersample", "ips", "naive")[k % 3], ("click", "query")[k // 3 % 2])
        for k, objective in enumerate(OBJECTIVES)
    ],
)
def test_a_linear_net_takes_the_steps_of_linear_training(tiny, method, unit, objective):
    """With the same draws and the same optimizer, to the precision of float32."""
    data, log = (
        tiny[0].normalized("minmax"),
        ClickLog(tiny[1].query, tiny[1].item, tiny[1].propensity),
    )
    settings = {"method": method, "unit": unit, "objective": objective}
    result = train(
        data, log, **settings, learning_rate=0.002, steps=50, batch_size=8, average=False, rng=SEED
    )
    examples = ClickDataset(data, log, unit=unit, plan=method)
    drawn = examples.plan.draw(50 * 8, np.random.default_rng(SEED)).reshape(50, 8)
    weights = torch.zeros(data.n_features, requires_grad=True)
    sgd = torch.optim.SGD([weights], lr=0.002)
    for indices in drawn:
        batch = examples.__getitems__(indices)
        sgd.zero_grad()
        click_loss(batch.features @ weights, batch, objective=objective).backward()
        sgd.step()
    size = np.abs(result.coef).max()
    np.testing.assert_allclose(weights.detach().numpy(), result.coef, atol=1e-4 * size)


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


@pytest.mark.parametrize(
    "params",
    [{"objective": "rank"}, {"objective": "softmax"}, {"unit": "click"}, {"method": "ips"}],
    ids=str,
)
def test_settings_learn(tiny, params, rng):
    data, log = tiny
    ranker = NeuralRanker(**QUICK | {"patience": None} | params).fit_log(data, log)
    assert ndcg(ranker, data) > by_chance(data, rng) + 0.04


def test_it_leaves_no_trace_in_torch(tiny):
    before = torch.get_rng_state(), torch.get_num_threads(), torch.is_grad_enabled()
    NeuralRanker(**QUICK | {"epochs": 1}).fit_log(*tiny)
    torch.testing.assert_close(torch.get_rng_state(), before[0])
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == before[1:]


def test_scores_are_those_of_the_network_by_torch(tiny, fitted):
    scaled = torch.from_numpy(fitted.preprocessing_.normalizer(tiny[0]).features)
    first, last = (torch.from_numpy(weight) for weight in fitted.scorer_.weights)
    scores = torch.relu(scaled @ first.T + torch.from_numpy(fitted.scorer_.biases[0])) @ last.T
    np.testing.assert_allclose(fitted.predict(tiny[0]), scores[:, 0].numpy(), rtol=1e-4, atol=1e-5)


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
