"""A normalizer's plain values, checked as if a stranger had written them."""

from __future__ import annotations

import reprlib
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.data.heavy_tails import MOST_ROOTS
from countersample.data.transforms import MOST_KNOTS
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_VERSION = 1
_WITH_ROOTS = 2  # the version of minmax after roots, which releases before could not read
WITH_TRANSFORMS = 3  # of all other transforms


def version_of(how: str, transform: str | None) -> int:
    """Return the version of a normalizer: the first that has a word for it."""
    if how != "none" and transform is None:
        return _VERSION
    return _WITH_ROOTS if (how, transform) == ("root-minmax", "root") else WITH_TRANSFORMS


def checked(values: Mapping[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a normalizer; what `Normalizer.to_dict` does not write is refused."""
    versions = (_VERSION, _WITH_ROOTS, WITH_TRANSFORMS)
    version = _take(
        values, "version", ", ".join(map(str, versions[:-1])) + f" or {versions[-1]}",
        lambda version: type(version) is int and version in versions,
    )  # fmt: skip
    known = list(methods)
    if version == _WITH_ROOTS:
        known = ["root-minmax"]
    elif version == WITH_TRANSFORMS:
        known = [how for how in methods if how != "root-minmax"] + ["none"]
    how = _take(values, "how", f"one of {', '.join(known)}", lambda how: how in known)
    n = _take(values, "n_features", "a count", lambda n: type(n) is int and n >= 0)
    fields = {"how": how, "n_features": n}
    if how != "query-minmax":
        shift = _take(values, "shift", f"{n} numbers", lambda x: _are_numbers(x, n))
        scale = _take(values, "scale", f"{n} numbers >= 0", lambda x: _are_numbers(x, n, least=0))
        fields |= {"shift": tuple(map(float, shift)), "scale": tuple(map(float, scale))}
    if version == _VERSION:
        return fields
    if version == _WITH_ROOTS:
        return fields | _numbers(values, "roots", n)
    given = [name for name in _NUMBERS if values.get(name) is not None]
    if not given and how == "none":
        return fields
    if len(given) > 1:
        raise DataError(
            f"{given[1]} of a saved normalizer is beside {given[0]}, expected one of them: save it "
            "with Normalizer.to_dict"
        )
    return fields | _numbers(values, given[0] if given else "roots", n)


def _numbers(values: Mapping[str, Any], name: str, n: int) -> dict[str, Any]:
    """Return the numbers of a transform."""
    expected, are_valid = _NUMBERS[name]
    found = _take(values, name, f"{n} {expected}", lambda x: are_valid(x, n))
    if name == "knots":
        found = [tuple(tuple(map(float, row)) for row in each) for each in found]
    elif name == "logs":
        found = map(float, found)
    return {name: tuple(found)}


def _take(
    values: Mapping[str, Any], name: str, expected: str, is_valid: Callable[[Any], bool]
) -> Any:  # noqa: ANN401 (JSON)
    value = values.get(name) if isinstance(values, dict) else None
    if not is_valid(value):
        raise DataError(
            f"{name} of a saved normalizer is {reprlib.repr(value)}, expected {expected}: save it "
            "with Normalizer.to_dict"
        )
    return value


def _are_numbers(values: Any, count: int, least: float = -np.inf) -> bool:  # noqa: ANN401 (JSON)
    return (
        isinstance(values, list | tuple)
        and len(values) == count
        and all(isinstance(x, int | float) and abs(x) <= sys.float_info.max for x in values)
        and all(x >= least for x in values)
    )


def _are_float32(values: Any, count: int, least: float = -np.inf) -> bool:  # noqa: ANN401 (JSON)
    """Whether these are finite float32 numbers, whose differences and ratios are in float64."""
    most = float(np.finfo(np.float32).max)
    return _are_numbers(values, count, least) and all(
        abs(x) <= most and float(np.float32(x)) == x for x in values
    )


def _are_roots(values: Any, count: int) -> bool:  # noqa: ANN401 (JSON)
    return (
        isinstance(values, list | tuple)
        and len(values) == count
        and all(type(x) is int and 0 <= x <= MOST_ROOTS for x in values)
        and any(values)
    )


def _are_logs(values: Any, count: int) -> bool:  # noqa: ANN401 (JSON)
    return _are_float32(values, count, least=0) and any(values)


def _are_knots(values: Any, count: int) -> bool:  # noqa: ANN401 (JSON)
    return (
        isinstance(values, list | tuple)
        and len(values) == count
        and all(map(_are_knots_of_one, values))
        and any(values)
    )


def _are_knots_of_one(knots: Any) -> bool:  # noqa: ANN401 (JSON)
    if not isinstance(knots, list | tuple) or len(knots) not in {0, 2}:
        return False
    if not knots:
        return True
    n = len(knots[0]) if isinstance(knots[0], list | tuple) else 0
    return (
        2 <= n <= MOST_KNOTS
        and _are_float32(knots[0], n)
        and _are_numbers(knots[1], n, least=0)
        and all(a < b for row in knots for a, b in pairwise(row))
        and knots[1][-1] <= 1
    )


# What each transform has: in words, and the check of it.
_NUMBERS: dict[str, tuple[str, Callable[[Any, int], bool]]] = {
    "roots": (f"whole numbers of 0 to {MOST_ROOTS}, not all 0", _are_roots),
    "logs": ("float32 numbers >= 0, not all 0", _are_logs),
    "knots": (
        f"empty lists, or 2 to {MOST_KNOTS} float32 numbers and as many shares, both rising",
        _are_knots,
    ),
}
