"""Check plain values of a file against a schema: a `msgspec.Struct` with types and bounds.

A file may have anything in it. msgspec checks types and bounds. What a schema cannot express, such
as indices within another field's length, is checked by the reader of the values, before compiled
code sees them.
"""

from __future__ import annotations

import re
import reprlib
import sys
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from countersample.errors import DataError

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


def check_schema(values: Any, schema: type[Schema], owner: str) -> Schema:  # noqa: ANN401 (JSON)
    """Return the values as the schema has them; other values raise an error that names the field.

    Examples
    --------
    >>> from countersample._schemas import Finite, check_schema
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
