"""Dataset folders, opened by memory map in milliseconds, and the cache of LETOR text.

A folder has ``features.npy``, ``labels.npy``, ``offsets.npy``, ``query_ids.npy`` and
``header.json``; if features are codes, ``codes.npy`` has their scales and offsets. The header has
the size and times of change of each file, a hash of the content, and a checksum of itself. If size
and times are as written, the folder is trusted. If only a time differs (the folder was copied, or
changed), the content is hashed again and compared.

An entry of the cache is a dataset folder. Its name has a hash of the sources' paths and the reading
options; its header has the state of each source: size, times of change, inode, and a hash of the
first and last bytes. An entry with another state, a damaged one, or one that other users can write
to, is written again. A cache that cannot be written, or that other users can write to, is not used.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import sys
import tokenize
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._files import atomic_path, remove
from countersample._version import __version__
from countersample.data.compact import CODE_TYPES, CompactFeatures
from countersample.data.dataset import RankingDataset
from countersample.errors import CounterSampleError, DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from numpy.typing import NDArray

    from countersample.data.sources import Source

FORMAT = "countersample-dataset"
VERSION = 1
FEATURES = "features.npy"
HEADER = "header.json"
CODES = "codes.npy"  # scale and offset, (2, n_features)
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
NPY_HEADER = 128  # bytes before the numbers of a .npy file with a short header
_ARRAYS = (FEATURES, "labels.npy", "offsets.npy", "query_ids.npy")
_NUMBERS = "numbers.npy"  # float32 numbers, removed after they are encoded
_CHECKSUM = "checksum"
# Errors of damaged JSON, and of the header of a .npy file, which numpy parses as Python
_DAMAGE = (
    OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError, EOFError,
    SyntaxError, tokenize.TokenError, Warning,
)  # fmt: skip
_CACHE_SAMPLE = 1 << 16  # bytes hashed at each end of a source
_CACHE_ATTEMPTS = 3  # others may replace or remove an entry before it is opened
_CACHE_NAME = 40  # characters of a source's name in the name of its entry


# -- Matrices that grow ----------------------------------------------------------------------------


class Tape:
    """A vector of float32 numbers that can change its length and keeps its content.

    Growing it does not copy if the system can move pages (Linux).
    """

    def __init__(self) -> None:
        self.flat = np.empty(0, np.float32)

    def resize(self, length: int) -> None:
        """Change the length; earlier views of `flat` must not be used afterwards."""
        if not len(self.flat):
            self.flat = np.empty(length, np.float32)
        else:
            self.flat.resize(length, refcheck=False)

    def matrix(self, n_rows: int, width: int) -> NDArray[np.float32]:
        """Cut to size and return the matrix; the tape is complete then."""
        self.resize(n_rows * width)
        return self.flat.reshape(n_rows, width)


class FileTape(Tape):
    """A tape in a ``.npy`` file, by memory map: the system writes it out if memory gets short."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._path.write_bytes(b"\0" * NPY_HEADER)

    def resize(self, length: int) -> None:  # noqa: D102 (as above)
        self.flat = np.empty(0, np.float32)  # close the old map first
        _allocate(self._path, NPY_HEADER + 4 * length)
        if length:
            self.flat = np.memmap(self._path, np.float32, "r+", offset=NPY_HEADER, shape=length)

    def matrix(self, n_rows: int, width: int) -> NDArray[np.float32]:  # noqa: D102 (as above)
        matrix = super().matrix(n_rows, width)
        header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, width)}
        with self._path.open("r+b") as file:
            np.lib.format.write_array_header_1_0(file, header)
        return matrix


