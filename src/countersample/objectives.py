"""Objectives and losses of all rankers: additive metrics, minimised through a bound on a rank.

For the scores s of a query's items and a clicked item d,

    bound(s, d) = 1 + Σ_{d'≠d} φ(s_d − s_d')  ≥  rank of d,      f = λ(bound),

with φ(margin) = max(0, 1 − margin), the hinge of the paper. If λ does not fall, f ≥ λ(rank): the
objective bounds the sum of λ(rank) over relevant items, an additive metric. The coefficient of item
d' is ∂f/∂s_d': a linear scorer multiplies the coefficients by Xᵀ, a neural one backpropagates them,
a boosting library takes them as its gradient. A pair is violated if its margin s_d − s_d' is below
1.

`OBJECTIVES` are built in, ``"precision@k"`` is another for each k, and `additive_objective` makes
one from any λ. Equation 2 of the paper counts the item itself among the others, which adds φ(0) = 1
to the bound: ``"log-rank-paper"`` and ``"dcg-paper"`` do so.

Networks and trees have more (`LOSSES`): φ(margin) = log2(1 + e^−margin), which is smooth and bounds
the rank as well, and two losses that are no bounds on the rank:

    softmax       f = ln Σ_d' e^(s_d') − s_d
    lambda-dcg    f = Σ_{d'≠d} |D(rank_d) − D(rank_d')| · log2(1 + e^−(s_d − s_d'))

with D(r) = 1/log2(1 + r) and ranks by the scores, which are fixed in the gradient.

A new objective is an entry in `OBJECTIVES`, a code in `_kernels.codes`, and λ with its slope in
`_kernels.objectives.weighting`; a new loss an entry in `LOSSES` and its derivatives in
`_kernels.score_space`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from math import inf, log
from numbers import Real
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from countersample._environment import available_cores
from countersample._kernels import codes
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints

__all__ = [
    "LOSSES",
    "OBJECTIVES",
    "Loss",
    "Objective",
    "ScoreSpace",
    "additive_objective",
    "coefficients",
    "get_loss",
    "get_objective",
    "score_space",
]

Function: TypeAlias = Callable[[float], float]
SMOOTH = "smooth-"
MIN_CLICKS_PER_THREAD = 2_000  # with fewer, a second thread costs more than it saves
# Bounds at which a user's λ is checked: finely for small ranks, then up to the longest lists.
GRID = np.unique(np.concatenate([1 + np.arange(981) / 20, np.geomspace(50, 1e6, 3000)]))
FINGERPRINT_GRID = GRID[::40]
SLOPE_TOLERANCE = 0.02  # relative difference between the slope and a chord's
ROUNDING = 1e-9
_PRECISION = re.compile(r"precision@([1-9]\d{0,8})")


# -- λ: the additive objectives ------------------------------------------------------------------


@dataclass(frozen=True)
class CustomWeighting:
    """λ and λ' as functions of one number, and the fingerprint of their values."""

    value: Function
    slope: Function
    fingerprint: str


@cache
def _compiled(weighting: CustomWeighting) -> tuple[int, object]:
    """Return the address of λ, and the objects that keep it alive in this process."""
    from countersample._kernels.objectives import compile_weighting  # noqa: PLC0415 (numba)

    return compile_weighting(weighting.value, weighting.slope)


@dataclass(frozen=True, repr=False)
class Objective:
    """A weighting λ of the bound on the rank, which does not fall.

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
    """Its code in `_kernels.objectives.weighting`; or a user's functions (`additive_objective`)."""
    convex: bool = False
    """Whether f is convex in the scores: if λ is."""
    steepest: float = inf
    """The largest λ' on [1, ∞); infinite if it is unbounded."""
    of_paper: bool = False
    """Whether the bound counts the item itself, as in equation 2 of the paper."""

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
        formula = f"{self.formula}, logistic"
        return Loss(SMOOTH + self.name, formula, self, codes.LOGISTIC)

    def hinge(self) -> Loss:
        """Return the loss with φ(margin) = max(0, 1 − margin), for networks and trees."""
        return Loss(self.name, f"{self.formula}, hinge", self, codes.HINGE)

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


