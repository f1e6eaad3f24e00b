"""The log of the package: quiet, unless the program that uses it asks for it.

Loggers are ``logging.getLogger("countersample.…")``. A message has counts, seconds and settings,
the same in fields (``extra=``), and never an id of a user, a session, a query or an item.
"""

from __future__ import annotations

import logging


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module of this package.

    Examples
    --------
    >>> from countersample._logging import get_logger
    >>> get_logger("countersample.fitting").parent.handlers
    [<NullHandler (NOTSET)>]
    """
    root = logging.getLogger("countersample")
    if not root.handlers:
        root.addHandler(logging.NullHandler())
    return logging.getLogger(name)