def _allocate(path: Path, size: int) -> None:
    """Reserve the space of a file: a full disk kills a process that writes to a memory map."""
    with path.open("r+b") as file:
        file.truncate(size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


# -- Writing ---------------------------------------------------------------------------------------


def save_folder(dataset: RankingDataset, folder: str | PathLike[str]) -> None:
    """Write a dataset as a folder, atomically; an existing dataset folder is replaced."""
    if dataset.bits is not None:
        write_compact(Path(folder), dataset, dataset.bits, {})
        return

    def copy(tape: Tape) -> tuple[RankingDataset, dict[str, Any]]:
        tape.resize(dataset.features.size)
        tape.flat[:] = dataset.features.ravel()
        return dataset.with_features(tape.matrix(*dataset.features.shape)), {}

    write_folder(Path(folder), copy)


def write_folder(
    folder: Path,
    fill: Callable[[Tape], tuple[RankingDataset, dict[str, Any]]],
    *,
    bits: int | str | None = None,
    guarded: bool = False,
) -> None:
    """Write a folder, atomically: `fill` returns a dataset on the tape in it, and its notes.

    With `bits` the folder has the codes of `RankingDataset.compact`; the float32 numbers take disk
    space meanwhile, not memory. Only the owner may write to a `guarded` folder.
    """
    check_replaceable(folder)
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        tape = temporary / (FEATURES if bits is None else _NUMBERS)
        dataset, notes = fill(FileTape(tape))
        if bits is not None:
            dataset = _write_codes(temporary, dataset, bits)
            tape.unlink()
        _write_rest(temporary, dataset, notes)
        del dataset  # closes the memory map, before the folder is renamed
        if guarded:
            for path in (temporary, *temporary.iterdir()):
                path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS_WRITE)


def write_compact(
    folder: Path, dataset: RankingDataset, bits: int | str, notes: dict[str, Any]
) -> None:
    """Write a folder of codes, atomically; float32 features are encoded block by block."""
    check_replaceable(folder)
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        compact = _write_codes(temporary, dataset, bits)
        _write_rest(temporary, compact, notes)
        del compact  # as above


def _write_codes(folder: Path, dataset: RankingDataset, bits: int | str) -> RankingDataset:
    """Write the codes of a dataset, their scales and offsets; return the dataset with them."""
    path = folder / FEATURES
    n_bits = dataset.bits or dataset.compact_report(bits).bits
    codes = np.lib.format.open_memmap(path, "w+", CODE_TYPES[n_bits], dataset.features.shape)
    _allocate(path, path.stat().st_size)
    if dataset.bits is not None:
        features = dataset.features
        codes[:] = features.codes
    else:
        features = CompactFeatures.of(dataset.features, bits=n_bits, out=codes)
    codes.flush()
    np.save(folder / CODES, np.stack([features.scale, features.offset]))
    return dataset.with_codes(features)


def _write_rest(folder: Path, dataset: RankingDataset, notes: dict[str, Any]) -> None:
    """Write the small arrays and the header, with the state of all files."""
    for name in _ARRAYS[1:]:
        np.save(folder / name, getattr(dataset, name.removesuffix(".npy")))
    names = _ARRAYS if dataset.bits is None else (*_ARRAYS, CODES)
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": f"countersample {__version__}",
        "n_queries": dataset.n_queries,
        "n_items": dataset.n_items,
        "n_features": dataset.n_features,
        "feature_names": dataset.feature_names,
        "fingerprint": dataset.fingerprint,
        "content": dataset.content_hash(),
        "notes": notes,
        "files": {name: _file_state(folder / name) for name in names},
    }
    header[_CHECKSUM] = _checksum(header)
    (folder / HEADER).write_text(json.dumps(header, indent=1) + "\n")


def check_replaceable(folder: Path) -> None:
    """Reject a path that exists and is not a dataset folder."""
    if folder.exists() and not is_dataset_folder(folder):
        raise DataError(f"{folder}: exists and is not a dataset folder, so it is not replaced")


# -- Opening ---------------------------------------------------------------------------------------


def is_dataset_folder(folder: Path) -> bool:
    """Return whether a folder has the header of a dataset."""
    try:
        return bool(_read_header(folder)["format"] == FORMAT)
    except _DAMAGE:
        return False


def open_folder(folder: str | PathLike[str]) -> RankingDataset:
    """Open a folder written by `save_folder` as a dataset on memory maps."""
    return open_with_notes(Path(folder))[0]


