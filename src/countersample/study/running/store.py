"""The results folder: one file a job, written atomically, found again by its key."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from countersample._files import atomic_path
from countersample._version import __version__
from countersample.clicks import ClickLog
from countersample.data import RankingDataset
from countersample.errors import CounterSampleError, DataError
from countersample.study.design.sources import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from countersample.study.running.jobs import Job

IDENTITY = "study.json"
_LOCK = ".lock"


class Store:
    """The results folder of a study."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # -- whose folder it is

    def claim(self, identity: Mapping[str, Any]) -> None:
        """Make the folder, or check that it is of the same version, grids, scale and data.

        Raises
        ------
        DataError
            For a folder that is not, with what to do. Nothing is changed.
        """
        wanted = {"version": __version__, **json.loads(json.dumps(identity))}
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"{self.folder}: is a file, expected a folder for the results")
        if not (self.folder / IDENTITY).exists():
            if self.folder.is_dir() and any(self.folder.iterdir()):
                raise DataError(
                    f"{self.folder}: has files but no {IDENTITY}, so it is no results folder: "
                    "choose another with --out"
                )
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CounterSampleError(
                    f"{self.folder}: cannot be made: {error.strerror}"
                ) from error
            self._write(self.folder / IDENTITY, wanted)
            return
        found = self.identity()
        if found != wanted:
            raise DataError(
                f"{self.folder}: has results of another study ({_difference(found, wanted)}): "
                "choose another folder with --out, or remove this one"
            )

    def identity(self) -> dict[str, Any]:
        """Return what the folder holds the results of."""
        path = self.folder / IDENTITY
        if not path.exists():
            raise DataError(
                f"{self.folder}: has no {IDENTITY}, expected a results folder of countersample"
            )
        found = self._read(path)
        if not isinstance(found, dict):
            raise DataError(f"{path}: is damaged, expected what a results folder holds")
        return found

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs out of the folder; the system gives it back when a run is killed."""
        lock = _lock(self.folder / _LOCK)
        if not lock:
            raise CounterSampleError(
                f"{self.folder}: another run is at work in this folder: wait for it, or choose "
                "another with --out"
            )
        try:
            yield
        finally:
            lock.release()

    def is_locked(self) -> bool:
        """Whether a run is at work here."""
        if not (self.folder / _LOCK).exists():
            return False
        lock = _lock(self.folder / _LOCK)
        if lock:
            lock.release()
        return not lock

    # -- results

    def path(self, job: Job) -> Path:
        """Return where the result of a job is."""
        suffix = {"data": "", "clicks": ".parquet"}.get(job.stage, ".json")
        return self.folder / "work" / job.stage / (job.key + suffix)

    def has(self, job: Job) -> bool:
        """Whether the result of a job is there and whole."""
        if not self.path(job).exists():
            return False
        try:
            if job.stage == "data":
                self.data(job)
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
        found: dict[str, Any] = self._read(self.path(job))
        return found

    def write(self, job: Job, result: Any) -> None:  # noqa: ANN401 (by stage)
        """Keep the result of a job: labelled data, a click log, or plain values."""
        path = self.path(job)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CounterSampleError(f"{path}: cannot be written: {error.strerror}") from error
        if job.stage == "clicks":
            result.save(path)
        elif job.stage == "data":
            with atomic_path(path) as temporary:
                temporary.mkdir()
                for name, part in zip(PARTS, result, strict=True):
                    part.save(temporary / name)
        else:
            self._write(path, result)

    def data(self, job: Job) -> tuple[RankingDataset, ...]:
        """Return training, validation and test data, mapped into memory."""
        return tuple(RankingDataset.open(self.path(job) / part) for part in PARTS)

    def clicks(self, job: Job) -> ClickLog:
        """Return a click log."""
        return ClickLog.load(self.path(job))

    @staticmethod
    def _read(path: Path) -> Any:  # noqa: ANN401 (what the file says)
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read: {error}") from error

    @staticmethod
    def _write(path: Path, value: Mapping[str, Any]) -> None:
        with atomic_path(path) as temporary:
            text = json.dumps(value, indent=1, ensure_ascii=False)
            temporary.write_text(text + "\n", encoding="utf-8")


def _lock(path: Path) -> Any:  # noqa: ANN401 (a FileLock, or None where it is taken)
    from filelock import FileLock, Timeout  # noqa: PLC0415 (only where a study runs)

    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    except OSError as error:
        raise CounterSampleError(f"{path.parent}: cannot be written: {error.strerror}") from error
    return lock


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    keys = [key for key in wanted if found.get(key) != wanted[key]]
    if "version" in keys:
        return f"made by countersample {found.get('version')}, this is {wanted['version']}"
    told = [
        f"{key}: {_listed(found.get(key))}, now {_listed(wanted[key])}"
        for key in keys
        if not isinstance(wanted[key], dict)
    ]
    return "; ".join(told) or "a grid, a setting or a data file has changed since"


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
