"""What all tests share: the seed, the real data where it is present, a clean environment."""

import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest

import countersample.data  # noqa: F401 (before doctests are collected from its modules)

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
