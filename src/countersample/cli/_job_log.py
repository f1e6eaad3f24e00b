"""``--log-format`` and ``--log-level``: what the package logs, on standard error, for jobs."""

from __future__ import annotations

import json
import logging
import math
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from countersample import _progress
from countersample._logging import get_logger
from countersample.cli import _signals, _streams

_KNOWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}

logger = get_logger("countersample.cli")


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        told: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= {name: _plain(x) for name, x in vars(record).items() if name not in _KNOWN}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class TextLines(logging.Formatter):
    """A line of text: time, level, logger and message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        told = f"{_time(record)} {record.levelname.lower()} {record.name}: {record.getMessage()}"
        return f"{told}\n{self.formatException(record.exc_info)}" if record.exc_info else told


class _StandardError(logging.Handler):
    """Standard error, if somebody is there to read it."""

    def emit(self, record: logging.LogRecord) -> None:
        _streams.tell(self.format(record))


def configure(log_format: str | None, log_level: str | None) -> None:
    """Have the package's log written to standard error; with neither asked for, not at all."""
    log = logging.getLogger("countersample")
    for handler in list(log.handlers):
        if isinstance(handler, _StandardError):
            log.removeHandler(handler)
    is_on = log_format is not None or log_level is not None
    _progress.log_it(is_on)
    _signals.as_line = str
    log.setLevel(logging.NOTSET)
    if not is_on:
        return
    handler = _StandardError()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    log.addHandler(handler)
    log.setLevel((log_level or "info").upper())
    if log_format == "json":
        _signals.as_line = _as_error


def is_json() -> bool:
    """Whether standard error has JSON lines, and nothing else."""
    handlers = logging.getLogger("countersample").handlers
    return any(isinstance(each.formatter, JsonLines) for each in handlers)


def asks_for_json(arguments: list[str]) -> bool:
    """Return whether standard error is to have JSON lines, from arguments that may be wrong.

    >>> asks_for_json(["--log-format", "json", "fit"]), asks_for_json(["fit", "--log-format=json"])
    (True, True)
    """
    is_next = ("--log-format", "json") in pairwise(arguments)
    return is_next or "--log-format=json" in arguments


def tell(text: str, *, level: str) -> None:
    """Tell the user something of what the command itself does: a sentence, or a JSON line."""
    if is_json():
        logger.log(getattr(logging, level.upper()), "%s", text)
    else:
        _streams.tell(f"countersample: {text}")


def _as_error(text: str) -> str:
    """Return the line of an error; without a lock, as a signal may come at any time."""
    record = logging.LogRecord(
        logger.name, logging.ERROR, "", 0, text.removeprefix("countersample: "), None, None
    )
    return JsonLines().format(record)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: Any) -> Any:  # noqa: ANN401 (anything)
    """Return a number as JSON has it: none that is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
