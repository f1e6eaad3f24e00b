"""Runs: the data of a run, checked; its state, its steps, and its file on disk.

A run draws examples by its plan and hands them to the kernel in chunks. Between two chunks its
state is a few arrays and the state of the random numbers. That is all a file needs so that a run
which was stopped ends at the same bytes as one that was not (`run_resumable`).
"""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
import zlib
from dataclasses import dataclass, replace
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._files import atomic_path, read_npy_header
from countersample._json import parse_json
from countersample._params import whole_number
from countersample.data.matrices import check_no_missing
from countersample.errors import DataError
from countersample.objectives import get_objective
from countersample.plans import Examples
from countersample.training.optimizers import OPTIMIZERS
from countersample.training.variance import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from countersample._arrays import Floats, Ints
    from countersample._progress import Progress
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset
    from countersample.plans import Plan
    from countersample.training.options import TrainingOptions

CHUNK = 1 << 16  # draws per call of the kernel
MIN_PART, MAX_PARTS = 2, 16  # examples per part of a batch, and parts per batch
FILE_VERSION = 1
SECONDS_BETWEEN_SAVES = 5.0
# The errors that a damaged file, or a file of another kind, can raise.
_DAMAGE = (
    OSError, ValueError, LookupError, EOFError, TypeError, AttributeError, RuntimeError,
    zipfile.BadZipFile, zlib.error, MemoryError, OverflowError,
)  # fmt: skip


def count_parts(batch_size: int) -> int:
    """Return into how many parts of at least two examples a batch is split: a power of two."""
    n_parts = 1
    while 2 * n_parts * MIN_PART <= batch_size and n_parts < MAX_PARTS:
        n_parts *= 2
    return n_parts


