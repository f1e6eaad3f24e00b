"""JSON of a user's file: parse it, and check its values against a schema.

A file may have anything in it. `parse_json` raises one kind of error for whatever is wrong with the
text. `check_schema` compares the values with a `msgspec.Struct` that has types and bounds. What a
schema cannot express, such as indices within another field's length, is checked by the reader of
the values, before compiled code uses them.
"""

from __future__ import annotations

import json
import re
import reprlib
import sys
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from countersample.errors import DataError

MAX_LEVELS = 100  # files of this package have at most 7; a thousand exhaust Python's stack
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
Schema = TypeVar("Schema")

_MAX64, _MAX32 = sys.float_info.max, float(np.finfo(np.float32).max)
Finite = Annotated[float, Meta(ge=-_MAX64, le=_MAX64)]
Float32 = Annotated[float, Meta(ge=-_MAX32, le=_MAX32)]  # rounds to a finite float32
NotNegative = Annotated[float, Meta(ge=0, le=_MAX64)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
PositiveCount = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Figure = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float  # may be NaN, or infinite

_WORDS = {
    "int": "a whole number", "float": "a number", "str": "text", "array": "a list",
    "object": "an object", "bool": "true or false", "null": "null",
}  # fmt: skip
_PLACE = re.compile(r" - at `\$\.?(?P<path>.*)`$")
_KEY = re.compile(r"[^.\[\]]+")


def parse_json(data: bytes | str) -> Any:  # noqa: ANN401 (whatever JSON has)
    """Return the value of JSON text, or raise a DataError.

    Rejected are text that is not UTF-8 or not JSON, more than 100 levels of nesting, an object with
    a key twice (readers differ in which value they take), and half of a character. Numbers may be
    infinite or NaN (1e999 is infinite): readers of numbers check that anyway.

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
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise DataError(f"not valid JSON: an object has the key {double!r} twice")
    return values


def _check_levels(value: object) -> None:
    level = [value]
    for _ in range(MAX_LEVELS + 1):
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
    return DataError(f"nested more than {MAX_LEVELS} levels deep, expected fewer")


def check_schema(values: Any, schema: type[Schema], owner: str) -> Schema:  # noqa: ANN401 (JSON)
    """Return the values as the schema has them; other values raise an error that names the field.

    >>> check_schema({"a": [1, 2.5]}, dict[str, list[Finite]], "a test")
    {'a': [1.0, 2.5]}
    >>> class Weights(msgspec.Struct):
    ...     weights: list[Finite]
    >>> check_schema({"weights": [1.0, "2"]}, Weights, "a scorer")
    Traceback (most recent call last):
    countersample.errors.DataError: weights[1] of a scorer is '2', expected a number
    """
    try:
        return msgspec.convert(values, schema)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, DataError):  # raised by the class that is the schema
            raise error.__cause__ from None
        raise DataError(_describe(str(error), values, owner)) from error
    except UnicodeEncodeError as error:  # half of a character, which JSON can have
        text = reprlib.repr(error.object)
        raise DataError(f"{owner} has the text {text}, expected valid Unicode") from error


def _describe(message: str, values: Any, owner: str) -> str:  # noqa: ANN401 (JSON)
    place = _PLACE.search(message)
    path = "" if place is None else place["path"]
    problem = _PLACE.sub("", message)
    if problem.startswith("Object missing required field"):
        field = problem.split("`")[1]
        return f"{owner} has no {f'{path}.' if path else ''}{field}, expected one"
    if problem.startswith("Object contains unknown field"):
        field = f"{path}.{problem.split('`')[1]}".lstrip(".")
        return f"{owner} has an unknown key {field}"
    subject = f"{path} of {owner}" if path else owner
    return f"{subject} is {reprlib.repr(_value_at(values, path))}, expected {_expected(problem)}"


def _value_at(values: Any, path: str) -> Any:  # noqa: ANN401 (JSON)
    """Return the value at a path such as ``a.b[0]``; the last one before ``[...]``, any key."""
    for key in _KEY.findall(path.partition("[...]")[0]):
        values = values[int(key)] if isinstance(values, list | tuple) else values[key]
    return values


def _expected(problem: str) -> str:
    """Return what msgspec expected, in words."""
    if problem == "Number out of range" or re.search(r"`float` [<>]= -?\d\S*e\+\d+", problem):
        return "a finite number"
    match = re.match(r"Expected `(?P<types>[^`]+)`(?P<rest>.*)", problem)
    if match is None:
        return problem
    words = " or ".join(_WORDS.get(each, each) for each in match["types"].split(" | "))
    return words + match["rest"].partition(", got")[0]
