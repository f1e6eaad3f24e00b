"""The folders that a user has for this package, where there is a home for them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import platformdirs

if TYPE_CHECKING:
    from pathlib import Path


def cache_folder() -> Path | None:
    """Return the folder for what can be made again, whether it is there or not."""
    with suppress(RuntimeError):  # there is no home
        return _absolute(platformdirs.user_cache_path("countersample", appauthor=False))
    return None


def data_folder() -> Path | None:
    """Return the folder for data, whether it is there or not."""
    with suppress(RuntimeError):
        return _absolute(platformdirs.user_data_path("countersample", appauthor=False))
    return None


def _absolute(path: Path) -> Path | None:
    """Return no folder that is named ~: so do older releases of platformdirs without a home."""
    return path if path.is_absolute() else None
