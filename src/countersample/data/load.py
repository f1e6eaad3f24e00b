"""One way to open any labelled data that a person names on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countersample._logging import get_logger
from countersample.data.compact import check_bits
from countersample.data.folders import find_layout
from countersample.data.frames import TABLE_SUFFIXES, read_table, write_parquet
from countersample.data.letor import load_letor, read_letor, save_letor
from countersample.data.sources import as_path
from countersample.data.store import (
    check_replaceable,
    is_dataset_folder,
    open_folder,
    save_folder,
    write_compact,
    write_folder,
)
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from countersample.data._tape import Tape
    from countersample.data.dataset import RankingDataset
    from countersample.data.folders import FolderLayout

logger = get_logger(__name__)


def load(
    path: str | PathLike[str],
    *,
    fold: int | None = None,
    clip: bool = False,
    bits: int | str | None = None,
    cache: str | PathLike[str] | None = None,
    progress: bool = False,
) -> dict[str, RankingDataset]:
    """Open LETOR text, Parquet, CSV, a saved dataset, or a folder of LETOR text.

    Datasets are by split; one is under the file's name where there is one only. The options, and
    what a folder may have, are those of `load_letor`.
    """
    path = as_path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    is_folder = is_dataset_folder(path)
    if is_folder or path.suffix in TABLE_SUFFIXES:
        if fold is not None:
            raise ParameterError(f"fold is {fold}, but {path} is one dataset: leave fold out")
        found = open_folder(path) if is_folder else read_table(path)
        return {path.name: found if bits is None else found.compact(bits)}
    loaded = load_letor(path, fold=fold, clip=clip, bits=bits, cache=cache, progress=progress)
    return loaded if isinstance(loaded, dict) else {path.name: loaded}


def layout_of(path: str | PathLike[str]) -> FolderLayout | None:
    """Return what the files of a folder are, or None for what is no folder of LETOR text."""
    path = as_path(path)
    return find_layout(path) if path.is_dir() and not is_dataset_folder(path) else None


def load_train(
    path: str | PathLike[str],
    *,
    fold: int | None = None,
    bits: int | str | None = None,
    cache: str | PathLike[str] | None = None,
    progress: bool = False,
) -> RankingDataset:
    """Open labelled data; of a folder of splits, the training part."""
    parts = load(path, fold=fold, bits=bits, cache=cache, progress=progress)
    found = parts["train"] if "train" in parts else next(iter(parts.values()))
    sizes = {name: getattr(found, name) for name in ("n_queries", "n_items", "n_features")}
    logger.info("data read: %d queries, %d items, %d features", *sizes.values(), extra=sizes)
    return found


def save(dataset: RankingDataset, path: str | PathLike[str]) -> None:
    """Write a dataset in the form that the name of `path` tells.

    ``.parquet`` is Parquet; a name with ``.txt`` (or ``.txt.gz`` …) is LETOR text; a name without
    a suffix is a folder opened by memory map.
    """
    path = check_target(path)
    if path.suffix == ".parquet":
        write_parquet(dataset, path)
    elif path.suffix:
        save_letor(dataset, path)
    else:
        save_folder(dataset, path)


def convert(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    clip: bool = False,
    bits: int | str | None = None,
    roots: bool = False,
    progress: bool = False,
) -> RankingDataset:
    """Convert labelled data to the form that the name of `target` tells (see `save`); return it.

    LETOR text to a folder goes straight to disk, so it may be larger than memory. With `bits` the
    folder has codes (see `RankingDataset.compact`, for `roots`, too); what is larger than memory
    takes the room of its numbers on disk meanwhile.
    """
    source, target = as_path(source), check_target(target)
    if bits is not None:
        check_bits(bits)  # before the work
        if target.suffix:
            raise DataError(
                f"{target}: codes of {bits} bits are kept in a folder, expected a name without "
                "suffix"
            )
    if not target.suffix and not source.is_dir() and source.suffix not in TABLE_SUFFIXES:

        def fill(tape: Tape) -> tuple[RankingDataset, dict[str, str]]:
            dataset, _ = read_letor([source], tape, clip=clip, progress=progress)
            return dataset, {"source": source.name}

        write_folder(target, fill, bits=bits, roots=roots)
        return open_folder(target)
    parts = load(source, clip=clip, progress=progress)
    if len(parts) > 1:
        raise DataError(f"{source}: has {', '.join(parts)}: convert its files one by one")
    (dataset,) = parts.values()
    if bits is None:
        save(dataset, target)
        return dataset
    if dataset.bits is not None:
        raise DataError(f"{source}: has codes of {dataset.bits} bits already")
    write_compact(target, dataset, bits, {"source": source.name}, roots=roots)
    return open_folder(target)


def check_target(path: str | PathLike[str]) -> Path:
    """Refuse, before any work, a name that `save` cannot write to."""
    path = as_path(path)
    if not path.suffix:
        check_replaceable(path)
    elif path.suffix != ".parquet" and ".txt" not in path.suffixes[-2:]:
        raise DataError(
            f"{path}: unknown form '{path.suffix}': expected a name without suffix (a folder), "
            ".txt, .txt.gz, .txt.bz2, .txt.xz, .txt.zst or .parquet"
        )
    if not path.absolute().parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist: make it first")
    return path
