"""Columns of estimates, a number a position: checked once for all kinds of them."""

from __future__ import annotations

import reprlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._params import number, whole_number
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable


def set_columns(estimate: object, names: tuple[str, ...]) -> None:
    """Make attributes of an estimate arrays (K,) that cannot be written, all as long as the first.

    ``n_impressions`` are whole numbers, the others are floats.
    """
    for name in names:
        kind = np.int64 if name == "n_impressions" else np.float64
        try:
            column = np.array(getattr(estimate, name), kind)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{name} must be numbers ({error})") from error
        column.setflags(write=False)
        object.__setattr__(estimate, name, column)
        first = getattr(estimate, names[0])
        if column.ndim != 1 or column.shape != first.shape or not len(column):
            raise DataError(
                f"{name} has shape {column.shape}, expected {(max(1, first.size),)}: one number a "
                "position"
            )
        if kind is np.int64 and (column < 0).any():
            raise DataError(f"{name} has {column.min()}, expected numbers of at least 0")


def set_notes(estimate: object) -> None:
    """Make the notes of an estimate a tuple of texts, and check what is said beside its columns."""
    for name, check in _SAID.items():
        if hasattr(estimate, name):
            check(name, getattr(estimate, name))
    notes = estimate.notes  # type: ignore[attr-defined]
    if not isinstance(notes, list | tuple) or not all(isinstance(note, str) for note in notes):
        raise DataError(f"notes is {reprlib.repr(notes)}, expected a list of texts")
    object.__setattr__(estimate, "notes", tuple(notes))


def _text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise DataError(f"{name} is {reprlib.repr(value)}, expected text")


_SAID: dict[str, Callable[[str, Any], object]] = {
    "method": _text,
    "confidence": partial(number, above=0, below=1),
    "reference": partial(whole_number, least=1),
    "p_value": partial(number, least=0, most=1),
    "origin": number,
}
