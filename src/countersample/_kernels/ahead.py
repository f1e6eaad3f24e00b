"""Compile the largest kernel in another process while this one reads its data.

The compiler does one thing at a time per process, so threads would not help. Meanwhile this process
reads its data, and then compiles smaller kernels. It loads from the cache what the other process
compiled, or compiles it if that one failed.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from countersample._cleanup import note
from countersample._environment import available_cores
from countersample._kernels import cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_SECONDS = 60.0  # to wait for the other process

_lock = Lock()
_processes: list[subprocess.Popen[bytes]] = []
_meanwhile: list[Callable[[], None]] = []


def compile_ahead(meanwhile: Iterable[Callable[[], None]]) -> None:
    """Start to compile the steps of training, unless they are in the cache.

    `meanwhile` are calls of other kernels, which compile them: `wait` uses its time for them.
    """
    if available_cores() == 1 or cache.has_compiled("training.take_steps"):
        return
    try:
        cache.make_private(cache.find_root())  # without a folder, the result could not be stored
        process = subprocess.Popen(
            # -P: import nothing from the current folder, which may be a stranger's
            [sys.executable, "-P", "-m", "countersample._kernels.ahead"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return
    atexit.register(process.kill)  # it ends with this process, however that ends
    note(process.kill)
    _processes.append(process)
    _meanwhile.extend(meanwhile)


def wait() -> None:
    """Wait until the other process has compiled, if there is one, and compile meanwhile."""
    with _lock:
        while _processes:
            process = _processes[-1]
            while _meanwhile and process.poll() is None:
                _meanwhile.pop(0)()
            with suppress(subprocess.TimeoutExpired):
                process.wait(MAX_SECONDS)
            _processes.pop()


def _compile() -> None:
    """Take no steps, with arguments of the types that `countersample.training` uses."""
    from countersample._kernels.sharing import BOARD  # noqa: PLC0415 (imports numba)
    from countersample._kernels.training import take_steps  # noqa: PLC0415 (imports numba)

    integers, numbers = np.zeros(1, np.int64), np.zeros(1, np.float32)
    indices, state, none = np.zeros(1, np.int32), np.zeros((1, 8)), np.zeros(0, np.int64)
    take_steps(
        np.zeros((1, 1), np.float32), integers, indices, integers, indices, numbers, numbers,
        numbers, np.zeros((1, 2)),
        np.zeros(0), none, 1, 0, 0, state, 0, state, state, state, state, state, integers, none,
        np.zeros((1, 0, 1)), np.zeros((1, 0, 1)), np.zeros((1, 8), np.float32),
        np.zeros((1, 8), np.float32), np.zeros(BOARD, np.int64), 1, True,
    )  # fmt: skip


if __name__ == "__main__":
    _compile()
