"""LETOR/SVMrank text: `load_letor`, `save_letor`, and the files of a folder (`find_layout`).

A folder has files for train, vali and test, or folds of these, or LETOR's parts S1 … S5.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from countersample._files import atomic_path
from countersample.data.letor_reader import LetorOptions, read_letor
from countersample.data.matrices import first_nan
from countersample.data.sources import (
    COMPRESSED_SUFFIXES,
    Source,
    as_path,
    join_words,
    open_for_writing,
)
from countersample.data.store import Tape
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from countersample.data.dataset import RankingDataset

Split = Literal["train", "vali", "test"]
Files = dict[Split, tuple[Path, ...]]
_SPLIT_NAMES: dict[str, Split] = {
    "train": "train", "vali": "vali", "valid": "vali", "validation": "vali", "dev": "vali",
    "test": "test",
}  # fmt: skip
_TEXT_SUFFIXES = ("", ".txt", ".dat", ".letor", ".svm", ".svmlight", ".svmrank", ".libsvm")
_NUMBERS_AT_ONCE = 1 << 20  # formatted in one go
_WRITABLE_ID = re.compile(rb"(?!.*\xed[\xa0-\xbf])[^\x00-\x20#]+")  # nor halves of characters


# -- Reading and writing ---------------------------------------------------------------------------


def load_letor(
    source: Source | Sequence[Source],
    *,
    fold: int | None = None,
    n_features: int | None = None,
    zero_based: bool | None = None,
    clip: bool = False,
    progress: bool = False,
    threads: int | None = None,
) -> Any:  # noqa: ANN401 (a dataset, or a dict of them for a folder)
    r"""Read ``label qid:ID index:value … # comment`` text.

    Rows may be sparse. Rows of a query need not be adjacent: queries are sorted by their first row.
    Compression (gz, bz2, xz, zst) is detected. Query ids are int64 if all are integers, else
    strings. A value is the float32 nearest to the text as float64.

    Parameters
    ----------
    source : path, file object, list of those, or folder
        A list is read as one dataset. The files of a folder are found by their names: see
        `find_layout`. Its parts are returned by name, with the same features.
    fold : int, optional
        Which fold of a folder that has folds; by default the first.
    n_features : int, optional
        The number of features, if it is more than the text shows.
    zero_based : bool, optional
        Whether feature numbers start at 0. By default, if any row has a feature 0.
    clip : bool
        Replace a number beyond float32 (Istella marks a missing value by 1.8e308) by the largest
        float32, 3.4e38. By default such a number is an error.
    progress : bool
        Show a progress bar by bytes after two seconds.
    threads : int, optional
        Cores to use; all by default. The result does not depend on it.

    Raises
    ------
    DataError
        With file, line and column, the text at that place, and the expectation.

    Examples
    --------
    >>> import io
    >>> from countersample import load_letor
    >>> data = load_letor(io.BytesIO(b"2 qid:7 1:0.5 3:1 # good\n0 qid:7 2:0.25\n"))
    >>> data.features
    array([[0.5 , 0.  , 1.  ],
           [0.  , 0.25, 0.  ]], dtype=float32)
    >>> data.labels, data.query_ids
    (array([2., 0.], dtype=float32), array([7]))
    """
    options = LetorOptions(n_features, zero_based, clip, progress, threads)
    if isinstance(source, str | os.PathLike) and as_path(source).is_dir():
        return _load_splits(find_layout(Path(source)).files(fold), options)
    if fold is not None:
        raise ParameterError(f"fold={fold!r} goes with a folder, and {source!r} is not one")
    sources: Any = source if isinstance(source, list | tuple) else [source]
    if not sources:
        raise ParameterError("an empty list of files, expected at least one")
    return read_letor(sources, Tape(), options)[0]


def _load_splits(files: Files, options: LetorOptions) -> dict[str, RankingDataset]:
    """Read files that belong together; if their columns differ, read again with the widest."""
    parts = {split: read_letor(paths, Tape(), options) for split, paths in files.items()}
    zero_based = any(zero for _, zero in parts.values())
    width = max(data.n_features + (zero_based and not zero) for data, zero in parts.values())
    options = replace(options, zero_based=zero_based, n_features=width)
    return {
        split: data
        if data.n_features == width and zero == zero_based
        else read_letor(files[split], Tape(), options)[0]
        for split, (data, zero) in parts.items()
    }


def save_letor(dataset: RankingDataset, target: str | os.PathLike[str]) -> None:
    """Write a dataset as LETOR text that `load_letor` reads back to the same numbers.

    Zeros are left out (the first row has the last feature, which preserves the width). Numbers
    have the fewest digits that give the same float32. The file is written under another name and
    renamed at the end; a name ending in .gz, .bz2, .xz or .zst is compressed.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from countersample import RankingDataset, load_letor, save_letor
    >>> data = RankingDataset.from_arrays(X=[[0.5, 0.0], [0.1, 3.0]], y=[1, 0], qid=[4, 4])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "data.txt")
    ...     save_letor(data, path)
    ...     print(path.read_text(), load_letor(path) == data)
    1 qid:4 1:0.5 2:0
    0 qid:4 1:0.1 2:3
     True
    """
    with atomic_path(target) as path, open_for_writing(path, like=str(target)) as file:
        for text in _format_rows(dataset):
            file.write(text.data)


def _format_rows(dataset: RankingDataset) -> Iterator[NDArray[np.uint8]]:
    """Yield the text of some rows at a time; each is valid until the next."""
    from countersample._kernels import letor as kernel  # noqa: PLC0415 (imports numba)

    if dataset.has_missing:
        row, column = first_nan(dataset.features)
        raise DataError(
            f"feature {column + 1} is missing (NaN) in row {row}, and LETOR text has no missing "
            "values, as omitted features are 0: write Parquet or a dataset folder"
        )
    ids = [str(i).encode(errors="surrogatepass") for i in dataset.query_ids.tolist()]
    for query_id in ids:
        if not _WRITABLE_ID.fullmatch(query_id):
            raise DataError(
                f"query id {query_id.decode(errors='surrogatepass')!r} cannot be written as LETOR "
                "text: ids must have no white space, no '#' and no control characters"
            )
    id_starts = np.concatenate([[0], np.cumsum([len(i) for i in ids])]).astype(np.int64)
    all_ids = np.frombuffer(b"".join(ids), np.uint8)
    query_of_row = np.repeat(np.arange(dataset.n_queries), dataset.query_sizes)
    longest_id = max((len(i) for i in ids), default=0)
    # space, up to 7 digits, colon, number; and label, " qid:", id, line feed
    longest_row = dataset.n_features * (9 + kernel.LONGEST_NUMBER) + longest_id + 40
    step = max(1, _NUMBERS_AT_ONCE // max(1, dataset.n_features))
    buffer = np.empty(min(step, dataset.n_items) * longest_row, np.uint8)
    for first in range(0, dataset.n_items, step):
        rows = slice(first, first + step)
        length = kernel.write_rows(
            buffer,
            np.asarray(dataset.features[rows]),
            np.asarray(dataset.labels[rows]),
            all_ids,
            id_starts,
            query_of_row[rows],
            first == 0,
        )
        yield buffer[:length]


# -- Folders ---------------------------------------------------------------------------------------


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
