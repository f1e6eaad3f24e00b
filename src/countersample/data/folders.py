"""The files of a folder of LETOR text: train, vali and test; folds; or LETOR's parts S1 … S5."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from countersample.data.sources import COMPRESSED_SUFFIXES, join_words
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Split = Literal["train", "vali", "test"]
Files = dict[Split, tuple[Path, ...]]
_SPLIT_NAMES: dict[str, Split] = {
    "train": "train", "vali": "vali", "valid": "vali", "validation": "vali", "dev": "vali",
    "test": "test",
}  # fmt: skip
_TEXT_SUFFIXES = ("", ".txt", ".dat", ".letor", ".svm", ".svmlight", ".svmrank", ".libsvm")


@dataclass(frozen=True)
class FolderLayout:
    """The files of a folder, found by `find_layout`.

    Attributes
    ----------
    folder : Path
    splits : dict of "train", "vali" and "test" to tuples of paths
        The files of the folder itself; empty if it has folds.
    folds : dict of int to such dicts
        The folds by their numbers, from Fold1, Fold2, … or from S1, S2, …; else empty.
    """

    folder: Path
    splits: Files
    folds: Mapping[int, Files]

    def files(self, fold: int | None = None) -> Files:
        """Return the files of a fold (by default the first), or of a folder without folds."""
        if not self.folds:
            if fold is not None:
                raise ParameterError(
                    f"fold is {fold}, but {self.folder} has no folds, expected Fold1, Fold2, … or "
                    "S1, S2, … in it: leave fold out"
                )
            return self.splits
        number = min(self.folds) if fold is None else fold
        if number not in self.folds:
            numbers = join_words(map(str, self.folds), "or")
            raise ParameterError(f"fold is {fold}, expected {numbers}, which {self.folder} has")
        return self.folds[number]

    def notes(self, fold: int | None = None) -> list[str]:
        """Return a sentence about the fold that is read, if there are folds."""
        if not self.folds:
            return []
        number = min(self.folds) if fold is None else fold
        parts = []
        for split, paths in self.files(number).items():
            names = (path.relative_to(self.folder).as_posix() for path in paths)
            parts.append(f"{split} is {join_words(names, 'and')}")
        return [f"{self.folder}: fold {number} of {len(self.folds)} is read ({'; '.join(parts)})"]


def find_layout(folder: Path) -> FolderLayout:
    """Find the files of a folder by their names.

    The first of these that exists is read:

    - files with ``train``, ``vali`` (or ``valid``, ``dev``) and ``test`` in their names;
    - folders ``Fold1``, ``Fold2``, …, each with such files;
    - files ``S1``, ``S2``, …, LETOR's parts: of n parts, fold k has S_k … S_{k+n-3} for training,
      the next for validation, and the one after that for test, in a circle. With the usual five,
      fold 1 has S1, S2, S3; S4; S5.

    Any file may be compressed. Hidden files are ignored.

    Raises
    ------
    DataError
        If there are no such files, or two files have the same role.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     for k in range(1, 6):
    ...         pathlib.Path(name, f"S{k}.txt").touch()
    ...     layout = find_layout(pathlib.Path(name))
    >>> [[path.stem for path in paths] for paths in layout.files(fold=4).values()]
    [['S4', 'S5', 'S1'], ['S2'], ['S3']]
    """
    splits = _find_splits(folder)
    folds = {} if splits else _find_fold_folders(folder) or _rotate_parts(folder)
    if not splits and not folds:
        raise DataError(
            f"{folder}: no files named train, vali or test (such as train.txt), no folders Fold1, "
            "Fold2, … with such files, and no files S1, S2, …"
        )
    return FolderLayout(folder, splits, folds)


def _find(folder: Path, roles_of: Callable[[Path], Iterable[str]]) -> dict[str, Path]:
    """Return the entries of a folder by their roles; reject two with the same role."""
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}") from error
    paths: dict[str, Path] = {}
    for path in entries:
        for role in roles_of(path):
            if role in paths:
                raise DataError(
                    f"{folder}: both {paths[role].name} and {path.name} look like {role}: give "
                    "the path to read"
                )
            paths[role] = path
    return paths


def _find_splits(folder: Path) -> Files:
    """Return the train, vali and test files of a folder."""

    def roles(path: Path) -> set[str]:
        words = re.split(r"[._-]", _text_name(path) or "")
        return {f"the {_SPLIT_NAMES[word]} file" for word in words if word in _SPLIT_NAMES}

    paths = _find(folder, roles)
    splits: tuple[Split, ...] = ("train", "vali", "test")
    return {s: (paths[f"the {s} file"],) for s in splits if f"the {s} file" in paths}


def _find_fold_folders(folder: Path) -> dict[int, Files]:
    """Return the splits of Fold1, Fold2, … by number."""

    def roles(path: Path) -> list[str]:
        number = re.fullmatch(r"fold[._-]?([0-9]+)", path.name.lower())
        return [f"fold {int(number[1])}"] if number and path.is_dir() else []

    folders = {int(role.split()[1]): path for role, path in _find(folder, roles).items()}
    folds = {k: _find_splits(path) for k, path in sorted(folders.items())}
    for k, files in folds.items():
        if not files:
            raise DataError(f"{folders[k]}: no files named train, vali or test (such as train.txt)")
    return folds


def _rotate_parts(folder: Path) -> dict[int, Files]:
    """Return the folds of the parts S1, S2, …."""

    def roles(path: Path) -> list[str]:
        number = re.fullmatch(r"s([0-9]+)(\..+)?", _text_name(path) or "")
        return [f"S{int(number[1])}"] if number else []

    paths = _find(folder, roles)
    n = len(paths)
    parts = [paths.get(f"S{k + 1}") for k in range(n)]
    if n and (n < 3 or None in parts):
        names = join_words(sorted(paths, key=lambda role: int(role[1:])), "and")
        raise DataError(f"{folder}: has {names}, expected S1, S2, S3, … without a gap, at least 3")
    folds: dict[int, Files] = {}
    for k in range(n):
        *train, vali, test = (paths[f"S{(k + i) % n + 1}"] for i in range(n))
        folds[k + 1] = {"train": tuple(train), "vali": (vali,), "test": (test,)}
    return folds


def _text_name(path: Path) -> str | None:
    """Return the name of a text file in lower case, without the suffix of its compression."""
    plain = Path(path.stem) if path.suffix in COMPRESSED_SUFFIXES else Path(path.name)
    if plain.suffix.lower() not in _TEXT_SUFFIXES or not path.is_file():
        return None
    return plain.name.lower()
