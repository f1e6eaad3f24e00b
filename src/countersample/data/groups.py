"""LightGBM's group files: the number of rows of each query, one a line."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from countersample.data.sources import BYTE_ORDER_MARK, COMPRESSED_SUFFIXES, Source, shown
from countersample.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LONGEST = 64  # bytes of a line with a number: a longer one is of another kind of file
_NUMBER = re.compile(rb"0*[1-9][0-9]*")


def find_groups(source: Source) -> Path | None:
    """Return the group file beside a text file, ``<name>.query``, if there is one."""
    if not isinstance(source, str | os.PathLike):
        return None
    path = Path(source)
    if not path.name:  # a folder, such as "."
        return None
    plain = path.with_suffix("") if path.suffix in COMPRESSED_SUFFIXES else path
    for candidate in (path, plain):
        groups = candidate.with_name(candidate.name + ".query")
        if groups.is_file():
            return groups
    return None


def read_groups(path: str | os.PathLike[str], n_rows: int) -> NDArray[np.int64]:
    """Read the rows a query of a group file, and check that they add up to `n_rows`."""
    sizes = []
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 1):
                text = line.removeprefix(BYTE_ORDER_MARK if number == 1 else b"").strip()
                is_whole = len(line) < _LONGEST or line.endswith(b"\n")
                if not is_whole or (text and not _NUMBER.fullmatch(text)):
                    found = shown(text.decode(errors="replace"))
                    raise DataError(
                        f"{path}:{number}: expected the number of rows of a query, found {found}"
                    )
                if text:
                    sizes.append(int(text))
    except OSError as error:
        raise DataError(f"{path}: cannot be read as a group file: {error.strerror}") from error
    if sum(sizes) != n_rows:
        raise DataError(
            f"{path}: the groups have {sum(sizes):,} rows in all, expected {n_rows:,} as the data"
        )
    return np.array(sizes, np.int64)
