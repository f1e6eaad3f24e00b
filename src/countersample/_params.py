"""Checks of parameters: choices, whole numbers, numbers with bounds.

Every error is one sentence: ``batch_size is True, expected a whole number of at least 1``. The
`or_else` of a check is a value beside numbers that the caller accepts, for that sentence.
"""

from __future__ import annotations

from numbers import Integral, Real
from sys import float_info
from typing import TYPE_CHECKING, Any

from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["choice", "number", "whole_number"]


def choice(name: str, value: object, options: Iterable[str]) -> str:
    """Return the value if it is one of the options.

    >>> choice("unit", "query", ("click", "pair", "query"))
    'query'
    """
    names = list(options)
    if not isinstance(value, str) or value not in names:
        raise ParameterError(f"{name} is {value!r}, expected one of {', '.join(names)}")
    return value


def whole_number(
    name: str,
    value: Any,  # noqa: ANN401 (a user's)
    *,
    least: int,
    most: int | None = None,
    or_else: str = "",
) -> int:
    """Return the value as an int if it is whole and from least to most, both included.

    True and False are not numbers.

    >>> whole_number("batch_size", 32, least=1)
    32
    """
    if _is(Integral, value):
        n = int(value)
        if n >= least and (most is None or n <= most):
            return n
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise _expected(name, value, f"a whole number {bounds}", or_else)


def number(
    name: str,
    value: Any,  # noqa: ANN401 (a user's)
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    or_else: str = "",
) -> float:
    """Return the value as a float if it is finite and within bounds.

    `least` and `most` are included in the range; `above` and `below` are not.

    >>> number("holdout", 0.2, above=0, most=0.5)
    0.2
    """
    if _is(Real, value) and not isinstance(value, int):
        value = float(value)  # a float32 cannot be compared with the largest float
    if _is(Real, value) and abs(value) <= float_info.max:
        is_high = (least is None or value >= least) and (above is None or value > above)
        is_low = (most is None or value <= most) and (below is None or value < below)
        if is_high and is_low:
            return float(value)
    words = {"above": above, "of at least": least, "below": below, "at most": most}
    text = " and ".join(f"{word} {bound:g}" for word, bound in words.items() if bound is not None)
    raise _expected(name, value, f"a number {text}".rstrip(), or_else)


def _is(kind: type, value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _expected(name: str, value: object, expectation: str, or_else: str) -> ParameterError:
    other = f"{or_else} or " if or_else else ""
    try:
        text = repr(value)
    except ValueError:  # a whole number of more than 4,300 digits
        text = "a number of thousands of digits"
    return ParameterError(f"{name} is {text}, expected {other}{expectation}")
