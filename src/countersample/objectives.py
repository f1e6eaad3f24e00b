"""What is minimised: additive ranking metrics through a bound on a clicked item's rank.

For the scores s of a query's items and a clicked item d,

    bound(s, d) = 1 + Σ_{d'≠d} φ(s_d − s_d')  ≥  rank of d,      f = λ(bound),

with φ(margin) = max(0, 1 − margin), the hinge of the paper. The coefficient of item d' is ∂f/∂s_d':
a linear scorer multiplies the coefficients by Xᵀ, a neural one backpropagates them, a boosting
library takes them as its gradient. A pair counts as violated when its margin s_d − s_d' is below 1.

Scorers that are not linear have more to choose from (`LOSSES`): φ(margin) = log2(1 + e^−margin),
which is smooth and bounds the rank as well, and two that are no bounds on the rank:

    softmax       f = ln Σ_d' e^(s_d') − s_d
    lambda-dcg    f = Σ_{d'≠d} |D(rank_d) − D(rank_d')| · log2(1 + e^−(s_d − s_d'))

with D(r) = 1/log2(1 + r), where ranks are those by the scores, taken as fixed when the gradient is.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from countersample._cores import available_cores
from countersample._kernels import codes
from countersample._params import choice
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints

__all__ = [
    "LOSSES",
    "OBJECTIVES",
    "Loss",
    "Objective",
    "ScoreSpace",
    "coefficients",
    "get_loss",
    "get_objective",
    "score_space",
]


CLICKS_A_CORE = 2_000  # clicked items, below which a second thread costs more than it saves


@dataclass(frozen=True)
class Objective:
    """A weighting λ of the bound on the rank, which rises ever more slowly or is straight.

    Attributes
    ----------
    name : str
    formula : str
    code : int
        By which `_kernels.objectives.weighting`, where λ and its slope are written, knows it.
    convex : bool
        Whether f is convex in the scores, as it is for a straight λ.

    Examples
    --------
    >>> from countersample.objectives import get_objective
    >>> get_objective("dcg").values([1.0, 3.0])  # −1/log2(2), −1/log2(4)
    array([-1. , -0.5])
    """

    name: str
    formula: str
    code: int
    convex: bool = False

    def values(self, bounds: ArrayLike) -> Floats:
        """λ of each bound, (n,)."""
        return self._weightings(bounds)[0]

    @property
    def steepest(self) -> float:
        """The largest λ' on [1, ∞), which is that at 1."""
        return float(self._weightings([1.0])[1][0])

    def _weightings(self, bounds: ArrayLike) -> tuple[Floats, Floats]:
        from countersample._kernels.objectives import weightings  # noqa: PLC0415 (numba)

        found: tuple[Floats, Floats] = weightings(self.code, np.asarray(bounds, np.float64))
        return found


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("rank", "λ(x) = x", codes.RANK, convex=True),
        Objective("log-rank", "λ(x) = ln x", codes.LOG_RANK),
        Objective("dcg", "λ(x) = −1/log2(1 + x)", codes.DCG),
    )
}


def get_objective(name: str) -> Objective:
    """Return the objective of a name."""
    return OBJECTIVES[choice("objective", name, OBJECTIVES)]


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
    from countersample._kernels import objectives as kernels  # noqa: PLC0415 (imports numba)

    given = np.asarray(scores, np.float32)
    if given.ndim != 1:
        raise ParameterError(f"scores have shape {given.shape}, expected a vector (n_items,)")
    if not 0 <= item < len(given):
        raise ParameterError(f"item is {item}, expected one of 0 to {len(given) - 1}")
    out = np.zeros(len(given), np.float32)
    code = get_objective(objective).code
    kernels.coefficients(given[None], item, code, out[None])
    return out


@dataclass(frozen=True)
class Loss:
    """f of one clicked item, in score space.

    Attributes
    ----------
    name : str
    formula : str
    code, pair : int
        By which the kernel (`_kernels.score_space`) knows λ, or what there is in its place, and φ.
    """

    name: str
    formula: str
    code: int
    pair: int


LOSSES = {
    loss.name: loss
    for loss in (
        *(Loss(o.name, f"{o.formula}, hinge", o.code, codes.HINGE) for o in OBJECTIVES.values()),
        *(
            Loss(f"smooth-{o.name}", f"{o.formula}, logistic", o.code, codes.LOGISTIC)
            for o in OBJECTIVES.values()
        ),
        Loss("softmax", "ln Σ e^s − s_d", codes.SOFTMAX, codes.LOGISTIC),
        Loss("lambda-dcg", "Σ |D − D'| · log2(1 + e^−margin)", codes.LAMBDA, codes.LOGISTIC),
    )
}


