"""What is skipped, and what is slow: no test is lost by either."""

import ast
import os
import subprocess
import sys

import pytest
import requirements
from conftest import ROOT

SLOW = (ROOT / "tests" / "slow_tests.txt").read_text().split()
SKIPPED = """
import pytest
def test_it():
    pytest.skip({reason!r})
"""


def definitions(path):
    """Return the names of the test functions of a file, with their classes."""
    names = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            functions = (each for each in node.body if isinstance(each, ast.FunctionDef))
            names.update(f"{node.name}::{function.name}" for function in functions)
    return names


def test_the_list_of_slow_tests_has_no_test_that_is_gone():
    by_file = {}
    for test in SLOW:
        file, _, name = test.partition("::")
        by_file.setdefault(file, set()).add(name)
    for file, names in by_file.items():
        assert names <= definitions(ROOT / file), file
    assert sorted(set(SLOW)) == SLOW


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
