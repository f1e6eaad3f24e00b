"""The process around a command: the signals that end it, and its standard streams.

Ctrl-C ends a command at once. A thread waits for the signal and ends the process, wherever the main
thread is then: in compiled code, in a library, in an import, in a wait for other threads. No
exception is raised, which some of these would lose, replace or crash on. What would be left over is
put in order first (`countersample._cleanup`).

Standard output and standard error may be closed or full, their reader may be gone, and their
encoding may lack characters. None of that is a traceback.

This module imports so little that a signal is waited for within milliseconds.
"""

from __future__ import annotations

import _thread
import codecs
import io
import os
import signal
import sys
import time
from contextlib import contextmanager, suppress

from countersample import _cleanup

TYPE_CHECKING = False  # typing takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

# -- signals -------------------------------------------------------------------------------------

_MESSAGES = {  # Windows does not have all of these signals
    int(getattr(signal, name)): message
    for name, message in (
        ("SIGINT", "interrupted"),
        ("SIGTERM", "terminated"),
        ("SIGHUP", "the terminal has gone"),
    )
    if hasattr(signal, name)
}

format_line: Callable[[str], str] = str  # how a last message becomes a line of standard error


@contextmanager
def watch_signals() -> Iterator[None]:
    """End with 128 + the signal's number in this block; after it, Ctrl-C is too late.

    Signals that the parent ignores stay ignored, as with nohup and in the background of a script.
    """
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
    """Keep the main thread from going on: the process ends in a moment."""
    while True:
        time.sleep(1)


def _wait(read: int) -> None:
    while True:
        (number,) = os.read(read, 1)
        if number in _MESSAGES:
            _leave(number)


def _leave(number: int) -> None:
    """End the process. Nothing here waits for a lock that a thread could hold, or imports."""
    sys.setswitchinterval(60)  # no other thread begins anything between the last step and the end
    messages = _cleanup.put_in_order() or [f"countersample: {_MESSAGES[number]}"]
    text = "".join(f"{format_line(message)}\n" for message in messages)
    if "rich.live" in sys.modules and os.isatty(2):
        text = f"\r\x1b[K\x1b[?25h{text}"  # a bar may be shown, and hides the cursor
    try:
        os.write(2, text.encode("utf-8", "backslashreplace"))
    except OSError:
        pass  # there is no reader
    finally:
        os._exit(128 + number)


# -- streams -------------------------------------------------------------------------------------

_ERRORS = "countersample"  # the name under which Python's codecs know `_replace_character`
# ASCII for characters that we print and not every encoding has; others are shown by their number.
_PLAIN = str.maketrans({
    "─": "-", "–": "-", "—": "-", "−": "-", "‑": "-", "·": "*", "×": "x", "…": "...", "±": "+/-",
    "≤": "<=", "≥": ">=", "≠": "!=", "→": "->", "∞": "inf", "√": "sqrt ", "Σ": "sum ", "∝": "~",
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "η": "eta",
    "θ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu", "π": "pi", "ρ": "rho", "σ": "sigma",
    "τ": "tau", "φ": "phi", "\u0304": "-bar", "ū": "u-bar", "ȳ": "y-bar", "\u0302": "-hat",
    "\u0303": "-tilde", "¹": "^1", "²": "^2", "³": "^3", "½": "1/2", "⁵": "^5", "⁶": "^6",
    "⁷": "^7", "⁸": "^8", "₀": "0", "₁": "1", "₂": "2", "█": "#", "▏": "|", "“": '"', "”": '"',
    "’": "'", "′": "'", "‖": "||", "✓": "yes", "✗": "no",
})  # fmt: skip


def open_closed_streams() -> None:
    """Open the closed ones of the first three files as nothing, before any other file is opened.

    Otherwise a file that a command writes would get the number of a standard stream.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (a number)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (a number)


def replace_missing_characters() -> None:
    """Make both streams write something readable for characters that their encoding lacks."""
    codecs.register_error(_ERRORS, _replace_character)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def _replace_character(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if "\udc80" <= character <= "\udcff":  # a byte of a file name, as it is
        return bytes([ord(character) - 0xDC00]), error.start + 1
    plain = character.translate(_PLAIN)
    if not plain.isascii():
        plain = character.encode("ascii", "backslashreplace").decode("ascii")
    return plain, error.start + 1


def flush_streams(*, after: OSError | None) -> OSError | None:
    """Flush both streams; return the error of standard output, if it cannot be written.

    `after` is an error of the command. If it does not name a file, one more line shows whether
    standard output is the cause. A stream that fails is not written to again.
    """
    failure = None
    for stream in (sys.stderr, sys.stdout):
        failure = None
        try:
            if stream is sys.stdout and after is not None and after.filename is None:
                stream.write("\n")
            stream.flush()
        except OSError as error:
            failure = error
            _silence(stream)
    return failure


def write_error_line(text: str) -> None:
    """Write a line to standard error, if it has a reader."""
    from countersample._progress import printable  # logging takes long to import

    try:
        print(printable(text), file=sys.stderr, flush=True)  # noqa: T201 (this is the display)
    except OSError:
        _silence(sys.stderr)


def _silence(stream: TextIO) -> None:
    with suppress(OSError):  # the stream of a test has no number
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
