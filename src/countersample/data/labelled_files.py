"""Labelled data in any form that a user can name: LETOR text, tables, dataset folders.

The formats are in `letor` and `store`; features by item ids are read by `logs.features`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample._files import atomic_path, check_outputs
from countersample._progress import get_logger
from countersample.data.compact import check_bits
from countersample.data.dataset import RankingDataset
from countersample.data.letor import FolderLayout, find_layout, load_letor, save_letor
from countersample.data.letor_reader import LetorOptions, read_letor
from countersample.data.sources import as_path, reading
from countersample.data.store import (
    check_replaceable,
    is_dataset_folder,
    write_folder,
)
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from os import PathLike

    from countersample.data.store import Tape

TABLE_SUFFIXES = (".parquet", ".csv", ".tsv")
logger = get_logger(__name__)


def load(
    path: str | PathLike[str],
    *,
    fold: int | None = None,
    clip: bool = False,
    progress: bool = False,
) -> dict[str, RankingDataset]:
    """Open LETOR text, Parquet, CSV, a dataset folder, or a folder of LETOR text.

    Returns datasets by split, or a single dataset by the name of its file. `load_letor` explains
    the options and which files of a folder are read.
    """
    path = as_path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    is_folder = is_dataset_folder(path)
    if is_folder or path.suffix in TABLE_SUFFIXES:
        if fold is not None:
            raise ParameterError(f"fold is {fold}, but {path} is one dataset: leave fold out")
        return {path.name: RankingDataset.open(path) if is_folder else read_table(path)}
    datasets = load_letor(path, fold=fold, clip=clip, progress=progress)
    return datasets if isinstance(datasets, dict) else {path.name: datasets}


def load_train(path: str | PathLike[str], **options: Any) -> RankingDataset:  # noqa: ANN401 (the options of load)
    """Open labelled data as `load` does; of a folder with splits, the training part."""
    parts = load(path, **options)
    dataset = parts["train"] if "train" in parts else next(iter(parts.values()))
    sizes = {name: getattr(dataset, name) for name in ("n_queries", "n_items", "n_features")}
    logger.info("data read: %d queries, %d items, %d features", *sizes.values(), extra=sizes)
    return dataset


def layout_of(path: str | PathLike[str]) -> FolderLayout | None:
    """Return the layout of a folder of LETOR text; None for anything else."""
    path = as_path(path)
    return find_layout(path) if path.is_dir() and not is_dataset_folder(path) else None


def save(dataset: RankingDataset, path: str | PathLike[str]) -> None:
    """Write a dataset; the name decides the form.

    ``.parquet`` is Parquet; a name with ``.txt`` (or ``.txt.gz`` …) is LETOR text; a name without
    a suffix is a folder opened by memory map.
    """
    path = check_target(path)
    if path.suffix == ".parquet":
        write_parquet(dataset, path)
    elif path.suffix:
        save_letor(dataset, path)
    else:
        dataset.save(path)


def convert(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    clip: bool = False,
    bits: int | str | None = None,
    progress: bool = False,
) -> RankingDataset:
    """Convert labelled data to the form that the name of `target` decides (see `save`).

    LETOR text is converted to a folder on disk, so it may be larger than memory. With `bits` the
    folder has codes (`RankingDataset.compact`), and float32 numbers take disk space meanwhile.
    """
    source, target = as_path(source), check_target(target)
    check_outputs([target], [source])
    if bits is not None:
        check_bits(bits)  # before any work
        if target.suffix:
            raise DataError(
                f"{target}: codes of {bits} bits are stored in a folder, expected a name without "
                "suffix"
            )
    is_text = not source.is_dir() and source.suffix not in TABLE_SUFFIXES  # a file, or a pipe
    if is_text and not target.suffix:

        def fill(tape: Tape) -> RankingDataset:
            options = LetorOptions(clip=clip, progress=progress)
            return read_letor([source], tape, options)[0]

        write_folder(target, fill, bits=bits)
        return RankingDataset.open(target)
    parts = load(source, clip=clip, progress=progress)
    if len(parts) > 1:
        raise DataError(f"{source}: has {', '.join(parts)}: convert its files one by one")
    (dataset,) = parts.values()
    dataset = dataset if bits is None else dataset.compact(bits)
    save(dataset, target)
    return dataset


def check_target(path: str | PathLike[str]) -> Path:
    """Reject, before any work, a name that `save` cannot write to."""
    path = as_path(path)
    if not path.suffix:
        check_replaceable(path)
    elif path.suffix != ".parquet" and ".txt" not in path.suffixes[-2:]:
        raise DataError(
            f"{path}: unknown form '{path.suffix}': expected a name without suffix (a folder), "
            ".txt, .txt.gz, .txt.bz2, .txt.xz, .txt.zst or .parquet"
        )
    if not path.absolute().parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist: create it first")
    return path


def read_table(path: str | PathLike[str]) -> RankingDataset:
    """Read a Parquet, CSV or TSV file with named columns; see `RankingDataset.from_frame`."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import csv, parquet  # noqa: PLC0415

    path = Path(path)
    with reading(path, f"cannot be read as {path.suffix[1:]}: {{}}", pa.ArrowException):
        # Arrow seeks in a file, which a pipe does not allow.
        source = path if path.is_file() else pa.BufferReader(path.read_bytes())
        if path.suffix == ".parquet":
            table = parquet.read_table(source)
        else:
            delimiter = "\t" if path.suffix == ".tsv" else ","
            table = csv.read_csv(source, parse_options=csv.ParseOptions(delimiter=delimiter))
        return RankingDataset.from_frame(table)


def write_parquet(dataset: RankingDataset, path: str | PathLike[str]) -> None:
    """Write a dataset as Parquet: columns ``qid``, ``label`` and one per feature (``f1`` …)."""
    from pyarrow import parquet  # noqa: PLC0415 (heavy, only where used)

    with atomic_path(path) as temporary:
        parquet.write_table(dataset.to_frame("pyarrow"), temporary)
