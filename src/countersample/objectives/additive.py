"""Additive objectives: the weightings λ of the bound on the rank that are built in.

A new objective is an entry in `OBJECTIVES`, a code in `_kernels.codes`, and λ with its slope in
`_kernels.objectives.weighting`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from math import inf, log
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from countersample._kernels import codes
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.objectives.losses import Loss

_PRECISION = re.compile(r"precision@([1-9]\d{0,8})")


@dataclass(frozen=True)
class CustomWeighting:
    """λ and λ' as functions of one number, and the fingerprint of their values."""

    value: Callable[[float], float]
    slope: Callable[[float], float]
    fingerprint: str


@cache
def _compiled(weighting: CustomWeighting) -> tuple[int, object]:
    """Return the address of λ, and the objects that keep it alive in this process."""
    from countersample._kernels.objectives import compile_weighting  # noqa: PLC0415 (numba)

    return compile_weighting(weighting.value, weighting.slope)


@dataclass(frozen=True, repr=False)
class Objective:
    """A weighting λ of the bound on the rank, which does not fall.

    Attributes
    ----------
    name : str
    formula : str
    weighting : int or CustomWeighting
        Its code in `_kernels.objectives.weighting`; or a user's functions (`additive_objective`).
    convex : bool
        Whether f is convex in the scores: if λ is.
    steepest : float
        The largest λ' on [1, ∞); infinite if it is unbounded.
    of_paper : bool
        Whether the bound counts the item itself, as in equation 2 of the paper.

    Examples
    --------
    >>> from countersample.objectives import get_objective
    >>> get_objective("dcg").values([1.0, 3.0])  # −1/log2(2), −1/log2(4)
    array([-1. , -0.5])
    >>> get_objective("precision@5").values([4.5, 6.0])  # max(0, 4.5 − 5), max(0, 6 − 5)
    array([0., 1.])
    """

    name: str
    formula: str
    weighting: int | CustomWeighting
    convex: bool = False
    steepest: float = inf
    of_paper: bool = False

    @property
    def code(self) -> int:
        """λ for kernels: its number, or its address in the memory of this process."""
        return self.weighting if isinstance(self.weighting, int) else _compiled(self.weighting)[0]

    @property
    def identity(self) -> str:
        """Its name in files; a custom λ has a fingerprint of its values as well."""
        if isinstance(self.weighting, int):
            return self.name
        return f"{self.name}:{self.weighting.fingerprint}"

    def values(self, bounds: ArrayLike) -> Floats:
        """λ of each bound, (n,)."""
        return self._weightings(bounds)[0]

    def slopes(self, bounds: ArrayLike) -> Floats:
        """λ' of each bound, (n,)."""
        return self._weightings(bounds)[1]

    def smooth(self) -> Loss:
        """Return the loss with φ(margin) = log2(1 + e^−margin), for networks and trees."""
        from countersample.objectives.losses import smooth  # noqa: PLC0415 (circular)

        return smooth(self)

    def _weightings(self, bounds: ArrayLike) -> tuple[Floats, Floats]:
        from countersample._kernels.objectives import weightings  # noqa: PLC0415 (numba)

        array = np.asarray(bounds, np.float64)
        values, slopes = np.empty((2, len(array)))
        weightings(self.code, array, values, slopes)
        return values, slopes

    def __repr__(self) -> str:
        """Show it as in the parameters of rankers and on cards."""
        return f"Objective({self.identity!r})"


AnyObjective: TypeAlias = str | Objective  # for linear training

OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("rank", "λ(x) = x", codes.RANK, convex=True, steepest=1.0),
        Objective("log-rank", "λ(x) = ln x", codes.LOG_RANK, steepest=1.0),
        Objective("dcg", "λ(x) = −1/log2(1 + x)", codes.DCG, steepest=1 / (2 * log(2))),
        Objective("squared-rank", "λ(x) = x²", codes.SQUARED_RANK, convex=True),
        Objective(
            "log-rank-paper", "λ(x) = ln(1 + x)", codes.LOG_RANK_PAPER, steepest=1 / 2,
            of_paper=True,
        ),
        Objective(
            "dcg-paper", "λ(x) = −1/log2(2 + x)", codes.DCG_PAPER,
            steepest=log(2) / (3 * log(3) ** 2), of_paper=True,
        ),
    )
}  # fmt: skip


def precision(name: str) -> Objective | None:
    """λ(x) = max(0, x − k), the objective of ``"precision@k"``; None for another name.

    The loss of precision@k is 1[rank > k], a step, with nothing to descend. For a bound x ≥ rank,

        1[rank > k]  ≤  max(0, rank − k)  ≤  max(0, x − k):

    the first as ranks are whole, so that rank > k means rank − k ≥ 1, the second as max(0, · − k)
    does not fall. So k · precision@k, the sum of 1[rank ≤ k] over relevant items, is at least the
    sum of 1 − max(0, x − k). The first is an equality at the ranks up to k + 1, and no convex
    function with that property is lower beyond: it lies above the line through 0 at k and 1 at
    k + 1. An item whose bound is at most k has no gradient, as it is among the first k.
    """
    match = _PRECISION.fullmatch(name)
    if match is None:
        return None
    k = int(match[1])
    return Objective(name, f"λ(x) = max(0, x − {k})", -k, convex=True, steepest=1.0)


def unknown(name: object, names: Iterable[str]) -> ParameterError:
    """Return the error for an unknown name."""
    return ParameterError(
        f"objective is {name!r}, expected one of {', '.join(names)}, precision@k with a k, or the "
        "result of additive_objective"
    )


def get_objective(name: AnyObjective) -> Objective:
    """Return the objective of a name, such as ``"precision@5"``; an `Objective` is unchanged."""
    if isinstance(name, Objective):
        return name
    objective = (OBJECTIVES.get(name) or precision(name)) if isinstance(name, str) else None
    if objective is None:
        raise unknown(name, OBJECTIVES)
    return objective


def coefficients(
    scores: ArrayLike, item: int, *, objective: AnyObjective = "rank"
) -> NDArray[np.float32]:
    """Return ∂f/∂score of each item of a query with one click, (n_items,).

    Parameters
    ----------
    scores : array-like (n_items,)
    item : int
        The clicked item.
    objective : str or Objective
        One of `OBJECTIVES`, ``"precision@k"``, or one from `additive_objective`.

    Examples
    --------
    Item 0 is 2 above item 1 and 0.5 above item 2: only the second pair has a margin below 1.

    >>> from countersample.objectives import coefficients
    >>> coefficients([2.0, 0.0, 1.5], item=0)
    array([-1.,  0.,  1.], dtype=float32)
    """
    from countersample._kernels import objectives as kernels  # noqa: PLC0415 (imports numba)

    array = np.asarray(scores, np.float32)
    if array.ndim != 1:
        raise ParameterError(f"scores have shape {array.shape}, expected a vector (n_items,)")
    if not 0 <= item < len(array):
        raise ParameterError(f"item is {item}, expected one of 0 to {len(array) - 1}")
    result = np.zeros(len(array), np.float32)
    kernels.coefficients(array[None], item, get_objective(objective).code, result[None])
    return result
