"""Training by gradient steps: one run, or a grid of runs in one pass over memory.

Algorithms 1 and 2 of the paper, exactly: w₁ = 0, or a start; at step t draw a batch,
w_{t+1} = w_t − step; the averaged iterate after T steps is w̄ = (w₁ + … + w_T)/T.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._environment import available_cores
from countersample._frames import Tabular
from countersample._params import whole_number
from countersample._progress import Progress
from countersample._version import __version__
from countersample.errors import CounterSampleError, ParameterError
from countersample.objectives import get_objective
from countersample.training.options import TrainingOptions
from countersample.training.runs import Run, Setup, kernel_features, run_resumable
from countersample.training.variance import Risk, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample._progress import Show
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

MAX_RUNS_PER_PASS = 8


class DivergedError(CounterSampleError):
    """Training whose weights exploded, at `step`: the learning rate is too large."""

    def __init__(self, step: int, learning_rate: float) -> None:
        self.step = step
        self.learning_rate = learning_rate
        super().__init__(
            f"training diverged at step {step:,} with learning rate {learning_rate:g}: "
            "take a smaller one"
        )

    def __reduce__(self) -> tuple[type[DivergedError], tuple[int, float]]:
        return DivergedError, (self.step, self.learning_rate)  # so that it can leave a process


@dataclass(frozen=True, eq=False)
class History(Tabular):
    """The weights at the recorded steps; NaN from where they exploded."""

    steps: NDArray[np.int64]  # (n,)
    coef: Floats  # (n, n_features)
    average_coef: Floats

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: one row per step and feature."""
        n_steps, n_features = self.coef.shape
        return {
            "step": np.repeat(self.steps, n_features),
            "feature": np.tile(np.arange(n_features), n_steps),
            "coef": self.coef.ravel(),
            "average_coef": self.average_coef.ravel(),
        }


@dataclass(frozen=True, eq=False)
class TrainingResult(Tabular):
    """The result of a training run."""

    coef: Floats
    """w, the weights after the last step, (n_features,); NaN if they exploded."""
    average_coef: Floats
    """w̄, the mean of the weights over all steps, which the algorithms return; NaN likewise."""
    n_steps: int
    """The steps taken."""
    diverged_at: int | None
    """The step at which the weights exploded; None for a sound run."""
    history: History
    learning_rate: float
    options: TrainingOptions
    """With the `start` of this run. Weights are of the features multiplied by `scale`."""
    seed: int | None
    """The seed of the random numbers, if it was a number."""
    fingerprint: str | None
    """The fingerprint of the data, as in the log."""

    @property
    def weights(self) -> Floats:
        """w̄, or w with ``average=False``."""
        return self.average_coef if self.options.average else self.coef

    @property
    def weights_at(self) -> Floats:
        """The same at the steps of the history, (n, n_features)."""
        return self.history.average_coef if self.options.average else self.history.coef

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the run as plain values, with the version of this package."""
        return self.options.to_dict() | {
            "learning_rate": self.learning_rate,
            "seed": self.seed,
            "dataset": self.fingerprint,
            "version": __version__,
        }

    def predict(self, features: ArrayLike) -> Floats:
        """Return the score w̄·(x·scale) of each row, (n_rows,), so that it can be evaluated."""
        scale = 1.0 if self.options.scale is None else np.asarray(self.options.scale, np.float64)
        return np.asarray(features, np.float64) @ (self.weights * scale)

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: one row per feature."""
        features = np.arange(len(self.coef))
        return {"feature": features, "coef": self.coef, "average_coef": self.average_coef}


