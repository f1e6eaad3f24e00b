"""The command line: a command parses its options, calls the library and prints the result."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


def main() -> None:
    """Run the command line; an error of the user becomes one sentence and exit code 1."""
    from countersample.cli import process

    process.open_closed_streams()
    with process.watch_signals():  # before cyclopts and whatever the command needs are imported
        process.replace_missing_characters()
        code = _run()
    raise SystemExit(code)


def _run() -> int | str | None:
    """Run a command and return its exit code."""
    import warnings

    from countersample.cli import console, process
    from countersample.errors import CounterSampleError

    code: int | str | None = 1
    sentence, failure = None, None
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = _run_command()
    except SystemExit as end:
        code = end.code
    except CounterSampleError as error:
        sentence = str(error)
    except MemoryError:
        sentence = (
            "not enough memory for this data: read it with --cache DIR, which keeps it on disk"
        )
    except OSError as error:
        failure = error
    unwritten = process.flush_streams(after=failure)
    if isinstance(failure or unwritten, BrokenPipeError):  # the reader is gone, as with `head`
        return 1
    if unwritten is not None and sentence is None:
        sentence, code = f"standard output cannot be written: {unwritten.strerror}", 1
    elif failure is not None:
        sentence = str(failure)
    if sentence is not None:
        console.report(sentence, level="error")
    return code


def _run_command() -> int:
    """Run the command; with JSON log lines, a bug becomes such a line, too."""
    import sys

    arguments = sys.argv[1:]
    if arguments == ["--version"]:  # at once: cyclopts takes longer to import than to run
        from countersample._version import __version__

        print(f"countersample {__version__}")  # noqa: T201 (this is the command's output)
        return 0
    from countersample.cli import app, console
    from countersample.errors import CounterSampleError

    if console.requests_json(arguments):
        console.configure_log("json", None)  # until the options are parsed
    try:
        return app.main(arguments)
    except (CounterSampleError, MemoryError, OSError):
        raise
    except Exception:
        if not console.is_json():
            raise
        console.logger.exception("this is a bug in countersample")
        return 1


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001 (the signature of warnings.showwarning)
    line: str | None = None,
) -> None:
    """Show a warning for users as a sentence; one for programmers keeps its place in the code."""
    import warnings

    from countersample.cli import console

    if issubclass(category, UserWarning) or console.is_json():
        console.report(str(message), level="warning")
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        console.note(text.rstrip("\n"))
