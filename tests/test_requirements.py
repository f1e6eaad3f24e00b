"""Reasons to skip a test: in CI, a missing library or program is none."""

import os
import subprocess
import sys

import pytest
import requirements
from conftest import ROOT

SKIPPED = """
import pytest
def test_it():
    pytest.skip({reason!r})
"""


@pytest.mark.parametrize("name", requirements.REQUIREMENTS)
def test_a_missing_library_or_program_is_no_reason_that_ci_allows(name):
    assert not requirements.ALLOWED_SKIPS.search(requirements.reason_to_skip(name))


@pytest.mark.parametrize(
    ("reason", "variable", "outcome"),
    [
        ("needs PyTorch: make test-all installs it", "", "1 skipped"),
        ("needs PyTorch: make test-all installs it", "1", "1 failed"),
        ("root may write anywhere", "1", "1 skipped"),
    ],
)
def test_in_ci_a_skip_is_a_failure(reason, variable, outcome, tmp_path):
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text("utf-8"))
    (tmp_path / "test_skipped.py").write_text(SKIPPED.format(reason=reason))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {
            "COUNTERSAMPLE_NO_SKIPS": variable,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT / "tests" / "offline")]),
        },
    )  # fmt: skip
    assert done.stdout.splitlines()[-1].startswith(outcome), done.stdout
