"""The results folder: `study.json` with the studies, and one file per job under `work/`.

The file of a job is named by its key (see `jobs.Job`) and written atomically, so a run that was
stopped continues with the jobs that have no file. Two runs of one study in one folder repeat work,
and lose none.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from countersample._files import atomic_path, is_file, is_folder, is_other
from countersample._json import check_schema, parse_json
from countersample.clicks import ClickLog
from countersample.data import RankingDataset
from countersample.errors import CounterSampleError, DataError
from countersample.study.grids import Grid  # noqa: TC001 (msgspec reads the types of fields)
from countersample.study.sources import PARTS, Fold

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from countersample.study.jobs import Job

    Parts = tuple[RankingDataset, ...]  # training, validation and test data

FORMAT = 4  # of the folder; raise it when the layout of its files changes
# Raise it when the same configuration and data give other numbers: results folders then compute
# their results again. tests/test_study_golden.py fails until this is done.
RESULTS_VERSION = 1
IDENTITY = "study.json"
_CACHED_LOGS = 4
INTERMEDIATE = ("data", "clicks")  # results that only other jobs read


class StudyEntry(msgspec.Struct):
    """A study in `study.json`."""

    grid: Grid
    config: dict[str, Any]
    folds: list[Fold]
    command: str  # that began it


class Identity(msgspec.Struct):
    """The content of `study.json`: what the results of a folder are of."""

    format: int
    scale: str
    grids: dict[str, StudyEntry]


def no_study(reason: Exception) -> DataError:
    """Return the error of a `study.json` that describes no study."""
    return DataError(
        f"{IDENTITY} does not describe a study ({reason}): start again in another folder"
    )


class Store:
    """The results folder of a study."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Several jobs read them.
        self.data = lru_cache(None)(self._open_data)  # mapped files: the system frees their memory
        self.clicks = lru_cache(_CACHED_LOGS)(self._load_clicks)

    # -- identity

    def claim(self, identity: Identity) -> Identity:
        """Create the folder, or add to it; return the identity of all studies it then holds.

        A new grid is added, one of the same name replaced; the others stay. No result is removed:
        the key of a job finds it again.

        Raises
        ------
        DataError
            For a folder of something else, of another format or scale. Nothing is changed.
        """
        if is_other(self.folder):
            raise DataError(f"{self.folder}: is a file, expected a folder for the results")
        if not self.is_begun() and is_folder(self.folder) and any(self.folder.iterdir()):
            raise DataError(
                f"{self.folder}: has files but no {IDENTITY}, so it is not a results folder: "
                "choose another with --out"
            )
        merged = self.merge(identity)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CounterSampleError(f"{self.folder}: cannot be made: {error.strerror}") from error
        _write_json(self.folder / IDENTITY, msgspec.to_builtins(merged))
        return merged

    def merge(self, identity: Identity) -> Identity:
        """Return the identity of the folder with this one added (see `claim`)."""
        if not self.is_begun():
            return identity
        before = self.identity()
        if before.scale != identity.scale:
            raise DataError(
                f"{self.folder}: has results at scale {before.scale}, now {identity.scale}, and a "
                "report has one scale: choose another folder with --out"
            )
        return Identity(FORMAT, identity.scale, before.grids | identity.grids)

    def is_begun(self) -> bool:
        """Whether the folder holds results of a study."""
        return is_file(self.folder / IDENTITY)

    def identity(self) -> Identity:
        """Return the grids, settings and data of the results in the folder.

        Raises
        ------
        DataError
            If it is no results folder, or has another format. Anyone may write the file.
        """
        if not self.is_begun():
            raise DataError(
                f"{self.folder}: has no {IDENTITY}, expected a results folder of countersample"
            )
        content = _read_json(self.folder / IDENTITY)
        if content.get("format") != FORMAT:
            raise DataError(
                f"{self.folder}: has results in format {content.get('format')}, and this version "
                f"reads format {FORMAT}: choose another folder with --out"
            )
        try:
            return check_schema(dict(content), Identity, "the folder")
        except DataError as error:
            raise no_study(error) from error

    # -- results

    def path(self, job: Job) -> Path:
        """Return the path of the result of a job."""
        suffix = {"data": "", "clicks": ".parquet"}.get(job.stage, ".json")
        return self.folder / "work" / job.stage / (job.key + suffix)

    def has(self, job: Job) -> bool:
        """Whether the result of a job exists and is complete."""
        if not self.path(job).exists():
            return False
        try:
            if job.stage == "data":
                self._open_data(job)
            elif job.stage == "clicks":
                from pyarrow.parquet import ParquetFile  # noqa: PLC0415 (heavy)

                ParquetFile(self.path(job)).close()
            else:
                self.read(job)
        except (CounterSampleError, OSError, ValueError):  # pyarrow's errors are these
            return False
        return True

    def read(self, job: Job) -> dict[str, Any]:
        """Return the result of a job that gives plain values."""
        return _read_json(self.path(job))

    def data_of(self, clicks: Job) -> Parts:
        """Return the labelled data that a click log was simulated on."""
        (reference,) = clicks.needs
        return self.data(reference.needs[0])

    def _open_data(self, job: Job) -> Parts:
        """Return training, validation and test data, mapped into memory."""
        return tuple(RankingDataset.open(self.path(job) / part) for part in PARTS)

    def _load_clicks(self, job: Job) -> ClickLog:
        """Return a click log."""
        return ClickLog.load(self.path(job))

    def write(self, job: Job, result: Any) -> None:  # noqa: ANN401 (by stage)
        """Write the result of a job: labelled data, a click log, or plain values."""
        path = self.path(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        if job.stage == "clicks":
            result.save(path)
        elif job.stage == "data":
            with atomic_path(path) as temporary:
                temporary.mkdir()
                for name, part in zip(PARTS, result, strict=True):
                    part.save(temporary / name)
        else:
            _write_json(path, result)


class _Content(dict[str, Any]):
    """The content of a file; missing keys raise `DataError`."""

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self._path = path

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 (nothing is returned)
        raise DataError(
            f"{self._path}: is damaged, it has no {name!r}: delete it, and run the study again"
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: is damaged, expected an object: delete it, and run again")
    return _Content(path, content)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    with atomic_path(path) as temporary:
        text = json.dumps(value, indent=1, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")
