"""The command line: a command parses its options, calls the library and returns what to print."""

from __future__ import annotations


def main() -> None:
    """Run the command line; an error of the user becomes one sentence and exit code 1."""
    from countersample.cli import process

    with process.watch_signals():  # before cyclopts and whatever the command needs are imported
        code = _run()
    raise SystemExit(code)


def _run() -> int | str | None:
    """Run a command and return its exit code."""
    import sys
    import warnings

    from countersample.cli import app, console, process
    from countersample.errors import CounterSampleError

    code: int | str | None = 1
    problem = ""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda text, *_: console.report(str(text), level="warning")
            code = app.main(sys.argv[1:])
    except SystemExit as end:
        code = end.code
    except CounterSampleError as error:
        problem = str(error)
    except MemoryError:
        problem = (
            "not enough memory for this data: read it with --cache DIR, which keeps it on disk"
        )
    except OSError as error:  # a broken pipe has lost its reader, as with `head`
        problem = "" if isinstance(error, BrokenPipeError) else str(error)
    try:
        process.flush_output()
    except OSError as error:
        code = 1
        if not isinstance(error, BrokenPipeError):
            problem = f"standard output cannot be written: {error.strerror}"
    if problem:
        console.report(problem, level="error")
    return code
