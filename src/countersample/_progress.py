"""Progress of long work, the log of the package, and text that is safe to print.

`Progress` is passed down and divides work into parts, whatever displays it. On standard error it is
a bar on a terminal, or a plain line from time to time; with a log (`log_it`), it is a log line.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise

PATIENCE = 2.0  # seconds before anything is shown
PAUSE = 10.0  # seconds between two plain lines

Show = Callable[[str, float], None]

# Characters that steer a terminal (C0 without tab and line feed, DEL, C1) or turn the reading
# direction, and how JSON writes them.
_ESCAPES = {
    code: f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\t\n"
}
_is_logged = False


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module; it prints nothing unless the program configures logging.

    A message has counts, seconds and settings, and the same in fields (``extra=``). It never has an
    id of a user, a session, a query or an item.

    >>> get_logger("countersample.fitting").parent.handlers
    [<NullHandler (NOTSET)>]
    """
    root = logging.getLogger("countersample")
    if not root.handlers:
        root.addHandler(logging.NullHandler())
    return logging.getLogger(name)


logger = get_logger("countersample.progress")


def printable(text: str) -> str:
    r"""Escape the characters that a terminal would obey instead of showing.

    Names, ids and lines of a stranger's file could move the cursor or change what was printed.

    >>> print(printable("item \x1b[2J, naïve"))
    item \u001b[2J, naïve
    """
    return text.translate(_ESCAPES)


class Progress:
    """The task at hand, and the share of all work that is done; each part is one of these.

    Functions take ``progress=``, a function of (task, share that is done) or one of these, and
    begin with ``progress = Progress.of(progress)``. Without a function nothing is shown.

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
        self._assigned = 0.0  # the share of this one that its parts have

    @classmethod
    def of(cls, progress: Progress | Show | None) -> Progress:
        """Return the object for a user's argument."""
        return progress if isinstance(progress, Progress) else cls(progress)

    def part(self, share: float, what: str = "") -> Progress:
        """Return the progress of the next task, which is this share of the whole."""
        part = Progress(self._show)
        part._what = what or self._what
        part._begin = self._begin + self._span * self._assigned
        part._span = self._span * share
        self._assigned = min(1.0, self._assigned + share)
        return part

    def side_by_side(self, n: int) -> list[Progress]:
        """Return the progress of n equal tasks that run at once, in threads."""
        shares, lock = [0.0] * n, threading.Lock()

        def make(index: int) -> Progress:
            def show(_what: str, share: float) -> None:
                with lock:  # one call at a time, and never less than before
                    shares[index] = max(shares[index], share)
                    self.update(sum(shares) / n)

            return Progress(show)

        return [make(index) for index in range(n)]

    def update(self, share: float) -> None:
        """Report the share of this part that is done."""
        self(self._what, share)

    def __call__(self, what: str, share: float) -> None:
        """Report the task, and the share of this part that is done."""
        if self._show is not None:
            self._show(what or self._what, self._begin + self._span * min(1.0, share))


def log_it(is_logged: bool) -> None:
    """Write progress to the log if `is_logged`, otherwise to standard error."""
    global _is_logged  # noqa: PLW0603 (standard error is one for all, too)
    _is_logged = is_logged


@contextmanager
def share_progress(what: str, *, show: bool = True) -> Iterator[Show]:
    """Give a function of (task, share that is done) that displays them.

    A share of NaN is not known. Nothing is shown in the first two seconds.
    """
    if not show:
        yield lambda _what, _share: None
    elif sys.stderr.isatty() and not _is_logged:
        with _bar(what) as update:
            yield update
    else:
        yield _lines(what)


@contextmanager
def byte_progress(what: str, total: int | None, *, show: bool) -> Iterator[Callable[[float], None]]:
    """Give a function that displays the number of bytes done, of `total` if that is known."""
    begin = time.monotonic()
    of_all = f" of {total / 1e6:,.0f}" if total else ""
    with share_progress(what, show=show) as update:

        def report(n_bytes: float) -> None:
            rate = n_bytes / max(time.monotonic() - begin, 1e-9)
            text = f"{n_bytes / 1e6:,.0f}{of_all} MB, {rate / 1e6:,.0f} MB/s"
            update(text, n_bytes / total if total else math.nan)

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


def _lines(what: str) -> Show:
    """Report from time to time the task, the share that is done, and the time left."""
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
        if _is_logged:
            logger.info("%s", line, extra={"share": share})
        else:
            with suppress(OSError):  # a line may get lost, the work may not
                print(printable(line), file=sys.stderr, flush=True)  # noqa: T201 (the display)

    return update


def duration(seconds: float) -> str:
    """Return a duration in words, to two units.

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
