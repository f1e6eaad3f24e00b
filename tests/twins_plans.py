"""Slow and obvious versions, in float64: the objective, its gradient, and the risk of a log.

    f(s) = λ(1 + Σ_{d'≠d} max(0, 1 − (s_d − s_d')))   for the scores s of a query, d clicked
    R(w) = (1/N) Σ v f(X_q w)                          over the clicks of a log

A pair counts as violated only where its margin s_d − s_d' is below 1: the subgradient at the kink.
"""

from math import log

import numpy as np

# λ and its derivative, by name.
RANK_WEIGHTS = {
    "rank": (lambda x: x, lambda _: 1.0),
    "log-rank": (log, lambda x: 1 / x),
    "dcg": (lambda x: -log(2) / log(1 + x), lambda x: log(2) / ((1 + x) * log(1 + x) ** 2)),
    "squared-rank": (lambda x: x**2, lambda x: 2 * x),
    "precision@2": (lambda x: max(0, x - 2), lambda x: float(x > 2)),
}
# With the item itself among the others, as equation 2 of the paper has it: its hinge is 1.
RANK_WEIGHTS |= {
    f"{name}-paper": (
        lambda x, value=RANK_WEIGHTS[name][0]: value(x + 1),
        lambda x, slope=RANK_WEIGHTS[name][1]: slope(x + 1),
    )
    for name in ("log-rank", "dcg")
}


def rank_bound(scores, item):
    others = [other for other in range(len(scores)) if other != item]
    return 1.0 + sum(max(0.0, 1 - (scores[item] - scores[other])) for other in others)


def objective_value(scores, item, name="rank"):
    value, _ = RANK_WEIGHTS[name]
    return value(rank_bound(np.asarray(scores, np.float64), item))


def objective_gradient(scores, item, name="rank"):
    """∂f/∂score of each item: λ' for a violated pair's other item, −λ' each time for `item`."""
    scores = np.asarray(scores, np.float64)
    _, slope = RANK_WEIGHTS[name]
    violated = scores[item] - scores < 1
    violated[item] = False
    coefficients = violated.astype(np.float64)
    coefficients[item] = -violated.sum()
    return slope(rank_bound(scores, item)) * coefficients


def features_of(dataset, query):
    return dataset.features[dataset.offsets[query] : dataset.offsets[query + 1]].astype(np.float64)


def click_gradient(dataset, query, item, w, name="rank"):
    """∇f(w) = X_qᵀ ∂f/∂s, (n_features,)."""
    x = features_of(dataset, query)
    return x.T @ objective_gradient(x @ w, item, name)


def risk(dataset, log, w, name="rank"):
    total = sum(
        weight * objective_value(features_of(dataset, query) @ w, item, name)
        for query, item, weight in zip(log.query, log.item, log.weights, strict=True)
    )
    return total / log.n_clicks


def risk_gradient(dataset, log, w, name="rank"):
    total = sum(
        weight * click_gradient(dataset, query, item, w, name)
        for query, item, weight in zip(log.query, log.item, log.weights, strict=True)
    )
    return total / log.n_clicks


# -- what a plan draws, by enumeration -----------------------------------------------------------


def example_gradients(dataset, examples, shares, w, name="rank"):
    """∇f_i(w) = Σ_j share_j ∇f_j(w) of every example, (n, n_features)."""
    gradients = np.zeros((len(examples), dataset.n_features))
    for i, query in enumerate(examples.query):
        for j in range(examples.starts[i], examples.starts[i + 1]):
            gradients[i] += shares[j] * click_gradient(dataset, query, examples.item[j], w, name)
    return gradients


def mean_gradient(plan, gradients):
    """E[g] = Σ_i π_i m_i ∇f_i."""
    return (plan.probabilities * plan.multipliers) @ gradients


def second_moment(plan, gradients):
    """E‖g‖² = Σ_i π_i m_i² ‖∇f_i‖²."""
    return plan.probabilities @ (plan.multipliers**2 * (gradients**2).sum(axis=1))
