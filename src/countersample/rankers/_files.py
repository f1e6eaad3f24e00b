"""A ranker as one JSON file: written atomically, checked when it is read, never executed."""

from __future__ import annotations

import hashlib
import json
import platform
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from countersample._files import atomic_path
from countersample._json import parse_json
from countersample._schemas import check_schema
from countersample._version import __version__
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.objectives import Loss, Objective

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

FORMAT = "countersample-ranker"
VERSION = 1
BEGINNING = f'{{"format": "{FORMAT}"'.encode()  # of every such file


# Endings of other files, which a ranker of such a name would be taken for.
_EXPORT_ENDINGS = (".onnx",)
_OTHER_ENDINGS = (
    ".csv", ".feather", ".gz", ".html", ".joblib", ".jsonl", ".md", ".ndjson", ".parquet",
    ".pickle", ".pkl", ".pq", ".pt", ".pth", ".safetensors", ".sql", ".tsv", ".ubj", ".xml", ".zip",
)  # fmt: skip


class FileSchema(msgspec.Struct):
    """A ranker file: the ranker is beside the checksum of its text."""

    version: int
    checksum: str
    ranker: dict[str, Any]


def check_name(path: str | PathLike[str]) -> None:
    """Reject a name with the ending of another format than JSON.

    Examples
    --------
    >>> from countersample.rankers._files import check_name
    >>> check_name("ranker.json")
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending in _EXPORT_ENDINGS:
        raise ParameterError(
            f"{path}: a ranker is written as JSON, and {ending} is what export writes: write it to "
            f"{path.with_suffix('.json')}, then: countersample export {path.with_suffix('.json')} "
            f"--to {ending[1:]} -o {path}"
        )
    if ending in _OTHER_ENDINGS:
        raise ParameterError(
            f"{path}: a ranker is written as JSON, expected a name such as "
            f"{path.with_suffix('.json')}"
        )


def versions(*libraries: str) -> dict[str, str]:
    """Return the versions of Python, of the libraries that rankers use, and of these libraries."""
    import sklearn  # noqa: PLC0415 (takes a second to import, and is not needed to read a file)

    return {
        "countersample": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "scikit-learn": sklearn.__version__,
    } | {name: str(import_module(name).__version__) for name in libraries}


def write_ranker(path: str | PathLike[str], content: Mapping[str, Any]) -> None:
    """Write plain values, with the versions of the libraries and a checksum, atomically."""
    check_name(path)
    text = _as_text({"written_by": versions(), **content})
    header = {"format": FORMAT, "version": VERSION, "checksum": _checksum(text)}
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(header)[:-1] + ',\n"ranker": ' + text + "}\n", "utf-8")


def read_ranker(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the values that `write_ranker` wrote; any other file raises DataError."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            begin = file.read(len(BEGINNING))
            rest = file.read() if begin == BEGINNING else b""  # other files may have no end
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if begin != BEGINNING:
        raise DataError(f"{path}: not a ranker file, expected one written by a ranker's save")
    try:
        saved = check_schema(parse_json(begin + rest), FileSchema, "the file")
    except DataError as error:
        raise DataError(f"{path}: a damaged ranker file ({error}): save it again") from error
    if saved.version != VERSION:
        raise DataError(
            f"{path}: has the format version {saved.version}, expected {VERSION}: read it with the "
            "release that wrote it"
        )
    if saved.checksum != _checksum(_as_text(saved.ranker)):
        raise DataError(f"{path}: a damaged ranker file (it was changed): save it again")
    return saved.ranker


@contextmanager
def readable(path: str | PathLike[str]) -> Iterator[None]:
    """Name the file in errors raised within: it is whole, but has no ranker of this release."""
    try:
        yield
    except (CounterSampleError, TypeError) as error:  # an unknown parameter is a TypeError
        raise DataError(f"{path}: not a ranker that this release can read ({error})") from error


def _as_text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, default=_plain)


def _checksum(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _plain(value: object) -> Any:  # noqa: ANN401 (what JSON takes)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Objective | Loss):
        return value.identity  # scoring does without λ
    raise DataError(f"cannot save a {type(value).__name__}, expected plain values as parameters")
