"""The largest kernel, compiled ahead of its use by a process of its own.

The compiler does one thing at a time in a process: threads would not help. Meanwhile this process
reads its data, and then compiles smaller kernels. What the other one compiled is found on disk;
where it failed, this one compiles.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from countersample._cores import available_cores
from countersample._kernels import keeping
from countersample._leaving import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_lock = Lock()
_under_way: list[subprocess.Popen[bytes]] = []
_meanwhile: list[Callable[[], None]] = []


def compile_ahead(meanwhile: Iterable[Callable[[], None]]) -> None:
    """Start to compile the steps of training, where nothing that was compiled is on disk.

    `meanwhile` are calls of other kernels, for who has to `wait`: such a call compiles.
    """
    if available_cores() == 1 or keeping.has_kept("training.take_steps"):
        return
    try:
        keeping.make_root()  # where nothing can be kept, the other process would work in vain
        process = subprocess.Popen(
            # -P: nothing is imported from the current folder, which may be a stranger's
            [sys.executable, "-P", "-m", "countersample._kernels.ahead"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return
    atexit.register(process.kill)  # it ends with this process, however that does
    note(process.kill)
    _under_way.append(process)
    _meanwhile.extend(meanwhile)


LONGEST = 60.0  # seconds that are waited for it


def wait() -> None:
    """Wait for what was started, if anything, and use the time."""
    with _lock:
        while _under_way:
            process = _under_way[-1]
            while _meanwhile and process.poll() is None:
                _meanwhile.pop(0)()
            with suppress(subprocess.TimeoutExpired):
                process.wait(LONGEST)
            _under_way.pop()


def _compile() -> None:
    """Take no steps: a call with the types of `countersample.training`, which compiles."""
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
