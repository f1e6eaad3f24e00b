"""Where jobs are done: what they read, kept, and how they are stopped."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from countersample._progress import Progress
from countersample.errors import CounterSampleError

if TYPE_CHECKING:
    import threading

    from countersample.data import RankingDataset
    from countersample.study.running.jobs import Job
    from countersample.study.running.store import Store

    Parts = tuple[RankingDataset, ...]

_KEPT_LOGS = 4


class Stopped(CounterSampleError):  # noqa: N818 (it is no error)
    """Work that was asked to stop."""


class Workbench:
    """Does the jobs of a study, and keeps what several of them read.

    `data` and `clicks` return the labelled data and the click log that a job has made. When `stop`
    is set, jobs at work end with `Stopped`.
    """

    def __init__(self, store: Store, stop: threading.Event) -> None:
        self.store = store
        self.stop = stop
        self.data = lru_cache(None)(store.data)  # mapped files: the system frees their memory
        self.clicks = lru_cache(_KEPT_LOGS)(store.clicks)

    def do(self, job: Job, progress: Progress) -> None:
        """Do a job, whose needs are done, and keep its result."""

        def show(_what: str, share: float) -> None:
            if self.stop.is_set():
                raise Stopped("stopped")
            progress.update(share)

        watched = Progress(show)
        watched.update(0.0)
        self.store.write(job, job.work(self, job, watched))

    def data_of(self, clicks: Job) -> Parts:
        """Return the labelled data that a click log was simulated on."""
        (reference,) = clicks.needs
        return self.data(reference.needs[0])
