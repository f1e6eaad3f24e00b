"""Settings of all tests: no network, one OpenMP thread, what is skipped without PyTorch."""

import os

import no_network
import pytest
import requirements

no_network.block()

# OpenMP threads wait for each other: on busy cores, small trees take a hundred times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

TORCH_FILES = (
    "src/countersample/torch/*.py",
    "tests/test_kernels_sampling.py",
    "tests/test_torch_*.py",
    "tests/test_neural_ranker.py",
)
NO_SKIPS = bool(os.environ.get("COUNTERSAMPLE_NO_SKIPS"))


class NeedsTorch(pytest.File):
    """A file that imports PyTorch, on a machine without it: one skipped file, with the reason."""

    def collect(self):
        """Skip."""
        requirements.need("torch", allow_module_level=True)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path, parent):
    """Replace files that import PyTorch if it is not installed."""
    collectors = yield
    if not collectors or requirements.is_available("torch"):
        return collectors
    relative = file_path.relative_to(parent.config.rootpath)
    if any(relative.match(pattern) for pattern in TORCH_FILES):
        return [NeedsTorch.from_parent(parent, path=file_path)]
    return collectors


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Fail a skipped test if COUNTERSAMPLE_NO_SKIPS is set."""
    return _forbid_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    """Fail a skipped file if COUNTERSAMPLE_NO_SKIPS is set."""
    return _forbid_skip((yield))


def _forbid_skip(report):
    """Return the report; a skip without an allowed reason becomes a failure."""
    if NO_SKIPS and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not requirements.ALLOWED_SKIPS.search(reason):
            report.outcome = "failed"
            report.longrepr = f"{reason} (COUNTERSAMPLE_NO_SKIPS is set, so a skip is a failure)"
    return report
