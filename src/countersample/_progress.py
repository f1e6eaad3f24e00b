"""How far something long has come: one object that is handed down, and how it is shown.

`Progress` cuts work into parts without knowing how it is shown. On standard error it is a bar on a
terminal, a plain line now and then elsewhere, and one of the log where there is a log (`log_it`).
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise

from countersample._logging import get_logger
from countersample._printable import printable

PATIENCE = 2.0  # seconds before anything is shown
PAUSE = 10.0  # seconds between two plain lines

Show = Callable[[str, float], None]

logger = get_logger("countersample.progress")
_is_logged = False


class Progress:
    """What is going on, and the share of all that is done; each part of it is one of these.

    Functions take ``progress=``, a function of (what is going on, share of all that is done) or one
    of these, and begin with ``progress = Progress.of(progress)``.

    Parameters
    ----------
    show : function of (what is going on, share of all that is done), optional
        Without it nothing is shown.

    Examples
    --------
    >>> from countersample._progress import Progress
    >>> whole = Progress(lambda what, share: print(f"{what}: {share:.0%}"))
    >>> tuning = whole.part(0.8, "tuning")
    >>> tuning.update(0.5)
    tuning: 40%
    >>> whole.part(0.2, "training").update(1.0)
    training: 100%
    """

    def __init__(self, show: Show | None = None) -> None:
        self._show = show
        self._what = ""
        self._begin, self._span = 0.0, 1.0
        self._given_away = 0.0  # the share of this one that parts have

    @classmethod
    def of(cls, progress: Progress | Show | None) -> Progress:
        """Return the object for what a user gave."""
        return progress if isinstance(progress, Progress) else cls(progress)

    def part(self, share: float, what: str = "") -> Progress:
        """Return the progress of what comes next and is this share of the whole."""
        part = Progress(self._show)
        part._what = what or self._what
        part._begin = self._begin + self._span * self._given_away
        part._span = self._span * share
        self._given_away = min(1.0, self._given_away + share)
        return part

    def side_by_side(self, n: int) -> list[Progress]:
        """Return the progress of n like pieces of work that go on at once, in threads."""
        done, lock = [0.0] * n, threading.Lock()

        def make(index: int) -> Progress:
            def show(_what: str, share: float) -> None:
                with lock:  # one call at a time, and never less than before
                    done[index] = max(done[index], share)
                    self.update(sum(done) / n)

            return Progress(show)

        return [make(index) for index in range(n)]

    def update(self, share: float) -> None:
        """Say which share of this part is done."""
        self(self._what, share)

    def __call__(self, what: str, share: float) -> None:
        """Say what is going on, and which share of this part is done."""
        if self._show is not None:
            self._show(what or self._what, self._begin + self._span * min(1.0, share))


def log_it(is_logged: bool) -> None:
    """Have progress that is shown go to the log instead, or to standard error again."""
    global _is_logged  # noqa: PLW0603 (standard error is one for all, too)
    _is_logged = is_logged


@contextmanager
def share_progress(what: str, *, show: bool = True) -> Iterator[Show]:
    """Give a function that is told what is going on and which share of all is done.

    A share of NaN is not known. Nothing is shown in the first two seconds.
    """
    if not show:
        yield lambda _what, _share: None
    elif _is_logged:
        yield _lines(what, _log)
    elif sys.stderr.isatty():
        with _bar(what) as update:
            yield update
    else:
        yield _lines(what, _print)


@contextmanager
def byte_progress(what: str, total: int | None, *, show: bool) -> Iterator[Callable[[float], None]]:
    """Give a function that is told how many bytes are done, of `total` where that is known."""
    begin = time.monotonic()
    of_all = f" of {total / 1e6:,.0f}" if total else ""
    with share_progress(what, show=show) as update:

        def report(done: float) -> None:
            rate = done / max(time.monotonic() - begin, 1e-9)
            text = f"{done / 1e6:,.0f}{of_all} MB, {rate / 1e6:,.0f} MB/s"
            update(text, done / total if total else math.nan)

        yield report


@contextmanager
def _bar(what: str) -> Iterator[Show]:
    from rich import progress  # noqa: PLC0415 (only where something is shown)
    from rich.console import Console  # noqa: PLC0415

    bar = progress.Progress(
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}", markup=False),  # names may have brackets
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=None)
    begin = time.monotonic()

    def update(now: str, share: float) -> None:
        is_known = not math.isnan(share)
        bar.update(task, description=printable(f"{what}: {now}"), total=1.0 if is_known else None,
                   completed=share if is_known else 0.0)  # fmt: skip
        if not bar.live.is_started and time.monotonic() - begin > PATIENCE:
            bar.start()

    try:
        yield update
    finally:
        bar.stop()


def _print(line: str, _share: float) -> None:
    with suppress(OSError):  # what is shown may get lost, the work may not
        print(printable(line), file=sys.stderr, flush=True)  # noqa: T201 (this is the display)


def _log(line: str, share: float) -> None:
    logger.info("%s", line, extra={"share": share})


def _lines(what: str, say: Show) -> Show:
    """Say now and then what is going on, the share that is done, and what is left of the time."""
    begin = time.monotonic()
    due = begin + PATIENCE

    def update(now: str, share: float) -> None:
        nonlocal due
        moment = time.monotonic()
        if moment < due:
            return
        due = moment + PAUSE
        line = f"{what}: {now}"
        if share > 0:
            left = duration((moment - begin) * (1 - share) / share)
            line += f", {100 * share:.0f} % done, {left} left"
        say(line, share)

    return update


def duration(seconds: float) -> str:
    """Return a duration in words, to two units.

    Examples
    --------
    >>> from countersample._progress import duration
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
