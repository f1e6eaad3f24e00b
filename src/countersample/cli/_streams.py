"""Standard output and error as they may be: closed, full, or unable to show every character."""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress

from countersample._printable import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

_ERRORS = "countersample"  # by which name Python knows `_readable`
# What we print and not every encoding has; all else is shown by its number.
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


def open_closed() -> None:
    """Open what is closed of the first three files, as nothing: else a file of ours would be one.

    Before anything else is opened.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (a number)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (a number)


def show_every_character() -> None:
    """Have both streams write something readable for what their encoding has not."""
    codecs.register_error(_ERRORS, _readable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def _readable(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if "\udc80" <= character <= "\udcff":  # a byte of a name of a file, as it is
        return bytes([ord(character) - 0xDC00]), error.start + 1
    plain = character.translate(_PLAIN)
    if not plain.isascii():
        plain = character.encode("ascii", "backslashreplace").decode("ascii")
    return plain, error.start + 1


def finish(*, after: OSError | None) -> OSError | None:
    """Write what is still to be written; return why standard output cannot be, if so.

    ``after`` an error that does not say of which file it is, the output is asked by one line more.
    Who cannot be written to is not written to at the end of the process either.
    """
    failed = None
    for stream in (sys.stderr, sys.stdout):
        failed = None
        try:
            if stream is sys.stdout and after is not None and after.filename is None:
                stream.write("\n")
            stream.flush()
        except OSError as error:
            failed = error
            _give_up(stream)
    return failed


def tell(text: str) -> None:
    """Write a line to standard error, if somebody is there to read it."""
    try:
        print(printable(text), file=sys.stderr, flush=True)  # noqa: T201 (this is the display)
    except OSError:
        _give_up(sys.stderr)


def _give_up(stream: TextIO) -> None:
    with suppress(OSError):  # a stream of a test's, without a number
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
