"""Run a command in this process, and return what it printed."""

import io
import sys
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from types import SimpleNamespace

import pytest

from countersample.cli import main


def invoke(*arguments):
    """Return the exit code, the streams, and the sentence of an error."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("countersample.cli.process.watch_signals", nullcontext)  # they are pytest's
        patch.setattr(sys, "argv", ["countersample", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    stdout, stderr = out.getvalue(), err.getvalue()
    sentence = stderr.splitlines()[-1].removeprefix("countersample: ") if stderr else ""
    return SimpleNamespace(
        exit_code=ended.value.code or 0, stdout=stdout, stderr=stderr, output=stdout + stderr,
        exception=sentence,
    )  # fmt: skip
