"""Training by gradient steps: one run, or a grid of runs in one pass over memory.

Algorithms 1 and 2 of the paper, exactly: w₁ = 0, or a start; at step t draw a batch,
w_{t+1} = w_t − step; the averaged iterate after T steps is w̄ = (w₁ + … + w_T)/T.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._cores import available_cores
from countersample._params import whole_number
from countersample._progress import Progress
from countersample.errors import ParameterError
from countersample.training.options import TrainingOptions
from countersample.training.results import DivergedError, History, TrainingResult
from countersample.training.runs import Run, Setup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from numpy.typing import ArrayLike

    from countersample._progress import Show
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

MOST_BATCHED_RUNS = 8  # runs served by one pass over memory


def train(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    learning_rate: float | None = None,
    rng: np.random.Generator | int | None = None,
    resume: str | PathLike[str] | None = None,
    workers: int | None = None,
    progress: Progress | Show | None = None,
    options: TrainingOptions | None = None,
    **settings: Any,  # noqa: ANN401 (the fields of TrainingOptions)
) -> TrainingResult:
    """Train a linear ranker on a click log.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
    learning_rate : float, optional
        η. ``optimizer="dog"`` needs none: there it is a factor, 1 by default.
    rng : numpy Generator or seed
        Same seed, same bytes, on every x86-64 CPU that has fused multiply-add.
    resume : path, optional
        Keep the state of the run in this file, and go on from it where it exists. The end is the
        same to the byte as that of a run that was not stopped. Needs `rng`.
    workers : int, optional
        Threads that share a batch of ten or more examples; all cores by default. The result does
        not depend on it.
    progress : function of (what is going on, share of all that is done), optional
        Called now and then.
    options : TrainingOptions, optional
        All that can be said about training; by default its defaults.
    **settings
        Single fields of `TrainingOptions`, which win over `options`: ``steps``, ``method``, ….

    Raises
    ------
    DivergedError
        When the weights explode.

    Examples
    --------
    >>> from countersample import ClickLog, RankingDataset, train
    >>> data = RankingDataset.from_arrays(X=[[1, 0], [0, 1]], y=[1, 0], qid=[7, 7])
    >>> log = ClickLog(query=[0], item=[0], propensity=[0.5])
    >>> train(data, log, learning_rate=0.125, steps=3, rng=0).coef  # m = M̄ = 2: steps of 0.25
    array([ 0.5, -0.5])
    """
    (setup,) = Setup.of(dataset, log, TrainingOptions.of(options, settings))
    run = Run(setup, [learning_rate], np.random.default_rng(rng), workers=_threads(workers))
    part = Progress.of(progress).part(1.0, "training")
    if resume is None:
        run.finish(part)
    elif rng is None:
        raise ParameterError("resume needs rng: a seed, so that a run can be told from another")
    else:
        from countersample.training.resuming import run_resumable  # noqa: PLC0415 (where asked for)

        run_resumable(run, resume, part)
    (result,) = _results(run, seed=rng if isinstance(rng, Integral) else None)
    if result.diverged_at is not None:
        raise DivergedError(result.diverged_at, result.learning_rate)
    return result


def train_many(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    learning_rates: Sequence[float] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    starts: Sequence[ArrayLike] | None = None,
    workers: int | None = None,
    progress: Progress | Show | None = None,
    options: TrainingOptions | None = None,
    **settings: Any,  # noqa: ANN401 (the fields of TrainingOptions)
) -> list[TrainingResult]:
    """Train a grid of methods, seeds, starts and learning rates on one copy of the data.

    Runs of the same method and seed draw the same examples, so up to eight of them, of different
    starts and learning rates, take their steps together: one pass over memory serves them all. A
    run whose weights explode does not end the others: its `diverged_at` says so, and its weights
    are NaN.

    Parameters
    ----------
    learning_rates : sequence of float, optional
        Not needed by ``optimizer="dog"``.
    methods : sequence of str, optional
        By default that of the options.
    seeds : sequence of int
    starts : sequence of array-like (n_features,), optional
        The weights before the first step; by default the `start` of the options.
    workers : int, optional
        Threads; all cores by default. The results do not depend on it.
    dataset, log, progress, options, **settings
        As for `train`.

    Returns
    -------
    list of TrainingResult
        By method, then seed, then start, then learning rate.

    Examples
    --------
    >>> from countersample import ClickLog, RankingDataset, train_many
    >>> data = RankingDataset.from_arrays(X=[[1, 0], [0, 1]], y=[1, 0], qid=[7, 7])
    >>> log = ClickLog(query=[0], item=[0], propensity=[0.5])
    >>> runs = train_many(data, log, learning_rates=[0.125, 0.25], methods=["ips"], steps=1)
    >>> [float(run.coef[0]) for run in runs]  # 2 · 0.125, 2 · 0.25
    [0.25, 0.5]
    """
    for name in ("rng", "resume"):
        if name in settings:
            raise ParameterError(f"train_many takes no {name}: its seeds say what is drawn")
    n_threads = _threads(workers)
    setups = Setup.of(dataset, log, TrainingOptions.of(options, settings), methods)
    passes = [
        (seed, setup, started, rates)
        for setup in setups
        for seed in seeds
        for started, rates in _batches(setup.options, starts, learning_rates)
    ]
    each = max(1, n_threads // max(1, len(passes)))  # threads that share the batches of one
    seeded = [
        (seed, Run(setup, rates, np.random.default_rng(seed), started, each))
        for seed, setup, started, rates in passes
    ]
    parts = Progress.of(progress).part(1.0, "training").side_by_side(len(seeded))

    def work(index: int) -> list[TrainingResult]:
        seed, run = seeded[index]
        run.finish(parts[index])
        parts[index].update(1.0)  # also where all have diverged
        return _results(run, seed=seed)

    with ThreadPoolExecutor(n_threads) as pool:
        return [result for results in pool.map(work, range(len(seeded))) for result in results]


def _threads(workers: int | None) -> int:
    return available_cores() if workers is None else whole_number("workers", workers, least=1)


def _batches(
    options: TrainingOptions,
    starts: Sequence[ArrayLike] | None,
    learning_rates: Sequence[float] | None,
) -> Iterator[tuple[list[TrainingOptions], list[float | None]]]:
    """Yield the options, each with its start, and the learning rates of runs that share passes."""
    if starts is None:
        started = [options]
    elif options.start is None:
        started = [replace(options, start=start) for start in starts]
    else:
        raise ParameterError("give either start or starts")
    runs = list(product(started, [None] if learning_rates is None else learning_rates))
    for k in range(0, len(runs), MOST_BATCHED_RUNS):
        batch = runs[k : k + MOST_BATCHED_RUNS]
        yield [each for each, _ in batch], [rate for _, rate in batch]


def _results(run: Run, seed: int | None) -> list[TrainingResult]:
    """Return the results of batched runs; of weights that exploded come NaN, never a model."""
    setup, state = run.setup, run.state
    results = []
    for k, (rate, options) in enumerate(zip(run.learning_rates, run.options, strict=True)):
        stopped = int(state["stopped"][k])
        w, average = state["w"][k].copy(), state["total"][k] / run.step
        w_at, average_at = state["weights_at"][k].copy(), state["averages_at"][k].copy()
        if stopped:
            w[:] = average[:] = np.nan
            w_at[setup.record_at >= stopped] = average_at[setup.record_at >= stopped] = np.nan
        results.append(
            TrainingResult(
                coef=w,
                average_coef=average,
                n_steps=stopped or run.step,
                diverged_at=stopped or None,
                history=History(setup.record_at, w_at, average_at),
                learning_rate=rate,
                options=options,
                seed=seed,
                fingerprint=setup.log.fingerprint,
            )
        )
    return results
