"""Training of networks: for a `NeuralRanker`, from shards by several processes, and for the study.

`NetworkTraining` trains the network of a `NeuralRanker`: draws, batches, loss, AdamW, and the mean
of the weights. `train_on_shards` does that in several processes, each with clicks of its own.
`train_networks` trains networks by plain SGD that differ in their learning rate alone, side by
side, as the study compares them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, pairwise, repeat
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import clone
from torch import distributed
from torch.nn.functional import linear

from countersample.data.preprocessing import Normalizer, Preprocessing
from countersample.errors import DataError, ParameterError
from countersample.evaluation.holdout import HeldOut
from countersample.logs import read_training_shards
from countersample.metrics import parse_additive
from countersample.objectives import OBJECTIVES, score_space
from countersample.plans import Examples
from countersample.rankers import CounterSampleRanker
from countersample.rankers.checks import as_generator, check_parameters
from countersample.rankers.files import versions
from countersample.rankers.task import weigh_clicks
from countersample.scorers import LinearScorer, NetworkScorer
from countersample.torch.data import ClickDataset, click_loss
from countersample.torch.samplers import CounterSampler, ShardSampler, gather_ranks, process_rank
from countersample.training import DivergedError
from countersample.training.runs import Setup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from countersample._arrays import Floats, Ints
    from countersample._progress import Progress, Show
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.objectives import AnyLoss
    from countersample.rankers import ClickRanker
    from countersample.torch.data import ClickBatch
    from countersample.torch.neural_ranker import NeuralRanker
    from countersample.training import TrainingOptions

MIN_DRAWS = 1_000  # per epoch
AVERAGED_STEPS = 100  # that the mean of the weights reaches back
PROGRESS_STEPS = 50  # between two updates of the progress
# Values of parameters that training from shards supports; normalizers are fitted rank by rank.
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "method": ("countersample",),
    "start": ("auto", "zero"),
    "normalize": (None, "minmax", "query-minmax"),
    "feature_transform": (None,),
    "warm_start": (False,),
}


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep PyTorch to one thread: matrices are small, and sums do not depend on the cores then."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def draw_weights(n_in: int, n_out: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return W ~ N(0, 2/n_in), (n_out, n_in), with which ReLU layers keep the variance."""
    normal = rng.standard_normal((n_out, n_in), np.float32)
    return normal * np.float32(np.sqrt(2 / n_in))


