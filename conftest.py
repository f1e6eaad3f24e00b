"""No network, for anything that runs; what is collected: all, or all but what needs PyTorch."""

import os
from importlib.util import find_spec

import no_network
import pytest

no_network.block()

# Threads of OpenMP wait for each other: on busy cores small trees take a hundred times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if find_spec("torch") is None:
    if os.environ.get("COUNTERSAMPLE_REQUIRE_TORCH"):
        raise pytest.UsageError("torch is not installed, and COUNTERSAMPLE_REQUIRE_TORCH is set")
    collect_ignore_glob = [
        "src/countersample/torch/*",
        "tests/test_torch_*",
        "tests/test_neural_ranker.py",
    ]
