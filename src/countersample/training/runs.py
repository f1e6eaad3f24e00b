"""Runs under way: what a run needs, checked; its state, and how it goes on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.objectives import get_objective
from countersample.plans import Examples
from countersample.training.optimizers import OPTIMIZERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.plans import Plan
    from countersample.training.options import TrainingOptions

CHUNK = 1 << 16  # draws made at a time


@dataclass(frozen=True, eq=False)
class Setup:
    """Everything a run needs but its learning rate and its random numbers, checked.

    Attributes
    ----------
    dataset : RankingDataset
    log : ClickLog
        As it is trained on: with its propensities clipped.
    options : TrainingOptions
    examples, plan : Examples, Plan
    n_steps : int
    record_at : int64 (n_records,)
        The steps at which weights are kept.
    """

    dataset: RankingDataset
    log: ClickLog
    options: TrainingOptions
    examples: Examples
    plan: Plan
    n_steps: int
    record_at: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        dataset: RankingDataset,
        log: ClickLog,
        options: TrainingOptions,
        methods: Sequence[str] | None = None,
    ) -> list[Setup]:
        """Check the log, and make a plan for each method, of the same examples.

        Parameters
        ----------
        dataset, log, options
        methods : sequence of str, optional
            By default that of the options.
        """
        by_method = [replace(options, method=method) for method in methods or [options.method]]
        n_steps = options.n_steps(len(log))
        record_at = options.record_at(n_steps)
        log.check(dataset)
        if options.clip is not None:
            log = log.clip(options.clip)
        examples = Examples.of(log, options.unit)
        return [
            cls(dataset, log, each, examples, each.plan(examples), n_steps, record_at)
            for each in by_method
        ]

    @property
    def batch_size(self) -> int:
        """Examples a step."""
        return int(self.options.batch_size)

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
        n_runs, width = len(learning_rates), setup.dataset.n_features
        self._settings = np.array([setup.options.kernel_settings(rate) for rate in learning_rates])
        n_records = len(setup.record_at)
        self.state: dict[str, NDArray[Any]] = {
            **{name: np.zeros((n_runs, width)) for name in ("w", "total", "first", "second")},
            "stopped": np.zeros(n_runs, np.int64),
            "weights_at": np.zeros((n_runs, n_records, width)),
            "averages_at": np.zeros((n_runs, n_records, width)),
        }

    @property
    def is_over(self) -> bool:
        """Whether all steps are taken, or all weights have exploded."""
        return self.step >= self.setup.n_steps or bool(self.state["stopped"].all())

    def advance(self) -> None:
        """Draw examples for some steps, and take them."""
        from countersample._kernels.training import take_steps  # noqa: PLC0415 (imports numba)

        setup = self.setup
        n_steps = min(setup.steps_at_once, setup.n_steps - self.step)
        examples, state = setup.examples, self.state
        take_steps(
            setup.dataset.features, setup.dataset.offsets,
            examples.query, examples.starts, examples.item, setup.shares, setup.multipliers,
            setup.plan.draw(n_steps * setup.batch_size, self.rng), setup.batch_size,
            get_objective(setup.options.objective).code,
            OPTIMIZERS[setup.options.optimizer].code, self._settings,
            self.step, state["w"], state["total"], state["first"], state["second"],
            state["stopped"], setup.record_at, state["weights_at"], state["averages_at"],
        )  # fmt: skip
        self.step += n_steps

    def finish(self, progress: Progress) -> None:
        """Take all steps that are left."""
        while not self.is_over:
            self.advance()
            progress.update(self.step / self.setup.n_steps)
