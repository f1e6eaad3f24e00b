"""One way to leave on Ctrl-C, and when a terminal or an administrator ends the command.

A thread waits for the signal and ends the process, wherever the main thread is then: in compiled
code, in a library, in an import, in a wait for other threads. No exception is raised, which some of
these would lose, turn into another or crash on; what would be left over is put in order first
(`countersample._leaving`). So little is imported here that a signal is waited for within
milliseconds of the first line of this package.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from contextlib import contextmanager

from countersample import _leaving

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What is said of each; Windows has not all of them.
_SAID = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "the terminal has gone"}
_SIGNALS = {
    int(getattr(signal, name)): said for name, said in _SAID.items() if hasattr(signal, name)
}


as_line: Callable[[str], str] = str  # how what is said becomes a line


@contextmanager
def watching() -> Iterator[None]:
    """End with 128 + its number on a signal in this block; after it, it is too late for Ctrl-C.

    What is ignored stays so, as by nohup and for jobs in the background of a script.
    """
    ours = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    _thread.start_new_thread(_wait, (read,))
    for number in ours:
        signal.signal(number, _stay)
    try:
        yield
    finally:
        # The result is there; while the interpreter ends, nothing is left to be interrupted.
        for number in ours:
            signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)


def _stay(*_: object) -> None:
    """Keep the main thread from going on: the process ends in a moment."""
    while True:
        time.sleep(1)


def _wait(read: int) -> None:
    while True:
        (number,) = os.read(read, 1)
        if number in _SIGNALS:
            _leave(number)


def _leave(number: int) -> None:
    """End the process. Nothing here waits for a lock that a thread could hold, or imports."""
    sys.setswitchinterval(60)  # no other thread begins anything between the last look and the end
    said = _leaving.put_in_order() or [f"countersample: {_SIGNALS[number]}"]
    text = "".join(f"{as_line(line)}\n" for line in said)
    if "rich.live" in sys.modules and os.isatty(2):
        text = f"\r\x1b[K\x1b[?25h{text}"  # a bar may be shown, and hides the cursor
    try:
        os.write(2, text.encode("utf-8", "backslashreplace"))
    except OSError:
        pass  # nobody can be told
    finally:
        os._exit(128 + number)
