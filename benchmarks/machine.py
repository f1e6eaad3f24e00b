"""The machine that a benchmark runs on, and the versions of what it runs."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from countersample import __version__
from countersample._environment import available_cores

CPU_INFO = Path("/proc/cpuinfo")
ROOT = Path(__file__).resolve().parent.parent


def machine() -> dict[str, Any]:
    """Return the CPU, the cores that this process may use, the memory, and versions."""
    gigabytes = None
    if hasattr(os, "sysconf"):
        gigabytes = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    return {
        "CPU": cpu_model(),
        "cores": available_cores(),
        "memory GB": gigabytes,
        "Python": platform.python_version(),
        "NumPy": version("numpy"),
        "numba": version("numba"),
        "countersample": __version__,
    }


def cpu_model() -> str:
    """Return the name that a CPU gives itself, or else its architecture."""
    name: str | None = ""
    if platform.system() == "Darwin":
        name = said("sysctl", "-n", "machdep.cpu.brand_string")
    elif CPU_INFO.is_file():
        lines = CPU_INFO.read_text().splitlines()
        models = (line for line in lines if line.startswith("model name"))
        name = next(models, "").partition(":")[2].strip()
    return name or platform.processor() or platform.machine() or "an unknown CPU"


def commit() -> str | None:
    """Return the commit of the clone, with "-dirty" where files differ from it; None without."""
    if not (ROOT / ".git").exists():
        return None
    return said("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*")


def said(program: str, *arguments: str) -> str | None:
    """Return what a program prints, None where it is not there or fails."""
    if not (path := shutil.which(program)):
        return None
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def in_words(about: dict[str, Any], at: str | None) -> str:
    """Return a machine and a commit as a line."""
    cores = "1 core" if about["cores"] == 1 else f"{about['cores']} cores"
    memory = f", {about['memory GB']} GB of memory" if about["memory GB"] else ""
    versions = ", ".join(f"{name} {about[name]}" for name in ("Python", "NumPy", "numba"))
    ours = f"countersample {about['countersample']}" + (f", commit {at}" if at else "")
    return f"Machine: {about['CPU']}, {cores}{memory}; {versions}; {ours}"
