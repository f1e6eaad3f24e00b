"""`click_loss`: the objectives of `countersample.objectives`, differentiable in PyTorch.

A new loss is added to `countersample.objectives`, and works here, and in boosting, at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from countersample.errors import ParameterError
from countersample.objectives import get_loss, score_space

if TYPE_CHECKING:
    from countersample.objectives import AnyLoss
    from countersample.torch.data import ClickBatch


def click_loss(
    scores: torch.Tensor, batch: ClickBatch, *, objective: AnyLoss = "rank"
) -> torch.Tensor:
    """Σ_lists Σ_clicks weight · f(scores of the list, clicked item), a number to differentiate.

    The mean over a batch of `ClickDataset`, as its weights are divided by the number of lists. If
    the batch was drawn by the plan, the loss and its gradient are unbiased estimates of R and ∇R.

    Parameters
    ----------
    scores : tensor (n_rows,)
        Scores of the items of the batch, on any device and of any floating type. The loss is
        computed on the CPU in float64, and returned with the type and device of the scores. A
        score that is not finite makes the loss and its gradient NaN.
    batch : ClickBatch
    objective : str, Objective or Loss
        One of `countersample.objectives.LOSSES`, ``"precision@k"``, or one of your own
        (`countersample.objectives.additive_objective`).

    Returns
    -------
    tensor ()

    Examples
    --------
    Item 0 is clicked, 2 above item 1 and 0.5 above item 2: bound = 1 + 0 + (1 − 0.5).

    >>> import torch
    >>> from countersample.torch import ClickSample, click_loss, collate
    >>> sample = ClickSample(torch.zeros(3, 1), torch.tensor([0]), torch.tensor([1.0]).double())
    >>> scores = torch.tensor([2.0, 0.0, 1.5], requires_grad=True)
    >>> loss = click_loss(scores, collate([sample]))
    >>> loss.backward()
    >>> loss.item(), scores.grad
    (1.5, tensor([-1.,  0.,  1.]))
    """
    get_loss(objective)
    n_rows = len(batch.features)
    if not scores.is_floating_point():
        raise ParameterError(f"scores are of type {scores.dtype}, expected a floating type")
    if scores.shape != (n_rows,):
        raise ParameterError(
            f"scores have shape {tuple(scores.shape)}, expected ({n_rows},), one for each row of "
            "the batch: take .squeeze(-1) of what a layer with one output gives"
        )
    loss: torch.Tensor = _ClickLoss.apply(scores, batch, objective)
    return loss


class _ClickLoss(torch.autograd.Function):
    """The value of `score_space` forward, its gradient backward."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 (PyTorch's)
        scores: torch.Tensor,
        batch: ClickBatch,
        objective: AnyLoss,
    ) -> torch.Tensor:
        parts = (batch.offsets, batch.starts, batch.item, batch.weight)
        values = scores.detach().double().cpu().numpy()
        losses = score_space(values, *(part.cpu().numpy() for part in parts), objective=objective)
        # Scores that overflowed compare like any others: they must not pass for sound ones.
        overflow = 0.0 if np.isfinite(values).all() else np.nan
        ctx.save_for_backward(torch.from_numpy(losses.gradient + overflow).to(scores))
        return scores.new_tensor(losses.values.sum() + overflow)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # noqa: ANN401 (PyTorch's)
        (gradient,) = ctx.saved_tensors
        return upstream * gradient, None, None
