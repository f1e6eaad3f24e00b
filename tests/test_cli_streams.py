"""Standard output and error as they may be: closed, full, gone, or of few characters."""

import io
import json
import os
import subprocess
import sys

import pytest

from countersample import simulate_clicks, synthetic
from countersample.cli import console, process

PROGRAM = [sys.executable, "-m", "countersample"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A click log with a name that not every encoding has."""
    path = tmp_path_factory.mktemp("streams") / "Klicks-γ.parquet"
    dataset = synthetic("tiny", n_queries=20, rng=0)
    simulate_clicks(dataset, dataset.features[:, 0], 100, rng=0).save(path)
    return path


def through_shell(words, log, redirected, **environment):
    """What a command does whose streams a shell has set; buffered or not."""
    line = f'set -o pipefail; "$0" -m countersample {words} {redirected}'
    return subprocess.run(
        ["/bin/bash", "-c", line, sys.executable], cwd=log.parent, capture_output=True, check=False,
        env=os.environ | environment,
    )  # fmt: skip


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_is_full(log, unbuffered):
    done = through_shell("data list", log, ">/dev/full", PYTHONUNBUFFERED=unbuffered)
    said = "countersample: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr.decode()) == (1, said)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_whose_reader_has_gone(log, unbuffered):
    done = through_shell("data list", log, "| true", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("redirected", ["2>/dev/full", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_what_a_user_does_not_want_to_read(log, redirected):
    done = through_shell("data list", log, redirected)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (b"mq2008" in done.stdout) == redirected.startswith("2")


@pytest.mark.slow
@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-", ">&- 2>&-"])
def test_an_error_that_nobody_reads_is_one_by_its_code(log, redirected):
    done = through_shell("data info none.txt", log, redirected)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


@pytest.mark.slow
def test_what_is_written_does_not_land_in_a_closed_stream(log):
    """The first file that is opened would have its number."""
    done = through_shell("data make tiny made.txt --queries 5", log, "<&- >&- 2>&-")
    assert done.returncode == 0
    info = [*PROGRAM, "data", "info", "made.txt", "--json"]
    found = subprocess.run(info, cwd=log.parent, capture_output=True, check=True).stdout
    assert json.loads(found)["made.txt"]["n_queries"] == 5


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_every_encoding_shows_something_readable(log, encoding):
    done = through_shell(f"log check {log}", log, "", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode(encoding)
    squared = "^2" if encoding == "ascii" else "²"
    assert "mean weight M-bar" in shown
    assert f"M-bar){squared} = " in shown
    assert "?" not in shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [("─ × γ M̄ … ▏", b"- x gamma M-bar ... |"), ("ids: é 中", rb"ids: \xe9 \u4e2d"),
     ("a name of bytes: \udcff", b"a name of bytes: \xff"), ("⁹", rb"\u2079")],
)  # fmt: skip
def test_characters_that_ascii_has_not(text, expected):
    process.replace_missing_characters()
    assert text.encode("ascii", "countersample") == expected


def test_json_loses_no_character(monkeypatch):
    """Escaped where the output cannot show it: an id stays what it is."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    console.show_json({"γ": ["é", "\udcff"]})
    sys.stdout.flush()
    assert json.loads(raw.getvalue()) == {"γ": ["é", "\udcff"]}
