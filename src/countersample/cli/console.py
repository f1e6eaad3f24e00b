"""What commands print: results to standard output, messages and the job log to standard error.

By default a message is a line that begins with ``countersample:``. With ``--log-format`` or
``--log-level`` the package's log is written to standard error, as text or as one JSON object per
line; with JSON, messages are such lines, too.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from countersample import _progress
from countersample._progress import get_logger, printable
from countersample.cli import process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

logger = get_logger("countersample.cli")
_RECORD_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def show(*texts: str) -> None:
    """Print texts to standard output, one below the other."""
    for text in texts:
        sys.stdout.write(printable(text) + "\n")


def show_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print a value as JSON, with escapes if the encoding of the output lacks a character."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    show(text)


def show_result(result: Any, closing: str = "", *, json: bool, **entries: Any) -> None:  # noqa: ANN401
    """Print the summary of a result and a closing line, or with `json` its values and `entries`."""
    if json:
        show_json({**entries, **result.to_dict()})
    else:
        show(*filter(None, [result.summary(), closing]))


def note(text: str) -> None:
    """Print a note beside the results, to standard error."""
    process.write_error_line(text)


def report(text: str, *, level: str) -> None:
    """Report a warning or an error of the command: a sentence, or a JSON line."""
    if is_json():
        logger.log(getattr(logging, level.upper()), "%s", text)
    else:
        note(f"countersample: {text}")


# -- the job log ---------------------------------------------------------------------------------


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _RECORD_FIELDS:  # JSON has no number that is not finite
                is_number = not isinstance(value, float) or math.isfinite(value)
                entry[name] = value if is_number else None
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextLines(logging.Formatter):
    """One line of text: time, level, logger and message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = f"{_time(record)} {record.levelname.lower()} {record.name}: {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _StandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        process.write_error_line(self.format(record))


def configure_log(log_format: str | None, log_level: str | None) -> None:
    """Write the package's log to standard error; without a format and a level, do not."""
    root = logging.getLogger("countersample")
    for handler in list(root.handlers):
        if isinstance(handler, _StandardError):
            root.removeHandler(handler)
    is_on = log_format is not None or log_level is not None
    _progress.log_it(is_on)
    process.format_line = _format_last_error if log_format == "json" else str
    root.setLevel((log_level or "info").upper() if is_on else logging.NOTSET)
    if is_on:
        handler = _StandardError()
        handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
        root.addHandler(handler)


def is_json() -> bool:
    """Return whether standard error has JSON lines, and nothing else."""
    handlers = logging.getLogger("countersample").handlers
    return any(isinstance(each.formatter, JsonLines) for each in handlers)


def requests_json(arguments: list[str]) -> bool:
    """Return whether arguments, which may be wrong, ask for JSON lines.

    >>> requests_json(["--log-format", "json", "fit"]), requests_json(["--log-format=json"])
    (True, True)
    """
    is_next = ("--log-format", "json") in pairwise(arguments)
    return is_next or "--log-format=json" in arguments


def _format_last_error(text: str) -> str:
    """Return the JSON line of an error; without a lock, as a signal may come at any time."""
    message = text.removeprefix("countersample: ")
    return JsonLines().format(
        logging.LogRecord(logger.name, logging.ERROR, "", 0, message, None, None)
    )


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
