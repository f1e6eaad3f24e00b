"""Training from shards by several processes, each of which has clicks of its own.

Rank r has examples with weights v_i, which add up to V_r; all ranks together have V = Σ V_r, and N
clicks. A step has B draws in all. How many of them are of which rank is drawn first, and then each
rank draws among its own:

    P(rank r) · P(i | rank r) = (V_r / V) · (v_i / V_r) = v_i / V

So the draws are those of one process that has everything, each with π_i = v_i/V and m_i = V/N:
π_i·m_i = v_i/N. The gradient of a step is the mean over ranks, as `DistributedDataParallel` has it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from sklearn.base import clone
from torch import distributed
from torch.utils.data import Sampler

from countersample._params import whole_number
from countersample.clicks.impressions import read_training_shards
from countersample.data.normalize import Normalizer
from countersample.errors import DataError, ParameterError
from countersample.evaluation.held_out import HeldOut
from countersample.evaluation.ranking import parse_additive
from countersample.objectives import OBJECTIVES
from countersample.plans import Examples, Plan
from countersample.rankers import CounterSampleRanker
from countersample.rankers._files import versions
from countersample.rankers._parameters import as_generator, check_parameters
from countersample.rankers._starting import trained_on
from countersample.scorers import LinearScorer
from countersample.torch._blocks import BlockTable
from countersample.torch._processes import place
from countersample.torch._training import NetworkTraining
from countersample.torch.data import ClickDataset
from countersample.torch.ranker import FEWEST_DRAWS, NeuralRanker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from countersample._arrays import Floats
    from countersample._progress import Show
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.rankers import ClickRanker
    from countersample.scorers import NetworkScorer
    from countersample.torch.data import ClickBatch

_NORMALIZED = (None, "minmax", "query-minmax")  # what can be fitted rank by rank


class ShardSampler(Sampler[list[int]]):
    """P(a draw is example i of rank r) = v_i / V, over the examples of all ranks.

    A `batch_sampler` for the examples that this rank has; its batches have as many as the draws
    gave to this rank, which may be none.

    Parameters
    ----------
    log : ClickLog
        The clicks of this rank: no other has them.
    unit : {"query", "pair", "click"}
    batch_size : int
        Draws a step, of all ranks together.
    n_draws : int, optional
        Draws an epoch, of all ranks together; as many as they have examples by default.
    seed : int
        The same on every rank.

    Attributes
    ----------
    plan : Plan
        Its multipliers are M̄ = V/N, the same on every rank.
    rank, world_size : int
        Those of `torch.distributed` where it is initialised; 0 of 1 elsewhere.
    totals : float64 (world_size,)
        V_r of each rank.

    Examples
    --------
    A single process draws as `CounterSampler` does:

    >>> from countersample import ClickLog
    >>> from countersample.torch import ShardSampler
    >>> log = ClickLog(query=[0, 1], item=[0, 1], propensity=[0.5, 0.25])
    >>> sampler = ShardSampler(log, unit="click", batch_size=4, n_draws=8)
    >>> sampler.totals, sampler.plan.multipliers
    (array([6.]), array([3., 3.]))
    >>> [len(batch) for batch in sampler]
    [4, 4]
    """

    def __init__(
        self,
        log: ClickLog,
        *,
        unit: str = "query",
        batch_size: int = 32,
        n_draws: int | None = None,
        seed: int = 0,
    ) -> None:
        self.rank, self.world_size = place()
        self.batch_size = whole_number("batch_size", batch_size, least=1)
        self.seed = whole_number("seed", seed, least=0)
        self.examples = Examples.of(log, unit)
        weights = self.examples.weights
        every = gathered(np.array([weights.sum(), self.examples.n_clicks, len(weights)]))
        self.totals: Floats = every[:, 0]
        mean = self.totals.sum() / every[:, 1].sum()
        self.n_draws = whole_number(
            "n_draws", int(every[:, 2].sum()) if n_draws is None else n_draws, least=1
        )
        self.plan = Plan(
            "countersample", weights, np.full(len(weights), mean), self.examples.weight_shares
        )
        self._table = BlockTable(weights)
        self._epoch = 0

    def __len__(self) -> int:
        """Return the steps of an epoch."""
        return (self.n_draws - 1) // self.batch_size + 1

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration."""
        self._epoch = whole_number("epoch", epoch, least=0)

    def __iter__(self) -> Iterator[list[int]]:
        """Give this rank's part of each batch of an epoch; the next iteration is the next epoch."""
        key = (self.seed, self._epoch)
        self._epoch += 1
        shared = np.random.default_rng([*key, 0])  # the same on every rank
        own = np.random.default_rng([*key, 1 + self.rank])
        share = self.totals / self.totals.sum()
        for _ in range(len(self)):
            mine = int(shared.multinomial(self.batch_size, share)[self.rank])
            yield self._table.sample(mine, own).tolist()

    def weighted(self, batch: ClickBatch) -> ClickBatch:
        """Return a batch of this rank with weights whose mean over ranks is that of the step.

        A batch has the mean over its own n_r lists, and the step that of all B: n_r · ranks / B.
        """
        return replace(
            batch, weight=batch.weight * (len(batch) * self.world_size / self.batch_size)
        )


