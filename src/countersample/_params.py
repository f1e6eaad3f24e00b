"""Checks of parameters: choices, whole numbers, numbers with bounds.

Every error is one sentence: ``batch_size is True, expected a whole number of at least 1``.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["choice", "number", "whole_number"]


def choice(name: str, value: object, options: Iterable[str]) -> str:
    """Return the value if it is one of the options.

    Examples
    --------
    >>> from countersample._params import choice
    >>> choice("unit", "query", ("click", "pair", "query"))
    'query'
    """
    names = list(options)
    if not isinstance(value, str) or value not in names:
        raise ParameterError(f"{name} is {value!r}, expected one of {', '.join(names)}")
    return value


def whole_number(
    name: str, value: object, *, least: int, most: int | None = None, or_else: str = ""
) -> int:
    """Return the value as an int if it is whole and within bounds; True and False are not numbers.

    Parameters
    ----------
    name : str
        The name in the error.
    value : object
    least, most : int
        The bounds, both included.
    or_else : str
        What the caller accepts beside numbers, for the error: ``"None"``.

    Examples
    --------
    >>> from countersample._params import whole_number
    >>> whole_number("batch_size", 32, least=1)
    32
    """
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or int(value) < least or (most is not None and int(value) > most):  # type: ignore[call-overload]
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise _expected(name, value, f"a whole number {bounds}", or_else)
    return int(value)  # type: ignore[call-overload,no-any-return]


def number(
    name: str,
    value: object,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    or_else: str = "",
) -> float:
    """Return the value as a float if it is finite and within bounds.

    Parameters
    ----------
    name : str
        The name in the error.
    value : object
    least, most : float, optional
        Bounds that are included.
    above, below : float, optional
        Bounds that are not.
    or_else : str
        As for `whole_number`.

    Examples
    --------
    >>> from countersample._params import number
    >>> number("holdout", 0.2, above=0, most=0.5)
    0.2
    """
    bounds: list[tuple[str, float | None, Any]] = [
        ("above", above, lambda x, bound: x > bound),
        ("of at least", least, lambda x, bound: x >= bound),
        ("below", below, lambda x, bound: x < bound),
        ("at most", most, lambda x, bound: x <= bound),
    ]
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    try:
        x = float(value) if is_number else float("nan")  # type: ignore[arg-type]
    except OverflowError:  # a whole number of more than 308 digits
        x = float("inf")
    is_finite = float("-inf") < x < float("inf")
    if is_finite and all(bound is None or holds(x, bound) for _, bound, holds in bounds):
        return x
    text = " and ".join(f"{words} {bound:g}" for words, bound, _ in bounds if bound is not None)
    raise _expected(name, value, f"a number {text}".rstrip(), or_else)


def _expected(name: str, value: object, what: str, or_else: str) -> ParameterError:
    other = f"{or_else} or " if or_else else ""
    return ParameterError(f"{name} is {_repr(value)}, expected {other}{what}")


def _repr(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # a whole number of more than 4,300 digits
        return "a number of thousands of digits"
