"""Networks that differ in their learning rate alone, trained side by side by plain SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from countersample.objectives import score_space
from countersample.scorers import NetworkScorer
from countersample.torch._layers import first_weights, one_thread
from countersample.torch.data import ClickDataset
from countersample.training.runs import Setup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Floats, Ints
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.torch.data import ClickBatch
    from countersample.training import TrainingOptions

_TOLD_EVERY = 50  # steps


@dataclass(frozen=True, eq=False)
class NetworkRun:
    """One network: what it was after the steps asked for.

    Attributes
    ----------
    steps : int64 (n,)
    scorers : tuple of NetworkScorer or None
        By the weights w_t after each of these steps; None from where they exploded.
    diverged_at : int or None
        The step at which they did.
    """

    steps: Ints
    scorers: tuple[NetworkScorer | None, ...]
    diverged_at: int | None


def train_networks(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    learning_rates: Sequence[float],
    hidden: int,
    seed: int,
    options: TrainingOptions,
    progress: Progress,
) -> list[NetworkRun]:
    """w_{t+1} = w_t − η·(1/B) Σ_{i in batch t} m_i ∇f_i(w_t), for each η.

    score(x) = a·max(0, W·x + b) with `hidden` units, or a·x with none. At first W is drawn, and
    b and a are 0, so that all scores are. Networks begin alike and draw the same examples: those
    that `countersample.train` draws for this seed.

    Parameters
    ----------
    dataset, log
        As for `countersample.train`.
    learning_rates : sequence of float
    hidden : int
    seed : int
        Same seed, same networks, whatever the number of threads.
    options : TrainingOptions
        Of plain SGD: plan, unit, objective, batch size, steps, clip and checkpoints are taken.
    progress : Progress

    Returns
    -------
    list of NetworkRun
        By learning rate. One whose weights explode does not end the others.
    """
    (setup,) = Setup.of(dataset, log, options)
    examples = ClickDataset(dataset, setup.log, unit=options.unit, plan=setup.plan)
    rng = np.random.default_rng(seed)
    networks = _Networks(learning_rates, dataset.n_features, hidden, seed, options)
    recorded, step = set(setup.record_at.tolist()), 0
    with one_thread():
        while step < setup.n_steps and not networks.are_over:
            n_steps = min(setup.steps_at_once, setup.n_steps - step)
            drawn = setup.plan.draw(n_steps * options.batch_size, rng)
            for batch in drawn.reshape(n_steps, options.batch_size):
                step += 1
                networks.take_step(examples.__getitems__(batch), step)
                if step in recorded:
                    networks.record()
                if step % _TOLD_EVERY == 0:
                    progress.update(step / setup.n_steps)
    return networks.runs(setup.record_at)


class _Networks:
    """K networks: the layers of all of them are parts of the same tensors."""

    def __init__(
        self,
        learning_rates: Sequence[float],
        n_features: int,
        hidden: int,
        seed: int,
        options: TrainingOptions,
    ) -> None:
        n = len(learning_rates)
        rng = np.random.default_rng([seed, 1])  # not the one that draws examples
        last = torch.zeros(n, hidden or n_features)
        self._layers = [last]
        if hidden:
            first = torch.from_numpy(first_weights(n_features, hidden, rng))
            self._layers += [first.repeat(n, 1, 1), torch.zeros(n, hidden)]
        for layer in self._layers:
            layer.requires_grad_()
        self._rates = torch.tensor(learning_rates)
        self._objective = options.objective
        self._diverged_at: list[int | None] = [None] * n
        self._kept: list[list[NetworkScorer]] = [[] for _ in range(n)]

    @property
    def are_over(self) -> bool:
        """Whether the weights of all have exploded."""
        return None not in self._diverged_at

    def take_step(self, batch: ClickBatch, step: int) -> None:
        """Take a step of each."""
        scores = self._scores(batch.features)
        slopes = self._slopes(scores.detach().double().numpy(), batch)
        gradients = torch.autograd.grad(scores, self._layers, torch.from_numpy(slopes).float())
        with torch.no_grad():
            for layer, gradient in zip(self._layers, gradients, strict=True):
                layer.sub_(gradient * self._rates.view(-1, *[1] * (layer.ndim - 1)))
            parts = [layer.flatten(1).sum(1).isfinite() for layer in self._layers]
            sound = torch.stack([scores.isfinite().all(1), *parts]).all(0)
            for k in (~sound).nonzero().flatten().tolist():
                self._diverged_at[k] = self._diverged_at[k] or step
                self._rates[k] = 0  # it stays where it is, and others go on
                for layer in self._layers:
                    layer[k] = 0

    def _scores(self, features: torch.Tensor) -> torch.Tensor:
        """Return the scores of all rows by each, (K, n_rows)."""
        last, *rest = self._layers
        if not rest:
            return last @ features.T
        first, bias = rest
        units = torch.relu(torch.addmm(bias.view(-1), features, first.flatten(0, 1).T))
        return torch.einsum("rkh,kh->kr", units.view(-1, *last.shape), last)

    def _slopes(self, scores: Floats, batch: ClickBatch) -> Floats:
        """Return the derivative of the loss of each by its scores, (K, n_rows)."""
        n, n_rows = scores.shape
        offsets, starts = batch.offsets.numpy(), batch.starts.numpy()
        found = score_space(
            scores.ravel(),
            _side_by_side(offsets, n),
            _side_by_side(starts, n),
            np.tile(batch.item.numpy(), n),
            np.tile(batch.weight.numpy(), n),
            objective=self._objective,
        )
        return found.gradient.reshape(n, n_rows)

    def record(self) -> None:
        """Keep what scores by the weights of now, of those that have not exploded."""
        for k, kept in enumerate(self._kept):
            if self._diverged_at[k] is None:
                last, *rest = (layer[k].detach().clone().numpy() for layer in self._layers)
                none = np.zeros(1, np.float32)  # the same for all items: it ranks nothing
                weights, biases = (*rest[:1], last[None]), (*rest[1:], none)
                kept.append(NetworkScorer(weights, biases))

    def runs(self, steps: Ints) -> list[NetworkRun]:
        """Return what they were after these steps."""
        return [
            NetworkRun(steps, (*kept, *[None] * (len(steps) - len(kept))), diverged_at)
            for kept, diverged_at in zip(self._kept, self._diverged_at, strict=True)
        ]


def _side_by_side(ends: Ints, n: int) -> Ints:
    """Return the ends of n copies of lists, one after the other."""
    shifts = np.arange(n)[:, None] * ends[-1]
    repeated: Ints = np.append(0, (shifts + ends[1:]).ravel())
    return repeated