def get_loss(name: str) -> Loss:
    """Return the loss of a name."""
    return LOSSES[choice("objective", name, LOSSES)]


@dataclass(frozen=True, eq=False)
class ScoreSpace:
    """An objective and its derivatives by the scores of items.

    Attributes
    ----------
    values : float64 (n_lists,)
        Σ weight · f over the clicks of each list.
    gradient : float64 (n_scores,)
        ∂(Σ values)/∂score.
    curvature : float64 (n_scores,)
        A second-order term that is never negative: the diagonal of the Hessian as if λ were
        straight, which for the concave λ of dcg and log-rank belongs to a bound from above. The
        hinge has no curvature of its own and is given 1 for each violated pair.
    """

    values: Floats
    gradient: Floats
    curvature: Floats


def score_space(
    scores: ArrayLike,
    offsets: ArrayLike,
    starts: ArrayLike,
    item: ArrayLike,
    weight: ArrayLike,
    *,
    objective: str = "rank",
) -> ScoreSpace:
    """Σ_lists Σ_clicks weight · f(scores of the list, clicked item), and its derivatives.

    Parameters
    ----------
    scores : array-like (n_scores,)
        Of the items of all lists, list by list.
    offsets : int array-like (n_lists + 1,)
        List k has the scores ``offsets[k]:offsets[k + 1]``.
    starts : int array-like (n_lists + 1,)
        The clicks on list k are ``starts[k]:starts[k + 1]``.
    item : int array-like (n_clicked,)
        The clicked items, counted within their lists.
    weight : array-like (n_clicked,)
    objective : str
        One of `LOSSES`.

    Examples
    --------
    Item 0 is 2 above item 1 and 0.5 above item 2: bound = 1 + 0 + (1 − 0.5).

    >>> from countersample.objectives import score_space
    >>> found = score_space([2.0, 0.0, 1.5], [0, 3], starts=[0, 1], item=[0], weight=[1.0])
    >>> found.values, found.gradient, found.curvature
    (array([1.5]), array([-1.,  0.,  1.]), array([1., 0., 1.]))
    """
    from countersample._kernels.score_space import evaluate  # noqa: PLC0415 (numba)

    loss = get_loss(objective)
    given = np.ascontiguousarray(scores, np.float64)
    lists, clicks = np.asarray(offsets, np.int64), np.asarray(starts, np.int64)
    items, weights = np.asarray(item, np.int64), np.asarray(weight, np.float64)
    _check_lists(given, lists, clicks, items, weights)
    found = ScoreSpace(np.empty(len(lists) - 1), np.empty_like(given), np.empty_like(given))

    def work(first: int, last: int) -> None:
        evaluate(
            given, lists, clicks, items, weights, loss.code, loss.pair, first, last, found.values,
            found.gradient, found.curvature,
        )  # fmt: skip

    n_parts = min(available_cores(), 1 + len(items) // CLICKS_A_CORE)
    if n_parts == 1:
        work(0, len(lists) - 1)
        return found
    ends = np.searchsorted(clicks, np.linspace(0, len(items), n_parts + 1)[1:-1]).tolist()
    bounds = [0, *ends, len(lists) - 1]
    with ThreadPoolExecutor(n_parts) as pool:
        list(pool.map(work, bounds[:-1], bounds[1:]))
    return found


def _check_lists(scores: Floats, offsets: Ints, starts: Ints, item: Ints, weight: Floats) -> None:
    """Refuse what would make the kernel read or write outside of its arrays."""
    if scores.ndim != 1 or not _rises(offsets, len(scores)):
        raise ParameterError(
            f"offsets do not rise from 0 to the number of scores, which have shape {scores.shape}: "
            "expected where each list starts, then their number"
        )
    if not _rises(starts, len(item)) or len(starts) != len(offsets):
        raise ParameterError(
            f"starts do not rise from 0 to {len(item)}, the number of clicked items: expected one "
            "for each list, then that number"
        )
    if weight.shape != item.shape:
        raise ParameterError(f"weight has shape {weight.shape}, expected {item.shape}, as item has")
    room = np.repeat(np.diff(offsets), np.diff(starts))
    is_good = (item >= 0) & (item < room)
    if not is_good.all():
        click = int(is_good.argmin())
        raise ParameterError(
            f"item is {item[click]} in click {click}, expected one of the {room[click]} of its list"
        )


def _rises(values: Ints, last: int) -> bool:
    return (
        values.ndim == 1
        and len(values) > 0
        and values[0] == 0
        and values[-1] == last
        and bool((values[1:] >= values[:-1]).all())
    )
