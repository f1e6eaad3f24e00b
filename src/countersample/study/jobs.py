"""The work of studies: jobs, what each needs, the key of its result; and how jobs are run.

    data → references (w* and the logging policy) → clicks → tuning → runs

Beside them stand the relevance of items, and the jobs that only one kind of study has. A job's key
has a hash of its configuration and of the configurations of the jobs it needs, and
`RESULTS_VERSION`. So work that two studies share is done once, and results of another version are
computed again. `run` runs the jobs whose results are missing, on several threads.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from threadpoolctl import threadpool_limits

from countersample._progress import Progress, Show, get_logger
from countersample.clicks.relevance import ignore_few_relevant
from countersample.errors import CounterSampleError
from countersample.study import stages
from countersample.study.references import WAYS, steps_of
from countersample.study.store import FORMAT, INTERMEDIATE, RESULTS_VERSION, Store
from countersample.training.optimizers import OPTIMIZERS
from countersample.tuning.paths import DRAWS_PER_EXAMPLE, MAX_DRAWS, MIN_DRAWS, RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
    from concurrent.futures import Future

    from countersample.study.grids import Method, Value
    from countersample.study.settings import ExperimentConfig
    from countersample.study.sources import Fold

    Work = Callable[[Store, "Job", Progress], Any]

logger = get_logger(__name__)
_WAIT_SECONDS = 0.2  # between two checks for a signal
_MIN_DRAWS = 20_000.0  # the least that a job counts in progress
# The settings that each stage depends on.
_CLICKS = ("clicks", "gamma", "bias_offset", "noise", "relevant", "top", "second_share",
           "click_model", "policy")  # fmt: skip
_TRAINING = ("optimizer", "objective", "batch_size", "epochs", "clip", "variance",
             "trained_gamma", "evaluate_every", "metric", "no_relevant")  # fmt: skip
_LEVELS = ("metric", "no_relevant")
_PASS_COST = 3.0  # of a pass that learning rates share, in passes with one learning rate
_EVALUATED_PATHS = 15  # of a ranker with its defaults: five folds, three tempers


@dataclass(frozen=True, eq=False)
class Job:
    """One piece of work with one result."""

    stage: str  # the kind of work; results of a stage are in a folder of this name
    title: str  # shown while it runs
    config: Mapping[str, Any]  # plain values: with `needs`, all that the result depends on
    # Returns the result: labelled data for "data", a click log for "clicks", else plain values.
    work: Work
    needs: tuple[Job, ...] = ()
    draws: float = 0.0  # the unit is a draw of a run with one learning rate; measures progress

    @cached_property
    def content(self) -> str:
        """A hash of the configuration, of this job and of those it needs."""
        values = [FORMAT, self.stage, self.config, [need.content for need in self.needs]]
        text = json.dumps(values, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def key(self) -> str:
        """The name of the result: its configuration and data, and the version of the numbers."""
        return f"{self.content}-{RESULTS_VERSION}"


class RunJobs(NamedTuple):
    """A run of a cell: its fold and seed, and its jobs."""

    fold: str
    seed: int
    job: Job  # it needs a click log, and a tuning if its optimizer has a learning rate
    levels: Job  # the metric of w* and of the logging policy

    @property
    def clicks(self) -> Job:
        """The click log."""
        return self.job.needs[-1]

    @property
    def references(self) -> Job:
        """w* and the logging policy."""
        return self.clicks.needs[0]

    @property
    def tuning(self) -> Job | None:
        """The tuning, or None if there is nothing to tune."""
        return self.job.needs[0] if len(self.job.needs) > 1 else None


@dataclass
class WorkList:
    """The jobs of some studies, each once, and where the results of each study are."""

    # By key; the jobs that a job needs come before it.
    jobs: dict[str, Job] = field(default_factory=dict)
    # By study, dataset, method and value.
    cells: dict[tuple[str, str, str, Value], list[RunJobs]] = field(default_factory=dict)
    # Other results, by study and further keys that its kind chooses.
    others: dict[tuple[Hashable, ...], list[Job]] = field(default_factory=dict)

    def add(self, job: Job) -> Job:
        """Add a job, or return the one of the same key in the list."""
        return self.jobs.setdefault(job.key, job)

    def keep(self, name: tuple[Hashable, ...], job: Job) -> None:
        """Add a job whose result is read by a name."""
        self.others.setdefault(name, []).append(self.add(job))

    def data(self, fold: Fold, config: ExperimentConfig) -> Job:
        """Plan labelled data, normalised and split."""
        values = {"source": dict(fold.config)} | _settings(config, ("normalization", "bits"))
        return self.add(Job("data", f"data of {fold.title}", values, stages.prepare_data))

    def references(self, fold: Fold, config: ExperimentConfig) -> Job:
        """Plan w* and the logging policy."""
        title, values = f"full supervision on {fold.title}", _settings(config, ("policy_fraction",))
        needs = (self.data(fold, config),)
        draws = len(WAYS) * _PASS_COST * steps_of(config.queries or MAX_DRAWS)  # about
        return self.add(Job("references", title, values, stages.references, needs, draws))

    def clicks(self, fold: Fold, config: ExperimentConfig, seed: int) -> Job:
        """Plan one click log, and with it w* and the logging policy."""
        reference = self.references(fold, config)
        title, values = f"relevant items of {fold.title}", _settings(config, ("relevant",))
        self.add(Job("relevance", title, values, stages.relevance, reference.needs))
        title = f"{config.clicks:,} clicks on {fold.title}"
        values = _settings(config, _CLICKS) | {"seed": seed}
        return self.add(Job("clicks", title, values, stages.simulate, (reference,)))

    def ranker(self, fold: Fold, config: ExperimentConfig) -> Job:
        """Plan a ranker with default options on each click log."""
        logs = tuple(self.clicks(fold, config, seed) for seed in range(config.seeds))
        title, values = f"a default ranker on {fold.title}", _settings(config, _LEVELS)
        examples = min(config.clicks, config.queries or config.clicks)  # by query, about
        steps = min(max(DRAWS_PER_EXAMPLE * examples, MIN_DRAWS), MAX_DRAWS)
        draws = len(logs) * (_EVALUATED_PATHS + RUNS) * steps
        return self.add(Job("ranker", title, values, stages.ranker, logs, draws))

    def runs(self, fold: Fold, config: ExperimentConfig, method: Method) -> list[RunJobs]:
        """Plan a run for each click log, and a tuning if the optimizer has a learning rate."""
        title, draws = f"{method.name} on {fold.title}", config.steps() * config.batch_size
        values = _settings(config, _TRAINING) | config.optimizer_settings | {
            "plan": method.plan, "unit": method.unit, "exposure": method.exposure,
        }  # fmt: skip
        if config.scorer == "network":
            values |= _settings(config, ("scorer", "hidden"))
        logs = [self.clicks(fold, config, seed) for seed in range(config.seeds)]
        tunings: tuple[Job, ...] = ()
        if OPTIMIZERS[config.optimizer].learning_rate is None:
            few, rates = tuple(logs[: config.tuning_logs]), list(config.learning_rates)
            cost = draws * len(few) * _PASS_COST * len(rates) / stages.RATES_PER_PASS
            tuning_values = values | {"learning_rates": rates}
            tunings = (self.add(Job("tuning", title, tuning_values, stages.tune, few, cost)),)
        levels = self.add(
            Job("levels", f"levels of {fold.title}", _settings(config, _LEVELS), stages.levels,
                (self.references(fold, config),))
        )  # fmt: skip
        runs = []
        for seed, log in enumerate(logs):
            job = Job("run", title, values | {"seed": seed}, stages.run, (*tunings, log), draws)
            runs.append(RunJobs(fold.name, seed, self.add(job), levels))
        return runs


def _settings(config: ExperimentConfig, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(config, name) for name in names}


# -- running -------------------------------------------------------------------------------------


class Stopped(CounterSampleError):  # noqa: N818 (it is no error)
    """Raised in jobs that are interrupted."""


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
    tally = Tally(jobs, Progress.of(progress))
    waiting = {job.key: job for job in jobs}
    done = set(is_done)
    at_work: dict[Future[None], Job] = {}

    def do(job: Job) -> None:
        since = time.monotonic()
        store.write(job, job.work(store, job, tally.begin(job)))
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
