"""Training from shards by several processes, each with clicks of its own: `train_on_shards`."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import clone
from torch import distributed

from countersample.data.preprocessing import Normalizer, Preprocessing
from countersample.errors import DataError, ParameterError
from countersample.evaluation.holdout import HeldOut
from countersample.logs import read_training_shards
from countersample.metrics import parse_additive
from countersample.objectives import OBJECTIVES
from countersample.plans import Examples
from countersample.rankers import CounterSampleRanker
from countersample.rankers.checks import as_generator, check_parameters
from countersample.rankers.files import versions
from countersample.rankers.task import weigh_clicks
from countersample.scorers import LinearScorer
from countersample.torch.data import ClickDataset
from countersample.torch.networks import MIN_DRAWS, NetworkTraining
from countersample.torch.samplers import ShardSampler, gather_ranks, process_rank

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from countersample._progress import Show
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.rankers import ClickRanker
    from countersample.scorers import NetworkScorer
    from countersample.torch.data import ClickBatch
    from countersample.torch.neural_ranker import NeuralRanker

# Values of parameters that training from shards supports; normalizers are fitted rank by rank.
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "method": ("countersample",),
    "start": ("auto", "zero"),
    "normalize": (None, "minmax", "query-minmax"),
    "feature_transform": (None,),
    "warm_start": (False,),
}


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

    Parameters
    ----------
    ranker : NeuralRanker
        The settings; it is not changed. `batch_size` is that of all processes together. Only the
        method "countersample", normalisation by "minmax", "query-minmax" or None, and starts from
        zero are supported. `random_state` has to be a number.
    path : path or address
        The folder that `write_training_shards` wrote.
    progress : function of (current activity, share of the work that is done), optional

    Returns
    -------
    NeuralRanker, or CounterSampleRanker if it has no hidden layers
        The same in every process.
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
