"""The labelled data of a study: a synthetic set, a set of the catalogue, or a path."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample._files import is_folder, is_other
from countersample.data import RankingDataset, catalogue
from countersample.data.labelled_files import layout_of, load
from countersample.data.synthetic import SHAPES, synthetic
from countersample.errors import DataError, ParameterError
from countersample.study.grids import PAPER_DATASETS, Grid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countersample.study.settings import ExperimentConfig


PARTS = ("train", "vali", "test")
_SHARES = (0.7, 0.1, 0.2)  # of the queries, if data comes in one piece
SEED = 0  # of synthetic data and of the split


@dataclass(frozen=True)
class Fold:
    """Training, validation and test data, loaded on request."""

    dataset: str  # its name in tables
    name: str  # empty if the set has no folds
    config: dict[str, Any]  # identifies the data: plain values

    @property
    def title(self) -> str:
        """The dataset, and the fold if there are several."""
        return f"{self.dataset} {self.name}".rstrip()


@dataclass(frozen=True)
class Source:
    """A dataset of a study: its name in tables, its folds, and notes on its files."""

    name: str
    folds: tuple[Fold, ...]
    notes: tuple[str, ...] = ()  # which fold is read, which files are not


@dataclass(frozen=True)
class Study:
    """A grid, the settings it is run with, and the datasets it is run on."""

    grid: Grid
    config: ExperimentConfig
    sources: tuple[Source, ...]

    @property
    def name(self) -> str:
        """The name of its grid."""
        return self.grid.name


def load_fold(config: dict[str, Any]) -> tuple[RankingDataset, ...]:
    """Return the three parts of a fold by its configuration; features are not normalised."""
    if "shape" in config:
        whole = synthetic(config["shape"], n_queries=config["queries"], rng=SEED)
        return whole.split(*_SHARES, rng=SEED)
    path = Path(config["path"])
    states = _list_files([path] if path.is_file() else path.rglob("*"))
    for file in config["files"]:
        if list(file) not in states:
            raise DataError(
                f"{path}: {file[0]} has changed since the study was planned: start again in "
                "another folder with --out"
            )
    parts = load(path, fold=config.get("fold"), clip=config["clip"])
    if set(parts) >= set(PARTS):
        return tuple(parts[name] for name in PARTS)
    if len(parts) > 1:
        raise DataError(
            f"{path}: has {', '.join(parts)}, expected train, vali and test, or one file to split"
        )
    (whole,) = parts.values()
    return whole.split(*_SHARES, rng=SEED)


def _list_files(files: Iterable[Path]) -> list[list[Any]]:
    """Return name, size and time of each file, which identify the data under a path."""
    present = sorted(file for file in files if file.is_file())
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in present]


def find_source(
    name: str, *, queries: int = 0, data_dir: Path | None = None, fold: int | None = None
) -> Source:
    """Return the dataset of a name or a path.

    Parameters
    ----------
    name : str
        ``yahoo-like``, ``istella-like``, ``tiny``; a set of the catalogue (``countersample data
        list``); or the path of a file or folder, which goes before a set of the same name. A
        folder with Fold1, Fold2, … or S1, S2, … has folds.
    queries : int
        Queries of a synthetic set; 0: as many as the real one has.
    data_dir : Path, optional
        The folder that is searched first for sets of the catalogue.
    fold : int, optional
        The only fold to use of a set with folds; by default all are used.

    Raises
    ------
    DataError, ParameterError
        If there is no such data; the error lists the places searched and how to get it.
    """
    path, title, clip = Path(name), name, False
    if name in SHAPES:
        if fold is not None:
            raise ParameterError(f"fold is {fold}, but {name} has no folds: leave fold out")
        config = {"shape": name, "queries": queries or SHAPES[name].n_queries, "seed": SEED}
        return Source(name, (Fold(name, "", config),))
    if is_folder(path) or is_other(path):
        title = path.resolve().name
    elif name in catalogue.known():
        path, clip = catalogue.find(name, data_dir), name.startswith("istella")
    else:
        names = ", ".join([*SHAPES, *catalogue.known()])
        raise ParameterError(f"no dataset {name!r}, expected a file, a folder, or one of {names}")
    if not (path.is_file() or path.is_dir()):
        raise ParameterError(
            f"{path} is neither a file nor a folder, and a study reads its data more than once: "
            "write it to a file first"
        )
    return _find_folds(_recognise(path, title, clip=clip), path, clip=clip, fold=fold)


def _recognise(path: Path, name: str, *, clip: bool) -> str:
    """Return the name of the set of the catalogue that a folder holds, by its content.

    A folder that holds another set does not get the name of one of the paper's sets.
    """
    layout = layout_of(path)
    if layout is not None:
        try:
            fold = next(iter(layout.folds), None)
            entry = catalogue.recognise(load(path, fold=fold, clip=clip))
        except DataError:  # running the study raises it again
            entry = None
        if entry is not None:
            return entry.name
    return f"{name} (another)" if name in PAPER_DATASETS else name


def _find_folds(dataset: str, path: Path, *, clip: bool, fold: int | None) -> Source:
    """Return the folds of a file or folder, or only `fold`, and notes on its files."""
    layout = layout_of(path)
    identity = {"path": str(path.resolve()), "clip": clip}
    if layout is None or not layout.folds:
        if fold is not None:
            raise ParameterError(f"fold is {fold}, but {path} has no folds: leave it out")
        files = _list_files([path] if path.is_file() else path.iterdir())
        notes = () if layout is None else tuple(layout.notes())
        return Source(dataset, (Fold(dataset, "", identity | {"files": files}),), notes)
    folds = []
    for number in layout.folds if fold is None else [fold]:
        files = _list_files(chain(*layout.files(number).values()))
        config = identity | {"fold": number, "files": files}
        folds.append(Fold(dataset, f"Fold{number}", config))
    notes = () if fold is None else tuple(layout.notes(fold))
    return Source(dataset, tuple(folds), notes)
