"""How far jobs that are at work at once have come together."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from countersample._progress import Progress

if TYPE_CHECKING:
    from collections.abc import Collection

    from countersample.study.running.jobs import Job

_SMALL = 20_000.0  # draws that a job counts as which draws nothing


class Tally:
    """Keeps count of what is done, and tells one `Progress`.

    Parameters
    ----------
    jobs : collection of Job
        What is to be done.
    progress : Progress
    """

    def __init__(self, jobs: Collection[Job], progress: Progress) -> None:
        self.n_jobs = len(jobs)
        self.n_done = 0
        self._progress = progress
        self._in_all = sum(_size(job) for job in jobs)
        self._done = 0.0
        self._begin = time.monotonic()
        self._at_work: dict[str, tuple[Job, float]] = {}
        self._lock = threading.Lock()

    def begin(self, job: Job) -> Progress:
        """Take note of a job that is at work, and return its progress."""
        progress = Progress(lambda _what, share: self._note(job, share))
        progress.update(0.0)
        return progress

    def end(self, job: Job) -> None:
        """Take note that a job is done."""
        with self._lock:
            self._at_work.pop(job.key)
            self._done += _size(job)
            self.n_done += 1
            self._tell()

    def _note(self, job: Job, share: float) -> None:
        with self._lock:
            self._at_work[job.key] = (job, share)
            self._tell()

    def _tell(self) -> None:
        done = self._done + sum(_size(job) * share for job, share in self._at_work.values())
        rate = done / max(1e-9, time.monotonic() - self._begin) / 1e6
        doing = "; ".join(f"{job.stage}: {job.title}" for job, _ in self._at_work.values())
        words = f"{self.n_done} of {self.n_jobs} jobs, {rate:.2f} M draws/s"
        self._progress(f"{words}; {doing}" if doing else words, done / self._in_all)


def _size(job: Job) -> float:
    return max(job.draws, _SMALL)
