"""The loop: examples × plan × objective × optimizer → weights, averages, history.

Algorithms 1 and 2 of the paper, exactly: w₁ = 0; at step t draw a batch, w_{t+1} = w_t − step; the
averaged iterate after T steps is w̄ = (w₁ + … + w_T)/T.
"""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._cores import available_cores
from countersample._runs import OPTIONS, Run, Setup
from countersample._version import __version__
from countersample.errors import CounterSampleError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

    Floats = NDArray[np.float64]

__all__ = ["DivergedError", "History", "TrainingResult", "train", "train_many"]

MOST_LANES = 8  # learning rates served by one pass over memory


class DivergedError(CounterSampleError):
    """Training whose weights exploded: the learning rate is too large.

    Attributes
    ----------
    step : int
        The step at which it happened.
    learning_rate : float
    """

    def __init__(self, step: int, learning_rate: float) -> None:
        self.step = step
        self.learning_rate = learning_rate
        super().__init__(
            f"training diverged at step {step:,} with learning rate {learning_rate:g}: "
            "take a smaller one"
        )

    def __reduce__(self) -> tuple[type[DivergedError], tuple[int, float]]:
        return DivergedError, (self.step, self.learning_rate)  # so that it can leave a process


@dataclass(frozen=True)
class History:
    """The weights at the steps asked for; NaN from where they exploded.

    Attributes
    ----------
    steps : int64 (n,)
    coef, average_coef : float64 (n, n_features)
    """

    steps: NDArray[np.int64]
    coef: Floats
    average_coef: Floats


@dataclass(frozen=True)
class TrainingResult:
    """What training gives.

    Attributes
    ----------
    coef : float64 (n_features,)
        w, the weights after the last step; NaN if they exploded.
    average_coef : float64 (n_features,)
        w̄, the mean of the weights over all steps, the algorithms' answer; NaN if they exploded.
    n_steps : int
        The steps taken.
    diverged_at : int or None
        The step at which the weights exploded; None for a sound run.
    history : History
    settings : dict
        What it was trained with: method, unit, objective, optimizer, learning_rate, …; the seed,
        the fingerprint of the data as the log has it, the version of this package.
    """

    coef: Floats
    average_coef: Floats
    n_steps: int
    diverged_at: int | None
    history: History
    settings: dict[str, Any]

    @property
    def weights(self) -> Floats:
        """w̄, or w where it was trained with ``average=False``."""
        return self.average_coef if self.settings["average"] else self.coef


