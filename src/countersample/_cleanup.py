"""Cleanup when a signal ends the command line.

On Ctrl-C the process ends at once (`countersample.cli._signals`): no exception passes through
compiled code and other libraries, and no ``finally`` runs. So functions that remove temporary files
are registered here before the files are made.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # typing takes as long to import as all that comes before the signals
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_noted: list[Callable[[], object]] = []


def note(last: Callable[[], object]) -> None:
    """Register a function to call before the end; text that it returns is printed."""
    _noted.append(last)


@contextmanager
def noted(last: Callable[[], object]) -> Iterator[None]:
    """Register a function for the duration of a block."""
    note(last)
    try:
        yield
    finally:
        with suppress(ValueError):  # it is being called right now
            _noted.remove(last)


def put_in_order() -> list[str]:
    """Call the registered functions, the newest first, and return the texts to print."""
    texts = []
    while _noted:
        try:
            text = _noted.pop()()
        except Exception:  # noqa: BLE001, S112 (the others are still called)
            continue
        if isinstance(text, str):
            texts.append(text)
    return texts
