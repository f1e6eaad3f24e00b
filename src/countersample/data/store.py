"""Dataset folders, opened by memory map in milliseconds.

A folder has ``features.npy``, ``labels.npy``, ``offsets.npy``, ``query_ids.npy`` and
``header.json``; if features are codes, ``codes.npy`` has their scales and offsets. The header has
the size and time of change of each file, and a hash of the content. A folder whose files have that
size and time is trusted; if only a time differs (the folder was copied, or changed), the content is
hashed again and compared.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from countersample._files import atomic_path, read_npy_header
from countersample._version import __version__
from countersample.data.compact import CompactFeatures
from countersample.data.dataset import RankingDataset
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from numpy.typing import NDArray

FORMAT = "countersample-dataset"
VERSION = 1
FEATURES = "features.npy"
HEADER = "header.json"
CODES = "codes.npy"  # scale and offset, (2, n_features)
NPY_HEADER = 128  # bytes before the numbers of a .npy file with a short header
_ARRAYS = (FEATURES, "labels.npy", "offsets.npy", "query_ids.npy")
_NUMBERS = "numbers.npy"  # float32 numbers, removed after they are encoded


class _Header(msgspec.Struct):
    """The schema of ``header.json``."""

    format: str
    version: int
    written_by: str
    feature_names: tuple[str, ...] | None
    fingerprint: str
    content: str  # the hash of the arrays in the folder
    files: dict[str, list[int]]  # size in bytes, and time of change in nanoseconds


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
    check_replaceable(Path(folder))
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        _write_files(temporary, dataset)


def write_folder(
    folder: Path, fill: Callable[[Tape], RankingDataset], *, bits: int | str | None = None
) -> None:
    """Write a folder, atomically: `fill` returns a dataset on the tape in it.

    With `bits` the folder has codes; the float32 numbers take disk space meanwhile, not memory.
    """
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        tape = temporary / (FEATURES if bits is None else _NUMBERS)
        dataset = fill(FileTape(tape))
        if bits is not None:
            dataset = dataset.compact(bits)
            tape.unlink()
        _write_files(temporary, dataset)
        del dataset  # closes the memory map, before the folder is renamed


def _write_files(folder: Path, dataset: RankingDataset) -> None:
    """Write the arrays, except features that are there already, and the header."""
    features: Any = dataset.features
    arrays = {name: getattr(dataset, name.removesuffix(".npy")) for name in _ARRAYS}
    if isinstance(features, CompactFeatures):
        arrays |= {FEATURES: features.codes, CODES: np.stack([features.scale, features.offset])}
    for name, array in arrays.items():
        if not (folder / name).exists():
            np.save(folder / name, array)
    header = _Header(
        format=FORMAT,
        version=VERSION,
        written_by=f"countersample {__version__}",
        feature_names=dataset.feature_names,
        fingerprint=dataset.fingerprint,
        content=dataset.content_hash(),
        files={name: _file_state(folder / name) for name in arrays},
    )
    (folder / HEADER).write_bytes(msgspec.json.format(msgspec.json.encode(header)) + b"\n")


def check_replaceable(folder: Path) -> None:
    """Reject a path that exists and is not a dataset folder."""
    if folder.exists() and not is_dataset_folder(folder):
        raise DataError(f"{folder}: exists and is not a dataset folder, so it is not replaced")


# -- Opening ---------------------------------------------------------------------------------------


def is_dataset_folder(folder: Path) -> bool:
    """Return whether a folder has the header of a dataset."""
    return _read_header(folder) is not None


def open_folder(folder: Path) -> RankingDataset:
    """Open a folder written by `save_folder` as a dataset on memory maps."""
    values = _read_header(folder)
    if values is None:
        raise DataError(f"{folder}: not a dataset folder (no {HEADER} of one)")
    if values.get("version") != VERSION:
        raise DataError(
            f"{folder}: written in format version {values.get('version')}, expected {VERSION}: "
            "convert the source again"
        )
    try:
        header = msgspec.convert(values, _Header)
        dataset = _open_arrays(folder, header)
    except Exception as error:  # a damaged file can raise any error
        why = f"{error}".partition("\n")[0] or type(error).__name__
        raise DataError(f"{folder}: a damaged dataset folder ({why}): write it again") from error
    # The fingerprint was computed when written; it cannot be computed from codes.
    dataset.__dict__["fingerprint"] = header.fingerprint
    return dataset


def _read_header(folder: Path) -> dict[str, Any] | None:
    """Return the values of the header; None if there is no header of a dataset."""
    try:
        values = json.loads((folder / HEADER).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) and values.get("format") == FORMAT else None


def _open_arrays(folder: Path, header: _Header) -> RankingDataset:
    """Open the arrays; if a file has another time of change, compare the hash of the content."""
    names = (*_ARRAYS, CODES) if CODES in header.files else _ARRAYS
    states = {name: _file_state(folder / name) for name in names}
    for name, (size, _) in states.items():
        if size != header.files[name][0]:
            raise DataError(f"{name} has {size:,} bytes, expected {header.files[name][0]:,}")
    features, *maps = (_map_array(folder / name) for name in names)
    labels, offsets, query_ids, *codes = map(np.array, maps)
    matrix = CompactFeatures(features, *codes[0]) if codes else features
    dataset = RankingDataset(matrix, labels, offsets, query_ids, header.feature_names)
    if states != header.files and dataset.content_hash() != header.content:
        raise DataError("its content has changed since it was written")
    return dataset


def _map_array(path: Path) -> NDArray[Any]:
    """Map a ``.npy`` file into memory, read-only; it must be as long as its shape needs."""
    with path.open("rb") as file:
        header = read_npy_header(file)
        order: Any = header.order
        return np.memmap(file, header.dtype, "r", file.tell(), header.shape, order)


def _file_state(path: Path) -> list[int]:
    """Return size and time of change."""
    state = path.stat()
    return [state.st_size, state.st_mtime_ns]
