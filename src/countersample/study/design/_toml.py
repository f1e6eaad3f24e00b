"""TOML files whose errors say file and line."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from countersample._files import read_at_most
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from pathlib import Path

Key = tuple[str | int, ...]

_MOST_BYTES = 10**7  # the package's own have thousands

_PART = r'(?:[\w-]+|"[^"]*"|\'[^\']*\')'
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?")
_ENTRY = re.compile(rf"\s*({_DOTTED})\s*=")


class TomlFile:
    """A TOML file: what it says, `data`, and the line of each of its keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            text = read_at_most(path, _MOST_BYTES).decode("utf-8")
            self.data: dict[str, Any] = tomllib.loads(text)
        except DataError as error:
            raise ParameterError(str(error)) from error
        except OSError as error:
            raise ParameterError(f"{path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ParameterError(f"{path}: is not UTF-8 text, expected a TOML file") from error
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, deep lists
            raise ParameterError(f"{path}: is not TOML: {error}") from error
        self._lines = _lines_of_keys(text)

    def error(self, key: Key, message: str) -> ParameterError:
        """Return an error at the line of a key, or of the nearest table around it."""
        for length in range(len(key), 0, -1):
            if key[:length] in self._lines:
                return ParameterError(f"{self.path}:{self._lines[key[:length]]}: {message}")
        return ParameterError(f"{self.path}: {message}")


def _lines_of_keys(text: str) -> dict[Key, int]:
    """Return the line, from 1, of every key and table; tables of an array are numbered from 0."""
    lines: dict[Key, int] = {}
    table: Key = ()
    counts: dict[Key, int] = {}
    within = ""  # the quotes of a string of several lines
    for number, line in enumerate(text.splitlines(), start=1):
        if within:
            within = "" if within in line else within
            continue
        if header := _HEADER.match(line):
            table = _parts(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            for length in range(1, len(table) + 1):
                lines.setdefault(table[:length], number)
        elif entry := _ENTRY.match(line):
            parts = _parts(entry[1])
            for length in range(1, len(parts) + 1):
                lines.setdefault((*table, *parts[:length]), number)
            for quotes in ('"""', "'''"):
                if line.count(quotes) == 1:
                    within = quotes
    return lines


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))