def open_with_notes(folder: Path) -> tuple[RankingDataset, dict[str, Any]]:
    """Open a folder as `open_folder` does, with its notes."""
    try:
        header = _read_header(folder)
    except _DAMAGE:
        header = {}
    if header.get("format") != FORMAT:
        raise DataError(f"{folder}: not a dataset folder (no {HEADER} of one)")
    if header.get("version") != VERSION:
        raise DataError(
            f"{folder}: written in format version {header.get('version')}, expected {VERSION}: "
            "convert the source again"
        )
    try:
        if header.pop(_CHECKSUM, None) != _checksum(header):
            raise DataError(f"{HEADER} is not what was written")
        dataset, is_unchanged = _open_arrays(folder, header)
        if not is_unchanged and dataset.content_hash() != header["content"]:
            raise DataError("its content is not what was written")
        # The fingerprint was computed when written; it cannot be computed from codes.
        dataset.__dict__["fingerprint"] = str(header["fingerprint"])
        return dataset, dict(header["notes"])
    except _DAMAGE as error:
        why = f"{error}".partition("\n")[0] or type(error).__name__
        raise DataError(f"{folder}: a damaged dataset folder ({why}): write it again") from error


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER
    if not path.is_file():  # opening a pipe of that name would wait
        raise FileNotFoundError(path)
    return dict(json.loads(path.read_bytes()))


