"""What is minimised: additive ranking metrics through the hinge bound on a clicked item's rank.

For the scores s of a query's items and a clicked item d,

    bound(s, d) = 1 + Σ_{d'≠d} max(0, 1 − (s_d − s_d'))  ≥  rank of d,      f = λ(bound).

The coefficient of item d' is ∂f/∂s_d': a linear scorer multiplies the coefficients by Xᵀ, a neural
one backpropagates them, a boosting library takes them as its gradient. A pair counts as violated
when its margin s_d − s_d' is below 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np

from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = ["OBJECTIVES", "Objective", "coefficients", "get_objective"]


@dataclass(frozen=True)
class Objective:
    """A weighting λ of the bound on the rank.

    Attributes
    ----------
    name : str
    formula : str
    code : int
        Which slope the kernel takes (`_kernels.objectives`).
    convex : bool
        Whether f is convex in the scores: λ must be convex and increasing.
    value : function
        λ of a bound.
    steepest : float
        The largest λ' on [1, ∞).
    """

    name: str
    formula: str
    code: int
    convex: bool
    value: Callable[[Floats], Floats]
    steepest: float


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("rank", "λ(x) = x", 0, True, lambda x: x, 1.0),
        Objective("log-rank", "λ(x) = ln x", 1, False, np.log, 1.0),
        Objective(
            "dcg", "λ(x) = −1/log2(1 + x)", 2, False, lambda x: -1 / np.log2(1 + x), 0.5 / log(2)
        ),
    )
}


def get_objective(name: str) -> Objective:
    """Return the objective of a name."""
    if name not in OBJECTIVES:
        raise ParameterError(f"objective is {name!r}, expected one of {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]


def coefficients(scores: ArrayLike, item: int, *, objective: str = "rank") -> NDArray[np.float32]:
    """Return ∂f/∂score of each item of a query with one click, (n_items,).

    Parameters
    ----------
    scores : array-like (n_items,)
    item : int
        The clicked item.
    objective : str
        One of `OBJECTIVES`.

    Examples
    --------
    Item 0 is 2 above item 1 and 0.5 above item 2: only the second pair has a margin below 1.

    >>> from countersample.objectives import coefficients
    >>> coefficients([2.0, 0.0, 1.5], item=0)
    array([-1.,  0.,  1.], dtype=float32)
    """
    from countersample._kernels.objectives import add_coefficients  # noqa: PLC0415 (numba)

    given = np.asarray(scores, np.float32)
    if given.ndim != 1:
        raise ParameterError(f"scores have shape {given.shape}, expected a vector (n_items,)")
    if not 0 <= item < len(given):
        raise ParameterError(f"item is {item}, expected one of 0 to {len(given) - 1}")
    out = np.zeros(len(given), np.float32)
    code = get_objective(objective).code
    add_coefficients(given[None], 0, len(given), item, np.float32(1), code, out[None])
    return out
