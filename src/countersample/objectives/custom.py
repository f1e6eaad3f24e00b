"""Custom objectives: any λ with its slope, compiled and checked."""

from __future__ import annotations

from hashlib import blake2b
from math import inf
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from countersample.errors import ParameterError
from countersample.objectives.additive import CustomWeighting, Objective, precision
from countersample.objectives.losses import LOSSES, SMOOTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from countersample._arrays import Floats

# Bounds at which λ is checked: finely for small ranks, then up to the longest lists.
GRID = np.unique(np.concatenate([1 + np.arange(981) / 20, np.geomspace(50, 1e6, 3000)]))
FINGERPRINT_GRID = GRID[::40]
SLOPE_TOLERANCE = 0.02  # relative difference between the slope and that of a chord
ROUNDING = 1e-9


def additive_objective(
    name: str,
    *,
    value: Callable[[float], float],
    slope: Callable[[float], float],
    formula: str = "custom λ",
) -> Objective:
    """Σ λ(rank) over relevant items, for any λ: the objective f = λ(bound on the rank).

    λ is a loss: it does not fall with the rank. Negate a gain such as 1/rank. Both functions take
    one number, at least 1, and are compiled: arithmetic, `math` and numpy's functions of a number.
    They are checked on bounds from 1 to 10⁶. `Objective.convex` is whether f is convex.

    Parameters
    ----------
    name : str
        Its name in results, files and cards, beside a fingerprint of its values.
    value, slope : functions of one number
        λ and λ'. At a kink of λ, λ' may be the slope on either side.
    formula : str
        For display.

    Returns
    -------
    Objective
        For ``objective=`` of `train`, of every ranker, of `score_space` and the like; its
        `Objective.smooth` for those that are not linear.

    Raises
    ------
    ParameterError
        If λ falls, because λ(bound) is no bound on λ(rank) then; if λ is flat; if the slope is not
        that of λ, as for a step, which has none; if either is not finite, or cannot be compiled; if
        the name is built in.

    Notes
    -----
    A saved ranker scores without λ; training it again needs λ.

    Examples
    --------
    The power 3/2 of the rank, between rank and squared-rank:

    >>> from countersample.objectives import additive_objective, coefficients
    >>> steeper = additive_objective(
    ...     "rank^1.5", value=lambda x: x**1.5, slope=lambda x: 1.5 * x**0.5
    ... )
    >>> steeper.convex
    True
    >>> coefficients([0.0, 3.0], item=0, objective=steeper)  # bound 5: 1.5 · √5
    array([-3.354102,  3.354102], dtype=float32)
    """
    _check_name(name)
    for part, function in (("value", value), ("slope", slope)):
        _check_function(name, part, function)
    unchecked = Objective(name, formula, CustomWeighting(value, slope, ""))
    try:
        values, slopes = unchecked.values(GRID), unchecked.slopes(GRID)
    except ValueError as error:
        raise ParameterError(
            f"{name}: value and slope cannot be compiled ({error}): expected arithmetic, math and "
            "numpy's functions of one number"
        ) from error
    _check_weighting(name, values, slopes)
    is_rising = slopes[-1] > slopes[-2] * (1 + ROUNDING)
    tolerance = ROUNDING * np.maximum(slopes[1:], slopes[:-1])
    return Objective(
        name,
        formula,
        CustomWeighting(value, slope, _fingerprint(unchecked)),
        convex=bool((np.diff(slopes) >= -tolerance).all()),
        steepest=inf if is_rising else float(slopes.max()),
    )


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip() or ":" in name:
        raise ParameterError(f"name is {name!r}, expected a text without a colon")
    if name in LOSSES or name.startswith(SMOOTH) or precision(name) is not None:
        raise ParameterError(f"name is {name!r}, which is built in, expected another")


def _check_function(name: str, part: str, function: Callable[[float], object]) -> None:
    """Call a function once in Python, whose errors are clearer than those of a compiler."""
    try:
        result = function(1.5)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise ParameterError(
            f"{name}: {part}(1.5) fails ({problem}), expected a function of one number"
        ) from error
    if not isinstance(result, Real):
        raise ParameterError(f"{name}: {part}(1.5) is {result!r}, expected a number")


def _check_weighting(name: str, values: Floats, slopes: Floats) -> None:
    """Reject a λ for which λ(bound) is no bound on λ(rank), or that cannot be descended."""
    for part, numbers in (("λ", values), ("its slope", slopes)):
        if not np.isfinite(numbers).all():
            at = int(np.argmin(np.isfinite(numbers)))
            raise ParameterError(
                f"{name}: {part} is {numbers[at]} at {GRID[at]:g}, expected a finite number for "
                "every bound from 1 to 1,000,000"
            )
    falls = np.diff(values) < -ROUNDING * np.abs(values[1:])
    if falls.any():
        at = int(falls.argmax())
        raise ParameterError(
            f"{name}: λ falls from {values[at]:g} at {GRID[at]:g} to {values[at + 1]:g} at "
            f"{GRID[at + 1]:g}, expected one that never does, or λ(bound) is no bound on λ(rank): "
            "negate a gain"
        )
    chords = np.diff(values) / np.diff(GRID)
    least, most = np.minimum(slopes[1:], slopes[:-1]), np.maximum(slopes[1:], slopes[:-1])
    # The rounding of λ, beside the tolerance of the slope between two bounds.
    digits = 64 * np.finfo(float).eps * np.abs(values[1:]) / np.diff(GRID)
    allowed = SLOPE_TOLERANCE * np.abs(most) + digits
    is_off = (chords < least - allowed) | (chords > most + allowed)
    if is_off.any():
        at = int(is_off.argmax())
        raise ParameterError(
            f"{name}: λ rises by {chords[at]:g} per rank from {GRID[at]:g} to {GRID[at + 1]:g}, "
            f"and its slope is given as {slopes[at]:g} and {slopes[at + 1]:g} there, expected that "
            "of λ; a step has none: take a bound on it, as precision@k does"
        )
    if not slopes.any():
        raise ParameterError(
            f"{name}: λ is flat, expected one that rises: nothing could be learned"
        )


def _fingerprint(objective: Objective) -> str:
    """Return a hash of values and slopes to six digits, which does not depend on the code of λ."""
    grid = FINGERPRINT_GRID
    numbers = np.concatenate([objective.values(grid), objective.slopes(grid)])
    text = " ".join(f"{x:.5e}" for x in numbers + 0.0)
    return blake2b(text.encode(), digest_size=5).hexdigest()
