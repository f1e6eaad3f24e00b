"""The command line: parse, call, print."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


def main() -> None:
    """Run the command line; what the user did wrong becomes one sentence and exit code 1."""
    from countersample.cli import _streams

    _streams.open_closed()
    from countersample.cli import _signals

    with _signals.watching():  # before cyclopts is imported, and what the command needs
        _streams.show_every_character()
        code = _run()
    raise SystemExit(code)


def _run() -> int | str | None:
    """Run a command and return its exit code."""
    import warnings

    from countersample.cli import _job_log, _streams
    from countersample.errors import CounterSampleError

    code: int | str | None = 1
    sentence, failed = None, None
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            code = _command()
    except SystemExit as ended:
        code = ended.code
    except CounterSampleError as error:
        sentence = str(error)
    except MemoryError:
        sentence = (
            "not enough memory for this data: read it with --cache DIR, which keeps it on disk"
        )
    except OSError as error:
        failed = error
    unwritten = _streams.finish(after=failed)
    if isinstance(failed or unwritten, BrokenPipeError):  # the reader has gone, as `head` does
        return 1
    if unwritten is not None and sentence is None:
        sentence, code = f"standard output cannot be written: {unwritten.strerror}", 1
    elif failed is not None:
        sentence = str(failed)
    if sentence is not None:
        _job_log.tell(sentence, level="error")
    return code


def _command() -> int:
    """Run the command; with JSON log lines, a bug becomes such a line, too."""
    import sys

    arguments = sys.argv[1:]
    if arguments == ["--version"]:  # at once: cyclopts takes longer to import than to run
        from countersample._version import __version__

        print(f"countersample {__version__}")  # noqa: T201 (this is the command's output)
        return 0
    from countersample.cli import _job_log
    from countersample.cli.app import main as run
    from countersample.errors import CounterSampleError

    if _job_log.asks_for_json(arguments):
        _job_log.configure("json", None)  # until the options are parsed
    try:
        return run(arguments)
    except (CounterSampleError, MemoryError, OSError):
        raise
    except Exception:
        if not _job_log.is_json():
            raise
        _job_log.logger.exception("this is a bug in countersample")
        return 1


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001 (of the function that it stands for)
    line: str | None = None,
) -> None:
    """Show what a warning says to users; what it says to programmers keeps its place in code."""
    import warnings

    from countersample.cli import _job_log, _streams

    if issubclass(category, UserWarning) or _job_log.is_json():
        _job_log.tell(str(message), level="warning")
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        _streams.tell(text.rstrip("\n"))