class _ShardTraining(NetworkTraining):
    """A network that several processes train, each with its own examples."""

    def __init__(
        self,
        ranker: NeuralRanker,
        dataset: RankingDataset,
        log: ClickLog,
        rng: np.random.Generator,
        held_out: RankingDataset,
    ) -> None:
        super().__init__(ranker, dataset, log, rng, held_out)
        n_examples = gathered(np.array([len(Examples.of(log, ranker.unit))])).sum()
        sampler = ShardSampler(
            log, unit=ranker.unit, batch_size=ranker.batch_size, seed=int(rng.integers(2**63)),
            n_draws=max(FEWEST_DRAWS, int(n_examples)),
        )  # fmt: skip
        examples = ClickDataset(dataset, log, unit=ranker.unit, plan=sampler.plan)
        self.steps_an_epoch = len(sampler)
        drawn = map(examples.__getitems__, chain.from_iterable(repeat(sampler)))
        self._batches = map(sampler.weighted, drawn)
        self._vector.register_hook(_mean_over_ranks)  # before the optimizer sees it


def train_on_shards(
    ranker: NeuralRanker, path: str | PathLike[str], *, progress: Show | None = None
) -> ClickRanker:
    """Train a network on shards; under torchrun, by all of its processes together.

    Each process reads its part of the files (`read_training_shards`) and keeps it in memory. Clicks
    are drawn in proportion to their weight, over all processes. Each holds out queries of its own;
    after each epoch their clicks judge, all together, and training ends when they have seen nothing
    better for `patience` epochs. The network of the best epoch is kept as it was.

    Parameters
    ----------
    ranker : NeuralRanker
        The settings; it is not changed. `batch_size` is that of all processes together. Only its
        method "countersample", normalisation by "minmax", "query-minmax" or None, and starts from
        zero are known here. It needs a `random_state` that is a number.
    path : path or address
        What `write_training_shards` wrote.
    progress : function of (what is going on, share of all that is done), optional

    Returns
    -------
    NeuralRanker, or CounterSampleRanker where it has no hidden layers
        The same in every process.
    """
    check_parameters(ranker.get_params(deep=False), ranker._checks)  # noqa: SLF001 (of this package)
    _check(ranker)
    rank, world_size = place()
    dataset, log = read_training_shards(path, rank=rank, world_size=world_size)
    _check_alike(dataset)
    normalizer = _normalizer(dataset, ranker.normalize)
    items = dataset if normalizer is None else normalizer(dataset)
    rng = as_generator("random_state", ranker.random_state)
    held_out = HeldOut(
        items, log.detached(), ranker.metric, holdout=ranker.holdout, least_queries=1,
        rng=np.random.default_rng([int(rng.integers(2**63)), rank]),
    )  # fmt: skip
    (fold,) = held_out.folds
    clicks = trained_on(fold.train, clip=ranker.clip, temper=ranker.temper)
    training = _ShardTraining(ranker, items, clicks, rng, fold.validation)
    sign = -1 if parse_additive(ranker.metric)[0] == "arp" else 1  # of which less is better
    best, kept, values = 0, training.scorer(), [-sign * np.inf]
    while len(values) <= ranker.epochs and len(values) - 1 - best < (ranker.patience or np.inf):
        training.advance()
        sums = [fold.reward(training.held_out_scores()).sum(), fold.weights.sum()]
        reward, weight = gathered(np.array(sums)).sum(axis=0)
        values.append(reward / weight)
        if ranker.patience is None or sign * values[-1] > sign * values[best]:
            best, kept = len(values) - 1, training.scorer()
        if progress is not None:
            told = f"epoch {len(values) - 1}: {ranker.metric} {values[-1]:.4f} by held-out clicks"
            progress(told, (len(values) - 1) / ranker.epochs)
    return _fitted(ranker, kept, normalizer, dataset, log, training.steps[best])


