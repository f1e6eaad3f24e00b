"""Doing a work list: what is missing, in the order of what it needs, on several threads."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from countersample._progress import Progress
from countersample.study.running.jobs import INTERMEDIATE
from countersample.study.running.stages import Workbench
from countersample.study.running.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from concurrent.futures import Future

    from countersample._progress import Show
    from countersample.study.running.jobs import Job, WorkList
    from countersample.study.running.store import Store

_PATIENCE = 0.2  # seconds


@dataclass(frozen=True)
class State:
    """How far a work list is.

    Attributes
    ----------
    done, missing : dict of key to Job
    damaged : tuple of Job
        Of those missing: a result is there, but it cannot be read.
    stages : tuple of str
        In the order of the work list.
    """

    done: dict[str, Job]
    missing: dict[str, Job]
    damaged: tuple[Job, ...]
    stages: tuple[str, ...]

    def by_stage(self) -> list[tuple[str, int, int]]:
        """Return (stage, done, in all) of the stages that there are."""
        done = Counter(job.stage for job in self.done.values())
        missing = Counter(job.stage for job in self.missing.values())
        return [(stage, done[stage], done[stage] + missing[stage]) for stage in self.stages]


def state_of(work: WorkList, store: Store) -> State:
    """Return which results are there, and what is missing.

    Data and click logs count as done where nothing that is missing needs them: they may be removed
    to free the disk.
    """
    is_there: dict[str, bool] = {}
    missing: set[str] = set()

    def require(job: Job) -> None:
        if job.key not in is_there:
            is_there[job.key] = store.has(job)
        if not is_there[job.key] and job.key not in missing:
            missing.add(job.key)
            for need in _ancestors(job):
                require(need)

    for job in work.jobs.values():
        if job.stage not in INTERMEDIATE:
            require(job)
    in_order = {key: job for key, job in work.jobs.items() if key in missing}
    done = {key: job for key, job in work.jobs.items() if key not in missing}
    damaged = tuple(job for job in in_order.values() if store.path(job).exists())
    return State(done, in_order, damaged, tuple(dict.fromkeys(j.stage for j in work.jobs.values())))


def _ancestors(job: Job) -> Iterator[Job]:
    """Yield what a job needs, directly or not: a run reads the data that its log came from."""
    for need in job.needs:
        yield need
        yield from _ancestors(need)


def run(
    jobs: Collection[Job],
    store: Store,
    *,
    workers: int,
    is_done: Collection[str] = (),
    progress: Progress | Show | None = None,
) -> None:
    """Do jobs. Their results do not depend on the number of workers, nor on the order.

    Parameters
    ----------
    jobs : collection of Job
        What each needs comes before it, or is done.
    store : Store
    workers : int
    is_done : collection of keys
        Of jobs whose results are there.
    progress : function of (what is going on, share of all that is done), optional

    Raises
    ------
    KeyboardInterrupt
        After work in flight has stopped; what is done is kept.
    """
    stop = threading.Event()
    bench = Workbench(store, stop)
    tally = Tally(jobs, Progress.of(progress))
    waiting = {job.key: job for job in jobs}
    finished = set(is_done)
    at_work: dict[Future[None], Job] = {}

    def do(job: Job) -> None:
        bench.do(job, tally.begin(job))
        tally.end(job)

    pool = ThreadPoolExecutor(workers)
    try:
        while waiting or at_work:
            for job in _ready(waiting.values(), finished)[: workers - len(at_work)]:
                at_work[pool.submit(do, waiting.pop(job.key))] = job
            # Now and then awake: a signal is not seen while a thread waits for a lock.
            over, _ = wait(at_work, _PATIENCE, return_when=FIRST_COMPLETED)
            for future in over:
                job = at_work.pop(future)
                future.result()
                finished.add(job.key)
    except BaseException:
        stop.set()
        _drain(at_work)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _ready(jobs: Iterable[Job], finished: set[str]) -> list[Job]:
    return [job for job in jobs if all(need.key in finished for need in job.needs)]


def _drain(at_work: Iterable[Future[None]]) -> None:
    """Wait for work in flight: it ends at its next report, or is done."""
    for future in at_work:
        with suppress(Exception):  # the first error is the one that is told
            future.result()
