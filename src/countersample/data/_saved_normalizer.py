"""Check the plain values of a saved normalizer, which may come from a stranger's file."""

from __future__ import annotations

import reprlib
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from countersample._schemas import Count, Finite, Float32, NotNegative, check_schema
from countersample.data.heavy_tails import MOST_ROOTS
from countersample.data.transforms import MOST_KNOTS
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION = 1
_OWNER = "a saved normalizer"


class NormalizerSchema(msgspec.Struct):
    """A normalizer in a file; the lists have an entry per feature."""

    version: int
    how: str
    n_features: Count
    shift: list[Finite] | None = None
    scale: list[NotNegative] | None = None
    roots: list[Annotated[int, Meta(ge=0, le=MOST_ROOTS)]] | None = None
    logs: list[NotNegative] | None = None
    # Per feature nothing, or its knots and their shares.
    knots: list[list[list[Float32]]] | None = None


def checked_fields(values: Mapping[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a normalizer; reject what `Normalizer.to_dict` never writes."""
    saved = check_schema(values, NormalizerSchema, _OWNER)
    known = [*methods, "none"]
    _check("version", saved.version, saved.version == VERSION, f"{VERSION}")
    _check("how", saved.how, saved.how in known, f"one of {', '.join(known)}")
    transforms = {name: getattr(saved, name) for name in ("roots", "logs", "knots")}
    transforms = {name: each for name, each in transforms.items() if each is not None}
    if len(transforms) > 1:
        first, second = list(transforms)[:2]
        raise DataError(f"{second} of {_OWNER} is beside {first}, expected one of them")
    is_by_query = saved.how == "query-minmax"
    needed = {} if is_by_query else {"shift": saved.shift, "scale": saved.scale}
    for name, each in (needed | transforms).items():
        n = saved.n_features
        _check(name, each, each is not None and len(each) == n, f"{n} entries, one per feature")
    for name, each in transforms.items():
        _check(name, each, any(each), "an entry that is not empty or 0")
    if saved.how == "root-minmax":
        _check("how", saved.how, not transforms.keys() - {"roots"}, "roots as its only transform")
    for each in saved.logs or ():
        _check("logs", each, _is_float32(each), "float32 numbers")
    for each in saved.knots or ():
        _check("knots", each, not each or _are_knots(each), _KNOTS)
    fields: dict[str, Any] = {"how": saved.how, "n_features": saved.n_features}
    fields |= {name: tuple(each or ()) for name, each in needed.items()}
    if saved.knots is not None:
        transforms["knots"] = [tuple(map(tuple, each)) for each in saved.knots]
    return fields | {name: tuple(each) for name, each in transforms.items()}


_KNOTS = f"2 to {MOST_KNOTS} float32 numbers and as many shares of at most 1, both rising"


def _are_knots(rows: list[list[float]]) -> bool:
    return (
        len(rows) == 2
        and 2 <= len(rows[0]) == len(rows[1]) <= MOST_KNOTS
        and all(map(_is_float32, rows[0]))
        and all(low < high for row in rows for low, high in pairwise(row))
        and rows[1][0] >= 0
        and rows[1][-1] <= 1
    )


def _is_float32(value: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float32(value)) == value


def _check(name: str, value: object, is_valid: bool, expected: str) -> None:
    if not is_valid:
        raise DataError(f"{name} of {_OWNER} is {reprlib.repr(value)}, expected {expected}")
