"""What commands print: results to standard output, messages and the job log to standard error.

A command returns an `Output`: text, and values for ``--json``. With ``--log-format`` or
``--log-level`` the package's log is written to standard error, as text or as one JSON object per
line; with JSON, messages are such lines, too.
"""

from __future__ import annotations

import json
import logging
import math
import re
import shlex
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from countersample import _progress
from countersample._progress import get_logger, printable
from countersample.cli import process

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

logger = get_logger("countersample.cli")
_RECORD_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Output:
    """The result of a command: text, values for JSON or a function of them, and the exit code."""

    text: str
    values: Any
    code: int = 0

    @classmethod
    def of(cls, result: Any, closing: str = "", code: int = 0, **entries: Any) -> Output:  # noqa: ANN401
        """Return the summary of a result and a closing line; its values, after more `entries`."""
        text = "\n".join(filter(None, [result.summary(), closing]))
        return cls(text, lambda: {**entries, **result.to_dict()}, code)

    def show(self, *, as_json: bool) -> None:
        """Print the text, or the values as JSON, with escapes if the output is not in UTF-8."""
        text = name_options(self.text)
        if as_json:
            values = self.values() if callable(self.values) else self.values
            encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
            text = json.dumps(values, indent=2, ensure_ascii=encoding.lower() != "utf-8")
        print(printable(text))  # noqa: T201 (this is the output)


# A hint in Python before its option, as in "replace it with replace=True (--replace)"
_HINT = re.compile(
    r"(?:[a-z_]+=\sand\s)?"
    r"(?:[a-z_]+=(?:\{[^{}]*\}|'[^']*'|[^\s(),;]*)|[a-z]+(?:_[a-z]+)+(?:\(\))?|([a-z]+)(?=\s\(--\1\)))"
    r"\s+\((--[^()]+)\)"
)
_PARAMETER = re.compile(r"([a-z_]+) (?=(?:is|has) )")


def name_options(text: str) -> str:
    """Return a message of the library as the command line writes it, with options.

    >>> name_options("replace it with replace=True (--replace)")
    'replace it with --replace'
    """
    return _HINT.sub(r"\2", text)


def name_option(text: str, options: Container[str]) -> str:
    """Return the error of a parameter with the name of its option, if there is one.

    >>> name_option("half_life is '14x', expected days or weeks", {"--half-life"})
    "--half-life is '14x', expected days or weeks"
    """
    match = _PARAMETER.match(text)
    option = f"--{match[1].replace('_', '-')}" if match else ""
    return f"{option}{text[match.end() - 1 :]}" if match and option in options else text


def note(text: str) -> None:
    """Print a note to standard error, unless it is closed."""
    if sys.stderr is None:  # closed by the caller; print would write to standard output
        return
    with suppress(OSError):
        print(printable(text), file=sys.stderr, flush=True)  # noqa: T201 (this is the display)


def note_files(data: Path | str, fold: int | None) -> None:
    """Print which fold of a folder is read, and which of its files are not."""
    from countersample.data.labelled_files import layout_of

    layout = layout_of(data)
    for text in [] if layout is None else layout.notes(fold):
        note(f"countersample: {text}")


def report(text: str, *, level: str) -> None:
    """Report a warning or an error of the command: a sentence, or a JSON line."""
    text = name_options(text)
    if is_json():
        logger.log(getattr(logging, level.upper()), "%s", text)
    else:
        note(f"countersample: {text}")


def command_line() -> str:
    """Return the command as it was typed, for reports."""
    return shlex.join(["countersample", *sys.argv[1:]])


# -- the job log ---------------------------------------------------------------------------------


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).strftime(_TIME),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _RECORD_FIELDS:  # JSON has no number that is not finite
                is_number = not isinstance(value, float) or math.isfinite(value)
                entry[name] = value if is_number else None
        return json.dumps(entry, default=str)


class _StandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(self.format(record))


def configure_log(log_format: str | None, log_level: str | None) -> None:
    """Write the package's log to standard error, if a format or a level is given."""
    root = logging.getLogger("countersample")
    root.handlers = [each for each in root.handlers if not isinstance(each, _StandardError)]
    is_on = log_format is not None or log_level is not None
    _progress.log_it(is_on)
    root.setLevel((log_level or "info").upper() if is_on else logging.NOTSET)
    if is_on:
        lines = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", _TIME)
        lines.converter = time.gmtime
        handler = _StandardError()
        handler.setFormatter(JsonLines() if log_format == "json" else lines)
        root.addHandler(handler)
    process.format_line = _as_json_line if log_format == "json" else str


def _as_json_line(text: str) -> str:
    """Return the line of an error; no lock is taken, because a signal may come at any time."""
    entry = {"time": time.strftime(_TIME, time.gmtime()), "level": "error", "logger": logger.name}
    return json.dumps(entry | {"message": text.removeprefix("countersample: ")})


def is_json() -> bool:
    """Return whether standard error has JSON lines, and nothing else."""
    handlers = logging.getLogger("countersample").handlers
    return any(isinstance(each.formatter, JsonLines) for each in handlers)
