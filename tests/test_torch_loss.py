"""The loss in PyTorch: its value and gradient against slow loops and our kernels."""

import numpy as np
import pytest
import torch
import twins_objectives as twin

from countersample.errors import ParameterError
from countersample.objectives import LOSSES
from countersample.torch import ClickBatch, click_loss


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


@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_are_those_of_the_twin(name, scores, batch):
    value, gradients = 0.0, []
    for rows, items, weights in lists_of(scores.detach().numpy(), batch):
        gradients.append(np.zeros(len(rows)))
        for item, weight in zip(items, weights.tolist(), strict=True):
            height, slopes, _ = twin.of_click(rows, item, name)
            value += weight * height
            gradients[-1] += weight * slopes
    loss = click_loss(scores, batch, objective=name)
    loss.backward()
    assert loss.item() == pytest.approx(value)
    np.testing.assert_allclose(scores.grad.numpy(), np.concatenate(gradients), atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_any_floating_type(dtype, scores, batch):
    inputs = scores.detach().to(dtype).requires_grad_()
    loss = click_loss(inputs, batch, objective="softmax")
    loss.backward()
    exact = inputs.detach().double().requires_grad_()
    expected = click_loss(exact, batch, objective="softmax")
    expected.backward()
    assert loss.dtype == inputs.grad.dtype == dtype
    torch.testing.assert_close(loss, expected.to(dtype))
    torch.testing.assert_close(inputs.grad, exact.grad.to(dtype))


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
