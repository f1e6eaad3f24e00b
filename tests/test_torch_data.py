"""Examples and batches: what they hold, and that their loss is an unbiased draw of R."""

import numpy as np
import pytest
import torch
import twins_objectives as twin
from made_plans import plan_of
from torch.utils.data import DataLoader

from countersample import ClickLog, RankingDataset
from countersample.errors import CounterSampleError, ParameterError
from countersample.plans import PLANS, UNITS
from countersample.torch import ClickDataset, CounterSampler, click_loss, collate

FIELDS = ("features", "offsets", "starts", "item", "weight")
SIZES = np.array([4, 1, 6, 3])


@pytest.fixture
def dataset(rng):
    n = SIZES.sum()
    return RankingDataset.from_arrays(
        X=rng.normal(size=(n, 3)), y=np.zeros(n), qid=np.repeat(np.arange(4), SIZES)
    )


@pytest.fixture
def log(rng):
    """Clicks on all queries, items clicked more than once with different propensities."""
    query = np.r_[0:4, rng.integers(0, 4, 8)]
    return ClickLog(
        query=query,
        item=rng.integers(0, SIZES[query]),
        propensity=rng.choice([1, 0.5, 0.2, 0.05], 12),
        count=rng.integers(1, 4, 12),
    )


def assert_same(a, b):
    for field in FIELDS:
        torch.testing.assert_close(getattr(a, field), getattr(b, field), rtol=0, atol=0)


# -- the draw is unbiased


@pytest.mark.parametrize(
    ("name", "unit", "objective"),
    [
        (name, unit, ("rank", "smooth-dcg", "softmax", "lambda-dcg")[(i + j) % 4])
        for i, name in enumerate(PLANS)
        for j, unit in enumerate(UNITS)
    ],
)
def test_the_expected_loss_is_the_risk(name, unit, objective, dataset, log, rng):
    """By enumeration of all batches of two: Σ π_i π_j loss(i, j) = R, and so for the gradient.

    R = (1/N) Σ_rows count/p · f; the naive plan has (1/N) Σ_rows count · f, snips has R/M̄.
    """
    plan = plan_of(name, log, unit, rng)
    examples = ClickDataset(dataset, log, unit=unit, plan=plan)
    w = rng.normal(size=3)
    loss, gradient = 0.0, np.zeros(3)
    for i, p in enumerate(plan.probabilities):
        for j, q in enumerate(plan.probabilities):
            batch = examples.__getitems__([i, j])
            inputs = torch.tensor(w, requires_grad=True)
            result = click_loss(batch.features.double() @ inputs, batch, objective=objective)
            result.backward()
            loss += p * q * result.item()
            gradient += p * q * inputs.grad.numpy()
    weights = (log.count if name == "naive" else log.weights) / log.n_clicks
    if name == "snips":
        weights = weights / log.mean_weight
    risk, slope = 0.0, np.zeros(3)
    for query, item, weight in zip(log.query, log.item, weights, strict=True):
        features = dataset.features[dataset.offsets[query] : dataset.offsets[query + 1]]
        value, of_scores, _ = twin.of_click(features.astype(float) @ w, item, objective)
        risk += weight * value
        slope += weight * of_scores @ features
    assert loss == pytest.approx(risk, rel=1e-10)
    np.testing.assert_allclose(gradient, slope, rtol=1e-10, atol=1e-10)


# -- what they hold


@pytest.mark.parametrize("unit", UNITS)
def test_a_batch_at_once_is_a_batch_of_samples(unit, dataset, log, rng):
    examples = ClickDataset(dataset, log, unit=unit)
    drawn = rng.integers(0, len(examples), 9).tolist()
    batch = examples.__getitems__(drawn)
    assert len(batch) == 9
    assert_same(batch, collate([examples[i] for i in drawn]))
    assert collate(batch) is batch


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader(workers, dataset, log):
    examples = ClickDataset(dataset, log, unit="click")
    loader = DataLoader(
        examples, num_workers=workers, collate_fn=collate,
        batch_sampler=CounterSampler(log, unit="click", batch_size=5, seed=1),
    )  # fmt: skip
    indices = list(CounterSampler(log, unit="click", batch_size=5, seed=1))
    batches = list(loader)
    assert len(batches) == len(indices) == 3
    for batch, drawn in zip(batches, indices, strict=True):
        assert_same(batch, examples.__getitems__(drawn))


# -- refusals


def test_refusals(dataset, log, rng):
    with pytest.raises(ParameterError, match="unit is 'session', expected one of click, pair"):
        ClickDataset(dataset, log, unit="session")
    with pytest.raises(ParameterError, match="plan is 'best', expected a Plan or one of naive"):
        ClickDataset(dataset, log, plan="best")
    with pytest.raises(ParameterError, match="the plan is of 12 examples, expected 4"):
        ClickDataset(dataset, log, plan=plan_of("ips", log, "click", rng))
    with pytest.raises(CounterSampleError, match="item"):
        ClickDataset(dataset, ClickLog(query=[1], item=[1], propensity=[1.0]))
    with pytest.raises(ParameterError, match="no samples"):
        collate([])


def test_indices_that_are_not_those_of_examples(dataset, log):
    examples = ClickDataset(dataset, log, unit="query")
    assert examples[-1].item.tolist() == examples[len(examples) - 1].item.tolist()
    assert examples.__getitems__([-1]).item.tolist() == examples[-1].item.tolist()
    for index in (len(examples), -len(examples) - 1):
        with pytest.raises(IndexError, match="must have the same log, unit and plan"):
            examples.__getitems__([0, index])
    lists = DataLoader(examples, sampler=CounterSampler(log, batch_size=2), collate_fn=collate)
    with pytest.raises(ParameterError, match="with a batch_size is the batch_sampler"):
        next(iter(lists))
    single = DataLoader(examples, batch_sampler=CounterSampler(log), collate_fn=collate)
    with pytest.raises(ParameterError, match="one without is its sampler"):
        next(iter(single))
    whole = torch.zeros(len(examples[0].features), dtype=torch.int64)
    with pytest.raises(ParameterError, match="expected a floating type"):
        click_loss(whole, collate([examples[0]]))
