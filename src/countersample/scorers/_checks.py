"""Checks that scorers share."""

from __future__ import annotations

from typing import Any

from countersample.errors import DataError


def check_width(features: Any, n_features: int) -> None:  # noqa: ANN401 (array or codes)
    """Reject rows that do not have the features of a scorer."""
    shape = tuple(features.shape)
    if len(shape) != 2 or shape[1] != n_features:
        raise DataError(f"features have shape {shape}, expected (n_rows, {n_features})")
