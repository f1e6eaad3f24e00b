"""Runs under way: what a run needs, checked; its state, and how it goes on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.data._arrays import refuse_missing
from countersample.errors import DataError
from countersample.objectives import get_objective
from countersample.plans import Examples
from countersample.training.optimizers import OPTIMIZERS
from countersample.training.variance import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from countersample._arrays import Floats, Ints
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.plans import Plan
    from countersample.training.options import TrainingOptions

CHUNK = 1 << 16  # draws made at a time
LEAST, MOST_PARTS = 2, 16  # examples of a part of a batch, and parts


def parts_of(batch_size: int) -> int:
    """Return how many parts a batch is cut into: a power of two, for threads to share.

    The gradient of a batch is the sum of those of its parts, whoever computes them.
    """
    n_parts = 1
    while 2 * n_parts * LEAST <= batch_size and n_parts < MOST_PARTS:
        n_parts *= 2
    return n_parts


@dataclass(frozen=True, eq=False)
class Setup:
    """Everything a run needs but its learning rate and its random numbers, checked."""

    dataset: RankingDataset
    log: ClickLog  # as it is trained on: with its propensities clipped and tempered
    options: TrainingOptions
    examples: Examples
    plan: Plan
    shares: NDArray[np.float32]  # of the plan, as the kernel takes them
    multipliers: NDArray[np.float32]
    n_steps: int
    record_at: Ints  # the steps at which weights are kept
    spread: Spread | None  # where their variance is a part of what is minimised

    @classmethod
    def of(
        cls,
        dataset: RankingDataset,
        log: ClickLog,
        options: TrainingOptions,
        methods: Sequence[str] | None = None,
    ) -> list[Setup]:
        """Check the log, and make a plan for each method, of the same examples."""
        by_method = [replace(options, method=method) for method in methods or [options.method]]
        n_steps = options.n_steps(len(log))
        record_at = options.record_at(n_steps)
        log.check(dataset)
        if options.clip is not None:
            log = log.clip(options.clip)
        if options.temper != 1:
            log = log.temper(options.temper)
        examples = Examples.of(log, options.unit)
        setups = []
        for each in by_method:
            plan = each.plan(examples)
            plan.draw(0, np.random.default_rng(0))  # builds its table before threads share it
            shares, multipliers = (x.astype(np.float32) for x in (plan.shares, plan.multipliers))
            spread = Spread.of(examples, plan) if each.variance else None
            setups.append(
                cls(dataset, log, each, examples, plan, shares, multipliers, n_steps, record_at,
                    spread)
            )  # fmt: skip
        return setups

    @property
    def steps_at_once(self) -> int:
        """Steps between two looks up, from the start on: what a resumed run must agree on.

        With a variance that is a round, whose pass over the clicked queries costs no more than it.
        """
        batch_size = self.options.batch_size
        most = max(1, CHUNK // batch_size)
        return most if self.spread is None else min(most, -(-self.spread.n_queries // batch_size))


def as_read(dataset: RankingDataset, scale: Floats) -> tuple[NDArray[Any], Floats]:
    """Return what the kernel reads, and what it multiplies that by: codes as they are.

    An offset changes all scores of a query alike, and no gradient.
    """
    refuse_missing(dataset)
    if dataset.bits is None:
        return dataset.features, scale
    codes = dataset.features
    if codes.roots is not None:
        raise DataError(
            "the features are codes on a root scale, in which scores are not linear: train a "
            "ranker with normalize='root-minmax' (--normalize root-minmax), or train on "
            "dataset.normalized('root-minmax')"
        )
    return codes.codes, codes.scale * scale if len(scale) else codes.scale


class Run:
    """K runs under way that differ in learning rate and start only: state, and how it goes on.

    `options` are those of each run, with its start; by default those of the setup. Up to `workers`
    threads share the parts of a batch; where runs end does not depend on it.
    """

    def __init__(
        self,
        setup: Setup,
        learning_rates: Sequence[float | None],
        rng: np.random.Generator,
        options: Sequence[TrainingOptions] | None = None,
        workers: int = 1,
    ) -> None:
        self.setup = setup
        self.n_threads = min(workers, parts_of(int(setup.options.batch_size)))
        self.options = options or [setup.options] * len(learning_rates)
        self.learning_rates = [setup.options.rate(rate) for rate in learning_rates]
        self.rng = rng
        self.step = 0
        n_runs, width = len(learning_rates), setup.dataset.n_features
        self._settings = np.array([setup.options.kernel_settings(rate) for rate in learning_rates])
        self.starts = np.array([each.start_of(width) for each in self.options])
        self.scale = setup.options.scale_of(width)
        self._features, self._factors = as_read(setup.dataset, self.scale)
        n_records = len(setup.record_at)
        self.state: dict[str, NDArray[Any]] = {
            "w": self.starts.copy(),
            "total": np.zeros((n_runs, width)),
            "first": np.zeros((n_runs, width)),
            "second": np.zeros((n_runs, OPTIMIZERS[setup.options.optimizer].n_squares * width)),
            "numbers": np.zeros((n_runs, 2)),
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
        from countersample._kernels import ahead  # noqa: PLC0415 (as the lines below)
        from countersample._kernels.sharing import BOARD, OVER  # noqa: PLC0415 (imports numba)
        from countersample._kernels.training import take_steps  # noqa: PLC0415 (imports numba)

        ahead.wait()
        setup = self.setup
        n_steps = min(setup.steps_at_once, setup.n_steps - self.step)
        batch_size = int(setup.options.batch_size)
        examples, state = setup.examples, self.state
        n_runs, width = state["w"].shape
        board = np.zeros(BOARD, np.int64)
        take = partial(
            take_steps, self._features, setup.dataset.offsets,
            examples.query, examples.starts, examples.item, setup.shares, setup.multipliers,
            np.zeros(0, np.float32) if setup.spread is None else setup.spread.levels, self._tilts(),
            self._factors, setup.plan.draw(n_steps * batch_size, self.rng), batch_size,
            get_objective(setup.options.objective).code,
            OPTIMIZERS[setup.options.optimizer].code, self._settings,
            self.step, state["w"], state["total"], state["first"], state["second"],
            state["numbers"], state["stopped"], setup.record_at, state["weights_at"],
            state["averages_at"], np.empty((n_runs, width), np.float32),
            np.empty((parts_of(batch_size) * n_runs, width), np.float32), board,
            self.n_threads,
        )  # fmt: skip
        helpers = [Thread(target=take, args=(False,)) for _ in range(self.n_threads - 1)]
        try:
            for helper in helpers:
                helper.start()
            take(True)
        finally:
            board[OVER] = 1  # or others would wait for ever
            for helper in helpers:
                if helper.ident is not None:
                    helper.join()
        self.step += n_steps

    def _tilts(self) -> Floats:
        """Return what a round takes of the variance at its start, (K, 2)."""
        setup, w = self.setup, self.state["w"]
        if setup.spread is None:
            return np.zeros((len(w), 2))
        code = get_objective(setup.options.objective).code
        moments = setup.spread.moments(
            self._features, setup.dataset.offsets, self._factors, w, code
        )
        return setup.spread.tilts(moments, setup.options.variance)

    def finish(self, progress: Progress) -> None:
        """Take all steps that are left."""
        while not self.is_over:
            self.advance()
            progress.update(self.step / self.setup.n_steps)
