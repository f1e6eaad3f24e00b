"""The name of the CPU, beside what is measured on it."""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path

_INFO = Path("/proc/cpuinfo")


def cpu_name() -> str:
    """Return the name that a CPU gives itself (Linux), or else its architecture."""
    told = ""
    with suppress(OSError, UnicodeDecodeError):
        names = (line for line in _INFO.read_text().splitlines() if line.startswith("model name"))
        told = next(names, "").partition(":")[2].strip()
    return told or platform.processor() or platform.machine() or "an unknown CPU"
