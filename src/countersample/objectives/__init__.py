"""Objectives: additive ranking metrics, minimised through a bound on a clicked item's rank.

For the scores s of a query's items and a clicked item d,

    bound(s, d) = 1 + Σ_{d'≠d} φ(s_d − s_d')  ≥  rank of d,      f = λ(bound),

with φ(margin) = max(0, 1 − margin), the hinge of the paper. If λ does not fall, f ≥ λ(rank): the
objective bounds the sum of λ(rank) over relevant items, an additive metric. The coefficient of item
d' is ∂f/∂s_d': a linear scorer multiplies the coefficients by Xᵀ, a neural one backpropagates them,
a boosting library takes them as its gradient. A pair is violated if its margin s_d − s_d' is below
1.

`OBJECTIVES` are built in (`additive`), ``"precision@k"`` is another for each k, and
`additive_objective` makes one from any λ (`custom`). Equation 2 of the paper counts the item itself
among the others, which adds φ(0) = 1 to the bound: ``"log-rank-paper"`` and ``"dcg-paper"`` do so.

Networks and trees have more (`losses`): φ(margin) = log2(1 + e^−margin), which is smooth and bounds
the rank as well, and two losses that are no bounds on the rank:

    softmax       f = ln Σ_d' e^(s_d') − s_d
    lambda-dcg    f = Σ_{d'≠d} |D(rank_d) − D(rank_d')| · log2(1 + e^−(s_d − s_d'))

with D(r) = 1/log2(1 + r) and ranks by the scores, which are fixed in the gradient.
"""

from countersample.objectives.additive import OBJECTIVES, Objective, coefficients, get_objective
from countersample.objectives.custom import additive_objective
from countersample.objectives.losses import LOSSES, Loss, ScoreSpace, get_loss, score_space

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
