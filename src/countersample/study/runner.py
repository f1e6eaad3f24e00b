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

from countersample._progress import Progress, Show, get_logger
from countersample.clicks.relevance import ignore_few_relevant
from countersample.errors import CounterSampleError
from countersample.study.store import INTERMEDIATE, Store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from concurrent.futures import Future

    from countersample.data import RankingDataset
    from countersample.study.jobs import Job, WorkList

    Parts = tuple[RankingDataset, ...]  # training, validation and test data

logger = get_logger(__name__)
_WAIT_SECONDS = 0.2  # between two checks for a signal
_MIN_DRAWS = 20_000.0  # the least that a job counts in progress
_CACHED_LOGS = 4


class Stopped(CounterSampleError):  # noqa: N818 (it is no error)
    """Raised in jobs that are interrupted."""


class Workbench:
    """The results that jobs read; data and click logs are cached, as several jobs read them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.data = lru_cache(None)(store.data)  # mapped files: the system frees their memory
        self.clicks = lru_cache(_CACHED_LOGS)(store.clicks)

    def data_of(self, clicks: Job) -> Parts:
        """Return the labelled data that a click log was simulated on."""
        (reference,) = clicks.needs
        return self.data(reference.needs[0])


@dataclass(frozen=True)
class State:
    """Which jobs of a work list are done."""

    done: dict[str, Job]  # by key
    missing: dict[str, Job]
    stages: tuple[str, ...]  # in the order of the work list

    def by_stage(self) -> dict[str, dict[str, int]]:
        """Return jobs done and jobs in total, per stage."""
        done = Counter(job.stage for job in self.done.values())
        missing = Counter(job.stage for job in self.missing.values())
        return {
            stage: {"done": done[stage], "total": done[stage] + missing[stage]}
            for stage in self.stages
        }


def state_of(work: WorkList, store: Store) -> State:
    """Return which results exist, and which are missing.

    Data and click logs count as done if no missing job needs them: users may remove them to free
    the disk.
    """
    exists = lru_cache(None)(store.has)
    missing: set[str] = set()

    def require(job: Job) -> None:
        if job.key not in missing and not exists(job):
            missing.add(job.key)
            for need in _ancestors(job):
                require(need)

    for job in work.jobs.values():
        if job.stage not in INTERMEDIATE:
            require(job)
    in_order = {key: job for key, job in work.jobs.items() if key in missing}
    done = {key: job for key, job in work.jobs.items() if key not in missing}
    stages = tuple(dict.fromkeys(job.stage for job in work.jobs.values()))
    return State(done, in_order, stages)


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
    progress: Progress | Show | None = None,
) -> None:
    """Run jobs. Their results depend neither on the number of workers nor on the order.

    The needs of a job come before it, or their keys are in `is_done`. BLAS has one thread
    meanwhile.

    Raises
    ------
    KeyboardInterrupt
        After running jobs have stopped; finished results are kept.
    """
    bench, tally = Workbench(store), Tally(jobs, Progress.of(progress))
    waiting = {job.key: job for job in jobs}
    done = set(is_done)
    at_work: dict[Future[None], Job] = {}

    def do(job: Job) -> None:
        since = time.monotonic()
        store.write(job, job.work(bench, job, tally.begin(job)))
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
                next_jobs = [j for j in waiting.values() if all(n.key in done for n in j.needs)]
                for job in next_jobs[: workers - len(at_work)]:
                    at_work[pool.submit(do, waiting.pop(job.key))] = job
                # With a timeout: signals are not handled while a thread waits for a lock.
                over, _ = wait(at_work, _WAIT_SECONDS, return_when=FIRST_COMPLETED)
                for future in over:
                    job = at_work.pop(future)
                    future.result()
                    done.add(job.key)
    except BaseException:
        tally.stop.set()
        for future in at_work:  # running jobs stop at their next report of progress
            with suppress(Exception):  # the first error is raised
                future.result()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


class Tally:
    """Report the progress of jobs that run at once as one `Progress`, measured in draws.

    When `stop` is set, running jobs raise `Stopped` as they report progress.
    """

    def __init__(self, jobs: Collection[Job], progress: Progress) -> None:
        self.stop = threading.Event()
        self._progress = progress
        self._sizes = {job.key: max(job.draws, _MIN_DRAWS) for job in jobs}
        self._shares = dict.fromkeys(self._sizes, 0.0)
        self._n_done = 0
        self._titles: dict[str, str] = {}  # of the jobs at work
        self._lock = threading.Lock()

    def begin(self, job: Job) -> Progress:
        """Begin a job, and return its progress."""

        def show(_task: str, share: float) -> None:
            if self.stop.is_set():
                raise Stopped("stopped")
            self._report(job, share)

        progress = Progress(show)
        progress.update(0.0)
        return progress

    def end(self, job: Job) -> None:
        """Count a job as done."""
        self._report(job, 1.0, is_done=True)

    def _report(self, job: Job, share: float, *, is_done: bool = False) -> None:
        with self._lock:
            self._shares[job.key] = share
            self._titles[job.key] = f"{job.stage}: {job.title}"
            if is_done:
                self._titles.pop(job.key)
                self._n_done += 1
            done = sum(self._sizes[key] * share for key, share in self._shares.items())
            words = [f"{self._n_done} of {len(self._sizes)} jobs", *self._titles.values()]
            self._progress("; ".join(words), done / sum(self._sizes.values()))
