"""JSON lines by Arrow's reader, which is kept from what it cannot stand."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.data.sources import open_source
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow as pa

    from countersample.data.sources import OpenSource

#: The deepest nesting that is read, as in DuckDB. Arrow calls itself for each level, until the
#: stack ends, and the process with it.
DEEPEST = 128
_LONGEST = 1 << 24  # bytes of a line, as in DuckDB
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_MARK = b"\xef\xbb\xbf"  # of the byte order


def read_lines(path: str, *, as_text: Collection[str] = ()) -> pa.Table:
    """Read a file of JSON lines, compressed or not; `as_text` are columns that must be text."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import json  # noqa: PLC0415

    stated = pa.schema([(name, pa.string()) for name in as_text]) if as_text else None
    with open_source(path) as source:
        return json.read_json(
            pa.PythonFile(_Shallow(source), mode="r"),
            read_options=json.ReadOptions(block_size=_LONGEST),
            parse_options=json.ParseOptions(explicit_schema=stated),
        )


def read_blocks(path: str) -> Iterator[pa.Table]:
    """Read a file of JSON lines, compressed or not, some 16 MB of it at a time; text stays text."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import json  # noqa: PLC0415

    def parsed(lines: bytes, as_text: Collection[str] = ()) -> pa.Table:
        stated = pa.schema([(name, pa.string()) for name in as_text]) if as_text else None
        return json.read_json(
            pa.BufferReader(lines),
            read_options=json.ReadOptions(block_size=max(len(lines), 1)),
            parse_options=json.ParseOptions(explicit_schema=stated),
        )

    with open_source(path) as source:
        for lines in _line_blocks(source):
            table = parsed(lines)
            times = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
            yield parsed(lines, times) if times else table


def _line_blocks(source: OpenSource) -> Iterator[bytes]:
    """Yield the lines of a source that have something in them, many at a time, looked at."""
    buffer, rest, is_first, count = bytearray(_LONGEST), b"", True, _LONGEST
    while count == len(buffer):
        count = source.readinto(memoryview(buffer))
        lines = rest + bytes(memoryview(buffer)[:count])
        if is_first:
            lines, is_first = lines.removeprefix(_MARK), False
        end = lines.rfind(b"\n") + 1 if count == len(buffer) else len(lines)
        lines, rest = lines[:end], lines[end:]
        if len(rest) > _LONGEST:
            raise DataError(f"a line of more than {_LONGEST:,} bytes, expected an object a line")
        if lines.strip():
            _check_lines(lines)
            yield lines


class _Shallow(io.RawIOBase):
    """A source whose lines are looked at before they are passed on."""

    def __init__(self, source: OpenSource) -> None:
        self._source = source
        self._line = b""  # that goes on
        self._is_first = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (a writable buffer)
        view = memoryview(buffer)
        count = self._source.readinto(view)
        lines = self._line + bytes(view[:count])
        if self._is_first:
            lines, self._is_first = lines.removeprefix(_MARK), False
        end = lines.rfind(b"\n") + 1 if count == len(view) else len(lines)
        self._line = lines[end:]
        if len(self._line) > _LONGEST:
            raise DataError(f"a line of more than {_LONGEST:,} bytes, expected an object a line")
        _check_lines(lines[:end])
        return count


def _check_lines(lines: bytes) -> None:
    """Refuse a line that is no object, so that none goes on in the next, or is nested too deep."""
    text = np.frombuffer(lines, np.uint8)
    bounds = np.concatenate([[0], np.flatnonzero(text == ord("\n")) + 1, [len(text)]])
    inked = np.flatnonzero(text > ord(" "))
    first, after = np.searchsorted(inked, bounds[:-1]), np.searchsorted(inked, bounds[1:])
    has_ink = first < after
    starts, ends = text[inked[first[has_ink]]], text[inked[after[has_ink] - 1]]
    if (starts != ord("{")).any() or (ends != ord("}")).any():
        raise DataError("a line does not start with { and end with }, expected an object a line")
    opening = np.flatnonzero((text == ord("{")) | (text == ord("[")))
    for line in np.flatnonzero(np.diff(np.searchsorted(opening, bounds)) > DEEPEST):
        if _depth(lines[bounds[line] : bounds[line + 1]]) > DEEPEST:
            raise DataError(f"a line is nested more than {DEEPEST} deep")


def _depth(line: bytes) -> int:
    bare = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    opens = (bare == ord("{")) | (bare == ord("["))
    closes = (bare == ord("}")) | (bare == ord("]"))
    return int(np.cumsum(opens.astype(np.int64) - closes).max())