class NetworkTraining:
    """A network that minimises R(w) = (1/N) Σ v_i f_i(w) over the examples of a log.

    Its rounds are epochs: see `countersample.rankers.rounds.Rounds`.

    `ranker` has the settings. Items that are `held_out` are scored after each epoch. The score is
    base·x more, with a `base` that does not change. Weights start at the `previous`
    network, or are drawn.
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
        self._step = 0
        self.steps, self.losses = [0], [np.nan]
        if previous is not None:
            layers = [*previous.weights, *previous.biases[:-1]]
        else:
            widths = (dataset.n_features, *ranker.hidden, 1)
            layers = [draw_weights(n_in, n_out, rng) for n_in, n_out in pairwise(widths)]
            layers[-1][:] = 0  # every score is 0 at first, or base·x
            layers += [np.zeros(width, np.float32) for width in ranker.hidden]
        # One vector for all weights, then biases: a step is a few operations, however many layers.
        self._shapes = [layer.shape for layer in layers]
        values = np.concatenate([layer.ravel() for layer in layers])
        device = _check_device(ranker.device)
        self._vector = torch.from_numpy(values).to(device).requires_grad_()
        self._linear = None if base is None else torch.from_numpy(base).float().to(device)
        self._mean = self._vector.detach().clone()
        self._optimizer = torch.optim.AdamW(
            [self._vector], lr=ranker.learning_rate, weight_decay=ranker.l2
        )
        self._batches = self._make_batches(dataset, log, int(rng.integers(2**63)))

    def _make_batches(
        self, dataset: RankingDataset, log: ClickLog, seed: int
    ) -> Iterator[ClickBatch]:
        """Set `steps_per_round`, and return batches without end."""
        ranker, size = self._ranker, self._ranker.batch_size
        examples = ClickDataset(dataset, log, unit=ranker.unit, plan=ranker.method)
        self.steps_per_round = -(-max(MIN_DRAWS, len(examples)) // size)
        sampler = CounterSampler(
            log, unit=ranker.unit, plan=examples.plan, batch_size=size, rank=0, world_size=1,
            n_draws=size * max(1, len(examples) // size),  # whole batches only
            seed=seed,
        )  # fmt: skip
        return map(examples.__getitems__, chain.from_iterable(repeat(sampler)))

    def advance(self, max_steps: int | None = None) -> None:
        """Train for an epoch, of at most `max_steps` steps."""
        n_steps = min(self.steps_per_round, max_steps or self.steps_per_round)
        with one_thread():
            self.losses.append(sum(self._take_step() for _ in range(n_steps)) / n_steps)
        self.steps.append(self._step)

    def held_out_scores(self) -> Floats:
        """Return the scores of the held-out items."""
        with np.errstate(over="ignore", invalid="ignore"):  # reported below
            scores = self.scorer().predict(self._held_out.features)
        if not np.isfinite(scores).all():
            raise DivergedError(self._step, self._ranker.learning_rate)
        return scores

    def _take_step(self) -> float:
        self._step += 1
        batch = next(self._batches)
        scores = self._scores(batch.features.to(self._ranker.device))
        loss = click_loss(scores, batch, objective=self._ranker.objective)
        if not loss.isfinite():
            raise DivergedError(self._step, self._ranker.learning_rate)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        # The mean of all steps at first, then of the last hundred or so
        self._mean.lerp_(self._vector.detach(), 1 / min(self._step, AVERAGED_STEPS))
        return float(loss.detach())

    def scorer(self) -> NetworkScorer:
        """Return the network with the mean of the weights."""
        if not self._mean.isfinite().all():
            raise DivergedError(self._step, self._ranker.learning_rate)
        weights, biases = self._layers(self._mean.cpu().clone())
        last_bias = torch.zeros(1)  # the same for all items: it does not change ranks
        network = NetworkScorer(
            tuple(weight.numpy() for weight in weights),
            tuple(bias.numpy() for bias in (*biases, last_bias)),
        )
        return network if self._base is None else network.add_linear(self._base)

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


def _check_device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ParameterError(
            f"device is {name!r}, expected one that PyTorch can use here, such as 'cpu'"
        ) from error


# -- From shards -----------------------------------------------------------------------------------


class _ShardTraining(NetworkTraining):
    """A network that several processes train, each with its own examples."""

    def _make_batches(
        self, dataset: RankingDataset, log: ClickLog, seed: int
    ) -> Iterator[ClickBatch]:
        ranker = self._ranker
        n_examples = gather_ranks(np.array([len(Examples.of(log, ranker.unit))])).sum()
        sampler = ShardSampler(
            log, unit=ranker.unit, batch_size=ranker.batch_size, seed=seed,
            n_draws=max(MIN_DRAWS, int(n_examples)),
        )  # fmt: skip
        examples = ClickDataset(dataset, log, unit=ranker.unit, plan=sampler.plan)
        self.steps_per_round = len(sampler)
        self._vector.register_hook(_mean_over_ranks)  # before the optimizer sees the gradient
        batches = map(examples.__getitems__, chain.from_iterable(repeat(sampler)))
        return map(sampler.reweigh, batches)


def train_on_shards(
    ranker: NeuralRanker, path: str | PathLike[str], *, progress: Show | None = None
) -> ClickRanker:
    """Train a network on shards; under torchrun, by all of its processes together.

    Each process reads its part of the files (`read_training_shards`) into memory. Clicks are drawn
    in proportion to their weight, over all processes. Each process holds out some of its queries;
    after each epoch their clicks evaluate the network, all together, and training ends when
    `patience` epochs have brought nothing better. The network of the best epoch is returned.

    The ranker has the settings, and is not changed. Its `batch_size` counts all processes
    together. Only the method "countersample", normalisation by "minmax", "query-minmax" or None,
    and starts from zero are supported; `random_state` has to be a number. The path is the folder
    that `write_training_shards` wrote. The result is the same in every process: a `NeuralRanker`,
    or a `CounterSampleRanker` if it has no hidden layers.
    """
    check_parameters(ranker.get_params(deep=False), ranker._checks)  # noqa: SLF001 (of this package)
    _check_supported(ranker)
    rank, world_size = process_rank()
    dataset, log = read_training_shards(path, rank=rank, world_size=world_size)
    _check_same_features(dataset)
    normalizer = _fit_normalizer(dataset, ranker.normalize)
    items = dataset if normalizer is None else normalizer(dataset)
    rng = as_generator("random_state", ranker.random_state)
    held_out = HeldOut(
        items, log.detached(), ranker.metric, holdout=ranker.holdout, least_queries=1,
        rng=np.random.default_rng([int(rng.integers(2**63)), rank]),
    )  # fmt: skip
    (fold,) = held_out.folds
    clicks = weigh_clicks(fold.train, clip=ranker.clip, temper=ranker.temper)
    training = _ShardTraining(ranker, items, clicks, rng, fold.validation)
    sign = -1 if parse_additive(ranker.metric)[0] == "arp" else 1  # less is better for arp
    best, scorer, values = 0, training.scorer(), [-sign * np.inf]
    while len(values) <= ranker.epochs and len(values) - 1 - best < (ranker.patience or np.inf):
        training.advance()
        sums = [fold.reward(training.held_out_scores()).sum(), fold.weights.sum()]
        reward, weight = gather_ranks(np.array(sums)).sum(axis=0)
        values.append(reward / weight)
        epoch = len(values) - 1
        if ranker.patience is None or sign * values[-1] > sign * values[best]:
            best, scorer = epoch, training.scorer()
        if progress is not None:
            message = f"epoch {epoch}: {ranker.metric} {values[-1]:.4f} by held-out clicks"
            progress(message, epoch / ranker.epochs)
    return _make_ranker(ranker, scorer, normalizer, dataset, log, training.steps[best])


def _mean_over_ranks(gradient: torch.Tensor) -> torch.Tensor:
    _, world_size = process_rank()
    if world_size > 1:
        gradient = gradient.contiguous()
        distributed.all_reduce(gradient)
        gradient /= world_size
    return gradient


def _check_supported(ranker: NeuralRanker) -> None:
    for name, values in SUPPORTED.items():
        if getattr(ranker, name) not in values:
            raise ParameterError(
                f"{name} is {getattr(ranker, name)!r}, expected {', '.join(map(repr, values))} for "
                "shards"
            )
    if not isinstance(ranker.random_state, int | np.integer):
        raise ParameterError(
            f"random_state is {ranker.random_state!r}, expected a number, the same in each process"
        )


def _check_same_features(dataset: RankingDataset) -> None:
    """Reject shards of which processes have read different features."""
    text = np.frombuffer("\0".join(dataset.feature_names or ()).encode(), np.uint8)
    sums = gather_ranks(np.array([dataset.n_features, len(text), np.arange(len(text)) @ text]))
    if (sums != sums[0]).any():
        raise DataError("shards have different features, expected the same: write them together")


def _fit_normalizer(dataset: RankingDataset, how: str | None) -> Normalizer | None:
    """Return the normalizer of the items of all ranks."""
    if how is None:
        return None
    normalizer = Normalizer.fit(dataset, how)
    if normalizer.shift is None or normalizer.scale is None:
        return normalizer
    low = gather_ranks(np.array(normalizer.shift)).min(axis=0)
    high = gather_ranks(np.array(normalizer.shift) + normalizer.scale).max(axis=0)
    return replace(normalizer, shift=tuple(low.tolist()), scale=tuple((high - low).tolist()))


def _make_ranker(
    ranker: NeuralRanker,
    scorer: NetworkScorer,
    normalizer: Normalizer | None,
    dataset: RankingDataset,
    log: ClickLog,
    n_steps: int,
) -> ClickRanker:
    """Return a fitted ranker with this scorer, and the provenance of all ranks."""
    ranks = gather_ranks(
        np.array([dataset.n_queries, dataset.n_items, log.n_clicks, np.abs(log.weights).sum(),
                  log.max_weight])
    )  # fmt: skip
    n_queries, n_items, n_clicks, weight, _ = ranks.sum(axis=0)
    fitted: Any = clone(ranker)
    if ranker.hidden:
        fitted.scorer_, fitted.start_ = scorer, "zero"
    else:
        weights = np.asarray(scorer.weights[0], np.float64).ravel()
        names = ("unit", "batch_size", "l2", "holdout", "metric", "clip", "temper", "normalize",
                 "learning_rate", "random_state")  # fmt: skip
        params = {name: getattr(ranker, name) for name in names}
        fitted = CounterSampleRanker(optimizer="adam", **params)
        if ranker.objective in OBJECTIVES:  # provenance_ has the others as well
            fitted.set_params(objective=ranker.objective)
        fitted.weights_ = fitted.coef_ = fitted.average_coef_ = weights
        fitted.learning_rate_ = ranker.learning_rate
        fitted.scorer_ = LinearScorer(weights)
    fitted.n_steps_, fitted.clip_ = n_steps, ranker.clip
    fitted.preprocessing_ = Preprocessing(normalizer=normalizer)
    fitted.n_queries_ = int(n_queries)
    fitted.fingerprint_ = dataset.fingerprint
    fitted.provenance_ = {
        "n_clicks": float(n_clicks),
        "n_items": int(n_items),
        "mean_weight": float(weight / n_clicks),
        "max_weight": float(ranks[:, 4].max()),
        "objective": str(ranker.objective),
        "versions": versions("torch"),
    }
    fitted._remember_features(dataset.n_features, dataset.feature_names)  # noqa: SLF001 (as above)
    result: ClickRanker = fitted
    return result


# -- Several networks by plain SGD -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NetworkRun:
    """One network at its checkpoints."""

    steps: Ints  # (n,)
    scorers: tuple[NetworkScorer | None, ...]  # after each of these steps; None once it diverged
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

    Training is plain SGD, which uses these `options`: plan, unit, objective, batch size, steps,
    clip and checkpoints. The result has one run per learning rate; one that diverges does not end
    the others.
    """
    (setup,) = Setup.of(dataset, log, options)
    examples = ClickDataset(dataset, setup.log, unit=options.unit, plan=setup.plan)
    rng = np.random.default_rng(seed)
    networks = _Networks(learning_rates, dataset.n_features, hidden, seed, options.objective)
    checkpoints, step = set(setup.record_at.tolist()), 0
    with one_thread():
        while step < setup.n_steps and not networks.have_diverged:
            n_steps = min(setup.steps_at_once, setup.n_steps - step)
            draws = setup.plan.draw(n_steps * options.batch_size, rng)
            for batch in draws.reshape(n_steps, options.batch_size):
                step += 1
                networks.take_step(examples.__getitems__(batch), step)
                if step in checkpoints:
                    networks.record()
                if step % PROGRESS_STEPS == 0:
                    progress.update(step / setup.n_steps)
    return networks.runs(setup.record_at)


