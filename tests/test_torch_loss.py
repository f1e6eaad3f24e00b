"""The loss in PyTorch: its value and gradient against autograd, finite differences, our kernels."""

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from countersample.errors import ParameterError
from countersample.objectives import LOSSES, OBJECTIVES, coefficients
from countersample.torch import ClickBatch, click_loss

NAMES = sorted(LOSSES)
LN2 = np.log(2)
WEIGHTINGS = {
    "rank": lambda x: x,
    "log-rank": torch.log,
    "dcg": lambda x: -1 / torch.log2(1 + x),
    "squared-rank": torch.square,
    "log-rank-paper": lambda x: torch.log(1 + x),
    "dcg-paper": lambda x: -1 / torch.log2(2 + x),
}


@pytest.fixture
def batch(rng):
    """Five lists, one of them of a single item, with one to three clicked items each."""
    sizes, n_clicked = [1, 7, 4, 12, 3], [1, 3, 1, 2, 2]
    items = [rng.permutation(size)[:n] for size, n in zip(sizes, n_clicked, strict=True)]
    return ClickBatch(
        torch.zeros(sum(sizes), 2), torch.tensor([0, *sizes]).cumsum(0),
        torch.tensor([0, *n_clicked]).cumsum(0), torch.from_numpy(np.concatenate(items)),
        torch.from_numpy(rng.exponential(size=sum(n_clicked))),
    )  # fmt: skip


@pytest.fixture
def scores(batch, rng):
    """Margins are multiples of 0.3, give or take 0.01: no ties, and no kinks at 1."""
    n = len(batch.features)
    return torch.from_numpy(0.3 * rng.permutation(n) + 0.01 * rng.random(n)).requires_grad_()


def lists_of(scores, batch):
    """The scores of each list, its clicked items and their weights."""
    for k in range(len(batch)):
        rows = scores[batch.offsets[k] : batch.offsets[k + 1]]
        clicks = slice(batch.starts[k], batch.starts[k + 1])
        yield rows, batch.item[clicks].tolist(), batch.weight[clicks]


def of_click(scores, item, objective):
    """f of one clicked item, in operations that autograd knows."""
    if objective == "softmax":
        return torch.logsumexp(scores, 0) - scores[item]
    others = torch.arange(len(scores)) != item
    margins = (scores[item] - scores)[others]
    is_smooth = objective.startswith(("smooth-", "lambda-"))
    pairs = softplus(-margins) / LN2 if is_smooth else torch.relu(1 - margins)
    if objective == "lambda-dcg":
        ranks = 1 + torch.argsort(torch.argsort(-scores.detach()))
        of_rank = 1 / torch.log2(1 + ranks.double())
        return ((of_rank[item] - of_rank[others]).abs() * pairs).sum()
    return WEIGHTINGS[objective.removeprefix("smooth-")](1 + pairs.sum())


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_formula_differentiated_by_torch(name, scores, batch):
    twin = sum(
        weight * of_click(rows, item, name)
        for rows, items, weights in lists_of(scores, batch)
        for item, weight in zip(items, weights, strict=True)
    )
    (expected,) = torch.autograd.grad(twin, scores)
    loss = click_loss(scores, batch, objective=name)
    loss.backward()
    torch.testing.assert_close(loss, twin)
    torch.testing.assert_close(scores.grad, expected)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_gradient_is_that_of_linear_training(name, scores, batch):
    """Whose kernel computes in float32."""
    expected = [
        sum(
            weight * coefficients(rows.detach().numpy(), item, objective=name)
            for item, weight in zip(items, weights.numpy(), strict=True)
        )
        for rows, items, weights in lists_of(scores, batch)
    ]
    click_loss(scores, batch, objective=name).backward()
    np.testing.assert_allclose(scores.grad.numpy(), np.concatenate(expected), 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_any_floating_type(dtype, scores, batch):
    given = scores.detach().to(dtype).requires_grad_()
    loss = click_loss(given, batch, objective="softmax")
    loss.backward()
    exact = given.detach().double().requires_grad_()
    expected = click_loss(exact, batch, objective="softmax")
    expected.backward()
    assert loss.dtype == given.grad.dtype == dtype
    torch.testing.assert_close(loss, expected.to(dtype))
    torch.testing.assert_close(given.grad, exact.grad.to(dtype))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_overflowed_do_not_pass_for_sound_ones(value, scores, batch):
    broken = scores.detach().clone()
    broken[2] = value
    broken.requires_grad_()
    loss = click_loss(broken, batch, objective="smooth-dcg")
    loss.backward()
    assert loss.isnan()
    assert broken.grad.isnan().all()


def test_refusals(batch):
    n = len(batch.features)
    with pytest.raises(ParameterError, match=rf"shape \({n}, 1\), expected \({n},\).*squeeze"):
        click_loss(torch.zeros(n, 1), batch)
    with pytest.raises(ParameterError, match="objective is 'mrr', expected one of rank, log-rank"):
        click_loss(torch.zeros(n), batch, objective="mrr")
