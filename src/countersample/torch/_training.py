"""A network while it is trained: draws, batches, loss, Adam, and the mean of its weights."""

from __future__ import annotations

from itertools import chain, pairwise, repeat
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import linear

from countersample.errors import ParameterError
from countersample.scorers import NetworkScorer
from countersample.torch._layers import first_weights, one_thread
from countersample.torch.data import ClickDataset
from countersample.torch.losses import click_loss
from countersample.torch.ranker import FEWEST_DRAWS, NeuralRanker
from countersample.torch.sampling import CounterSampler
from countersample.training import DivergedError

if TYPE_CHECKING:
    from countersample._arrays import Floats
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

AVERAGED = 100  # steps that the mean of the weights reaches back


class NetworkTraining:
    """A network that minimises R(w) = (1/N) Σ v_i f_i(w) over the examples of a log.

    What it gives is added to base·x, where there is a base, which does not change. Settings are
    those of a ranker, and `rng` is of the weights to begin with, unless they are those of a
    `previous` network, and the draws. After each epoch
    `steps` has how many were taken so far, from 0, and `losses` the mean loss of its batches: R on
    the way. The items of `held_out` can be scored then.
    """

    def __init__(
        self,
        ranker: NeuralRanker,
        dataset: RankingDataset,
        log: ClickLog,
        rng: np.random.Generator,
        held_out: RankingDataset | None = None,
        base: Floats | None = None,
        previous: NetworkScorer | None = None,
    ) -> None:
        self._ranker = ranker
        self._base = base
        self._held_out = dataset if held_out is None else held_out
        self.step = 0
        self.steps, self.losses = [0], [np.nan]
        if previous is not None:
            begin = [*previous.weights, *previous.biases[:-1]]
        else:
            widths = (dataset.n_features, *ranker.hidden, 1)
            begin = [first_weights(n_in, n_out, rng) for n_in, n_out in pairwise(widths)]
            begin[-1][:] = 0  # every score is 0 at first, or base·x
            begin += [np.zeros(width, np.float32) for width in ranker.hidden]
        # One vector for all weights, then biases: a step is a few operations, however many layers.
        self._shapes = [part.shape for part in begin]
        values = np.concatenate([part.ravel() for part in begin])
        device = _device(ranker.device)
        self._vector = torch.from_numpy(values).to(device).requires_grad_()
        self._linear = None if base is None else torch.from_numpy(base).float().to(device)
        self._mean = self._vector.detach().clone()
        self._optimizer = torch.optim.AdamW(
            [self._vector], lr=ranker.learning_rate, weight_decay=ranker.l2
        )
        size = ranker.batch_size
        examples = ClickDataset(dataset, log, unit=ranker.unit, plan=ranker.method)
        self.steps_an_epoch = -(-max(FEWEST_DRAWS, len(examples)) // size)
        draws = CounterSampler(
            log, unit=ranker.unit, plan=examples.plan, batch_size=size, rank=0, world_size=1,
            n_draws=size * max(1, len(examples) // size),  # whole batches only
            seed=int(rng.integers(2**63)),
        )  # fmt: skip
        self._batches = map(examples.__getitems__, chain.from_iterable(repeat(draws)))

    def advance(self, most: int | None = None) -> None:
        """Take the steps of an epoch, but not more than `most`."""
        n_steps = min(self.steps_an_epoch, most or self.steps_an_epoch)
        with one_thread():
            self.losses.append(sum(self._take_step() for _ in range(n_steps)) / n_steps)
        self.steps.append(self.step)

    def held_out_scores(self) -> Floats:
        """Return the scores of the items that were held out."""
        with np.errstate(over="ignore", invalid="ignore"):  # said below
            scores = self.scorer().predict(self._held_out.features)
        if not np.isfinite(scores).all():
            raise DivergedError(self.step, self._ranker.learning_rate)
        return scores

    def _take_step(self) -> float:
        self.step += 1
        batch = next(self._batches)
        scores = self._scores(batch.features.to(self._ranker.device))
        loss = click_loss(scores, batch, objective=self._ranker.objective)
        if not loss.isfinite():
            raise DivergedError(self.step, self._ranker.learning_rate)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        # All steps alike at first, then the last hundred or so.
        self._mean.lerp_(self._vector.detach(), 1 / min(self.step, AVERAGED))
        return float(loss.detach())

    def scorer(self) -> NetworkScorer:
        """Return what scores by the mean of the weights."""
        if not self._mean.isfinite().all():
            raise DivergedError(self.step, self._ranker.learning_rate)
        weights, biases = self._layers(self._mean.cpu().clone())
        last_bias = torch.zeros(1)  # the same for all items: it ranks nothing
        network = NetworkScorer(
            tuple(weight.numpy() for weight in weights),
            tuple(bias.numpy() for bias in (*biases, last_bias)),
        )
        return network if self._base is None else network.plus_linear(self._base)

    def _scores(self, features: torch.Tensor) -> torch.Tensor:
        weights, biases = self._layers(self._vector)
        hidden = features
        for weight, bias in zip(weights[:-1], biases, strict=True):
            hidden = torch.relu(linear(hidden, weight, bias))
        scores = linear(hidden, weights[-1]).squeeze(-1)
        return scores if self._linear is None else scores + features @ self._linear

    def _layers(self, vector: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return the weights and the biases of the layers, as parts of the vector."""
        parts = vector.split([prod(shape) for shape in self._shapes])
        layers = [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]
        n_layers = len(self._ranker.hidden) + 1
        return layers[:n_layers], layers[n_layers:]


def _device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ParameterError(
            f"device is {name!r}, expected one that PyTorch can use here, such as 'cpu'"
        ) from error
