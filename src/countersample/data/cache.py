"""The on-disk cache of `load_letor`: what was read, kept as a dataset folder.

An entry is named by the sources' paths and the reading options, the bits of a feature among them,
and remembers the state of each source: size, times of change, inode, and a hash of its first and
last bytes. An entry of another state, of another version, damaged, or that others than its owner
may write to, is made again. A cache that cannot be written, or that others may write to, is done
without.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample._files import remove
from countersample.data.groups import find_groups
from countersample.data.store import (
    OTHERS_WRITE,
    VERSION,
    is_dataset_folder,
    open_stored,
    write_folder,
)
from countersample.errors import CounterSampleError, DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from countersample.data._tape import Tape
    from countersample.data.dataset import RankingDataset
    from countersample.data.sources import Source

_SAMPLED = 1 << 16  # bytes hashed at each end of a source
_ATTEMPTS = 3  # others may replace or remove an entry between its making and its opening
_WITHOUT = "the text is read without a cache"
_SHOWN = 40  # characters of a source's name in that of its entry


class UnusableCacheError(CounterSampleError):
    """A cache that cannot be used, which is no reason not to read."""


def read_cached(
    cache: Path,
    sources: list[Source],
    options: dict[str, Any],
    read: Callable[[Tape], tuple[RankingDataset, bool]],
) -> tuple[RankingDataset, bool]:
    """Return the dataset (and whether its features count from 0) from the cache, or `read` it.

    The folder of the cache is made where it does not exist. Those of the reading options that
    change the result are part of the entry's name.

    Raises
    ------
    UnusableCacheError
        Where nothing can be kept there, or what is there is not to be trusted.
    """
    paths = _as_files(sources, options["groups"])
    settings = {k: str(v) for k, v in options.items() if k != "threads" and v is not None}
    key = hashlib.blake2b(json.dumps([[str(p) for p in paths], settings]).encode(), digest_size=8)
    entry = cache / f"{paths[0].name[:_SHOWN]}-{key.hexdigest()}"
    groups = options["groups"] or find_groups(paths[0])
    files = [*paths, Path(groups)] if groups else paths
    bits = options["bits"]
    state = [VERSION, *map(source_state, files)]
    _make_folder(cache)

    def fill(tape: Tape) -> tuple[RankingDataset, dict[str, Any]]:
        dataset, zero_based = read(tape)
        return dataset, {"sources": state, "zero_based": zero_based}

    for _ in range(_ATTEMPTS):
        kept = _open_entry(entry, state)
        if kept is not None:
            return kept
        if not is_dataset_folder(entry):
            remove(entry)  # damaged beyond its header; the name with its hash is ours
        try:
            write_folder(entry, fill, bits=bits, guarded=True)
        except (DataError, ParameterError):  # of the text
            raise
        except CounterSampleError as error:  # of the disk
            raise UnusableCacheError(f"{error}: {_WITHOUT}") from error
    kept = _open_entry(entry, state)
    if kept is None:
        raise UnusableCacheError(f"{entry}: what is kept there does not last: {_WITHOUT}")
    return kept


def _as_files(sources: list[Source], groups: str | os.PathLike[str] | None) -> list[Path]:
    """Return the paths of sources; refuse what cannot be found again: file objects and pipes."""
    paths = [Path(s) for s in sources if isinstance(s, str | os.PathLike)]
    if len(paths) < len(sources):
        raise ParameterError("cache= goes with paths: a file object cannot be found again")
    for path in (*paths, *([] if groups is None else [Path(groups)])):
        if path.exists() and not path.is_file():
            raise ParameterError(f"cache= goes with files, and {path} is none: leave cache out")
    return [path.resolve() for path in paths]


def _make_folder(cache: Path) -> None:
    """Make the folder of the cache where it does not exist; refuse one that others may write to."""
    try:
        cache.mkdir(mode=0o777 & ~OTHERS_WRITE, parents=True, exist_ok=True)
        is_open = _others_may_write(cache)
    except (OSError, ValueError) as error:  # a ValueError for a zero byte in its name
        why = error.strerror if isinstance(error, OSError) else error
        raise UnusableCacheError(f"{cache}: cannot be made a cache: {why}: {_WITHOUT}") from error
    if is_open:
        raise UnusableCacheError(
            f"{cache}: not used as a cache, since others may write to it, and the text is read "
            "without one: expected a folder of yours that only you may write to (chmod go-w)"
        )


def _open_entry(entry: Path, state: list[Any]) -> tuple[RankingDataset, bool] | None:
    """Return what an entry has, or None where there is none, or none to be trusted."""
    try:
        if any(_others_may_write(path) for path in (entry, *entry.iterdir())):
            return None
        dataset, notes = open_stored(entry)
    except (OSError, DataError):
        return None
    return (dataset, bool(notes["zero_based"])) if notes.get("sources") == state else None


def source_state(path: Path) -> list[Any]:
    """Return what tells a file from a changed one at once: size, times, inode, hash of its ends."""
    try:
        status = path.stat()
        with path.open("rb") as file:
            ends = file.read(_SAMPLED)
            file.seek(max(0, status.st_size - _SAMPLED))
            ends += file.read(_SAMPLED)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    digest = hashlib.blake2b(ends, digest_size=16).hexdigest()
    times = [status.st_mtime_ns, status.st_ctime_ns]
    return [str(path), status.st_size, *times, status.st_ino, digest]


def _others_may_write(path: Path) -> bool:
    """Tell whether anyone but this user and the administrator can change what is at a path."""
    if not hasattr(os, "geteuid"):  # Windows has no such modes
        return False
    status = path.stat()
    return status.st_uid not in (0, os.geteuid()) or bool(status.st_mode & OTHERS_WRITE)