def train(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    learning_rate: float | None = None,
    rng: np.random.Generator | int | None = None,
    resume: str | PathLike[str] | None = None,
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
        Save the state of the run in this file, and continue from it if it exists. The result is the
        same to the byte as without the interruption. Needs `rng`.
    progress : function of (task, share that is done), optional
        Called from time to time.
    options : TrainingOptions, optional
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
    (setup,) = Setup.of(dataset, log, TrainingOptions.of(options, **settings))
    run = Run(setup, [learning_rate], np.random.default_rng(rng))
    part = Progress.of(progress).part(1.0, "training")
    if resume is None:
        run.finish(part)
    elif rng is None:
        raise ParameterError("resume needs rng: a seed, which identifies the run")
    else:
        run_resumable(run, resume, part)
    (result,) = _make_results(run, seed=rng if isinstance(rng, Integral) else None)
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

    Runs of the same method and seed draw the same examples, so up to eight of them, with different
    starts and learning rates, take their steps together: one pass over memory serves them all. A
    run whose weights explode does not end the others: it has a `diverged_at`, and its weights are
    NaN.

    Parameters
    ----------
    learning_rates : sequence of float, optional
        Not needed by ``optimizer="dog"``.
    methods : sequence of str, optional
        By default the method of the options.
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
            raise ParameterError(f"train_many takes no {name}, expected seeds")
    n_threads = available_cores() if workers is None else whole_number("workers", workers, least=1)
    setups = Setup.of(dataset, log, TrainingOptions.of(options, **settings), methods)
    runs = [
        (seed, Run(setup, rates, np.random.default_rng(seed), each))
        for setup in setups
        for seed in seeds
        for each, rates in _split_passes(setup.options, starts, learning_rates)
    ]
    parts = Progress.of(progress).part(1.0, "training").side_by_side(len(runs))

    def work(index: int) -> list[TrainingResult]:
        seed, run = runs[index]
        run.finish(parts[index])
        parts[index].update(1.0)  # also if all have diverged
        return _make_results(run, seed=seed)

    with ThreadPoolExecutor(n_threads) as pool:
        return [result for results in pool.map(work, range(len(runs))) for result in results]


def risk(
    dataset: RankingDataset,
    log: ClickLog,
    weights: ArrayLike,
    *,
    options: TrainingOptions | None = None,
    **settings: Any,  # noqa: ANN401 (the fields of TrainingOptions)
) -> Risk:
    """R(w) = (1/n) Σ u_i with u_i = (n/N)·v_i·f_i(w), and the standard deviation of u.

    Parameters
    ----------
    dataset, log
        As for `train`.
    weights : array-like (n_features,)
        As `train` returns them: with `scale`, the weights of the scaled features.
    options, **settings
        As for `train`; method, unit, objective, clip, temper and scale matter.

    Examples
    --------
    Lists of two and three items with equal scores have f of 2 and 3; the weights are 1 and 2.

    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.training import risk
    >>> features = [[1], [0], [1], [0], [0]]
    >>> data = RankingDataset.from_arrays(X=features, y=[0] * 5, qid=[1, 1, 2, 2, 2])
    >>> result = risk(data, ClickLog([0, 1], [0, 0], [1, 0.5]), [0.0])
    >>> result.mean, round(result.deviation, 3)  # of 1·2 and 2·3
    (4.0, 2.828)
    """
    no_steps = {"steps": 1, "epochs": None, "checkpoints": 0}
    options = TrainingOptions.of(options, **settings | no_steps | {"start": weights})
    (setup,) = Setup.of(dataset, log, options)
    spread = setup.spread or Spread.of(setup.examples, setup.plan)
    width = dataset.n_features
    features, factors = kernel_features(dataset, options.scale_of(width))
    w = options.start_of(width)[None]
    code = get_objective(options.objective).code
    ((mean, square),) = spread.moments(features, dataset.offsets, factors, w, code)
    return Risk(float(mean), float(np.sqrt(square)), len(setup.examples))


def _split_passes(
    options: TrainingOptions,
    starts: Sequence[ArrayLike] | None,
    learning_rates: Sequence[float] | None,
) -> Iterator[tuple[list[TrainingOptions], list[float | None]]]:
    """Yield the options, each with its start, and the learning rates of runs that share a pass."""
    with_starts = [options]
    if starts is not None:
        if options.start is not None:
            raise ParameterError("start and starts are both given, expected one of them")
        with_starts = [replace(options, start=start) for start in starts]
    runs = list(product(with_starts, [None] if learning_rates is None else learning_rates))
    for k in range(0, len(runs), MAX_RUNS_PER_PASS):
        batch = runs[k : k + MAX_RUNS_PER_PASS]
        yield [each for each, _ in batch], [rate for _, rate in batch]


def _make_results(run: Run, seed: int | None) -> list[TrainingResult]:
    """Return the results of the runs of a pass; weights that exploded are NaN."""
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
