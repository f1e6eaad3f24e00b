"""A network while it is trained: draws, batches, loss, Adam, and the mean of its weights."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain, pairwise, repeat
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch.nn.functional import linear

from countersample.errors import ParameterError
from countersample.scorers import NetworkScorer
from countersample.torch.data import ClickDataset
from countersample.torch.losses import click_loss
from countersample.torch.sampling import CounterSampler
from countersample.training import DivergedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.torch.data import ClickBatch

AVERAGED = 100  # steps that the mean of the weights reaches back


class Settings(NamedTuple):
    """What `NeuralRanker` has of the same names, checked."""

    hidden: tuple[int, ...]
    method: str
    unit: str
    objective: str
    learning_rate: float
    batch_size: int
    l2: float
    device: str


class NetworkTraining:
    """A network that minimises R(w) = (1/N) Σ v_i f_i(w) over the examples of a log.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
    settings : Settings
    rng : numpy Generator
        Of the weights to begin with, and the draws.
    """

    def __init__(
        self, dataset: RankingDataset, log: ClickLog, settings: Settings, rng: np.random.Generator
    ) -> None:
        self.settings = settings
        self.step = 0
        widths = (dataset.n_features, *settings.hidden, 1)
        begin = [_first_weights(n_in, n_out, rng) for n_in, n_out in pairwise(widths)]
        begin[-1][:] = 0  # every score is 0 at first, as with a linear ranker
        begin += [np.zeros(width, np.float32) for width in settings.hidden]
        # One vector for all weights, then biases: a step is a few operations, however many layers.
        self._shapes = [part.shape for part in begin]
        values = np.concatenate([part.ravel() for part in begin])
        self._vector = torch.from_numpy(values).to(_device(settings.device)).requires_grad_()
        self._mean = self._vector.detach().clone()
        self._optimizer = torch.optim.AdamW(
            [self._vector], lr=settings.learning_rate, weight_decay=settings.l2
        )
        self._batches = self._drawn(dataset, log, seed=int(rng.integers(2**63)))

    def _drawn(self, dataset: RankingDataset, log: ClickLog, seed: int) -> Iterator[ClickBatch]:
        unit, size = self.settings.unit, self.settings.batch_size
        examples = ClickDataset(dataset, log, unit=unit, plan=self.settings.method)
        draws = CounterSampler(
            log, unit=unit, plan=examples.plan, batch_size=size, seed=seed, rank=0, world_size=1,
            n_draws=size * max(1, len(examples) // size),  # whole batches only
        )  # fmt: skip
        epochs = chain.from_iterable(repeat(draws))
        return (examples.__getitems__(indices) for indices in epochs)

    def advance(self, n_steps: int) -> float:
        """Take steps; return the mean loss of their batches, an estimate of R on the way."""
        with _one_thread():
            return sum(self._take_step() for _ in range(n_steps)) / n_steps

    def _take_step(self) -> float:
        self.step += 1
        batch = next(self._batches)
        scores = self._scores(batch.features.to(self.settings.device))
        loss = click_loss(scores, batch, objective=self.settings.objective)
        if not loss.isfinite():
            raise DivergedError(self.step, self.settings.learning_rate)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        # All steps alike at first, then the last hundred or so.
        self._mean.lerp_(self._vector.detach(), 1 / min(self.step, AVERAGED))
        return float(loss.detach())

    def scorer(self) -> NetworkScorer:
        """Return what scores by the mean of the weights."""
        if not self._mean.isfinite().all():
            raise DivergedError(self.step, self.settings.learning_rate)
        weights, biases = self._layers(self._mean.cpu().clone())
        last_bias = torch.zeros(1)  # the same for all items: it ranks nothing
        return NetworkScorer(
            tuple(weight.numpy() for weight in weights),
            tuple(bias.numpy() for bias in (*biases, last_bias)),
        )

    def _scores(self, hidden: torch.Tensor) -> torch.Tensor:
        weights, biases = self._layers(self._vector)
        for weight, bias in zip(weights[:-1], biases, strict=True):
            hidden = torch.relu(linear(hidden, weight, bias))
        return linear(hidden, weights[-1]).squeeze(-1)

    def _layers(self, vector: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return the weights and the biases of the layers, as parts of the vector."""
        parts = vector.split([prod(shape) for shape in self._shapes])
        layers = [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]
        n_layers = len(self.settings.hidden) + 1
        return layers[:n_layers], layers[n_layers:]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep PyTorch to one thread: matrices are small, and no sum depends on the cores then."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _first_weights(n_in: int, n_out: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return W ~ N(0, 2/n_in), with which ReLU layers keep the size of what goes through."""
    drawn = rng.standard_normal((n_out, n_in), np.float32)
    return drawn * np.float32(np.sqrt(2 / n_in))


def _device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ParameterError(
            f"device is {name!r}, expected one that PyTorch can use here, such as 'cpu'"
        ) from error
