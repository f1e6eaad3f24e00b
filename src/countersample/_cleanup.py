"""Cleanup when a signal ends the command line.

On Ctrl-C the process ends at once (`countersample.cli.process`): no exception passes through
compiled code and other libraries, and no ``finally`` runs. So functions that remove temporary files
are registered here before the files are made.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # typing takes as long to import as all that comes before the signals
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_functions: list[Callable[[], object]] = []


@contextmanager
def noted(function: Callable[[], object]) -> Iterator[None]:
    """Register a function for the duration of a block; text that it returns is printed."""
    _functions.append(function)
    try:
        yield
    finally:
        with suppress(ValueError):  # it is being called right now
            _functions.remove(function)


def put_in_order() -> list[str]:
    """Call the registered functions, the newest first, and return the texts to print."""
    texts = []
    while _functions:
        with suppress(Exception):  # the others are still called
            text = _functions.pop()()
            if isinstance(text, str):
                texts.append(text)
    return texts
