"""The files of a folder of LETOR text: train, vali and test; folds; or LETOR's parts S1 … S5."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from countersample.data.sources import COMPRESSED_SUFFIXES, join_words
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


def _text_name(path: Path) -> str:
    """Return a text file's name in lower case, without a suffix of compression; else ""."""
    plain = Path(path.stem) if path.suffix in COMPRESSED_SUFFIXES else Path(path.name)
    is_text = plain.suffix.lower() in _TEXT_SUFFIXES and path.is_file()
    return plain.name.lower() if is_text else ""


def _folder_name(path: Path) -> str:
    """Return a folder's name in lower case; "" for a file."""
    return path.name.lower() if path.is_dir() else ""


# Roles of entries: how a name is read from a path, and what in it is a split or a number.
_ROLES: dict[str, tuple[Callable[[Path], str], str]] = {
    "the {} file": (_text_name, rf"(?<![^._-])({'|'.join(_SPLIT_NAMES)})(?![^._-])"),
    "fold {}": (_folder_name, r"\Afold[._-]?([0-9]+)\Z"),
    "S{}": (_text_name, r"\As([0-9]+)(?:\..+)?\Z"),
}


def _find(folder: Path, role: str) -> dict[Any, Path]:
    """Return the entries of a folder with a role, by split or number; reject two of the same."""
    name_of, pattern = _ROLES[role]
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}") from error
    paths: dict[Any, Path] = {}
    for path in entries:
        words = re.findall(pattern, name_of(path))
        for key in {_SPLIT_NAMES[word] if word in _SPLIT_NAMES else int(word) for word in words}:
            if key in paths:
                raise DataError(
                    f"{folder}: both {paths[key].name} and {path.name} look like "
                    f"{role.format(key)}: give the path to read"
                )
            paths[key] = path
    return paths


def _find_splits(folder: Path) -> Files:
    """Return the train, vali and test files of a folder."""
    paths = _find(folder, "the {} file")
    splits: tuple[Split, ...] = ("train", "vali", "test")
    return {split: (paths[split],) for split in splits if split in paths}


def _find_fold_folders(folder: Path) -> dict[int, Files]:
    """Return the splits of Fold1, Fold2, … by number."""
    folders = _find(folder, "fold {}")
    folds = {k: _find_splits(path) for k, path in sorted(folders.items())}
    for k, files in folds.items():
        if not files:
            raise DataError(f"{folders[k]}: no files named train, vali or test (such as train.txt)")
    return folds


def _rotate_parts(folder: Path) -> dict[int, Files]:
    """Return the folds of the parts S1, S2, …."""
    paths = _find(folder, "S{}")
    n = len(paths)
    if n and (n < 3 or sorted(paths) != [*range(1, n + 1)]):
        names = join_words((f"S{k}" for k in sorted(paths)), "and")
        raise DataError(f"{folder}: has {names}, expected S1, S2, S3, … without a gap, at least 3")
    folds: dict[int, Files] = {}
    for k in range(n):
        *train, vali, test = (paths[(k + i) % n + 1] for i in range(n))
        folds[k + 1] = {"train": tuple(train), "vali": (vali,), "test": (test,)}
    return folds
