"""JSON of a user's file: read in one place, where whatever is wrong with it is one error."""

from __future__ import annotations

import json
import re
from typing import Any

from countersample.errors import DataError

MOST_LEVELS = 100  # files of this package have 7 at most; a thousand exhaust Python's stack
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(data: bytes | str) -> Any:  # noqa: ANN401 (whatever JSON has)
    """Return the value of JSON text; anything wrong with the text is a DataError.

    Wrong is what is not UTF-8 or not JSON, nested more than 100 levels deep, an object that has a
    key twice (readers differ in which they take), and text that no file can hold (half of a
    character). Numbers may be infinite or NaN, as 1e999 is infinite without saying so: what reads a
    number has to check it anyway.

    Examples
    --------
    >>> from countersample._json import parse_json
    >>> parse_json(b'{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    """
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        value = json.loads(text, object_pairs_hook=_object)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise _too_deep() from error
    except DataError:
        raise
    except ValueError as error:  # not JSON, not UTF-8, a number of thousands of digits
        raise DataError(f"not JSON: {error}") from error
    _check_levels(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise DataError(f"not JSON that can be trusted: an object has the key {double!r} twice")
    return found


def _check_levels(value: object) -> None:
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [
            part
            for each in level
            if isinstance(each, dict | list)
            for part in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> DataError:
    return DataError(f"not JSON that can be read: nested more than {MOST_LEVELS} levels deep")
