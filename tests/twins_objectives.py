"""The slow, obvious twin of objectives in score space: one pair after the other, in NumPy."""

from math import exp, log, log2

import numpy as np
from twins_plans import RANK_WEIGHTS

LN2 = log(2)


def hinge(margin):
    """φ, −φ', and what stands for φ''."""
    violated = float(margin < 1)
    return max(0.0, 1 - margin), violated, violated


def logistic(margin):
    """φ, −φ', φ''."""
    p = 1 / (1 + exp(margin))
    return log2(1 + exp(-margin)), p / LN2, p * (1 - p) / LN2


def discounts(scores):
    """1/log2(1 + rank) of each item, ties in the order of the items."""
    ranks = [
        1 + sum(b > a or (b == a and j < k) for j, b in enumerate(scores))
        for k, a in enumerate(scores)
    ]
    return [1 / log2(1 + rank) for rank in ranks]


def of_click(scores, item, objective):
    """f, its gradient and its curvature for one clicked item of a list."""
    n = len(scores)
    gradient, curvature = np.zeros(n), np.zeros(n)
    if objective == "softmax":
        total = sum(exp(s) for s in scores)
        share = np.array([exp(s) / total for s in scores])
        return log(total) - scores[item], share - np.eye(n)[item], share * (1 - share)
    pair = logistic if objective.startswith(("smooth-", "lambda-")) else hinge
    swaps = np.ones(n)
    if objective == "lambda-dcg":
        of_rank = discounts(scores)
        swaps = np.array([abs(of_rank[item] - other) for other in of_rank])
    added = 0.0
    for other in range(n):
        if other != item:
            height, slope, curve = pair(scores[item] - scores[other])
            added += swaps[other] * height
            for array, change in ((gradient, slope), (curvature, curve)):
                array[other] += swaps[other] * change
            gradient[item] -= swaps[other] * slope
            curvature[item] += swaps[other] * curve
    if objective == "lambda-dcg":
        return added, gradient, curvature
    name = objective.removeprefix("smooth-")
    value, slope = RANK_WEIGHTS[name]
    bend = 2.0 if name == "squared-rank" else 0.0  # λ'', where it is above 0
    curvature = slope(1 + added) * curvature + bend * gradient**2
    return value(1 + added), slope(1 + added) * gradient, curvature


def score_space(scores, offsets, starts, item, weight, objective):
    """Values of the lists, gradient and curvature of all scores."""
    values = np.zeros(len(offsets) - 1)
    gradient, curvature = np.zeros(len(scores)), np.zeros(len(scores))
    for k in range(len(values)):
        rows = slice(offsets[k], offsets[k + 1])
        for click in range(starts[k], starts[k + 1]):
            value, first, second = of_click(scores[rows], item[click], objective)
            values[k] += weight[click] * value
            gradient[rows] += weight[click] * first
            curvature[rows] += weight[click] * second
    return values, gradient, curvature
