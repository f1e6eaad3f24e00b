"""Runs that survive being killed: state on disk, written atomically, taken up again exactly."""

from __future__ import annotations

import hashlib
import json
import time
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._files import atomic_path
from countersample._json import parse_json
from countersample._params import whole_number
from countersample.errors import DataError

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from countersample._progress import Progress
    from countersample.training.runs import Run

VERSION = 1
SECONDS_BETWEEN_SAVES = 5.0

# What reading a file that is cut off, overwritten or of another kind may raise
_DAMAGE = (
    OSError, ValueError, LookupError, EOFError, TypeError, AttributeError, RuntimeError,
    zipfile.BadZipFile, zlib.error,
    SyntaxError, tokenize.TokenError, MemoryError, OverflowError,  # of a header of an array
)  # fmt: skip


def run_resumable(run: Run, path: str | PathLike[str], progress: Progress) -> None:
    """Take all steps of a run that has not started, from where the file at `path` leaves off.

    The file is left there at the end, so that a further call has nothing to do. One of another run,
    or that is not such a file, is a DataError.
    """
    path = Path(path)
    identity = _identity(run)
    if path.exists():
        _load(run, path, identity)
    else:
        _save(run, path, identity)  # so that a path that cannot be written is found out now
    saved = time.monotonic()
    while not run.is_over:
        run.advance()
        progress.update(run.step / run.setup.n_steps)
        if run.is_over or time.monotonic() - saved >= SECONDS_BETWEEN_SAVES:
            _save(run, path, identity)
            saved = time.monotonic()


def _identity(run: Run) -> str:
    """Return a hash of all that decides where a run ends, but for its random numbers so far."""
    setup = run.setup
    described: dict[str, Any] = {
        "version": VERSION,
        "dataset": setup.dataset.fingerprint,
        "bits": setup.dataset.bits,
        "options": {k: repr(v) for k, v in setup.options.to_dict().items() if k != "checkpoints"},
        "n_steps": setup.n_steps,
        "record_at": setup.record_at,
        "steps_at_once": setup.steps_at_once,
        "learning_rates": run.learning_rates,
        "rng": run.rng.bit_generator.state,  # as it was handed over
    }
    text = json.dumps(described, default=_plain, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for column in (setup.log.query, setup.log.item, setup.log.propensity, setup.log.clicks):
        digest.update(np.ascontiguousarray(column).data)
    for array in (setup.plan.probabilities, run.starts, run.scale):
        digest.update(array.data)
    return digest.hexdigest()


def _save(run: Run, path: Path, identity: str) -> None:
    note = {"identity": identity, "step": run.step, "rng": run.rng.bit_generator.state}
    text = np.frombuffer(json.dumps(note, default=_plain).encode(), np.uint8)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, note=text, **run.state)


def _load(run: Run, path: Path, identity: str) -> None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            note = parse_json(kept["note"].tobytes())
            state = {name: kept[name] for name in run.state}
        is_same, step, rng = note["identity"] == identity, note["step"], note["rng"]
        if is_same:
            _take_up(run, state, step, rng)
    except _DAMAGE as error:
        raise DataError(
            f"{path}: not the state of a training run, or damaged: remove it to start anew"
        ) from error
    if not is_same:
        raise DataError(
            f"{path}: the state of a run with other data or settings: "
            "name another file, or remove this one to start anew"
        )


def _take_up(run: Run, state: dict[str, NDArray[Any]], step: int, rng: dict[str, Any]) -> None:
    """Set the state of a run; compiled code trusts its shapes."""
    for name, array in run.state.items():
        if (state[name].shape, state[name].dtype) != (array.shape, array.dtype):
            raise DataError(f"{name} has shape {state[name].shape}, expected {array.shape}")
    run.rng.bit_generator.state = rng
    run.step = whole_number("step", step, least=0, most=run.setup.n_steps)
    run.state = {name: np.ascontiguousarray(array) for name, array in state.items()}


def _plain(value: np.ndarray[Any, Any] | np.generic) -> Any:  # noqa: ANN401 (what JSON takes)
    return value.tolist()
