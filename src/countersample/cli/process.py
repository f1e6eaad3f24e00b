"""The process around a command: the signals that end it, and its standard streams.

Ctrl-C ends a command at once. A thread waits for the signal and ends the process, even if the main
thread is in compiled code, in an import or in a wait for other threads. No exception is raised,
because it could be lost there. Temporary files are removed first (`countersample._cleanup`).

This module imports so little that a signal is waited for within milliseconds.
"""

from __future__ import annotations

import _thread
import io
import os
import signal
import sys
import time
from contextlib import contextmanager

from countersample import _cleanup

TYPE_CHECKING = False  # typing takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MESSAGES = {int(signal.SIGINT): "interrupted", int(signal.SIGTERM): "terminated"}
if hasattr(signal, "SIGHUP"):  # Windows does not have it
    _MESSAGES[int(signal.SIGHUP)] = "the terminal has gone"

format_line: Callable[[str], str] = str  # how a last message becomes a line of standard error


@contextmanager
def watch_signals() -> Iterator[None]:
    """End with 128 + the signal's number in this block; after it, Ctrl-C is too late.

    Signals that the parent ignores stay ignored, as with nohup and in the background of a script.
    Characters that the encoding of a stream lacks are written as escapes.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    numbers = [number for number in _MESSAGES if signal.getsignal(number) is not signal.SIG_IGN]
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    _thread.start_new_thread(_wait, (read,))
    for number in numbers:
        signal.signal(number, _stall)
    try:
        yield
    finally:
        # The result is there: nothing is left to be interrupted while the interpreter ends.
        for number in numbers:
            signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)


def _stall(*_: object) -> None:
    """Block the main thread until the process ends."""
    while True:
        time.sleep(1)


def _wait(read: int) -> None:
    """End the process at a signal. Nothing here waits for a lock that a thread could hold."""
    while (number := os.read(read, 1)[0]) not in _MESSAGES:
        pass
    sys.setswitchinterval(60)  # no other thread begins anything between the last step and the end
    messages = _cleanup.put_in_order() or [f"countersample: {_MESSAGES[number]}"]
    text = "".join(f"{format_line(message)}\n" for message in messages)
    if "rich.live" in sys.modules and os.isatty(2):
        text = f"\r\x1b[K\x1b[?25h{text}"  # a bar may be shown, and hides the cursor
    try:
        os.write(2, text.encode("utf-8", "backslashreplace"))  # an error has no reader
    finally:
        os._exit(128 + number)


def flush_output() -> None:
    """Flush standard output; if it cannot be written, discard the rest."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
        raise
