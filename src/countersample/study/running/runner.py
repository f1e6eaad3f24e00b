"""Run a work list: what is missing, in the order of what it needs, on several threads."""

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

from countersample._logging import get_logger
from countersample._progress import Progress
from countersample.clicks.relevance import told_already
from countersample.errors import CounterSampleError
from countersample.study.running.store import INTERMEDIATE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from concurrent.futures import Future

    from countersample._progress import Show
    from countersample.data import RankingDataset
    from countersample.study.running.jobs import Job, WorkList
    from countersample.study.running.store import Store

    Parts = tuple[RankingDataset, ...]  # training, validation and test data

logger = get_logger(__name__)
_WAIT_SECONDS = 0.2  # between two looks for a signal
_MIN_DRAWS = 20_000.0  # that a job counts as if it draws fewer
_MIN_SECONDS = 0.01  # that a job counts as if it is expected to take fewer


_CACHED_LOGS = 4


class Stopped(CounterSampleError):  # noqa: N818 (it is no error)
    """Raised in jobs that are interrupted."""


class Workbench:
    """Runs the jobs of a study, and caches what several of them read.

    `data` and `clicks` return the labelled data and the click log that a job has made. When `stop`
    is set, running jobs raise `Stopped`.
    """

    def __init__(self, store: Store, stop: threading.Event) -> None:
        self.store = store
        self.stop = stop
        self.data = lru_cache(None)(store.data)  # mapped files: the system frees their memory
        self.clicks = lru_cache(_CACHED_LOGS)(store.clicks)

    def do(self, job: Job, progress: Progress) -> None:
        """Run a job, whose needs are done, and store its result."""

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
    """How far a work list is."""

    done: dict[str, Job]  # by key
    missing: dict[str, Job]
    damaged: tuple[Job, ...]  # of those missing: a result is there, but it cannot be read
    stale: tuple[Job, ...]  # of those missing: a result of another `RESULTS_VERSION` is there
    stages: tuple[str, ...]  # in the order of the work list

    def by_stage(self) -> list[tuple[str, int, int, int]]:
        """Return (stage, done, in all, stale) of the stages that there are."""
        done = Counter(job.stage for job in self.done.values())
        missing = Counter(job.stage for job in self.missing.values())
        stale = Counter(job.stage for job in self.stale)
        return [
            (stage, done[stage], done[stage] + missing[stage], stale[stage])
            for stage in self.stages
        ]


def state_of(work: WorkList, store: Store) -> State:
    """Return which results are there, and what is missing.

    Data and click logs count as done if nothing that is missing needs them: they may be removed to
    free the disk.
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
    stale = tuple(job for job in in_order.values() if store.of_other_versions(job))
    stages = tuple(dict.fromkeys(job.stage for job in work.jobs.values()))
    return State(done, in_order, damaged, stale, stages)


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
    seconds: Mapping[str, float] | None = None,
    progress: Progress | Show | None = None,
) -> None:
    """Run jobs. Their results do not depend on the number of workers, nor on the order.

    What a job needs comes before it, or is among the keys of `is_done`. BLAS has one thread
    meanwhile. Progress is measured in the `seconds` that each job is expected to take, by its key,
    or else in its draws.

    Raises
    ------
    KeyboardInterrupt
        After work in flight has stopped; what is done is kept.
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
        # Threads of BLAS beside those of the jobs wait for each other, busily. The jobs of the
        # stage "relevance" tell what others would tell again.
        with threadpool_limits(1, "blas"), told_already():
            while waiting or at_work:
                next_jobs = [j for j in waiting.values() if all(n.key in finished for n in j.needs)]
                for job in next_jobs[: workers - len(at_work)]:
                    at_work[pool.submit(do, waiting.pop(job.key))] = job
                # Now and then awake: a signal is not seen while a thread waits for a lock.
                over, _ = wait(at_work, _WAIT_SECONDS, return_when=FIRST_COMPLETED)
                for future in over:
                    job = at_work.pop(future)
                    future.result()
                    finished.add(job.key)
    except BaseException:
        stop.set()
        for future in at_work:  # work in flight ends at its next report, or is done
            with suppress(Exception):  # the first error is the one that is told
                future.result()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


class Tally:
    """Report the progress of jobs that run at once as one `Progress`."""

    def __init__(
        self,
        jobs: Collection[Job],
        progress: Progress,
        seconds: Mapping[str, float] | None = None,
    ) -> None:
        self.n_jobs = len(jobs)
        self.n_done = 0
        self._progress = progress
        if seconds is None:
            self._sizes = {job.key: max(job.draws, _MIN_DRAWS) for job in jobs}
        else:
            self._sizes = {job.key: max(seconds.get(job.key, 0.0), _MIN_SECONDS) for job in jobs}
        self._in_all = sum(self._sizes.values())
        self._done = self._drawn = 0.0
        self._begin = time.monotonic()
        self._at_work: dict[str, tuple[Job, float]] = {}
        self._lock = threading.Lock()

    def begin(self, job: Job) -> Progress:
        """Begin a job, and return its progress."""
        progress = Progress(lambda _what, share: self._note(job, share))
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

    def _note(self, job: Job, share: float) -> None:
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
        self._progress(f"{words}; {at_once}" if at_once else words, done / self._in_all)
