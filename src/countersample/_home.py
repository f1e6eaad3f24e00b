"""The folders of a user for this package. There are none without a home folder."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import platformdirs

if TYPE_CHECKING:
    from pathlib import Path


def cache_folder() -> Path | None:
    """Return the folder for files that can be made again. It may not exist yet."""
    with suppress(RuntimeError):  # there is no home folder
        return _absolute(platformdirs.user_cache_path("countersample", appauthor=False))
    return None


def data_folder() -> Path | None:
    """Return the folder for data. It may not exist yet."""
    with suppress(RuntimeError):
        return _absolute(platformdirs.user_data_path("countersample", appauthor=False))
    return None


def _absolute(path: Path) -> Path | None:
    """Return None for "~": older releases of platformdirs return it if there is no home folder."""
    return path if path.is_absolute() else None
