"""A dataset as a folder, opened by memory map in milliseconds; what is not as written is refused.

The folder has ``features.npy``, ``labels.npy``, ``offsets.npy``, ``query_ids.npy`` and
``header.json``; where features are codes, ``codes.npy`` has their scales and offsets. The header
has the size and times of change of each file, a hash of all content, and a checksum of itself.
Where size and times are as written the folder is trusted; where only a time differs (the folder was
copied, or changed), all content is hashed anew and compared. So it is where the header has no
checksum, as headers of before had none; its notes are not taken then.
"""

from __future__ import annotations

import hashlib
import json
import math
import stat
import sys
import tokenize
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._files import atomic_path
from countersample._version import __version__
from countersample.data._tape import FileTape, Tape, take_room
from countersample.data.compact import TYPES, CompactFeatures
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
_ARRAYS = (FEATURES, "labels.npy", "offsets.npy", "query_ids.npy")
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
CODES = "codes.npy"  # scale and offset, and roots where there are any, (2 or 3, n_features)
_NUMBERS = "numbers.npy"  # what codes are made of, and then removed
_CHECKSUM = "checksum"
# What opening files that were damaged may raise: those of JSON, and of the header of a .npy file,
# which numpy takes for Python
_DAMAGE = (
    OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError, EOFError,
    SyntaxError, tokenize.TokenError, Warning,
)  # fmt: skip


def save_folder(dataset: RankingDataset, folder: str | PathLike[str]) -> None:
    """Write a dataset as a folder, atomically; a dataset folder that is there is replaced."""
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
    roots: bool = False,
    guarded: bool = False,
) -> None:
    """Write a folder, atomically: the dataset that `fill` makes on a tape in it, and its notes.

    With `bits` the folder has the codes of `RankingDataset.compact`; the numbers take their room
    on disk meanwhile, not in memory. A `guarded` folder only its owner may write to.
    """
    check_replaceable(folder)
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        tape = temporary / (FEATURES if bits is None else _NUMBERS)
        dataset, notes = fill(FileTape(tape))
        if bits is not None:
            dataset = _write_codes(temporary, dataset, bits, roots=roots)
            tape.unlink()
        _write_rest(temporary, dataset, notes)
        del dataset  # the map must be let go of before the folder is renamed
        if guarded:
            for path in (temporary, *temporary.iterdir()):
                path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS_WRITE)


def write_compact(
    folder: Path,
    dataset: RankingDataset,
    bits: int | str,
    notes: dict[str, Any],
    *,
    roots: bool = False,
) -> None:
    """Write a folder of codes, atomically; what is not compact yet is encoded block by block."""
    check_replaceable(folder)
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        made = _write_codes(temporary, dataset, bits, roots=roots)
        _write_rest(temporary, made, notes)
        del made  # as above


def _write_codes(
    folder: Path, dataset: RankingDataset, bits: int | str, *, roots: bool
) -> RankingDataset:
    """Write the codes of a dataset, their scales, offsets, roots; return the dataset with them."""
    path = folder / FEATURES
    chosen = dataset.compact_report(bits, roots=roots) if dataset.bits is None else None
    n_bits = chosen.bits if chosen is not None else int(dataset.bits or 0)
    codes = np.lib.format.open_memmap(path, "w+", TYPES[n_bits], dataset.features.shape)
    take_room(path, path.stat().st_size)
    if chosen is None:
        features = dataset.features
        codes[:] = features.codes
    else:
        features = CompactFeatures.of(
            dataset.features, bits=n_bits, roots=chosen.roots_taken, out=codes
        )
    codes.flush()
    np.save(folder / CODES, np.stack(features.arrays[1:]))
    return dataset.with_codes(features)


def _write_rest(folder: Path, dataset: RankingDataset, notes: dict[str, Any]) -> None:
    """Write the small arrays and the header, with what tells that the files are as written."""
    is_compact = dataset.bits is not None
    for name in _ARRAYS[1:]:
        np.save(folder / name, getattr(dataset, name.removesuffix(".npy")))
    states = {name: _state(folder / name) for name in _files(is_compact=is_compact)}
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
        "files": {name: state[:2] for name, state in states.items()},
        "changed": {name: state[2] for name, state in states.items()},
    }
    header[_CHECKSUM] = _checksum(header)
    (folder / HEADER).write_text(json.dumps(header, indent=1) + "\n")