@dataclass(frozen=True, eq=False)
class Setup:
    """Everything a run needs except its learning rate and its random numbers, checked."""

    dataset: RankingDataset
    log: ClickLog  # with its propensities clipped and tempered
    options: TrainingOptions
    examples: Examples
    plan: Plan
    shares: NDArray[np.float32]  # of the plan, in the kernel's type
    multipliers: NDArray[np.float32]
    n_steps: int
    record_at: Ints  # the steps at which weights are recorded
    spread: Spread | None  # if their variance is part of the objective

    @classmethod
    def of(
        cls,
        dataset: RankingDataset,
        log: ClickLog,
        options: TrainingOptions,
        methods: Sequence[str] | None = None,
    ) -> list[Setup]:
        """Check the log, and make one plan per method, of the same examples."""
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
        """Steps per kernel call. Must be the same when a run is resumed.

        With a variance it is one round, whose pass over the clicked queries costs no more than it.
        """
        batch_size = self.options.batch_size
        most = max(1, CHUNK // batch_size)
        return most if self.spread is None else min(most, -(-self.spread.n_queries // batch_size))


def kernel_features(dataset: RankingDataset, scale: Floats) -> tuple[NDArray[Any], Floats]:
    """Return the array that the kernel reads (compact codes stay codes), and its scale.

    The offset of codes is left out: it changes all scores of a query alike, and no gradient.
    """
    check_no_missing(dataset)
    if dataset.bits is None:
        return dataset.features, scale
    codes = dataset.features
    return codes.codes, codes.scale * scale if len(scale) else codes.scale


class Run:
    """K runs at once that differ in learning rate and start only.

    `options` has one entry per run, with its start; by default the options of the setup.
    """

    def __init__(
        self,
        setup: Setup,
        learning_rates: Sequence[float | None],
        rng: np.random.Generator,
        options: Sequence[TrainingOptions] | None = None,
    ) -> None:
        self.setup = setup
        self.options = options or [setup.options] * len(learning_rates)
        self.learning_rates = [setup.options.rate(rate) for rate in learning_rates]
        self.rng = rng
        self.step = 0
        n_runs, width = len(learning_rates), setup.dataset.n_features
        self._settings = np.array([setup.options.kernel_settings(rate) for rate in learning_rates])
        self.starts = np.array([each.start_of(width) for each in self.options])
        self.scale = setup.options.scale_of(width)
        self._features, self._factors = kernel_features(setup.dataset, self.scale)
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
        """Whether all steps are done, or all weights have exploded."""
        return self.step >= self.setup.n_steps or bool(self.state["stopped"].all())

    def advance(self) -> None:
        """Draw the examples of one kernel call, and take its steps."""
        from countersample._kernels.training import take_steps  # noqa: PLC0415 (imports numba)

        setup, state = self.setup, self.state
        options, examples = setup.options, setup.examples
        n_steps = min(setup.steps_at_once, setup.n_steps - self.step)
        draws = setup.plan.draw(n_steps * options.batch_size, self.rng)
        levels = np.zeros(0, np.float32) if setup.spread is None else setup.spread.levels
        take_steps(
            self._features, setup.dataset.offsets, examples.query, examples.starts, examples.item,
            setup.shares, setup.multipliers, levels, self._tilts(), self._factors, draws,
            int(options.batch_size), count_parts(options.batch_size),
            get_objective(options.objective).code, OPTIMIZERS[options.optimizer].code,
            self._settings, self.step, state["w"], state["total"], state["first"], state["second"],
            state["numbers"], state["stopped"], setup.record_at, state["weights_at"],
            state["averages_at"],
        )  # fmt: skip
        self.step += n_steps

    def _tilts(self) -> Floats:
        """Return κ and ū of the variance at the start of a round, (K, 2)."""
        setup, w = self.setup, self.state["w"]
        if setup.spread is None:
            return np.zeros((len(w), 2))
        code = get_objective(setup.options.objective).code
        moments = setup.spread.moments(
            self._features, setup.dataset.offsets, self._factors, w, code
        )
        return setup.spread.tilts(moments, setup.options.variance)

    def finish(self, progress: Progress) -> None:
        """Take all remaining steps."""
        while not self.is_over:
            self.advance()
            progress.update(self.step / self.setup.n_steps)


# -- The file of a run ----------------------------------------------------------------------------


def run_resumable(run: Run, path: str | PathLike[str], progress: Progress) -> None:
    """Take all steps of a new run, starting from the state in the file at `path` if it exists.

    The file stays at the end, so that a further call has nothing to do. The file of another run, or
    another kind of file, raises a DataError.
    """
    path = Path(path)
    identity = _identify(run)
    if path.exists():
        _load(run, path, identity)
    else:
        _save(run, path, identity)  # so that a path that cannot be written raises an error now
    saved_at = time.monotonic()
    while not run.is_over:
        run.advance()
        progress.update(run.step / run.setup.n_steps)
        if run.is_over or time.monotonic() - saved_at >= SECONDS_BETWEEN_SAVES:
            _save(run, path, identity)
            saved_at = time.monotonic()


def _identify(run: Run) -> str:
    """Return a hash of everything that decides the result of a run."""
    setup = run.setup
    values: dict[str, Any] = {
        "version": FILE_VERSION,
        "dataset": setup.dataset.fingerprint,
        "bits": setup.dataset.bits,
        "options": {k: repr(v) for k, v in setup.options.to_dict().items() if k != "checkpoints"},
        "n_steps": setup.n_steps,
        "record_at": setup.record_at,
        "steps_at_once": setup.steps_at_once,
        "learning_rates": run.learning_rates,
        "rng": run.rng.bit_generator.state,  # before the first draw
    }
    text = json.dumps(values, default=methodcaller("tolist"), sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for column in (setup.log.query, setup.log.item, setup.log.propensity, setup.log.clicks):
        digest.update(np.ascontiguousarray(column).data)
    for array in (setup.plan.probabilities, run.starts, run.scale):
        digest.update(array.data)
    return digest.hexdigest()


def _save(run: Run, path: Path, identity: str) -> None:
    note = {"identity": identity, "step": run.step, "rng": run.rng.bit_generator.state}
    text = np.frombuffer(json.dumps(note, default=methodcaller("tolist")).encode(), np.uint8)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, note=text, **run.state)


def _load(run: Run, path: Path, identity: str) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            note = parse_json(_read_array(archive, "note").tobytes())
            state = {name: _read_array(archive, name) for name in run.state}
        is_same, step, rng = note["identity"] == identity, note["step"], note["rng"]
        if is_same:
            _restore(run, state, step, rng)
    except _DAMAGE as error:
        raise DataError(
            f"{path}: not the state of a training run, or damaged: remove it to start anew"
        ) from error
    if not is_same:
        raise DataError(
            f"{path}: the state of a run with other data or settings: "
            "name another file, or remove this one to start anew"
        )


def _read_array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Read an array from a file of `numpy.savez`."""
    with archive.open(f"{name}.npy") as file:
        header = read_npy_header(file)
        numbers = np.frombuffer(bytearray(file.read()), header.dtype)  # writable
        return numbers.reshape(header.shape, order="F" if header.order == "F" else "C")


def _restore(run: Run, state: dict[str, NDArray[Any]], step: int, rng: dict[str, Any]) -> None:
    """Set the state of a run. Its shapes are checked because compiled code trusts them."""
    for name, array in run.state.items():
        if (state[name].shape, state[name].dtype) != (array.shape, array.dtype):
            raise DataError(f"{name} has shape {state[name].shape}, expected {array.shape}")
    run.rng.bit_generator.state = rng
    run.step = whole_number("step", step, least=0, most=run.setup.n_steps)
    run.state = {name: np.ascontiguousarray(array) for name, array in state.items()}
