"""Where files are written: checked before the work, not after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countersample.errors import ParameterError

if TYPE_CHECKING:
    from pathlib import Path


def check_writable(path: Path) -> None:
    """Refuse the name of a file that could not be written."""
    try:
        if not path.parent.is_dir():
            raise ParameterError(f"{path}: the folder {path.parent} is not there: make it first")
        if path.is_dir():
            raise ParameterError(f"{path} is a folder, expected the name of a file")
    except OSError as error:
        raise ParameterError(f"{path}: cannot be written: {error.strerror}") from error
