"""What is seen while a study runs: a live bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

from countersample._progress import PATIENCE, PAUSE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from countersample.study.running.jobs import Job

_SMALL = 20_000.0  # draws that a job counts as which draws nothing


class Display:
    """Keeps count of what is done; a `Watcher`.

    Parameters
    ----------
    jobs : collection of Job
        What is to be done.
    """

    def __init__(self, jobs: Collection[Job]) -> None:
        self.n_jobs = len(jobs)
        self.n_done = 0
        self.in_all = sum(_size(job) for job in jobs)
        self._done = 0.0
        self._begin = time.monotonic()
        self._at_work: dict[str, tuple[Job, float]] = {}
        self._lock = threading.Lock()

    def begins(self, job: Job) -> None:
        """Take note of a job that is at work."""
        with self._lock:
            self._at_work[job.key] = (job, 0.0)
        self.show()

    def goes_on(self, job: Job, share: float) -> None:
        """Take note of the share of it that is done."""
        with self._lock:
            self._at_work[job.key] = (job, share)
        self.show()

    def ends(self, job: Job) -> None:
        """Take note that it is done."""
        with self._lock:
            self._at_work.pop(job.key)
            self._done += _size(job)
            self.n_done += 1
        self.show()

    def show(self) -> None:
        """Show how it stands; here, nowhere."""

    @property
    def done(self) -> float:
        """Draws made, those of jobs at work with them."""
        with self._lock:
            return self._done + sum(_size(job) * share for job, share in self._at_work.values())

    @property
    def rate(self) -> float:
        """Draws a second since the begin."""
        return self.done / max(1e-9, time.monotonic() - self._begin)

    @property
    def seconds_left(self) -> float:
        """At the rate so far."""
        return (self.in_all - self.done) / max(1e-9, self.rate)

    @property
    def doing(self) -> str:
        """What is at work, in words."""
        with self._lock:
            jobs = [job for job, _ in self._at_work.values()]
        return "; ".join(f"{job.stage}: {job.title}" for job in jobs)


class _Lines(Display):
    """A line now and then."""

    def __init__(self, jobs: Collection[Job]) -> None:
        super().__init__(jobs)
        self._due = self._begin + PATIENCE

    def show(self) -> None:
        moment = time.monotonic()
        with self._lock:
            if moment < self._due:
                return
            self._due = moment + PAUSE
        print(  # noqa: T201 (this is the display)
            f"{self.n_done} of {self.n_jobs} jobs, {100 * self.done / self.in_all:.0f} %, "
            f"{self.rate / 1e6:.2f} M draws/s, {duration(self.seconds_left)} left; {self.doing}",
            file=sys.stderr,
            flush=True,
        )


@contextmanager
def displayed(jobs: Collection[Job]) -> Iterator[Display]:
    """Give a Watcher that shows what goes on, as the place where it is shown allows."""
    if not sys.stderr.isatty():
        yield _Lines(jobs)
        return
    from rich import progress  # noqa: PLC0415 (only where something is shown)
    from rich.console import Console  # noqa: PLC0415

    bar = progress.Progress(
        progress.TextColumn("{task.fields[jobs]}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[left]}"),
        progress.TextColumn("[dim]{task.fields[doing]}"),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=1.0, jobs="", rate="", left="", doing="")

        class Bar(Display):
            def show(self) -> None:
                bar.update(
                    task,
                    completed=self.done / self.in_all,
                    jobs=f"{self.n_done}/{self.n_jobs} jobs",
                    rate=f"{self.rate / 1e6:.2f} M draws/s",
                    left=f"{duration(self.seconds_left)} left",
                    doing=self.doing,
                )

        yield Bar(jobs)


def _size(job: Job) -> float:
    return max(job.draws, _SMALL)


def duration(seconds: float) -> str:
    """Return a duration in words, to two units.

    Examples
    --------
    >>> from countersample.study.running.display import duration
    >>> duration(8), duration(150), duration(9000), duration(200_000)
    ('8 s', '2 min 30 s', '2 h 30 min', '2 d 7 h')
    """
    units = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    rest = round(seconds)
    for (length, name), (shorter, short) in pairwise(units):
        if rest >= length:
            small = rest % length // shorter
            return f"{rest // length} {name}" + (f" {small} {short}" if small else "")
    return f"{rest} s"
