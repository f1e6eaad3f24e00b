"""What is put in order before the command line ends because a signal told it to.

On Ctrl-C it ends at once, wherever it is (`countersample.cli._signals`): no exception goes up
through compiled code and other people's libraries, and no ``finally`` is run. What would be left
over is noted here, before it is made.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # typing takes as long to import as all that comes before the signals
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_noted: list[Callable[[], object]] = []


def note(last: Callable[[], object]) -> None:
    """Take note of a function to call before the end; text that it returns is said."""
    _noted.append(last)


@contextmanager
def noted(last: Callable[[], object]) -> Iterator[None]:
    """Take note of a function for the time of a block."""
    note(last)
    try:
        yield
    finally:
        with suppress(ValueError):  # it is being called
            _noted.remove(last)


def put_in_order() -> list[str]:
    """Call what was noted, the newest first, and return what is to be said."""
    said = []
    while _noted:
        try:
            text = _noted.pop()()
        except Exception:  # noqa: BLE001, S112 (the others still have their turn, and it ends)
            continue
        if isinstance(text, str):
            said.append(text)
    return said
