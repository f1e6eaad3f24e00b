"""The loop: examples × plan × objective × optimizer → weights, averages, history.

Algorithms 1 and 2 of the paper, exactly: w₁ = 0; at step t draw a batch, w_{t+1} = w_t − step; the
averaged iterate after T steps is w̄ = (w₁ + … + w_T)/T.
"""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from countersample._cores import available_cores
from countersample.errors import CounterSampleError, ParameterError
from countersample.objectives import get_objective
from countersample.optimizers import get_optimizer
from countersample.plans import Examples, make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.plans import Plan

    Floats = NDArray[np.float64]

__all__ = ["DivergedError", "History", "TrainingResult", "train", "train_many"]

CHUNK = 1 << 16  # draws made at a time
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


@dataclass(frozen=True)
class History:
    """The weights at the steps asked for.

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
        w, the weights after the last step.
    average_coef : float64 (n_features,)
        w̄, the mean of the weights over all steps; the algorithms' answer.
    n_steps : int
    diverged_at : int or None
        The step at which the weights exploded; None for a sound run.
    history : History
    settings : dict
        What it was trained with: method, unit, objective, optimizer, learning_rate, …
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
    resume : path, optional
        Keep the state of the run in this file, and go on from it where it exists. The end is the
        same to the byte as that of a run that was not stopped.
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
    setup = Setup.of(
        dataset, log, method=method, unit=unit, objective=objective, optimizer=optimizer,
        batch_size=batch_size, steps=steps, epochs=epochs, average=average,
        checkpoints=checkpoints, l2=l2, radius=radius, clip=clip, settings=settings,
    )  # fmt: skip
    run = Run(setup, [learning_rate], np.random.default_rng(rng))
    if resume is not None:
        from countersample.resuming import run_resumable  # noqa: PLC0415 (only where asked for)

        run_resumable(run, resume, report)
    else:
        run.finish(report)
    (result,) = run.results()
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
    not end the others: its `diverged_at` says so.

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
    options = {"steps": None, "epochs": None} | options
    setups = {method: Setup.of(dataset, log, method=method, **_defaults(options))
              for method in methods}  # fmt: skip
    groups = [
        (method, seed, list(learning_rates[first : first + MOST_LANES]))
        for method in methods
        for seed in seeds
        for first in range(0, len(learning_rates), MOST_LANES)
    ]
    in_all = sum(setups[method].n_steps for method, _, _ in groups)
    done = dict.fromkeys(range(len(groups)), 0)

    def work(position: int) -> list[TrainingResult]:
        method, seed, rates = groups[position]

        def tell(n_done: int, _: int) -> None:
            done[position] = n_done
            if report is not None:
                report(sum(done.values()), in_all)

        run = Run(setups[method], rates, np.random.default_rng(seed), seed=seed)
        run.finish(tell)
        return run.results()

    with ThreadPoolExecutor(workers or available_cores()) as pool:
        return [result for results in pool.map(work, range(len(groups))) for result in results]


def _defaults(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `train`, with its defaults where nothing is said."""
    given = dict(options)
    taken = {
        name: given.pop(name, parameter.default)
        for name, parameter in inspect.signature(train).parameters.items()
        if name in Setup.OPTIONS and name != "method"
    }
    return taken | {"settings": given}


