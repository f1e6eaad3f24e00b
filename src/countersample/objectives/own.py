"""An additive metric of the user's own: any λ with its slope, checked before it is trusted."""

from __future__ import annotations

from hashlib import blake2b
from math import inf
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from countersample.errors import ParameterError
from countersample.objectives.additive import Objective, OwnWeighting, precision
from countersample.objectives.losses import LOSSES, SMOOTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from countersample._arrays import Floats

# Bounds at which λ is looked at: finely where ranks are small, then as far as lists reach.
GRID = np.unique(np.concatenate([1 + np.arange(981) / 20, np.geomspace(50, 1e6, 3000)]))
SHOWN = GRID[::40]  # those of which the fingerprint is made
OFF = 0.02  # by which a slope may miss that of a chord, as a share of the slopes around
ROUNDING = 1e-9


def additive_objective(
    name: str,
    *,
    value: Callable[[float], float],
    slope: Callable[[float], float],
    formula: str = "λ of one's own",
) -> Objective:
    """Σ λ(rank) over relevant items, for any λ: the objective f = λ(bound on the rank).

    λ is a loss: it does not fall with the rank. A gain such as 1/rank is given with its sign
    turned. Both functions take one number, at least 1, and are compiled: arithmetic, `math` and
    numpy's functions of a number. They are looked at on bounds from 1 to 10⁶ and refused where
    what is promised does not hold. `Objective.convex` says whether f is convex.

    Parameters
    ----------
    name : str
        By which results, files and cards call it, with a fingerprint of its values.
    value, slope : functions of one number
        λ and λ'. Where λ has a kink, λ' may be the slope on either side.
    formula : str
        To be shown.

    Returns
    -------
    Objective
        For ``objective=`` of `train`, of every ranker, of `score_space` and the like; its
        `Objective.smooth` for those that are not linear.

    Raises
    ------
    ParameterError
        Where λ falls, as λ(bound) is no bound on λ(rank) then; where λ is flat; where the slope is
        not that of λ, as for a step, which has none; where either is not finite; where they cannot
        be compiled; where the name is taken.

    Notes
    -----
    A ranker that was saved scores without λ; training it again needs λ again.

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
    for what, function in (("value", value), ("slope", slope)):
        _check_function(name, what, function)
    unchecked = Objective(name, formula, OwnWeighting(value, slope, ""))
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
        OwnWeighting(value, slope, _fingerprint(unchecked)),
        convex=bool((np.diff(slopes) >= -tolerance).all()),
        steepest=inf if is_rising else float(slopes.max()),
    )


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip() or ":" in name:
        raise ParameterError(f"name is {name!r}, expected a text without a colon")
    if name in LOSSES or name.startswith(SMOOTH) or precision(name) is not None:
        raise ParameterError(f"name is {name!r}, which is built in, expected another")


def _check_function(name: str, what: str, function: Callable[[float], object]) -> None:
    """Call it once as it is: what Python says of a slip is clearer than what a compiler does."""
    try:
        found = function(1.5)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise ParameterError(
            f"{name}: {what}(1.5) fails ({said}), expected a function of one number"
        ) from error
    if not isinstance(found, Real):
        raise ParameterError(f"{name}: {what}(1.5) is {found!r}, expected a number")


def _check_weighting(name: str, values: Floats, slopes: Floats) -> None:
    """Refuse a λ with which λ(bound) is no bound on λ(rank), or that cannot be descended."""
    for what, found in (("λ", values), ("its slope", slopes)):
        if not np.isfinite(found).all():
            at = int(np.argmin(np.isfinite(found)))
            raise ParameterError(
                f"{name}: {what} is {found[at]} at {GRID[at]:g}, expected a finite number for "
                "every bound from 1 to 1,000,000"
            )
    falls = np.diff(values) < -ROUNDING * np.abs(values[1:])
    if falls.any():
        at = int(falls.argmax())
        raise ParameterError(
            f"{name}: λ falls from {values[at]:g} at {GRID[at]:g} to {values[at + 1]:g} at "
            f"{GRID[at + 1]:g}, expected one that never does, or λ(bound) is no bound on λ(rank): "
            "turn the sign of a gain"
        )
    chords = np.diff(values) / np.diff(GRID)
    least, most = np.minimum(slopes[1:], slopes[:-1]), np.maximum(slopes[1:], slopes[:-1])
    # What the digits of λ allow, beside what the slope may do between two bounds.
    digits = 64 * np.finfo(float).eps * np.abs(values[1:]) / np.diff(GRID)
    allowed = OFF * np.abs(most) + digits
    is_off = (chords < least - allowed) | (chords > most + allowed)
    if is_off.any():
        at = int(is_off.argmax())
        raise ParameterError(
            f"{name}: λ rises by {chords[at]:g} a rank from {GRID[at]:g} to {GRID[at + 1]:g}, and "
            f"its slope is given as {slopes[at]:g} and {slopes[at + 1]:g} there, expected that of "
            "λ; a step has none: take a bound on it, as precision@k does"
        )
    if not slopes.any():
        raise ParameterError(
            f"{name}: λ is flat, expected one that rises: nothing could be learned"
        )


def _fingerprint(objective: Objective) -> str:
    """Return a hash of values and slopes to six digits: what λ is, however it is written."""
    found = np.concatenate([objective.values(SHOWN), objective.slopes(SHOWN)])
    text = " ".join(f"{x:.5e}" for x in found + 0.0)
    return blake2b(text.encode(), digest_size=5).hexdigest()
