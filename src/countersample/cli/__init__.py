"""The command line: a command parses its options, calls the library and returns what to print."""

from __future__ import annotations

_OUT_OF_MEMORY = (
    "memory ran out: give the command more of it, use a part of the data, or, for LETOR text, make "
    "it a folder with: countersample data convert"
)
# what loaders report if the address space is too small
_NO_ROOM = ("failed to map", "annot allocate", "libllvmlite")


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
        problem = _OUT_OF_MEMORY
    except ImportError as error:
        problem = _describe_library(error)
    except OSError as error:
        if error.errno is None:  # llvmlite did not find its library
            problem = _describe_library(error)
        else:
            problem = str(error) if error.filename else _describe_output(error)
    try:
        process.flush_output()
    except OSError as error:
        code, problem = 1, _describe_output(error)
    if problem:
        console.report(problem, level="error")
    return code


def _describe_library(error: ImportError | OSError) -> str:
    """Return the error of a library that cannot be loaded; the address space may be too small."""
    first = next(iter(str(error).splitlines()), "")
    limit = "lift limits of virtual memory (ulimit -v), or "
    remedy = limit if any(text in str(error) for text in _NO_ROOM) else ""
    return f"a library cannot be loaded: {first}: {remedy}install the package again"


def _describe_output(error: OSError) -> str:
    """Return the error of standard output; none if its reader has exited, as with `head`."""
    text = f"standard output cannot be written: {error.strerror}"
    return "" if isinstance(error, BrokenPipeError) else text
