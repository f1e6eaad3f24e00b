"""Columns of estimates, a number a position: checked once for all kinds of them."""

from __future__ import annotations

import numpy as np

from countersample.errors import DataError


def set_columns(estimate: object, names: tuple[str, ...]) -> None:
    """Make attributes of an estimate arrays (K,) that cannot be written, all as long as the first.

    ``n_impressions`` are whole numbers, the others are floats.
    """
    for name in names:
        kind = np.int64 if name == "n_impressions" else np.float64
        try:
            column = np.array(getattr(estimate, name), kind)
        except (TypeError, ValueError) as error:
            raise DataError(f"{name} must be numbers ({error})") from error
        column.setflags(write=False)
        object.__setattr__(estimate, name, column)
        first = getattr(estimate, names[0])
        if column.ndim != 1 or column.shape != first.shape or not len(column):
            raise DataError(
                f"{name} has shape {column.shape}, expected {(max(1, first.size),)}: one number a "
                "position"
            )
