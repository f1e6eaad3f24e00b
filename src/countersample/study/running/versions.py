"""The versions that results depend on."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version

from countersample._version import __version__


@cache
def versions() -> dict[str, str]:
    """Return the versions of this package, of Python and of what computes."""
    return {
        "countersample": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "numba", "scipy")},
    }