@dataclass(frozen=True)
class Setup:
    """Everything a run needs but its learning rate and its random numbers, checked."""

    dataset: RankingDataset
    log: ClickLog
    examples: Examples
    plan: Plan
    n_steps: int
    record_at: NDArray[np.int64]
    options: dict[str, Any]
    optimizer_settings: dict[str, float]

    OPTIONS: ClassVar = (
        "method", "unit", "objective", "optimizer", "batch_size", "steps", "epochs", "average",
        "checkpoints", "l2", "radius", "clip",
    )  # fmt: skip

    @classmethod
    def of(
        cls,
        dataset: RankingDataset,
        log: ClickLog,
        *,
        settings: dict[str, Any],
        **options: Any,  # noqa: ANN401 (those of train)
    ) -> Setup:
        """Check the options of `train` and make the plan."""
        log.check(dataset)
        if options["clip"] is not None:
            log = log.clip(options["clip"])
        batch_size = options["batch_size"]
        if batch_size < 1:
            raise ParameterError(f"batch_size is {batch_size}, expected at least 1")
        n_steps = _number_of_steps(options["steps"], options["epochs"], len(log), batch_size)
        examples = Examples.of(log, options["unit"])
        for_plan = {k: v for k, v in settings.items() if k in ("bounds", "probabilities")}
        for_optimizer = {k: v for k, v in settings.items() if k not in for_plan}
        plan = make_plan(options["method"], examples, **for_plan)
        get_objective(options["objective"])
        get_optimizer(options["optimizer"]).settings(
            1.0, l2=options["l2"], radius=options["radius"], **for_optimizer
        )
        record_at = _record_at(options["checkpoints"], n_steps)
        return cls(dataset, log, examples, plan, n_steps, record_at, options, for_optimizer)

    @property
    def steps_at_once(self) -> int:
        """Steps between two looks up, from the start on: what a resumed run must agree on."""
        return max(1, CHUNK // int(self.options["batch_size"]))


class Run:
    """K runs under way that differ in their learning rate only: state, and how it goes on.

    Parameters
    ----------
    setup : Setup
    learning_rates : list of float (K,)
    rng : numpy Generator
    seed : int, optional
        What the generator was made of, for the record.
    """

    def __init__(
        self,
        setup: Setup,
        learning_rates: list[float],
        rng: np.random.Generator,
        *,
        seed: int | None = None,
    ) -> None:
        self.setup = setup
        self.learning_rates = learning_rates
        self.rng = rng
        self.step = 0
        self._seed = seed
        lanes, width = len(learning_rates), setup.dataset.n_features
        optimizer = get_optimizer(setup.options["optimizer"])
        self._optimizer = optimizer.code
        self._settings = np.array(
            [
                optimizer.settings(
                    rate,
                    l2=setup.options["l2"],
                    radius=setup.options["radius"],
                    **setup.optimizer_settings,
                )
                for rate in learning_rates
            ]
        )
        n_records = len(setup.record_at)
        self.state: dict[str, NDArray[Any]] = {
            **{name: np.zeros((lanes, width)) for name in ("w", "total", "first", "second")},
            "stopped": np.zeros(lanes, np.int64),
            "weights_at": np.zeros((lanes, n_records, width)),
            "averages_at": np.zeros((lanes, n_records, width)),
        }
        self._multipliers = setup.plan.multipliers.astype(np.float32)
        self._shares = setup.plan.shares.astype(np.float32)

    @property
    def is_over(self) -> bool:
        """Whether all steps are taken, or all weights have exploded."""
        return self.step >= self.setup.n_steps or bool(self.state["stopped"].all())

    def advance(self) -> None:
        """Draw examples for some steps, and take them."""
        from countersample._kernels.training import run  # noqa: PLC0415 (imports numba)

        setup = self.setup
        n_steps = min(setup.steps_at_once, setup.n_steps - self.step)
        batch_size = int(setup.options["batch_size"])
        examples, state = setup.examples, self.state
        run(
            setup.dataset.features, setup.dataset.offsets,
            examples.query, examples.starts, examples.item, self._shares, self._multipliers,
            setup.plan.draw(n_steps * batch_size, self.rng), batch_size,
            get_objective(setup.options["objective"]).code, self._optimizer, self._settings,
            self.step, state["w"], state["total"], state["first"], state["second"],
            state["stopped"], setup.record_at, state["weights_at"], state["averages_at"],
        )  # fmt: skip
        self.step += n_steps

    def finish(self, report: Callable[[int, int], None] | None = None) -> None:
        """Take all steps that are left."""
        while not self.is_over:
            self.advance()
            if report is not None:
                report(self.step, self.setup.n_steps)

    def results(self) -> list[TrainingResult]:
        """Return the result of each run."""
        state = self.state
        return [
            TrainingResult(
                coef=state["w"][lane].copy(),
                average_coef=state["total"][lane] / max(self.step, 1),
                n_steps=self.step,
                diverged_at=int(state["stopped"][lane]) or None,
                history=History(
                    self.setup.record_at, state["weights_at"][lane], state["averages_at"][lane]
                ),
                settings=self.setup.options
                | self.setup.optimizer_settings
                | {"learning_rate": rate, "seed": self._seed},
            )
            for lane, rate in enumerate(self.learning_rates)
        ]


def _number_of_steps(steps: int | None, epochs: float | None, n_rows: int, batch_size: int) -> int:
    if (steps is None) == (epochs is None):
        raise ParameterError("give either steps or epochs")
    n_steps = steps if steps is not None else -(-round(epochs * n_rows) // batch_size)  # type: ignore[operator]
    if n_steps < 1:
        raise ParameterError(f"{n_steps} steps, expected at least 1")
    return int(n_steps)


def _record_at(checkpoints: int | Sequence[int], n_steps: int) -> NDArray[np.int64]:
    if isinstance(checkpoints, int | np.integer):
        if checkpoints < 0:
            raise ParameterError(f"checkpoints is {checkpoints}, expected at least 0")
        spaced = np.linspace(0, n_steps, int(checkpoints) + 1)[1:]
        return np.unique(np.rint(spaced).astype(np.int64))
    steps = np.unique(np.asarray(checkpoints, np.int64))
    if len(steps) and not (steps[0] >= 1 and steps[-1] <= n_steps):
        raise ParameterError(f"checkpoints must be steps from 1 to {n_steps}")
    return steps
