"""Which files of a folder are what: train, vali and test, LETOR's parts S1 … S5, or its folds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from countersample.data.sources import COMPRESSED_SUFFIXES, listed
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

Split = Literal["train", "vali", "test"]
Files = dict[Split, tuple[Path, ...]]
_SPLIT_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "vali": ("vali", "valid", "validation", "dev"),
    "test": ("test",),
}
_TEXT_SUFFIXES = ("", ".txt", ".dat", ".letor", ".svm", ".svmlight", ".svmrank", ".libsvm")
_FEWEST_PARTS = 3  # one to train on, one to choose by, one to test on
_NAMED = 8  # files that a sentence names


@dataclass(frozen=True)
class FolderLayout:
    """What the files of a folder are, made by `find_layout`.

    Attributes
    ----------
    folder : Path
    splits : dict of "train", "vali" and "test" to tuples of paths
        Where the folder has such files itself; else empty.
    folds : dict of int to such dicts
        The folds by their numbers, from Fold1, Fold2, … or from S1, S2, …; else empty.
    unused : tuple of str
        What else there is, by name from the folder: files and folders that are not read.
    """

    folder: Path
    splits: Files
    folds: Mapping[int, Files]
    unused: tuple[str, ...]

    def files(self, fold: int | None = None) -> Files:
        """Return the files of a fold, by default of the first, or of a folder without folds.

        Raises
        ------
        ParameterError
            For a fold that there is not.
        """
        if not self.folds:
            if fold is not None:
                raise ParameterError(
                    f"fold is {fold}, but {self.folder} has no folds, expected Fold1, Fold2, … or "
                    "S1, S2, … in it: leave fold out"
                )
            return self.splits
        chosen = min(self.folds) if fold is None else fold
        if chosen not in self.folds:
            numbers = listed(map(str, self.folds), "or")
            raise ParameterError(f"fold is {fold}, expected {numbers}, which {self.folder} has")
        return self.folds[chosen]

    def notes(self, fold: int | None = None, *, every_fold: bool = False) -> list[str]:
        """Say which fold is read where there are several, and what is not read at all."""
        said = []
        if self.folds and not every_fold:
            chosen = min(self.folds) if fold is None else fold
            parts = (
                f"{split} is {listed((self._name(path) for path in paths), 'and')}"
                for split, paths in self.files(chosen).items()
            )
            said.append(
                f"{self.folder}: fold {chosen} of {len(self.folds)} is read ({'; '.join(parts)})"
            )
        if self.unused:
            more = len(self.unused) - _NAMED
            names = [*self.unused[:_NAMED], *([f"{more} more"] if more > 0 else [])]
            said.append(f"{self.folder}: not used: {listed(names, 'and')}")
        return said

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


def find_layout(folder: Path) -> FolderLayout:
    """Tell what the files of a folder are by their names.

    The first of these that is there is read:

    - files with ``train``, ``vali`` (or ``valid``, ``dev``) and ``test`` in their names;
    - folders ``Fold1``, ``Fold2``, …, each with such files;
    - files ``S1``, ``S2``, …, LETOR's parts: of n parts, fold k has S_k … S_{k+n-3} to train on,
      the next for validation, and the one after that to test on, counted in a circle. With the
      usual five: fold 1 has S1, S2, S3; S4; S5.

    Any of them may be compressed. Names of hidden files are passed over.

    Raises
    ------
    DataError
        Where there is nothing of the kind, or it is not plain which file is which.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     for k in range(1, 6):
    ...         pathlib.Path(name, f"S{k}.txt").touch()
    ...     pathlib.Path(name, "README.html").touch()
    ...     found = find_layout(pathlib.Path(name))
    >>> [[path.stem for path in paths] for paths in found.files(fold=4).values()]
    [['S4', 'S5', 'S1'], ['S2'], ['S3']]
    >>> found.unused
    ('README.html',)
    """
    entries = _entries(folder)
    splits = _splits(folder, entries)
    folds: dict[int, Files] = {}
    if not splits:
        folds = _fold_folders(entries) or _rotated(folder, entries)
    if not splits and not folds:
        raise DataError(
            f"{folder}: no files named train, vali or test (such as train.txt), no folders Fold1, "
            "Fold2, … with such files, and no files S1, S2, …"
        )
    used = {
        path for files in (splits, *folds.values()) for paths in files.values() for path in paths
    }
    # of the folds' own folders, what is in them
    inside = {path.parent for path in used} - {folder}
    unused = [path for path in entries if path not in used | inside]
    unused += [path for parent in sorted(inside) for path in _entries(parent) if path not in used]
    names = (path.relative_to(folder).as_posix() + "/" * path.is_dir() for path in unused)
    return FolderLayout(folder, splits, folds, tuple(names))


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder, by name, but for what is hidden."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}") from error


def _splits(folder: Path, entries: list[Path]) -> Files:
    found: Files = {}
    for path in entries:
        name = _text_name(path)
        words = set() if name is None else set(re.split(r"[._-]", name))
        for split, names in _SPLIT_NAMES.items():
            if words.isdisjoint(names):
                continue
            if split in found:
                raise DataError(
                    f"{folder}: both {found[split][0].name} and {path.name} look like the {split} "
                    "file: name the files to read"
                )
            found[split] = (path,)
    return {split: found[split] for split in _SPLIT_NAMES if split in found}


def _fold_folders(entries: list[Path]) -> dict[int, Files]:
    """Return the splits of Fold1, Fold2, … by number."""
    found: dict[int, Files] = {}
    names: dict[int, str] = {}
    for path in entries:
        number = re.fullmatch(r"fold[._-]?([0-9]+)", path.name.lower())
        if number and path.is_dir():
            k = int(number[1])
            files = _splits(path, _entries(path))
            if not files:
                raise DataError(f"{path}: no files named train, vali or test (such as train.txt)")
            if k in found:
                raise DataError(
                    f"{path.parent}: both {names[k]} and {path.name} look like fold {k}: name the "
                    "folder to read"
                )
            found[k], names[k] = files, path.name
    return dict(sorted(found.items()))


def _rotated(folder: Path, entries: list[Path]) -> dict[int, Files]:
    """Return the folds that S1, S2, … make."""
    parts: dict[int, Path] = {}
    for path in entries:
        number = re.fullmatch(r"s([0-9]+)(\..+)?", _text_name(path) or "")
        if number:
            k = int(number[1])
            if k in parts:
                raise DataError(
                    f"{folder}: both {parts[k].name} and {path.name} look like S{k}: name the "
                    "files to read"
                )
            parts[k] = path
    n = len(parts)
    if not n:
        return {}
    if sorted(parts) != list(range(1, n + 1)) or n < _FEWEST_PARTS:
        have = listed((f"S{k}" for k in sorted(parts)), "and")
        raise DataError(f"{folder}: has {have}, expected S1, S2, S3, … without a gap, at least 3")
    turned = {k: [parts[(k - 1 + i) % n + 1] for i in range(n)] for k in range(1, n + 1)}
    return {
        k: {"train": tuple(paths[:-2]), "vali": (paths[-2],), "test": (paths[-1],)}
        for k, paths in turned.items()
    }


def _text_name(path: Path) -> str | None:
    """Return the name of a text file in small letters, as it was before it was compressed."""
    plain = Path(path.stem) if path.suffix in COMPRESSED_SUFFIXES else Path(path.name)
    if plain.suffix.lower() not in _TEXT_SUFFIXES or not path.is_file():
        return None
    return plain.name.lower()