def train(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    learning_rate: float,
    method: str = "countersample",
    unit: str = "click",
    objective: str = "rank",
    optimizer: str = "sgd",
    batch_size: int = 1,
    steps: int | None = None,
    epochs: float | None = None,
    average: bool = True,
    checkpoints: int | Sequence[int] = 1,
    l2: float = 0.0,
    radius: float = np.inf,
    clip: float | None = None,
    rng: np.random.Generator | int | None = None,
    resume: str | PathLike[str] | None = None,
    report: Callable[[int, int], None] | None = None,
    **settings: Any,  # noqa: ANN401 (of the optimizer and the plan)
) -> TrainingResult:
    """Train a linear ranker on a click log.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
    learning_rate : float
        η.
    method : {"countersample", "ips", "naive", "bounded", "proposal"}
        The plan: see `countersample.plans`.
    unit : {"click", "pair", "query"}
        What one example is.
    objective : {"rank", "log-rank", "dcg"}
    optimizer : {"sgd", "adam", "adagrad"}
    batch_size : int
        Examples a step; their gradients are averaged.
    steps, epochs : int, float
        One of them: the number of steps, or how often as many examples are drawn as the log has
        rows, whatever the unit.
    average : bool
        Whether `TrainingResult.weights` is w̄ or w.
    checkpoints : int or list of int
        Steps at which w and w̄ are kept in the history, or how many such steps, evenly spaced.
    l2 : float
        Adds (l2/2)·‖w‖² to the objective.
    radius : float
        Keeps ‖w‖ ≤ radius, by projection after each step.
    clip : float, optional
        The smallest propensity: see `ClickLog.clip`.
    rng : numpy Generator or seed
        Same seed, same bytes.
    resume : path, optional
        Keep the state of the run in this file, and go on from it where it exists. The end is the
        same to the byte as that of a run that was not stopped. Needs `rng`.
    report : function of (steps done, steps in all), optional
        Called now and then.
    **settings
        `momentum` for sgd; `beta1`, `beta2`, `epsilon` for adam; `epsilon` for adagrad; `bounds`
        or `probabilities` for plans that need them.

    Returns
    -------
    TrainingResult

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
    setups = Setup.of(
        dataset, log, [method], unit=unit, objective=objective, optimizer=optimizer,
        batch_size=batch_size, steps=steps, epochs=epochs, average=average,
        checkpoints=checkpoints, l2=l2, radius=radius, clip=clip, settings=settings,
    )  # fmt: skip
    run = Run(setups[method], [learning_rate], np.random.default_rng(rng))
    if resume is None:
        run.finish(report)
    elif rng is None:
        raise ParameterError("resume needs rng: a seed, so that a run can be told from another")
    else:
        from countersample.resuming import run_resumable  # noqa: PLC0415 (only where asked for)

        run_resumable(run, resume, report)
    (result,) = _results(run, seed=rng if isinstance(rng, Integral) else None)
    if result.diverged_at is not None:
        raise DivergedError(result.diverged_at, learning_rate)
    return result


def train_many(
    dataset: RankingDataset,
    log: ClickLog,
    *,
    learning_rates: Sequence[float],
    methods: Sequence[str] = ("countersample",),
    seeds: Sequence[int] = (0,),
    workers: int | None = None,
    report: Callable[[int, int], None] | None = None,
    **options: Any,  # noqa: ANN401 (those of train)
) -> list[TrainingResult]:
    """Train a grid of methods, seeds and learning rates on one copy of the data.

    Runs of the same method and seed draw the same examples, so up to eight learning rates take
    their steps together: one pass over memory serves them all. A run whose weights explode does
    not end the others: its `diverged_at` says so, and its weights are NaN.

    Parameters
    ----------
    dataset : RankingDataset
    log : ClickLog
    learning_rates, methods, seeds : sequences
    workers : int, optional
        Threads; all cores by default. The results do not depend on it.
    report : function of (steps done, steps in all), optional
    **options
        As for `train`.

    Returns
    -------
    list of TrainingResult
        By method, then seed, then learning rate.
    """
    if workers is not None and workers < 1:
        raise ParameterError(f"workers is {workers}, expected at least 1")
    setups = Setup.of(dataset, log, methods, **_with_defaults(options))
    groups = [
        (method, seed, list(learning_rates[first : first + MOST_LANES]))
        for method in methods
        for seed in seeds
        for first in range(0, len(learning_rates), MOST_LANES)
    ]
    runs = [Run(setups[method], rates, np.random.default_rng(seed))
            for method, seed, rates in groups]  # fmt: skip
    for setup in setups.values():
        setup.prepare()
    in_all = sum(run.setup.n_steps for run in runs)
    done = [0] * len(runs)
    lock = threading.Lock()

    def work(position: int) -> list[TrainingResult]:
        def tell(n_done: int, _: int) -> None:
            if report is not None:
                with lock:  # one call at a time, and never fewer steps than before
                    done[position] = n_done
                    report(sum(done), in_all)

        run = runs[position]
        run.finish(tell)
        if run.step < run.setup.n_steps:  # all have diverged: nothing is left to do
            tell(run.setup.n_steps, 0)
        _, seed, _ = groups[position]
        return _results(run, seed=seed)

    with ThreadPoolExecutor(workers or available_cores()) as pool:
        return [result for results in pool.map(work, range(len(runs))) for result in results]


def _with_defaults(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `train`, with its defaults where nothing is said."""
    given = dict(options)
    parameters = inspect.signature(train).parameters
    taken = {name: given.pop(name, parameters[name].default) for name in OPTIONS}
    for name in ("rng", "resume"):
        if name in given:
            raise ParameterError(f"train_many takes no {name}: its seeds say what is drawn")
    return taken | {"settings": given}


def _results(run: Run, seed: int | None) -> list[TrainingResult]:
    """Return the result of each lane; what came of weights that exploded is NaN, never a model."""
    setup, state = run.setup, run.state
    known = setup.options | setup.optimizer_settings
    known |= {"seed": seed, "dataset": setup.log.fingerprint, "version": __version__}
    results = []
    for lane, rate in enumerate(run.learning_rates):
        stopped = int(state["stopped"][lane])
        w, average = state["w"][lane].copy(), state["total"][lane] / run.step
        w_at, average_at = state["weights_at"][lane].copy(), state["averages_at"][lane].copy()
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
                settings=known | {"learning_rate": rate},
            )
        )
    return results
