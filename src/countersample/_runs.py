"""Runs under way: what a run needs, checked; its state, and how it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import ParameterError
from countersample.objectives import get_objective
from countersample.optimizers import get_optimizer
from countersample.plans import Examples, make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.plans import Plan

CHUNK = 1 << 16  # draws made at a time

OPTIONS = (
    "unit", "objective", "optimizer", "batch_size", "steps", "epochs", "average", "checkpoints",
    "l2", "radius", "clip",
)  # fmt: skip
PLAN_SETTINGS = ("bounds", "probabilities")


@dataclass(frozen=True, eq=False)
class Setup:
    """Everything a run needs but its learning rate and its random numbers, checked.

    Attributes
    ----------
    dataset : RankingDataset
    log : ClickLog
        As it is trained on: with its propensities clipped.
    examples, plan : Examples, Plan
    n_steps : int
    record_at : int64 (n_records,)
        The steps at which weights are kept.
    options : dict
        The `OPTIONS` of `train`, and its method.
    optimizer_settings : dict
    """

    dataset: RankingDataset
    log: ClickLog
    examples: Examples
    plan: Plan
    n_steps: int
    record_at: NDArray[np.int64]
    options: dict[str, Any]
    optimizer_settings: dict[str, float]

    @classmethod
    def of(
        cls,
        dataset: RankingDataset,
        log: ClickLog,
        methods: Sequence[str],
        *,
        settings: dict[str, Any],
        **options: Any,  # noqa: ANN401 (OPTIONS)
    ) -> dict[str, Setup]:
        """Check the options of `train` and make a plan for each method, of the same examples."""
        batch_size = _as_count("batch_size", options["batch_size"])
        n_steps = _number_of_steps(options["steps"], options["epochs"], len(log), batch_size)
        record_at = _record_at(options["checkpoints"], n_steps)
        for_plan = {k: v for k, v in settings.items() if k in PLAN_SETTINGS}
        for_optimizer = {k: v for k, v in settings.items() if k not in PLAN_SETTINGS}
        get_objective(options["objective"])
        get_optimizer(options["optimizer"]).settings(
            1.0, l2=options["l2"], radius=options["radius"], **for_optimizer
        )
        log.check(dataset)
        if options["clip"] is not None:
            log = log.clip(options["clip"])
        examples = Examples.of(log, options["unit"])
        return {
            method: cls(
                dataset, log, examples, make_plan(method, examples, **for_plan), n_steps,
                record_at, {"method": method} | options, for_optimizer,
            )
            for method in methods
        }  # fmt: skip

    @property
    def batch_size(self) -> int:
        """Examples a step."""
        return int(self.options["batch_size"])

    @property
    def steps_at_once(self) -> int:
        """Steps between two looks up, from the start on: what a resumed run must agree on."""
        return max(1, CHUNK // self.batch_size)

    @cached_property
    def multipliers(self) -> NDArray[np.float32]:
        """The plan's m, as the kernel takes them."""
        return self.plan.multipliers.astype(np.float32)

    @cached_property
    def shares(self) -> NDArray[np.float32]:
        """The plan's shares, as the kernel takes them."""
        return self.plan.shares.astype(np.float32)

    def prepare(self) -> None:
        """Build what is built once and then shared, before threads share it."""
        self.plan.draw(0, np.random.default_rng(0))  # builds its table
        assert len(self.multipliers) and len(self.shares)  # noqa: S101, PT018 (computes them)


class Run:
    """K runs under way that differ in their learning rate only: state, and how it goes on.

    Parameters
    ----------
    setup : Setup
    learning_rates : sequence of float (K,)
    rng : numpy Generator
    """

    def __init__(
        self, setup: Setup, learning_rates: Sequence[float], rng: np.random.Generator
    ) -> None:
        self.setup = setup
        self.learning_rates = [float(rate) for rate in learning_rates]
        self.rng = rng
        self.step = 0
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

    @property
    def is_over(self) -> bool:
        """Whether all steps are taken, or all weights have exploded."""
        return self.step >= self.setup.n_steps or bool(self.state["stopped"].all())

    def advance(self) -> None:
        """Draw examples for some steps, and take them."""
        from countersample._kernels.training import run  # noqa: PLC0415 (imports numba)

        setup = self.setup
        n_steps = min(setup.steps_at_once, setup.n_steps - self.step)
        examples, state = setup.examples, self.state
        run(
            setup.dataset.features, setup.dataset.offsets,
            examples.query, examples.starts, examples.item, setup.shares, setup.multipliers,
            setup.plan.draw(n_steps * setup.batch_size, self.rng), setup.batch_size,
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


def _as_count(name: str, value: Any) -> int:  # noqa: ANN401 (what a user gives)
    if not isinstance(value, Integral) or value < 1:
        raise ParameterError(f"{name} is {value!r}, expected a whole number of at least 1")
    return int(value)


def _number_of_steps(steps: int | None, epochs: float | None, n_rows: int, batch_size: int) -> int:
    if steps is not None and epochs is None:
        return _as_count("steps", steps)
    if epochs is None or steps is not None:
        raise ParameterError("give either steps or epochs")
    if not 0 < epochs < np.inf:
        raise ParameterError(f"epochs is {epochs}, expected a number above 0")
    return max(1, -(-round(epochs * n_rows) // batch_size))


def _record_at(checkpoints: int | Sequence[int], n_steps: int) -> NDArray[np.int64]:
    """Return the steps to keep the weights at, rising."""
    if isinstance(checkpoints, Integral):
        if checkpoints < 0:
            raise ParameterError(f"checkpoints is {checkpoints}, expected at least 0")
        n = min(int(checkpoints), n_steps)
        return -(-np.arange(1, n + 1, dtype=np.int64) * n_steps // max(n, 1))  # rounded up
    steps = np.unique(np.asarray(checkpoints))
    if len(steps) and not (steps.dtype.kind in "iu" and steps[0] >= 1 and steps[-1] <= n_steps):
        raise ParameterError(
            f"checkpoints must be a number of them, or steps from 1 to {n_steps} (whole numbers)"
        )
    return steps.astype(np.int64)
