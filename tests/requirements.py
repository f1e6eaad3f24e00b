"""Libraries and programs that some tests need, and that a fresh machine does not have.

A test that needs one of them calls :func:`need` with its name, and is skipped with a reason if it
is missing. ``make test-all`` installs them, and sets ``COUNTERSAMPLE_NO_SKIPS``: then a skipped
test fails (see ``conftest.py`` in the root folder), unless its reason is in `ALLOWED_SKIPS`.
"""

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Reasons that no installation removes: the platform, the user's rights, a peer's own limits.
ALLOWED_SKIPS = re.compile(
    r"root may write anywhere|needs root|mounts nothing|no fused multiply-add|other names of CPUs"
    r"|scikit-learn skips it|PyTorch has no |only root on Linux|needs the real data|no named pipes"
    r"|these values hold on the CPU"
)


def find_browser():
    """Return the path of a browser that Playwright can drive, or None."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def find_postgres():
    """Return the folder with the programs of a PostgreSQL server, or None."""
    program = shutil.which("pg_ctl")
    if program:
        return Path(program).resolve().parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))  # on no PATH
    return debian[-1].parent if debian else None


def _find_node():
    folders = [Path(p) for p in os.environ.get("NODE_PATH", "").split(os.pathsep) if p]
    package = any((folder / "onnxruntime-node").is_dir() for folder in folders)
    return package and shutil.which("node")


def _find_java():
    return os.environ.get("JAVA_HOME") or shutil.which("java")


REQUIREMENTS = {
    "browser": (lambda: find_spec("playwright") and find_browser(), "Playwright and Chromium"),
    "latex": (lambda: shutil.which("pdflatex"), "pdflatex"),
    "lightgbm": (lambda: find_spec("lightgbm"), "LightGBM"),
    "node": (_find_node, "Node with onnxruntime-node in NODE_PATH"),
    "postgres": (find_postgres, "a PostgreSQL server"),
    "spark": (lambda: find_spec("pyspark") and _find_java(), "PySpark and Java"),
    "torch": (lambda: find_spec("torch"), "PyTorch"),
    "xgboost": (lambda: find_spec("xgboost"), "XGBoost"),
}


def is_available(name):
    """Return whether tests that need this can run here."""
    return bool(REQUIREMENTS[name][0]())


def reason_to_skip(name):
    """Return the reason with which tests that need this are skipped."""
    return f"needs {REQUIREMENTS[name][1]}: make test-all installs it"


def need(name, *, allow_module_level=False):
    """Skip the calling test if a library or program is missing."""
    if not is_available(name):
        pytest.skip(reason_to_skip(name), allow_module_level=allow_module_level)


def skip_without(name):
    """Return the mark that skips a test if a library or program is missing."""
    return pytest.mark.skipif(not is_available(name), reason=reason_to_skip(name))
