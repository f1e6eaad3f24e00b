"""The files of a folder of LETOR text: train, vali and test; folds; or LETOR's parts S1 … S5."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from countersample.data.sources import COMPRESSED_SUFFIXES, join_words
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

Split = Literal["train", "vali", "test"]
Files = dict[Split, tuple[Path, ...]]
Key = TypeVar("Key")
_SPLIT_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "vali": ("vali", "valid", "validation", "dev"),
    "test": ("test",),
}
_TEXT_SUFFIXES = ("", ".txt", ".dat", ".letor", ".svm", ".svmlight", ".svmrank", ".libsvm")
_MIN_PARTS = 3  # one each for training, validation and test
_MAX_LISTED = 8  # files in a message


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
    unused : tuple of str
        Other files and folders, which are not read, by their names relative to the folder.
    """

    folder: Path
    splits: Files
    folds: Mapping[int, Files]
    unused: tuple[str, ...]

    def files(self, fold: int | None = None) -> Files:
        """Return the files of a fold (by default the first), or of a folder without folds.

        Raises
        ------
        ParameterError
            For a fold that does not exist.
        """
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

    def notes(self, fold: int | None = None, *, every_fold: bool = False) -> list[str]:
        """Return sentences about the fold that is read, and about files that are not read."""
        sentences = []
        if self.folds and not every_fold:
            number = min(self.folds) if fold is None else fold
            parts = (
                f"{split} is {join_words((self._name(path) for path in paths), 'and')}"
                for split, paths in self.files(number).items()
            )
            sentences.append(
                f"{self.folder}: fold {number} of {len(self.folds)} is read ({'; '.join(parts)})"
            )
        if self.unused:
            n_more = len(self.unused) - _MAX_LISTED
            names = [*self.unused[:_MAX_LISTED], *([f"{n_more} more"] if n_more > 0 else [])]
            sentences.append(f"{self.folder}: not used: {join_words(names, 'and')}")
        return sentences

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


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
    ...     pathlib.Path(name, "README.html").touch()
    ...     layout = find_layout(pathlib.Path(name))
    >>> [[path.stem for path in paths] for paths in layout.files(fold=4).values()]
    [['S4', 'S5', 'S1'], ['S2'], ['S3']]
    >>> layout.unused
    ('README.html',)
    """
    entries = _entries(folder)
    splits = _splits(folder, entries)
    folds = {} if splits else _fold_folders(folder, entries) or _rotations(folder, entries)
    if not splits and not folds:
        raise DataError(
            f"{folder}: no files named train, vali or test (such as train.txt), no folders Fold1, "
            "Fold2, … with such files, and no files S1, S2, …"
        )
    used = {
        path for files in (splits, *folds.values()) for paths in files.values() for path in paths
    }
    fold_folders = {path.parent for path in used} - {folder}
    unused = [path for path in entries if path not in used | fold_folders]
    unused += [path for each in sorted(fold_folders) for path in _entries(each) if path not in used]
    names = (path.relative_to(folder).as_posix() + "/" * path.is_dir() for path in unused)
    return FolderLayout(folder, splits, folds, tuple(names))


def _entries(folder: Path) -> list[Path]:
    """Return the files and folders in a folder, by name, without hidden ones."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}") from error


def _put(paths: dict[Key, Path], key: Key, path: Path, role: str) -> None:
    """Add a path; reject a second one of the same role."""
    if key in paths:
        raise DataError(
            f"{path.parent}: both {paths[key].name} and {path.name} look like {role}: give the "
            "path to read"
        )
    paths[key] = path


def _splits(folder: Path, entries: list[Path]) -> Files:
    """Return the train, vali and test files among the entries of a folder."""
    paths: dict[Split, Path] = {}
    for path in entries:
        words = set(re.split(r"[._-]", _text_name(path) or ""))
        for split, names in _SPLIT_NAMES.items():
            if not words.isdisjoint(names):
                _put(paths, split, folder / path.name, f"the {split} file")
    return {split: (paths[split],) for split in _SPLIT_NAMES if split in paths}


def _fold_folders(folder: Path, entries: list[Path]) -> dict[int, Files]:
    """Return the splits of Fold1, Fold2, … by number."""
    folders: dict[int, Path] = {}
    for path in entries:
        number = re.fullmatch(r"fold[._-]?([0-9]+)", path.name.lower())
        if number and path.is_dir():
            _put(folders, int(number[1]), folder / path.name, f"fold {int(number[1])}")
    folds = {k: _splits(path, _entries(path)) for k, path in sorted(folders.items())}
    for k, files in folds.items():
        if not files:
            raise DataError(f"{folders[k]}: no files named train, vali or test (such as train.txt)")
    return folds


def _rotations(folder: Path, entries: list[Path]) -> dict[int, Files]:
    """Return the folds of the parts S1, S2, …."""
    parts: dict[int, Path] = {}
    for path in entries:
        number = re.fullmatch(r"s([0-9]+)(\..+)?", _text_name(path) or "")
        if number:
            _put(parts, int(number[1]), path, f"S{int(number[1])}")
    n = len(parts)
    if not n:
        return {}
    if sorted(parts) != list(range(1, n + 1)) or n < _MIN_PARTS:
        names = join_words((f"S{k}" for k in sorted(parts)), "and")
        raise DataError(f"{folder}: has {names}, expected S1, S2, S3, … without a gap, at least 3")
    folds: dict[int, Files] = {}
    for k in range(n):
        *train, vali, test = (parts[(k + i) % n + 1] for i in range(n))
        folds[k + 1] = {"train": tuple(train), "vali": (vali,), "test": (test,)}
    return folds


def _text_name(path: Path) -> str | None:
    """Return the name of a text file in lower case, without the suffix of its compression."""
    plain = Path(path.stem) if path.suffix in COMPRESSED_SUFFIXES else Path(path.name)
    if plain.suffix.lower() not in _TEXT_SUFFIXES or not path.is_file():
        return None
    return plain.name.lower()
