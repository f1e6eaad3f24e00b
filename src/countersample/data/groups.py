"""LightGBM's group files: the number of rows of each query, one a line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from countersample.data.sources import COMPRESSED_SUFFIXES, Source, open_source
from countersample.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PEEKED = 1 << 16  # bytes looked at for a first row


def find_groups(source: Source) -> Path | None:
    """Return the group file beside a text file, ``<name>.query``, if there is one."""
    if not isinstance(source, str | os.PathLike):
        return None
    path = Path(source)
    plain = path.with_suffix("") if path.suffix in COMPRESSED_SUFFIXES else path
    for candidate in (path, plain):
        groups = candidate.with_name(candidate.name + ".query")
        if groups.is_file():
            return groups
    return None


def names_queries(source: Source) -> bool:
    """Tell whether the first row of a text file has a ``qid:``; True where one cannot tell."""
    if not isinstance(source, str | os.PathLike):
        return True
    buffer = bytearray(_PEEKED)
    with open_source(source) as opened:
        length = opened.readinto(memoryview(buffer))
    for line in bytes(buffer[:length]).splitlines():
        tokens = line.split(b"#")[0].split()
        if len(tokens) > 1:
            return tokens[1].startswith(b"qid:")
    return True


def read_groups(path: str | os.PathLike[str], n_rows: int) -> NDArray[np.int64]:
    """Read the rows a query of a group file, and check that they add up to `n_rows`."""
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as a group file: {error}") from error
    sizes = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        if not text.isdecimal() or int(text) < 1:
            raise DataError(
                f"{path}:{number}: expected the number of rows of a query, found '{text[:40]}'"
            )
        sizes.append(int(text))
    if sum(sizes) != n_rows:
        raise DataError(
            f"{path}: the groups have {sum(sizes):,} rows in all, expected {n_rows:,} as the data"
        )
    return np.array(sizes, np.int64)
