"""What all tests share: the seed, the real data where it is present, the command line."""

import math
import os
import sys
from pathlib import Path

import hypothesis
import numpy as np
import pytest

import countersample.data  # noqa: F401 (before doctests are collected from its modules)
from countersample.cli import main

SEED = int(os.environ.get("COUNTERSAMPLE_TEST_SEED", "0"))
ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
collect_ignore = ["fuzz_letor.py"]  # a program of its own, which turns compilation off

# The same examples on every run by default; other ones with another seed.
hypothesis.settings.register_profile("default", deadline=None, derandomize=SEED == 0)
hypothesis.settings.load_profile("default")


@pytest.fixture
def rng():
    return np.random.default_rng(SEED)


@pytest.fixture(scope="session")
def shared():
    if not SHARED.is_dir():
        pytest.skip(f"real data is not present beside the project ({SHARED.name})")
    return SHARED


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in an empty folder; return its output.

    Or, where it ``fails``, its one line of error; then nothing is new but what it ``leaves``.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("countersample._progress.PATIENCE", math.inf)  # however slow the machine

    def run(*arguments, fails=False, leaves=()):
        before = {path.name for path in tmp_path.iterdir()}
        monkeypatch.setattr(sys, "argv", ["countersample", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert ended.value.code == (1 if fails else 0), printed.err
        if not fails:
            return printed.out
        (line,) = printed.err.splitlines()
        assert line.startswith("countersample: ")
        assert {path.name for path in tmp_path.iterdir()} == before.union(leaves)
        return line

    return run