def check_replaceable(folder: Path) -> None:
    """Refuse a path that is there and is not a dataset folder."""
    if folder.exists() and not is_dataset_folder(folder):
        raise DataError(f"{folder}: exists and is not a dataset folder, so it is not replaced")


def is_dataset_folder(folder: Path) -> bool:
    """Tell whether a folder has the header of a stored dataset."""
    try:
        return bool(_read_header(folder)["format"] == FORMAT)
    except _DAMAGE:
        return False


def open_folder(folder: str | PathLike[str]) -> RankingDataset:
    """Open a folder written by `save_folder` as a dataset on memory maps."""
    return open_stored(Path(folder))[0]


def open_stored(folder: Path) -> tuple[RankingDataset, dict[str, Any]]:
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
        dataset, is_as_written = _open_arrays(folder, header)
        if not is_as_written and dataset.content_hash() != header["content"]:
            raise DataError("its content is not what was written")
        # The fingerprint was computed when written; from codes it cannot be.
        dataset.__dict__["fingerprint"] = str(header["fingerprint"])
        return dataset, dict(header["notes"])
    except _DAMAGE as error:
        why = f"{error}".partition("\n")[0] or type(error).__name__
        raise DataError(f"{folder}: a damaged dataset folder ({why}): make it again") from error


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER
    if not path.is_file():  # a pipe of that name would be waited for
        raise FileNotFoundError(path)
    return dict(json.loads(path.read_bytes()))


def _checksum(header: dict[str, Any]) -> str:
    """Return a hash of what a header says, however it is laid out."""
    text = json.dumps(header, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _open_arrays(folder: Path, header: dict[str, Any]) -> tuple[RankingDataset, bool]:
    """Open the arrays; say whether each file's size and times are as the header has them."""
    is_as_written, is_compact = True, CODES in header["files"]
    for name in _files(is_compact=is_compact):
        size, time = header["files"][name]
        found_size, *found_times = _state(folder / name)
        if size != found_size:
            raise DataError(f"{name} has {found_size:,} bytes, expected {size:,}")
        times = [time, header["changed"][name]]
        is_as_written = is_as_written and times == found_times
    labels, offsets, query_ids = (_load_array(folder / name) for name in _ARRAYS[1:])
    if labels.dtype != np.float32:
        raise DataError(f"labels are {labels.dtype}, expected float32")
    _check_characters(query_ids)
    features: Any = _load_array(folder / FEATURES, mapped=True)
    if is_compact:
        scale, offset, *roots = _load_array(folder / CODES)
        features = CompactFeatures(features, scale, offset, *map(_as_roots, roots))
    names = None if header["feature_names"] is None else tuple(header["feature_names"])
    return RankingDataset(features, labels, offsets, query_ids, names), is_as_written


def _load_array(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """Load or map an array whose numbers are as many as its file has room for."""
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of one that could be read with good will
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        has = path.stat().st_size - file.tell()
    if math.prod(shape) * dtype.itemsize != has:  # else as much memory as a wrong shape asks for
        raise DataError(f"{path.name} has {has:,} bytes of numbers, expected {shape} of {dtype}")
    is_mapped = mapped and has > 0  # what is empty cannot be mapped
    array: NDArray[Any] = np.load(path, mmap_mode="r" if is_mapped else None, allow_pickle=False)
    return array


def _check_characters(ids: NDArray[Any]) -> None:
    """Refuse text with numbers that are no characters, of which Python cannot make strings."""
    if ids.dtype.kind == "U":
        numbers = np.frombuffer(ids.tobytes(), f"{ids.dtype.byteorder}u4")
        if numbers.max(initial=0) > sys.maxunicode:
            raise DataError("query ids have what is no character")


def _files(*, is_compact: bool) -> tuple[str, ...]:
    return (*_ARRAYS, CODES) if is_compact else _ARRAYS


def _as_roots(row: NDArray[np.float64]) -> tuple[Any, ...]:
    """Return whole numbers as such; any others are refused by `CompactFeatures`."""
    return tuple(int(times) if times.is_integer() else times for times in row.tolist())


def _state(path: Path) -> list[int]:
    """Return size, time of change, and time of change of content or mode, which cannot be set."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise DataError(f"{path.name} is not a file")
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns]
