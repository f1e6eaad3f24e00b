"""Objectives in score space: value, gradient and curvature of one query's scores at a time."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LN2 = np.log(2.0)
HINGE, LOGISTIC = 0, 1
SOFTMAX, LAMBDA = 10, 11  # codes of objectives beyond those of `_kernels.objectives.slope`


@njit(nogil=True, cache=True, error_model="numpy")
def _weighting(code: int, bound: float) -> tuple[float, float]:
    """λ(bound) and λ'(bound): 0 is x, 1 is ln x, 2 is −1/log2(1 + x)."""
    if code == 0:
        return bound, 1.0
    if code == 1:
        return np.log(bound), 1.0 / bound
    log = np.log(1.0 + bound)
    return -LN2 / log, LN2 / ((1.0 + bound) * log * log)


@njit(nogil=True, cache=True, error_model="numpy")
def _softplus(margin: float) -> tuple[float, float]:
    """ln(1 + e^−margin) and its negative slope 1/(1 + e^margin), without overflow."""
    small = np.exp(-abs(margin))
    if margin > 0:
        return np.log1p(small), small / (1.0 + small)
    return np.log1p(small) - margin, 1.0 / (1.0 + small)


@njit(nogil=True, cache=True, error_model="numpy")
def _add_bounded(
    scores: Floats, start: int, end: int, clicked: int, weight: float, code: int, loss: int,
    slopes: Floats, curves: Floats, gradient: Floats, curvature: Floats,
) -> float:  # fmt: skip
    """λ(1 + Σ φ(s_clicked − s_other)), with the curvature of a straight λ.

    For a concave λ that is the curvature of a bound from above. A hinge counts as curved by 1 where
    it slopes.
    """
    bound = 1.0
    for other in range(start, end):
        margin = scores[clicked] - scores[other]
        k = other - start
        if loss == HINGE:
            slopes[k] = curves[k] = 1.0 if margin < 1.0 else 0.0
            bound += max(0.0, 1.0 - margin) if other != clicked else 0.0
        else:
            height, p = _softplus(margin)
            slopes[k] = p / LN2
            curves[k] = p * (1.0 - p) / LN2
            bound += height / LN2 if other != clicked else 0.0
    value, slope = _weighting(code, bound)
    slope *= weight
    pushed = curved = 0.0
    for other in range(start, end):
        if other != clicked:
            k = other - start
            gradient[other] += slope * slopes[k]
            curvature[other] += slope * curves[k]
            pushed += slopes[k]
            curved += curves[k]
    gradient[clicked] -= slope * pushed
    curvature[clicked] += slope * curved
    return weight * value


@njit(nogil=True, cache=True, error_model="numpy")
def _add_softmax(
    scores: Floats, start: int, end: int, items: Ints, weights: Floats, gradient: Floats,
    curvature: Floats,
) -> float:  # fmt: skip
    """Σ_d weight_d · (ln Σ e^s − s_d), for all clicked items d of the query at once."""
    largest = scores[start:end].max()
    total = 0.0
    for item in range(start, end):
        total += np.exp(scores[item] - largest)
    log_total = np.log(total) + largest
    weight = weights.sum()
    for item in range(start, end):
        p = np.exp(scores[item] - log_total)
        gradient[item] += weight * p
        curvature[item] += weight * p * (1.0 - p)
    value = 0.0
    for k in range(len(items)):
        gradient[start + items[k]] -= weights[k]
        value += weights[k] * (log_total - scores[start + items[k]])
    return value


@njit(nogil=True, cache=True, error_model="numpy")
def _add_lambda(
    scores: Floats, start: int, end: int, clicked: int, weight: float, discounts: Floats,
    gradient: Floats, curvature: Floats,
) -> float:  # fmt: skip
    """Σ_other |D(rank_clicked) − D(rank_other)| · log2(1 + e^−(s_clicked − s_other)), D fixed."""
    value = pushed = curved = 0.0
    for other in range(start, end):
        swap = weight * abs(discounts[clicked - start] - discounts[other - start]) / LN2
        height, p = _softplus(scores[clicked] - scores[other])
        if other != clicked:
            value += swap * height
            gradient[other] += swap * p
            curvature[other] += swap * p * (1.0 - p)
            pushed += swap * p
            curved += swap * p * (1.0 - p)
    gradient[clicked] -= pushed
    curvature[clicked] += curved
    return value


@njit(nogil=True, cache=True, error_model="numpy")
def evaluate(
    scores: Floats,
    offsets: Ints,
    starts: Ints,
    item: Ints,
    weight: Floats,
    code: int,
    loss: int,
    first: int,
    last: int,
    values: Floats,
    gradient: Floats,
    curvature: Floats,
) -> None:
    """Write down value, gradient and curvature of the lists first … last − 1.

    Parameters
    ----------
    scores : float64 (n_scores,)
    offsets : int64 (n_lists + 1,)
        The scores of list k are ``scores[offsets[k]:offsets[k + 1]]``.
    starts : int64 (n_lists + 1,)
    item, weight : int64, float64 (n_clicked,)
        The clicks on list k are ``starts[k]:starts[k + 1]``; an item is counted within its list.
    code, loss : int
        λ and φ.
    values : float64 (n_lists,), out
    gradient, curvature : float64 (n_scores,), out
    """
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    slopes, curves = np.empty(most), np.empty(most)
    for k in range(first, last):
        start, end = offsets[k], offsets[k + 1]
        gradient[start:end] = 0.0
        curvature[start:end] = 0.0
        begin, stop = starts[k], starts[k + 1]
        values[k] = 0.0
        if begin == stop:
            continue
        if code == SOFTMAX:
            values[k] = _add_softmax(
                scores, start, end, item[begin:stop], weight[begin:stop], gradient, curvature
            )
            continue
        if code == LAMBDA:
            order = np.argsort(-scores[start:end], kind="mergesort")
            for place in range(end - start):
                slopes[order[place]] = 1.0 / np.log2(place + 2.0)
        for click in range(begin, stop):
            clicked = start + item[click]
            if code == LAMBDA:
                values[k] += _add_lambda(
                    scores, start, end, clicked, weight[click], slopes, gradient, curvature
                )
            else:
                values[k] += _add_bounded(
                    scores, start, end, clicked, weight[click], code, loss, slopes, curves,
                    gradient, curvature,
                )  # fmt: skip