def _checksum(header: dict[str, Any]) -> str:
    """Return a hash of a header's content, whatever its layout."""
    text = json.dumps(header, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _open_arrays(folder: Path, header: dict[str, Any]) -> tuple[RankingDataset, bool]:
    """Open the arrays; also return whether each file's times are as in the header."""
    is_compact = CODES in header["files"]
    is_unchanged = True
    for name in (*_ARRAYS, CODES) if is_compact else _ARRAYS:
        size, *times = header["files"][name]
        actual_size, *actual_times = _file_state(folder / name)
        if size != actual_size:
            raise DataError(f"{name} has {actual_size:,} bytes, expected {size:,}")
        is_unchanged = is_unchanged and times == actual_times
    labels, offsets, query_ids = (_load_array(folder / name) for name in _ARRAYS[1:])
    if labels.dtype != np.float32:
        raise DataError(f"labels are {labels.dtype}, expected float32")
    if query_ids.dtype.kind == "U":
        numbers = np.frombuffer(query_ids.tobytes(), f"{query_ids.dtype.byteorder}u4")
        if numbers.max(initial=0) > sys.maxunicode:  # Python cannot make strings of them
            raise DataError("query ids have numbers that are not characters")
    features: Any = _load_array(folder / FEATURES, mapped=True)
    if is_compact:
        scale, offset = _load_array(folder / CODES)
        features = CompactFeatures(features, scale, offset)
    names = None if header["feature_names"] is None else tuple(header["feature_names"])
    return RankingDataset(features, labels, offsets, query_ids, names), is_unchanged


def _load_array(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """Load or map an array, after comparing its shape with the size of the file."""
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a header that numpy would repair is damaged
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        n_bytes = path.stat().st_size - file.tell()
    if math.prod(shape) * dtype.itemsize != n_bytes:  # else a wrong shape could fill the memory
        raise DataError(f"{path.name} has {n_bytes:,} bytes of numbers, expected {shape} {dtype}")
    is_mapped = mapped and n_bytes > 0  # an empty file cannot be mapped
    array: NDArray[Any] = np.load(path, mmap_mode="r" if is_mapped else None, allow_pickle=False)
    return array


def _file_state(path: Path) -> list[int]:
    """Return size, time of change, and time of change of content or mode, which cannot be set."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise DataError(f"{path.name} is not a file")
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns]


# -- The cache -------------------------------------------------------------------------------------


class UnusableCacheError(CounterSampleError):
    """A cache that cannot be used: the text is read without it."""


def read_cached(
    cache: Path,
    sources: list[Source],
    options: dict[str, Any],
    read: Callable[[Tape], tuple[RankingDataset, bool]],
    groups: Path | None,
) -> tuple[RankingDataset, bool]:
    """Return the dataset (and whether its features count from 0) from the cache, or `read` it.

    The folder of the cache is created if it does not exist. The reading options that change the
    result are part of the entry's name. `groups` is the group file beside the sources.

    Raises
    ------
    UnusableCacheError
        If nothing can be stored there, or its content is not to be trusted.
    """
    paths = _as_paths(sources)
    files = paths if groups is None else [*paths, groups]
    for path in files:
        if path.exists() and not path.is_file():
            raise ParameterError(f"cache= goes with files, and {path} is none: leave cache out")
    settings = {k: str(v) for k, v in options.items() if k != "threads" and v is not None}
    key = hashlib.blake2b(json.dumps([[str(p) for p in paths], settings]).encode(), digest_size=8)
    entry = cache / f"{paths[0].name[:_CACHE_NAME]}-{key.hexdigest()}"
    state = [VERSION, *map(_source_state, files)]
    _create_cache(cache)

    def fill(tape: Tape) -> tuple[RankingDataset, dict[str, Any]]:
        dataset, zero_based = read(tape)
        return dataset, {"sources": state, "zero_based": zero_based}

    for _ in range(_CACHE_ATTEMPTS):
        content = _open_entry(entry, state)
        if content is not None:
            return content
        if not is_dataset_folder(entry):
            remove(entry)  # the header is damaged; the hash in the name says that it is ours
        try:
            write_folder(entry, fill, bits=options["bits"], guarded=True)
        except (DataError, ParameterError):  # errors of the text
            raise
        except CounterSampleError as error:  # errors of the disk
            raise UnusableCacheError(f"{error}: the text is read without a cache") from error
    content = _open_entry(entry, state)
    if content is None:
        raise UnusableCacheError(f"{entry}: does not last: the text is read without a cache")
    return content


def _as_paths(sources: list[Source]) -> list[Path]:
    paths = [Path(source).resolve() for source in sources if isinstance(source, str | os.PathLike)]
    if len(paths) < len(sources):
        raise ParameterError("cache= goes with paths: a file object cannot be found again")
    return paths


def _create_cache(cache: Path) -> None:
    """Create the folder of the cache; reject one that other users can write to."""
    try:
        cache.mkdir(mode=0o777 & ~OTHERS_WRITE, parents=True, exist_ok=True)
        is_open = _others_can_write(cache)
    except (OSError, ValueError) as error:  # a ValueError for a zero byte in its name
        why = error.strerror if isinstance(error, OSError) else error
        raise UnusableCacheError(
            f"{cache}: cannot be created as a cache: {why}: the text is read without a cache"
        ) from error
    if is_open:
        raise UnusableCacheError(
            f"{cache}: not used as a cache, because others can write to it: expected a folder of "
            "yours that only you can write to (chmod go-w)"
        )


def _open_entry(entry: Path, state: list[Any]) -> tuple[RankingDataset, bool] | None:
    """Return the content of an entry; None if there is none, or none to be trusted."""
    try:
        if any(_others_can_write(path) for path in (entry, *entry.iterdir())):
            return None
        dataset, notes = open_with_notes(entry)
    except (OSError, DataError):
        return None
    return (dataset, bool(notes["zero_based"])) if notes.get("sources") == state else None


def _source_state(path: Path) -> list[Any]:
    """Return size, times, inode and a hash of both ends: they differ if the file was changed."""
    try:
        status = path.stat()
        with path.open("rb") as file:
            ends = file.read(_CACHE_SAMPLE)
            file.seek(max(0, status.st_size - _CACHE_SAMPLE))
            ends += file.read(_CACHE_SAMPLE)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    digest = hashlib.blake2b(ends, digest_size=16).hexdigest()
    times = [status.st_mtime_ns, status.st_ctime_ns]
    return [str(path), status.st_size, *times, status.st_ino, digest]


def _others_can_write(path: Path) -> bool:
    """Return whether a user other than this one and the administrator can change a path."""
    if not hasattr(os, "geteuid"):  # Windows has no such modes
        return False
    status = path.stat()
    return status.st_uid not in (0, os.geteuid()) or bool(status.st_mode & OTHERS_WRITE)
