"""The results folder: one file a job, written atomically, found again by its key."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from countersample._files import atomic_path, is_file, is_folder, is_other
from countersample._json import parse_json
from countersample.clicks import ClickLog
from countersample.data import RankingDataset
from countersample.errors import CounterSampleError, DataError
from countersample.study.design.folds import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from countersample.study.running.jobs import Job

FORMAT = 4  # of the folder: another number when its files are laid out otherwise
# Raise it when the same configuration and data give other numbers: a results folder then makes its
# results again. tests/test_study_golden.py fails until that is done.
RESULTS_VERSION = 1
IDENTITY = "study.json"
INTERMEDIATE = ("data", "clicks")  # results that only other jobs read
_LOCK = ".lock"


class Store:
    """The results folder of a study."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # -- whose folder it is

    def claim(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        """Make the folder, or add to it; return all that it then holds the results of.

        A grid that the folder has not is added, one of the same name is as it is now; the others
        stay. No result is removed: it is found again by what was asked.

        Raises
        ------
        DataError
            For a folder of something else, of another format or scale, with what to do. Nothing is
            changed.
        """
        wanted = json.loads(json.dumps(identity))
        if is_other(self.folder):
            raise DataError(f"{self.folder}: is a file, expected a folder for the results")
        if self.is_begun():
            found = self.identity()
            wanted = self.merged(wanted)
            if wanted == found:
                return found
        elif is_folder(self.folder) and self._has_files():
            raise DataError(
                f"{self.folder}: has files but no {IDENTITY}, so it is no results folder: "
                "choose another with --out"
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CounterSampleError(f"{self.folder}: cannot be made: {error.strerror}") from error
        self._write(self.folder / IDENTITY, wanted)
        return dict(wanted)

    def _has_files(self) -> bool:
        try:
            return any(self.folder.iterdir())
        except OSError as error:
            raise DataError(f"{self.folder}: cannot be read: {error.strerror}") from error

    def merged(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the folder would hold with this added (see `claim`)."""
        wanted: dict[str, Any] = json.loads(json.dumps(identity))
        if not self.is_begun():
            return wanted
        found = self.identity()
        scale, grids = found.get("scale"), found.get("grids")
        if not isinstance(grids, dict):
            raise DataError(f"{self.folder / IDENTITY}: is damaged, it names no grids")
        if scale != wanted["scale"]:
            raise DataError(
                f"{self.folder}: has results at scale {scale}, now {wanted['scale']}, and "
                "a report has one: choose another folder with --out"
            )
        return wanted | {"grids": grids | wanted["grids"]}

    def is_begun(self) -> bool:
        """Whether the folder says what it holds the results of."""
        return is_file(self.folder / IDENTITY)

    def identity(self) -> dict[str, Any]:
        """Return what the folder holds the results of.

        Raises
        ------
        DataError
            Where it is no results folder, or one of another format.
        """
        path = self.folder / IDENTITY
        if not self.is_begun():
            raise DataError(
                f"{self.folder}: has no {IDENTITY}, expected a results folder of countersample"
            )
        found = self._read(path)
        if not isinstance(found, dict):
            raise DataError(f"{path}: is damaged, expected what a results folder holds")
        if found.get("format") != FORMAT:
            raise DataError(
                f"{self.folder}: has results in format {found.get('format')}, and this version "
                f"reads format {FORMAT}: choose another folder with --out"
            )
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
        if not is_file(self.folder / _LOCK):
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

    def made_otherwise(self, job: Job) -> list[Path]:
        """Return the results of a job that have another `RESULTS_VERSION`."""
        found = self.path(job).parent.glob(f"{job.content}-*")
        return sorted(path for path in found if path.name.split(".")[0] != job.key)

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
        found = self._read(self.path(job))
        if not isinstance(found, dict):
            raise DataError(f"{self.path(job)}: is damaged, expected the result of a job")
        return _Result(self.path(job), found)

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
        if job.stage in INTERMEDIATE:  # large, and nothing reads those of another version
            for old in self.made_otherwise(job):
                shutil.rmtree(old) if old.is_dir() else old.unlink()

    def data(self, job: Job) -> tuple[RankingDataset, ...]:
        """Return training, validation and test data, mapped into memory."""
        return tuple(RankingDataset.open(self.path(job) / part) for part in PARTS)

    def clicks(self, job: Job) -> ClickLog:
        """Return a click log."""
        return ClickLog.load(self.path(job))

    @staticmethod
    def _read(path: Path) -> Any:  # noqa: ANN401 (what the file says)
        try:
            return parse_json(path.read_bytes())
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read: {error}") from error

    @staticmethod
    def _write(path: Path, value: Mapping[str, Any]) -> None:
        with atomic_path(path) as temporary:
            text = json.dumps(value, indent=1, ensure_ascii=False)
            temporary.write_text(text + "\n", encoding="utf-8")


class _Result(dict[str, Any]):
    """What a file says; what it does not say is asked for in vain with an error of this package."""

    def __init__(self, path: Path, found: Mapping[str, Any]) -> None:
        super().__init__(found)
        self._path = path

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 (nothing is returned)
        raise DataError(
            f"{self._path}: is damaged, it has no {name!r}: delete it, and run the study again"
        )


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
