"""A study, and where its labelled data comes from: made up, known by name, or a path."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from countersample._files import is_folder, is_other
from countersample.data import catalogue
from countersample.data.load import layout_of, load
from countersample.data.synthetic import SHAPES
from countersample.errors import DataError, ParameterError
from countersample.study.design.folds import SEED, Fold, state_of_files
from countersample.study.design.published import PAPER_DATASETS

if TYPE_CHECKING:
    from countersample.study.design.config import ExperimentConfig
    from countersample.study.design.grids import Grid


@dataclass(frozen=True)
class Source:
    """A dataset of a study: its name as shown, its folds, and what is said of its files."""

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
        """That of its grid."""
        return self.grid.name


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
        Of a synthetic set; 0: as many as the real one has.
    data_dir : Path, optional
        Where sets of the catalogue are looked for first.
    fold : int, optional
        The one fold of a set with folds that is used; by default all are.

    Raises
    ------
    DataError, ParameterError
        Where there is no such data: where it was looked for, and how to get it.
    """
    if name in SHAPES:
        if fold is not None:
            raise ParameterError(f"fold is {fold}, but {name} has no folds: leave fold out")
        config = {"shape": name, "queries": queries or SHAPES[name].n_queries, "seed": SEED}
        return Source(name, (Fold(name, "", config),))
    path = Path(name)
    is_there = is_folder(path) or is_other(path)
    if name in catalogue.known() and not is_there:
        path, clip = catalogue.find(name, data_dir), name.startswith("istella")
        shown = _recognised(path, name, clip=clip)
        return Source(shown, *_folds(shown, path, clip=clip, fold=fold))
    if not is_there:
        known = ", ".join([*SHAPES, *catalogue.known()])
        raise ParameterError(
            f"no dataset {name!r}: there is no such file or folder, and the names known are {known}"
        )
    if not (path.is_file() or path.is_dir()):
        raise ParameterError(
            f"{path} is neither a file nor a folder, and a study reads its data more than once: "
            "write it to a file first"
        )
    shown = _recognised(path, path.resolve().name, clip=False)
    return Source(shown, *_folds(shown, path, clip=False, fold=fold))


def _recognised(path: Path, name: str, *, clip: bool) -> str:
    """Return the name of the known set that a folder holds, whatever the folder is called.

    Where it holds none that is known, it does not go by the name of one of the paper's.
    """
    layout = layout_of(path)
    if layout is not None:
        try:
            fold = next(iter(layout.folds), None)
            known = catalogue.recognise(load(path, fold=fold, clip=clip))
        except DataError:  # which running it says, with what is wrong
            known = None
        if known is not None:
            return known.name
    return f"{name} (another)" if name in PAPER_DATASETS else name


def _folds(
    dataset: str, path: Path, *, clip: bool, fold: int | None
) -> tuple[tuple[Fold, ...], tuple[str, ...]]:
    """Return the folds of a file or folder, or the one asked for, and what is said of its files."""
    layout = layout_of(path)
    known = {"path": str(path.resolve()), "clip": clip}
    if layout is None or not layout.folds:
        if fold is not None:
            raise ParameterError(f"fold is {fold}, but {path} has no folds: leave it out")
        files = state_of_files([path] if path.is_file() else path.iterdir())
        notes = () if layout is None else tuple(layout.notes())
        return (Fold(dataset, "", known | {"files": files}),), notes
    folds = tuple(
        Fold(
            dataset,
            f"Fold{number}",
            known
            | {"fold": number, "files": state_of_files(chain(*layout.files(number).values()))},
        )
        for number in (layout.folds if fold is None else [fold])
    )
    return folds, tuple(layout.notes(fold, every_fold=fold is None))
