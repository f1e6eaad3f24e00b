"""Run the jobs whose results are missing, in the order of their needs, on several threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from countersample._progress import Progress, get_logger
from countersample.clicks.relevance import ignore_few_relevant
from countersample.errors import CounterSampleError
from countersample.study.store import INTERMEDIATE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from concurrent.futures import Future

    from countersample._progress import Show
    from countersample.data import RankingDataset
    from countersample.study.jobs import Job, WorkList
    from countersample.study.store import Store

    Parts = tuple[RankingDataset, ...]  # training, validation and test data

logger = get_logger(__name__)
_WAIT_SECONDS = 0.2  # between two checks for a signal
_MIN_DRAWS = 20_000.0  # the least that a job counts in progress by draws
_MIN_SECONDS = 0.01  # the least that a job counts in progress by seconds
_CACHED_LOGS = 4


class Stopped(CounterSampleError):  # noqa: N818 (it is no error)
    """Raised in jobs that are interrupted."""


class Workbench:
    """Run the jobs of a study, and cache the data and click logs that several of them read.

    When `stop` is set, running jobs raise `Stopped`.
    """

    def __init__(self, store: Store, stop: threading.Event) -> None:
        self.store = store
        self.stop = stop
        self.data = lru_cache(None)(store.data)  # mapped files: the system frees their memory
        self.clicks = lru_cache(_CACHED_LOGS)(store.clicks)

    def do(self, job: Job, progress: Progress) -> None:
        """Run a job whose needs are done, and store its result."""

        def show(_what: str, share: float) -> None:
            if self.stop.is_set():
                raise Stopped("stopped")
            progress.update(share)

        stoppable = Progress(show)
        stoppable.update(0.0)
        self.store.write(job, job.work(self, job, stoppable))

    def data_of(self, clicks: Job) -> Parts:
        """Return the labelled data that a click log was simulated on."""
        (reference,) = clicks.needs
        return self.data(reference.needs[0])


@dataclass(frozen=True)
class State:
    """Which jobs of a work list are done."""

    done: dict[str, Job]  # by key
    missing: dict[str, Job]
    damaged: tuple[Job, ...]  # missing jobs whose result exists and cannot be read
    stale: tuple[Job, ...]  # missing jobs that have a result of another `RESULTS_VERSION`
    stages: tuple[str, ...]  # in the order of the work list

    def by_stage(self) -> list[tuple[str, int, int, int]]:
        """Return stage, jobs done, jobs in total and stale jobs, per stage."""
        done = Counter(job.stage for job in self.done.values())
        missing = Counter(job.stage for job in self.missing.values())
        stale = Counter(job.stage for job in self.stale)
        return [
            (stage, done[stage], done[stage] + missing[stage], stale[stage])
            for stage in self.stages
        ]


def state_of(work: WorkList, store: Store) -> State:
    """Return which results exist, and which are missing.

    Data and click logs count as done if no missing job needs them: users may remove them to free
    the disk.
    """
    exists: dict[str, bool] = {}
    missing: set[str] = set()

    def require(job: Job) -> None:
        if job.key not in exists:
            exists[job.key] = store.has(job)
        if not exists[job.key] and job.key not in missing:
            missing.add(job.key)
            for need in _ancestors(job):
                require(need)

    for job in work.jobs.values():
        if job.stage not in INTERMEDIATE:
            require(job)
    in_order = {key: job for key, job in work.jobs.items() if key in missing}
    done = {key: job for key, job in work.jobs.items() if key not in missing}
    damaged = tuple(job for job in in_order.values() if store.path(job).exists())
    stale = tuple(job for job in in_order.values() if store.other_versions(job))
    stages = tuple(dict.fromkeys(job.stage for job in work.jobs.values()))
    return State(done, in_order, damaged, stale, stages)


def _ancestors(job: Job) -> Iterator[Job]:
    """Yield the jobs that a job needs, directly or not: a run reads the data of its log, too."""
    for need in job.needs:
        yield need
        yield from _ancestors(need)


def run(
    jobs: Collection[Job],
    store: Store,
    *,
    workers: int,
    is_done: Collection[str] = (),
    seconds: Mapping[str, float] | None = None,
    progress: Progress | Show | None = None,
) -> None:
    """Run jobs. Their results depend neither on the number of workers nor on the order.

    The needs of a job come before it, or their keys are in `is_done`. BLAS has one thread
    meanwhile. Progress is measured in the expected `seconds` per key of a job, or else in draws.

    Raises
    ------
    KeyboardInterrupt
        After running jobs have stopped; finished results are kept.
    """
    stop = threading.Event()
    bench = Workbench(store, stop)
    tally = Tally(jobs, Progress.of(progress), seconds)
    waiting = {job.key: job for job in jobs}
    finished = set(is_done)
    at_work: dict[Future[None], Job] = {}

    def do(job: Job) -> None:
        since = time.monotonic()
        bench.do(job, tally.begin(job))
        tally.end(job)
        seconds = round(time.monotonic() - since, 3)
        logger.info(
            "%s done in %.1f s: %s", job.stage, seconds, job.title,
            extra={"stage": job.stage, "key": job.key, "seconds": seconds},
        )  # fmt: skip

    pool = ThreadPoolExecutor(workers)
    try:
        # Threads of BLAS beside those of the jobs wait for each other, busily. The stage
        # "relevance" reports warnings that other jobs would repeat.
        with threadpool_limits(1, "blas"), ignore_few_relevant():
            while waiting or at_work:
                next_jobs = [j for j in waiting.values() if all(n.key in finished for n in j.needs)]
                for job in next_jobs[: workers - len(at_work)]:
                    at_work[pool.submit(do, waiting.pop(job.key))] = job
                # With a timeout: signals are not handled while a thread waits for a lock.
                over, _ = wait(at_work, _WAIT_SECONDS, return_when=FIRST_COMPLETED)
                for future in over:
                    job = at_work.pop(future)
                    future.result()
                    finished.add(job.key)
    except BaseException:
        stop.set()
        for future in at_work:  # running jobs stop at their next report of progress
            with suppress(Exception):  # the first error is raised
                future.result()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


class Tally:
    """Report the progress of jobs that run at once as one `Progress`."""

    def __init__(
        self, jobs: Collection[Job], progress: Progress, seconds: Mapping[str, float] | None = None
    ) -> None:
        self.n_jobs = len(jobs)
        self.n_done = 0
        self._progress = progress
        if seconds is None:
            self._sizes = {job.key: max(job.draws, _MIN_DRAWS) for job in jobs}
        else:
            self._sizes = {job.key: max(seconds.get(job.key, 0.0), _MIN_SECONDS) for job in jobs}
        self._total = sum(self._sizes.values())
        self._done = self._drawn = 0.0
        self._begin = time.monotonic()
        self._at_work: dict[str, tuple[Job, float]] = {}
        self._lock = threading.Lock()

    def begin(self, job: Job) -> Progress:
        """Begin a job, and return its progress."""
        progress = Progress(lambda _what, share: self._update(job, share))
        progress.update(0.0)
        return progress

    def end(self, job: Job) -> None:
        """Count a job as done."""
        with self._lock:
            self._at_work.pop(job.key)
            self._done += self._sizes[job.key]
            self._drawn += job.draws
            self.n_done += 1
            self._report()

    def _update(self, job: Job, share: float) -> None:
        with self._lock:
            self._at_work[job.key] = (job, share)
            self._report()

    def _report(self) -> None:
        at_work = self._at_work.values()
        done = self._done + sum(self._sizes[job.key] * share for job, share in at_work)
        n_drawn = self._drawn + sum(job.draws * share for job, share in at_work)
        words = f"{self.n_done} of {self.n_jobs} jobs"
        if n_drawn:
            words += f", {n_drawn / max(1e-9, time.monotonic() - self._begin) / 1e6:.2f} M draws/s"
        at_once = "; ".join(f"{job.stage}: {job.title}" for job, _ in at_work)
        self._progress(f"{words}; {at_once}" if at_once else words, done / self._total)