class _Networks:
    """K networks, whose layers are slices of the same tensors."""

    def __init__(
        self,
        learning_rates: Sequence[float],
        n_features: int,
        hidden: int,
        seed: int,
        objective: AnyLoss,
    ) -> None:
        n = len(learning_rates)
        rng = np.random.default_rng([seed, 1])  # not the one that draws examples
        self._layers = [torch.zeros(n, hidden or n_features)]
        if hidden:
            first = torch.from_numpy(draw_weights(n_features, hidden, rng))
            self._layers += [first.repeat(n, 1, 1), torch.zeros(n, hidden)]
        for layer in self._layers:
            layer.requires_grad_()
        self._rates = torch.tensor(learning_rates)
        self._objective = objective
        self._diverged_at: list[int | None] = [None] * n
        self._scorers: list[list[NetworkScorer]] = [[] for _ in range(n)]

    @property
    def have_diverged(self) -> bool:
        """Whether all networks have diverged."""
        return None not in self._diverged_at

    def take_step(self, batch: ClickBatch, step: int) -> None:
        """Take a step of each network."""
        scores = self._scores(batch.features)
        slopes = self._slopes(scores.detach().double().numpy(), batch)
        gradients = torch.autograd.grad(scores, self._layers, torch.from_numpy(slopes).float())
        with torch.no_grad():
            for layer, gradient in zip(self._layers, gradients, strict=True):
                layer.sub_(gradient * self._rates.view(-1, *[1] * (layer.ndim - 1)))
            parts = [layer.flatten(1).sum(1).isfinite() for layer in self._layers]
            is_sound = torch.stack([scores.isfinite().all(1), *parts]).all(0)
            for k in (~is_sound).nonzero().flatten().tolist():
                self._diverged_at[k] = self._diverged_at[k] or step
                self._rates[k] = 0  # it stays at 0, and the others go on
                for layer in self._layers:
                    layer[k] = 0

    def _scores(self, features: torch.Tensor) -> torch.Tensor:
        """Return the scores of all rows by each network, (K, n_rows)."""
        last, *rest = self._layers
        if not rest:
            return last @ features.T
        first, bias = rest
        units = torch.relu(torch.addmm(bias.view(-1), features, first.flatten(0, 1).T))
        return torch.einsum("rkh,kh->kr", units.view(-1, *last.shape), last)

    def _slopes(self, scores: Floats, batch: ClickBatch) -> Floats:
        """Return the derivative of each network's loss by its scores, (K, n_rows)."""
        n, n_rows = scores.shape
        slopes = score_space(
            scores.ravel(),
            _repeat_offsets(batch.offsets.numpy(), n),
            _repeat_offsets(batch.starts.numpy(), n),
            np.tile(batch.item.numpy(), n),
            np.tile(batch.weight.numpy(), n),
            objective=self._objective,
        )
        return slopes.gradient.reshape(n, n_rows)

    def record(self) -> None:
        """Keep a scorer of each network that has not diverged."""
        for k, scorers in enumerate(self._scorers):
            if self._diverged_at[k] is None:
                last, *rest = (layer[k].detach().clone().numpy() for layer in self._layers)
                last_bias = np.zeros(1, np.float32)
                scorers.append(NetworkScorer((*rest[:1], last[None]), (*rest[1:], last_bias)))

    def runs(self, steps: Ints) -> list[NetworkRun]:
        """Return each network at these steps."""
        return [
            NetworkRun(steps, (*scorers, *[None] * (len(steps) - len(scorers))), diverged_at)
            for scorers, diverged_at in zip(self._scorers, self._diverged_at, strict=True)
        ]


def _repeat_offsets(offsets: Ints, n: int) -> Ints:
    """Return the offsets of n copies of lists, one after the other."""
    shifts = np.arange(n)[:, None] * offsets[-1]
    repeated: Ints = np.append(0, (shifts + offsets[1:]).ravel())
    return repeated