def gathered(values: Floats) -> Floats:
    """Return the values of every rank, (world_size, n); of this process where it is the only one.

    >>> gathered(np.array([1.0, 2.0]))
    array([[1., 2.]])
    """
    _, world_size = place()
    if world_size == 1:
        return values[None]
    mine = torch.from_numpy(np.ascontiguousarray(values, np.float64))
    parts = [torch.empty_like(mine) for _ in range(world_size)]
    distributed.all_gather(parts, mine)
    return np.array([part.numpy() for part in parts])


def _mean_over_ranks(gradient: torch.Tensor) -> torch.Tensor:
    _, world_size = place()
    if world_size > 1:
        gradient = gradient.contiguous()
        distributed.all_reduce(gradient)
        gradient /= world_size
    return gradient


def _check(ranker: NeuralRanker) -> None:
    known: dict[str, tuple[Any, ...]] = {
        "method": ("countersample",), "start": ("auto", "zero"), "normalize": _NORMALIZED,
        "feature_transform": (None,), "warm_start": (False,),
    }  # fmt: skip
    for name, options in known.items():
        if getattr(ranker, name) not in options:
            told = ", ".join(map(repr, options))
            raise ParameterError(f"{name} is {getattr(ranker, name)!r}, expected {told} for shards")
    if not isinstance(ranker.random_state, int | np.integer):
        raise ParameterError(
            f"random_state is {ranker.random_state!r}, expected a number, the same in each process"
        )


def _check_alike(dataset: RankingDataset) -> None:
    """Refuse processes that have read different features."""
    digits = np.frombuffer("\0".join(dataset.feature_names or ()).encode(), np.uint8)
    told = gathered(np.array([dataset.n_features, len(digits), np.arange(len(digits)) @ digits]))
    if (told != told[0]).any():
        raise DataError("shards have different features, expected the same: write them together")


def _normalizer(dataset: RankingDataset, how: str | None) -> Normalizer | None:
    """Return the normalizer of the items of all ranks."""
    if how is None:
        return None
    own = Normalizer.fit(dataset, how)
    if own.shift is None or own.scale is None:
        return own
    low = gathered(np.array(own.shift)).min(axis=0)
    high = gathered(np.array(own.shift) + own.scale).max(axis=0)
    return replace(own, shift=tuple(low.tolist()), scale=tuple((high - low).tolist()))


def _fitted(
    ranker: NeuralRanker,
    scorer: NetworkScorer,
    normalizer: Normalizer | None,
    dataset: RankingDataset,
    log: ClickLog,
    n_steps: int,
) -> ClickRanker:
    """Return a ranker that scores so, with what is known of its clicks."""
    every = gathered(
        np.array([dataset.n_queries, dataset.n_items, log.n_clicks, np.abs(log.weights).sum(),
                  log.max_weight])
    )  # fmt: skip
    queries, items, n_clicks, weight, _ = every.sum(axis=0)
    found: Any = clone(ranker)
    if not ranker.hidden:
        weights = np.asarray(scorer.weights[0], np.float64).ravel()
        names = ("unit", "batch_size", "l2", "holdout", "metric", "clip", "normalize",
                 "learning_rate", "random_state")  # fmt: skip
        found = CounterSampleRanker(
            optimizer="adam", temper=ranker.temper,
            **{name: getattr(ranker, name) for name in names},
        )  # fmt: skip
        if ranker.objective in OBJECTIVES:  # provenance_ has the others as well
            found.set_params(objective=ranker.objective)
        found.weights_ = found.coef_ = found.average_coef_ = weights
        found.learning_rate_ = ranker.learning_rate
        found.scorer_ = LinearScorer(weights)
    else:
        found.scorer_, found.start_ = scorer, "zero"
    found.n_steps_, found.clip_ = n_steps, ranker.clip
    found.normalizer_, found.n_queries_ = normalizer, int(queries)
    found.fingerprint_ = dataset.fingerprint
    found.provenance_ = {
        "n_clicks": float(n_clicks),
        "n_items": int(items),
        "mean_weight": float(weight / n_clicks),
        "max_weight": float(every[:, 4].max()),
        "objective": str(ranker.objective),
        "versions": versions("torch"),
    }
    found._remember_features(dataset.n_features, dataset.feature_names)  # noqa: SLF001 (as above)
    return cast("ClickRanker", found)
