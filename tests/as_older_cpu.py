"""Run tests as an older CPU would, which adds and rounds in another order.

    python tests/as_older_cpu.py [pytest options]

Compiled loops, NumPy, BLAS and PyTorch do without AVX and FMA. What a page shows, and what a test
that is marked ``rounding`` asserts, must not hang on the last bits.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

from numpy._core import _multiarray_umath as built

TESTS = Path(__file__).resolve().parent
MARK = "pytest.mark.rounding"


def settings():
    """Return the environment of the oldest CPU that this NumPy runs on."""
    optional = [name for name in built.__cpu_dispatch__ if built.__cpu_features__[name]]
    return {
        "ATEN_CPU_CAPABILITY": "default",
        "NPY_DISABLE_CPU_FEATURES": " ".join(optional),
        "NUMBA_CACHE_DIR": f"{sys.prefix}/older-cpu",  # compiled once for each kind of CPU
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CPU_NAME": "x86-64",
        "OPENBLAS_CORETYPE": "Nehalem",
    }


if __name__ == "__main__":
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        sys.exit("as_older_cpu.py: this is no x86-64; it has no older kind that is known here")
    marked = [path for path in sorted(TESTS.glob("test_*.py")) if MARK in path.read_text("utf-8")]
    what = [*marked, TESTS.parent / "src", "-m", "rounding"]  # docstrings are marked by conftest.py
    command = [sys.executable, "-m", "pytest", *what, *sys.argv[1:]]
    sys.exit(subprocess.run(command, env=os.environ | settings(), check=False).returncode)
