"""The examples of a click log as PyTorch takes them, in batches without padding.

`click_loss` makes the losses of `countersample.objectives` differentiable for PyTorch. A new loss
is an entry in objectives.py, and then works in PyTorch and in boosting.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable
from torch.utils.data import Dataset

from countersample.errors import ParameterError
from countersample.objectives import get_loss, score_space
from countersample.plans import PLANS, Examples, Plan, make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Ints
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.objectives import AnyLoss


@dataclass(frozen=True, eq=False)
class ClickBatch:
    """Some examples, list after list: what `countersample.objectives.score_space` takes."""

    features: torch.Tensor  # float32 (n_rows, n_features), the items of all lists
    offsets: torch.Tensor  # int64 (n_lists + 1,): list k has the rows offsets[k]:offsets[k + 1]
    starts: torch.Tensor  # int64 (n_lists + 1,): the clicks on list k are starts[k]:starts[k + 1]
    item: torch.Tensor  # int64 (n_clicked,), the clicked items, counted within their lists
    weight: torch.Tensor  # float64 (n_clicked,), m_i · share_j / n_lists

    def __len__(self) -> int:
        """Return the number of lists."""
        return len(self.offsets) - 1

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> ClickBatch:
        """Return the batch on a device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> ClickBatch:
        """Return the batch in memory that a device copies from quickly."""
        return self._map(lambda tensor: tensor.pin_memory())

    def _map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> ClickBatch:
        return ClickBatch(*(function(getattr(self, field.name)) for field in fields(self)))


class ClickDataset(Dataset[ClickBatch]):
    """Example i, with weights m_i · share_j: drawn by the same plan, their mean loss estimates R.

    A dataset by index, of the examples that `CounterSampler` draws from the same log. The loss of
    a batch that was drawn by the plan, `click_loss`, has the mean R(w) = (1/N) Σ v_i f_i(w).

    Parameters
    ----------
    dataset : RankingDataset
        Its labels are not used.
    log : ClickLog
    unit : {"query", "pair", "click"}
        The kind of example: see `countersample.plans.Examples.of`.
    plan : str or Plan
        The name of a plan, or a plan of these examples: the sampler's.

    Examples
    --------
    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.torch import ClickDataset, collate
    >>> data = RankingDataset.from_arrays(X=[[1], [2], [3], [4]], y=[0] * 4, qid=[7, 7, 7, 8])
    >>> log = ClickLog(query=[0, 0, 1], item=[2, 0, 0], propensity=[0.25, 0.5, 1.0])
    >>> batch = collate([ClickDataset(data, log)[k] for k in (1, 0)])
    >>> batch.offsets, batch.starts, batch.item
    (tensor([0, 1, 4]), tensor([0, 1, 3]), tensor([0, 0, 2]))
    >>> 2 * batch.weight  # M̄ = (4 + 2 + 1)/3; the items 0 and 2 have 2/6 and 4/6 of it
    tensor([2.3333, 0.7778, 1.5556], dtype=torch.float64)
    """

    def __init__(
        self,
        dataset: RankingDataset,
        log: ClickLog,
        *,
        unit: str = "query",
        plan: str | Plan = "countersample",
    ) -> None:
        log.check(dataset)
        self.examples = Examples.of(log, unit)
        self.plan = check_plan(plan, self.examples)
        self._features = dataset.features
        self._offsets = dataset.offsets
        self._weight = self.examples.spread(self.plan.multipliers) * self.plan.shares

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> ClickBatch:
        """Return an example, as a batch of one list."""
        return self.__getitems__([index])

    def __getitems__(self, indices: ArrayLike) -> ClickBatch:
        """Return the batch of these examples, as a `DataLoader` requests it."""
        chosen = np.asarray(indices, np.int64)
        if chosen.ndim != 1:
            raise ParameterError(
                f"indices have shape {chosen.shape}, expected a list: a CounterSampler with a "
                "batch_size is the batch_sampler of a DataLoader, one without is its sampler"
            )
        chosen = np.where(chosen < 0, chosen + len(self), chosen)
        is_good = (chosen >= 0) & (chosen < len(self))
        if not is_good.all():  # an IndexError, which ends a loop over any sequence
            raise IndexError(
                f"example {chosen[is_good.argmin()]} of {len(self)}: sampler and dataset must "
                "have the same log, unit and plan"
            )
        query, starts = self.examples.query[chosen], self.examples.starts
        rows, offsets = _join_ranges(self._offsets[query], self._offsets[query + 1])
        clicked, click_offsets = _join_ranges(starts[chosen], starts[chosen + 1])
        return ClickBatch(
            torch.from_numpy(self._features[rows]),
            torch.from_numpy(offsets),
            torch.from_numpy(click_offsets),
            torch.from_numpy(self.examples.item[clicked].astype(np.int64)),
            torch.from_numpy(self._weight[clicked] / len(chosen)),
        )


def check_plan(plan: str | Plan, examples: Examples) -> Plan:
    """Return the plan with a name, or the plan itself if it fits these examples."""
    if not isinstance(plan, Plan):
        if not isinstance(plan, str) or plan not in PLANS:
            raise ParameterError(f"plan is {plan!r}, expected a Plan or one of {', '.join(PLANS)}")
        return make_plan(plan, examples)
    if len(plan.unnormalized) != len(examples):
        raise ParameterError(
            f"the plan is of {len(plan.unnormalized):,} examples, expected {len(examples):,}: "
            "make it from the examples of this log by this unit"
        )
    return plan


def collate(batches: Sequence[ClickBatch] | ClickBatch) -> ClickBatch:
    """Return one batch, list after list, with weights m_i · share_j / n_lists.

    The ``collate_fn`` of a `DataLoader`. A batch of `ClickDataset.__getitems__` is returned as is.
    """
    if isinstance(batches, ClickBatch):
        return batches
    if not batches:
        raise ParameterError("there are no samples in the batch, expected at least one")
    n_lists = sum(map(len, batches))
    return ClickBatch(
        torch.cat([each.features for each in batches]),
        _join_offsets([each.offsets for each in batches]),
        _join_offsets([each.starts for each in batches]),
        torch.cat([each.item for each in batches]),
        torch.cat([each.weight * len(each) / n_lists for each in batches]),
    )


def _join_offsets(offsets: list[torch.Tensor]) -> torch.Tensor:
    lengths = torch.cat([each.diff() for each in offsets])
    return torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])


def _join_ranges(firsts: NDArray[Any], ends: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the numbers of all ranges first … end − 1 in turn, and the offset of each range."""
    offsets = np.concatenate([[0], np.cumsum(ends - firsts)]).astype(np.int64)
    return np.repeat(firsts - offsets[:-1], np.diff(offsets)) + np.arange(offsets[-1]), offsets


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

    Examples
    --------
    Item 0 is clicked, 2 above item 1 and 0.5 above item 2: bound = 1 + 0 + (1 − 0.5).

    >>> import torch
    >>> from countersample.torch import ClickBatch, click_loss
    >>> lists, clicks = torch.tensor([0, 3]), torch.tensor([0, 1])
    >>> batch = ClickBatch(torch.zeros(3, 1), lists, clicks, torch.tensor([0]), torch.ones(1))
    >>> scores = torch.tensor([2.0, 0.0, 1.5], requires_grad=True)
    >>> loss = click_loss(scores, batch)
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
