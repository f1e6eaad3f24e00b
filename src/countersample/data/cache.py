"""The on-disk cache of `load_letor`: what was read, kept as a dataset folder.

An entry is named by the sources' paths and the reading options, the bits of a feature among them,
and remembers the state of each source: size, time of change, and a hash of its first and last
bytes. An entry of another state, of another version, or damaged, is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample.data.groups import find_groups
from countersample.data.store import COMPACT, VERSION, is_dataset_folder, open_stored, write_folder
from countersample.errors import CounterSampleError, DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from countersample.data._tape import Tape
    from countersample.data.dataset import RankingDataset
    from countersample.data.sources import Source

_SAMPLED = 1 << 16  # bytes hashed at each end of a source


def read_cached(
    cache: Path,
    sources: list[Source],
    options: dict[str, Any],
    read: Callable[[Tape], tuple[RankingDataset, bool]],
) -> tuple[RankingDataset, bool]:
    """Return the dataset (and whether its features count from 0) from the cache, or `read` it.

    The folder of the cache is made where it does not exist. Those of the reading options that
    change the result are part of the entry's name.
    """
    paths = [Path(s).resolve() for s in sources if isinstance(s, str | os.PathLike)]
    if len(paths) < len(sources):
        raise ParameterError("cache= goes with paths: a file object cannot be found again")
    settings = {k: str(v) for k, v in options.items() if k != "threads" and v is not None}
    key = hashlib.blake2b(json.dumps([[str(p) for p in paths], settings]).encode(), digest_size=8)
    entry = cache / f"{paths[0].name}-{key.hexdigest()}"
    groups = options["groups"] or find_groups(paths[0])
    files = [*paths, Path(groups)] if groups else paths
    bits = options["bits"]
    state = [VERSION if bits is None else COMPACT, *map(source_state, files)]
    try:
        dataset, notes = open_stored(entry)
        if notes.get("sources") == state:
            return dataset, bool(notes["zero_based"])
    except DataError:
        pass  # there is none, or none to be trusted: it is made below
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CounterSampleError(f"{cache}: cannot be made a cache: {error.strerror}") from error

    def fill(tape: Tape) -> tuple[RankingDataset, dict[str, Any]]:
        dataset, zero_based = read(tape)
        return dataset, {"sources": state, "zero_based": zero_based}

    if entry.exists() and not is_dataset_folder(entry):
        shutil.rmtree(entry)  # damaged beyond its header; the name with its hash is ours
    write_folder(entry, fill, bits=bits)
    dataset, notes = open_stored(entry)
    return dataset, bool(notes["zero_based"])


def source_state(path: Path) -> list[Any]:
    """Return what tells a file from a changed one at once: size, time, hash of its ends."""
    try:
        status = path.stat()
        with path.open("rb") as file:
            ends = file.read(_SAMPLED)
            file.seek(max(0, status.st_size - _SAMPLED))
            ends += file.read(_SAMPLED)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    digest = hashlib.blake2b(ends, digest_size=16).hexdigest()
    return [str(path), status.st_size, status.st_mtime_ns, digest]
