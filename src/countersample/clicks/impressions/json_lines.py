"""JSON lines by Arrow's reader, which is kept from what it cannot stand."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.data.sources import open_source
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from countersample.data.sources import OpenSource

#: The deepest nesting that is read, as in DuckDB. Arrow calls itself for each level, until the
#: stack ends, and the process with it.
DEEPEST = 128
_LONGEST = 1 << 24  # bytes of a line, as in DuckDB
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{\]}]', re.DOTALL)


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


class _Shallow(io.RawIOBase):
    """A source whose lines are looked at before they are passed on."""

    def __init__(self, source: OpenSource) -> None:
        self._source = source
        self._line = b""  # that goes on

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (a writable buffer)
        view = memoryview(buffer)
        count = self._source.readinto(view)
        lines = self._line + bytes(view[:count])
        end = lines.rfind(b"\n") + 1 if count == len(view) else len(lines)
        self._line = lines[end:]
        if len(self._line) > _LONGEST:
            raise DataError(f"a line of more than {_LONGEST:,} bytes, expected an object a line")
        _check_depth(lines[:end])
        return count


def _check_depth(lines: bytes) -> None:
    """Refuse a line that is nested too deep; only one with many brackets is read for that."""
    text = np.frombuffer(lines, np.uint8)
    opening = np.flatnonzero((text == ord("{")) | (text == ord("[")))
    starts = np.concatenate([[0], np.flatnonzero(text == ord("\n")) + 1])
    n_opening = np.diff(np.searchsorted(opening, starts), append=len(opening))
    for line in np.flatnonzero(n_opening > DEEPEST):
        depth = 0
        for token in _TOKEN.finditer(lines[starts[line] :].split(b"\n", 1)[0]):
            depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(token[0], 0)
            if depth > DEEPEST:
                raise DataError(f"a line is nested more than {DEEPEST} deep")
