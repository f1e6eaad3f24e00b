"""One way to open any judged data that a person names on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from countersample.data.frames import TABLE_SUFFIXES, read_table, write_parquet
from countersample.data.letor import load_letor, save_letor
from countersample.data.store import is_dataset_folder, open_folder, save_folder
from countersample.errors import DataError

if TYPE_CHECKING:
    from os import PathLike

    from countersample.data.dataset import RankingDataset


def load(
    path: str | PathLike[str],
    *,
    clip: bool = False,
    cache: str | PathLike[str] | None = None,
    progress: bool = False,
) -> dict[str, RankingDataset]:
    """Open LETOR text, Parquet, CSV, a saved dataset, or a folder with train, vali and test files.

    Parameters
    ----------
    path : path of a file or a folder
    clip : bool
        As in `load_letor`.
    cache : path of a folder, optional
        Where to keep LETOR text in binary form.
    progress : bool
        Show a progress bar after two seconds.

    Returns
    -------
    dict
        Datasets by split; one under the file's name where there is one only.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if is_dataset_folder(path):
        return {path.name: open_folder(path)}
    if path.suffix in TABLE_SUFFIXES:
        return {path.name: read_table(path)}
    loaded = load_letor(path, clip=clip, cache=cache, progress=progress)
    return loaded if isinstance(loaded, dict) else {path.name: loaded}


def save(dataset: RankingDataset, path: str | PathLike[str]) -> None:
    """Write a dataset in the form that the name of `path` tells.

    ``.parquet`` is Parquet; a name with ``.txt`` (or ``.txt.gz`` …) is LETOR text; a name without
    a suffix is a folder opened by memory map.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        write_parquet(dataset, path)
    elif ".txt" in path.suffixes:
        save_letor(dataset, path)
    elif not path.suffix:
        save_folder(dataset, path)
    else:
        raise DataError(
            f"{path}: unknown form '{path.suffix}': expected a name without suffix (a folder), "
            ".txt, .txt.gz, .txt.bz2, .txt.xz, .txt.zst or .parquet"
        )
