"""Standard output and error as they may be: full, gone, or of few characters."""

import io
import json
import os
import subprocess
import sys

import pytest

from countersample.cli.console import Output


def through_shell(words, redirected, **environment):
    """Run a command whose streams a shell has set; buffered or not."""
    line = f'set -o pipefail; "$0" -m countersample {words} {redirected}'
    return subprocess.run(
        ["/bin/bash", "-c", line, sys.executable], capture_output=True, check=False,
        env=os.environ | environment,
    )  # fmt: skip


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_is_full(unbuffered):
    done = through_shell("data list", ">/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    expected = "countersample: standard output cannot be written: No space left on device"
    assert line == expected


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_whose_reader_has_gone(unbuffered):
    done = through_shell("data list", "| true", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(("words", "code"), [("data list", 0), ("data info none.txt", 1)])
@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-"])
def test_errors_that_nobody_reads(words, code, redirected):
    done = through_shell(words, redirected)
    assert (done.returncode, done.stderr) == (code, b"")
    assert (b"mq2008" in done.stdout) if code == 0 else not done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_every_encoding(encoding):
    """Characters that an encoding lacks are escaped; JSON loses none."""
    done = through_shell("data list", "", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "mq2008" in done.stdout.decode(encoding)


def test_json_loses_no_character(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    Output("", {"γ": ["é", "\udcff"]}).show(as_json=True)
    sys.stdout.flush()
    assert json.loads(raw.getvalue()) == {"γ": ["é", "\udcff"]}
