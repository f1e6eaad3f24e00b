"""The command line: parse, call, print."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO


def main() -> None:
    """Run the command line; what the user did wrong becomes one sentence and exit code 1."""
    from countersample.cli.app import app  # typer, only when it runs
    from countersample.errors import CounterSampleError

    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            app()
    except CounterSampleError as error:
        _fail(str(error))
    except MemoryError:
        _fail("not enough memory for this data: read it with --cache DIR, which keeps it on disk")
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show what a warning says to users; what it says to programmers keeps its place in code."""
    from countersample._printable import printable

    text = warnings.formatwarning(message, category, filename, lineno, line)
    if issubclass(category, UserWarning):
        text = f"countersample: {printable(str(message))}\n"
    print(text, end="", file=file or sys.stderr)


def _fail(sentence: str) -> None:
    from countersample._printable import printable

    print(printable(f"countersample: {sentence}"), file=sys.stderr)  # noqa: T201 (this is the display)
    raise SystemExit(1)
