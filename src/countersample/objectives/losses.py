"""Losses for networks and trees, in score space: bounds on the rank, and two others.

A new loss is an entry in `LOSSES`, a code in `_kernels.codes`, and its values and derivatives in
`_kernels.score_space`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from countersample._environment import available_cores
from countersample._kernels import codes
from countersample.errors import ParameterError
from countersample.objectives.additive import OBJECTIVES, Objective, precision, unknown

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample._arrays import Floats, Ints

MIN_CLICKS_PER_THREAD = 2_000  # with fewer, a second thread costs more than it saves
SMOOTH = "smooth-"


@dataclass(frozen=True, repr=False)
class Loss:
    """f of one clicked item, in score space.

    Attributes
    ----------
    name : str
    formula : str
    weighting : Objective or int
        λ, or the code of a loss that has none.
    pair : int
        The code of φ in the kernel (`_kernels.score_space`).

    Examples
    --------
    >>> from countersample.objectives import get_objective
    >>> get_objective("squared-rank").smooth().name
    'smooth-squared-rank'
    """

    name: str
    formula: str
    weighting: Objective | int
    pair: int

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


def _hinge(objective: Objective) -> Loss:
    return Loss(objective.name, f"{objective.formula}, hinge", objective, codes.HINGE)


def smooth(objective: Objective) -> Loss:
    """Return the loss of an objective with φ(margin) = log2(1 + e^−margin), not the hinge."""
    return Loss(
        SMOOTH + objective.name, f"{objective.formula}, logistic", objective, codes.LOGISTIC
    )


LOSSES = {
    loss.name: loss
    for loss in (
        *map(_hinge, OBJECTIVES.values()),
        *(smooth(each) for each in OBJECTIVES.values() if not each.of_paper),
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
        return _hinge(name)
    if isinstance(name, str) and name in LOSSES:
        return LOSSES[name]
    objective = precision(name.removeprefix(SMOOTH)) if isinstance(name, str) else None
    if objective is None:
        raise unknown(name, LOSSES)
    return smooth(objective) if name.startswith(SMOOTH) else _hinge(objective)


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
        A second-order term that is never negative: the diagonal of the Hessian, with a concave λ
        (dcg, log-rank) replaced by its tangent, which is an upper bound. The hinge has no
        curvature and gets 1 per violated pair.
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