def _precision(name: str) -> Objective | None:
    """λ(x) = max(0, x − k), the objective of ``"precision@k"``; None for another name.

    The loss of precision@k is 1[rank > k], a step, whose slope is 0. For a bound x ≥ rank,

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


def _unknown(name: object, names: Iterable[str]) -> ParameterError:
    """Return the error for an unknown name."""
    return ParameterError(
        f"objective is {name!r}, expected one of {', '.join(names)}, precision@k with a k, or the "
        "result of additive_objective"
    )


def get_objective(name: AnyObjective) -> Objective:
    """Return the objective of a name, such as ``"precision@5"``; an `Objective` is unchanged."""
    if isinstance(name, Objective):
        return name
    objective = (OBJECTIVES.get(name) or _precision(name)) if isinstance(name, str) else None
    if objective is None:
        raise _unknown(name, OBJECTIVES)
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


# -- losses in score space, for networks and trees ------------------------------------------------


@dataclass(frozen=True, repr=False)
class Loss:
    """f of one clicked item, in score space.

    Examples
    --------
    >>> from countersample.objectives import get_objective
    >>> get_objective("squared-rank").smooth().name
    'smooth-squared-rank'
    """

    name: str
    formula: str
    weighting: Objective | int
    """λ, or the code of a loss that has none."""
    pair: int
    """The code of φ in the kernel (`_kernels.score_space`)."""

    @property
    def identity(self) -> str:
        """Its name in files; a custom λ has a fingerprint as well."""
        if isinstance(self.weighting, int):
            return self.name
        return (SMOOTH if self.pair == codes.LOGISTIC else "") + self.weighting.identity

    @property
    def code(self) -> int:
        """The code of λ, or of the loss, in the kernel."""
        return self.weighting if isinstance(self.weighting, int) else self.weighting.code

    def __repr__(self) -> str:
        """Show it as in the parameters of rankers and on cards."""
        return f"Loss({self.identity!r})"


AnyLoss: TypeAlias = str | Objective | Loss  # for networks and trees


LOSSES = {
    loss.name: loss
    for loss in (
        *(each.hinge() for each in OBJECTIVES.values()),
        *(each.smooth() for each in OBJECTIVES.values() if not each.of_paper),
        Loss("softmax", "ln Σ e^s − s_d", codes.SOFTMAX, codes.LOGISTIC),
        Loss("lambda-dcg", "Σ |D − D'| · log2(1 + e^−margin)", codes.LAMBDA, codes.LOGISTIC),
    )
}


def get_loss(name: AnyLoss) -> Loss:
    """Return the loss of a name, such as ``"smooth-precision@5"``.

    An `Objective` gets the hinge; a `Loss` is unchanged.
    """
    if isinstance(name, Loss):
        return name
    if isinstance(name, Objective):
        return name.hinge()
    if isinstance(name, str) and name in LOSSES:
        return LOSSES[name]
    objective = _precision(name.removeprefix(SMOOTH)) if isinstance(name, str) else None
    if objective is None:
        raise _unknown(name, LOSSES)
    return objective.smooth() if name.startswith(SMOOTH) else objective.hinge()


@dataclass(frozen=True, eq=False)
class ScoreSpace:
    """An objective and its derivatives by the scores of items."""

    values: Floats
    """Σ weight · f over the clicks of each list, (n_lists,)."""
    gradient: Floats
    """∂(Σ values)/∂score, (n_scores,)."""
    curvature: Floats
    """A second-order term that is never negative, (n_scores,).

    The diagonal of the Hessian, with a concave λ (dcg, log-rank) replaced by its tangent, which is
    an upper bound. The hinge has no curvature and gets 1 per violated pair.
    """


def score_space(
    scores: ArrayLike,
    offsets: ArrayLike,
    starts: ArrayLike,
    item: ArrayLike,
    weight: ArrayLike,
    *,
    objective: AnyLoss = "rank",
) -> ScoreSpace:
    """Σ_lists Σ_clicks weight · f(scores of the list, clicked item), and its derivatives.

    Parameters
    ----------
    scores : array-like (n_scores,)
        The scores of the items of all lists, list by list.
    offsets : int array-like (n_lists + 1,)
        List k has the scores ``offsets[k]:offsets[k + 1]``.
    starts : int array-like (n_lists + 1,)
        The clicks on list k are ``starts[k]:starts[k + 1]``.
    item : int array-like (n_clicked,)
        The indices of the clicked items within their lists.
    weight : array-like (n_clicked,)
    objective : str, Objective or Loss
        One of `LOSSES`, ``"precision@k"``, or one from `additive_objective`.

    Examples
    --------
    Item 0 is 2 above item 1 and 0.5 above item 2: bound = 1 + 0 + (1 − 0.5).

    >>> from countersample.objectives import score_space
    >>> result = score_space([2.0, 0.0, 1.5], [0, 3], starts=[0, 1], item=[0], weight=[1.0])
    >>> result.values, result.gradient, result.curvature
    (array([1.5]), array([-1.,  0.,  1.]), array([1., 0., 1.]))
    """
    from countersample._kernels.score_space import evaluate  # noqa: PLC0415 (numba)

    loss = get_loss(objective)
    code = loss.code
    values = np.ascontiguousarray(scores, np.float64)
    lists, clicks = np.asarray(offsets, np.int64), np.asarray(starts, np.int64)
    items, weights = np.asarray(item, np.int64), np.asarray(weight, np.float64)
    _check_lists(values, lists, clicks, items, weights)
    result = ScoreSpace(np.empty(len(lists) - 1), np.empty_like(values), np.empty_like(values))

    def work(first: int, last: int) -> None:
        evaluate(
            values, lists, clicks, items, weights, code, loss.pair, first, last, result.values,
            result.gradient, result.curvature,
        )  # fmt: skip

    n_parts = min(available_cores(), 1 + len(items) // MIN_CLICKS_PER_THREAD)
    if n_parts == 1:
        work(0, len(lists) - 1)
        return result
    ends = np.searchsorted(clicks, np.linspace(0, len(items), n_parts + 1)[1:-1]).tolist()
    bounds = [0, *ends, len(lists) - 1]
    with ThreadPoolExecutor(n_parts) as pool:
        list(pool.map(work, bounds[:-1], bounds[1:]))
    return result


def _check_lists(scores: Floats, offsets: Ints, starts: Ints, item: Ints, weight: Floats) -> None:
    """Raise an error if the kernel would read or write outside of its arrays."""
    if scores.ndim != 1 or not _rises(offsets, len(scores)):
        raise ParameterError(
            f"offsets do not rise from 0 to the number of scores, which have shape {scores.shape}: "
            "expected the start of each list, then the number of scores"
        )
    if not _rises(starts, len(item)) or len(starts) != len(offsets):
        raise ParameterError(
            f"starts do not rise from 0 to {len(item)}, the number of clicked items: expected one "
            "per list, then that number"
        )
    if weight.shape != item.shape:
        raise ParameterError(f"weight has shape {weight.shape}, expected {item.shape}, as item")
    sizes = np.repeat(np.diff(offsets), np.diff(starts))
    is_inside = (item >= 0) & (item < sizes)
    if not is_inside.all():
        click = int(is_inside.argmin())
        raise ParameterError(
            f"item is {item[click]} in click {click}, expected one of the {sizes[click]} of its "
            "list"
        )


def _rises(values: Ints, last: int) -> bool:
    return (
        values.ndim == 1
        and len(values) > 0
        and values[0] == 0
        and values[-1] == last
        and bool((values[1:] >= values[:-1]).all())
    )


# -- a λ of the user ------------------------------------------------------------------------------


def additive_objective(
    name: str,
    *,
    value: Function,
    slope: Function,
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
        λ', as for a step, which has none; if either is not finite, or cannot be compiled; if
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
    if name in LOSSES or name.startswith(SMOOTH) or _precision(name) is not None:
        raise ParameterError(f"name is {name!r}, which is built in, expected another")


def _check_function(name: str, part: str, function: Callable[[float], object]) -> None:
    """Call a function once in Python, whose errors are clearer than a compiler's."""
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
