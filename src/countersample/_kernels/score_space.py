"""Objectives in score space: value, gradient and curvature of one query's scores at a time.

The logistic losses need 1/(1 + e^(s_d − s_o)) for each clicked item d and other item o of a query.
That is e^s_o / (e^s_d + e^s_o): one exponential per item instead of one per pair, and the loops
over pairs have neither calls nor branches. The sum of the logarithms of several pairs is the
logarithm of their product. Both are exact enough for scores within SPREAD of each other. If scores
are further apart, each pair is computed by itself.
"""

import numpy as np

from countersample._arrays import Floats, Ints
from countersample._kernels.codes import HINGE, LAMBDA, LOGISTIC, SOFTMAX
from countersample._kernels.compiling import kernel, part
from countersample._kernels.objectives import LN2, weighting
from countersample._kernels.vectors import total

SPREAD = 80.0
FACTORS = 8  # (1 + e^SPREAD)^FACTORS is within the range of float64


@part(error_model="numpy")
def _exponentials(scores: Floats, out: Floats) -> bool:
    """``out = e^(s − max s)``; return False, and write nothing, if scores are too far apart."""
    largest = scores.max()
    if not largest - scores.min() <= SPREAD:
        return False
    for k in range(len(scores)):
        out[k] = np.exp(scores[k] - largest)
    return True


@part(error_model="numpy")
def _hinges(scores: Floats, clicked: int, slopes: Floats) -> float:
    """Σ max(0, 1 − (s_clicked − s)) over all items; slopes are 1 if a pair is violated, else 0."""
    for k in range(len(scores)):
        slopes[k] = max(0.0, 1.0 - (scores[clicked] - scores[k]))  # the heights, at first
    bound = total(slopes)
    for k in range(len(scores)):
        slopes[k] = 1.0 if slopes[k] > 0.0 else 0.0
    return bound


@part(error_model="numpy")
def _softplus(margin: float) -> tuple[float, float]:
    """ln(1 + e^−margin) and its negative slope 1/(1 + e^margin), without overflow."""
    small = np.exp(-abs(margin))
    if margin > 0:
        return np.log1p(small), small / (1.0 + small)
    return np.log1p(small) - margin, 1.0 / (1.0 + small)


@part(error_model="numpy")
def _heights(scores: Floats, exps: Floats, is_near: bool, clicked: int, slopes: Floats) -> float:
    """Σ log2(1 + e^(s − s_clicked)) over all items; slopes are of the natural logarithm."""
    added = 0.0
    if not is_near:
        for k in range(len(scores)):
            height, slopes[k] = _softplus(scores[clicked] - scores[k])
            added += height
        return added / LN2
    _shares(exps, clicked, slopes)
    inverse = 1.0 / exps[clicked]
    for begin in range(0, len(scores), FACTORS):
        product = 1.0
        for k in range(begin, min(begin + FACTORS, len(scores))):
            product *= 1.0 + exps[k] * inverse
        added += np.log(product)
    return added / LN2


@part(error_model="numpy")
def _shares(exps: Floats, clicked: int, out: Floats) -> None:
    """``out = e^s / (e^s_clicked + e^s)``."""
    for k in range(len(exps)):
        out[k] = exps[k] / (exps[clicked] + exps[k])


@part(error_model="numpy")
def _add(
    slopes: Floats, bend: float, factor: float, rise: float, clicked: int, gradient: Floats,
    curvature: Floats,
) -> None:  # fmt: skip
    """Add factor · slope to other items and its sum, with the other sign, to the clicked one.

    The curvature of a pair is slope · (1 − bend · slope), exactly for a logistic loss (bend 1), and
    by convention for a hinge (bend 0). A convex λ adds rise · slope².
    """
    slopes[clicked] = 0.0
    for k in range(len(slopes)):
        gradient[k] += factor * slopes[k]
    added = total(slopes)
    gradient[clicked] -= factor * added
    if rise > 0.0:
        for k in range(len(slopes)):
            curvature[k] += rise * slopes[k] * slopes[k]
        curvature[clicked] += rise * added * added
    for k in range(len(slopes)):
        slopes[k] *= 1.0 - bend * slopes[k]  # the curves, from here on
        curvature[k] += factor * slopes[k]
    curvature[clicked] += factor * total(slopes)


@part(error_model="numpy")
def _add_bounded(
    scores: Floats, exps: Floats, is_near: bool, clicked: int, weight: float, code: int, loss: int,
    slopes: Floats, gradient: Floats, curvature: Floats,
) -> float:  # fmt: skip
    """λ(1 + Σ φ(s_clicked − s_other)), with the curvature of a convex or linear λ.

    For a concave λ that is the curvature of an upper bound. A hinge counts as curved by 1 if it is
    violated. As φ(0) = 1, the clicked item itself is the 1 of the bound.
    """
    if loss == HINGE:
        bound = _hinges(scores, clicked, slopes)
        value, slope, rise = weighting(code, bound)
        _add(slopes, 0.0, weight * slope, weight * rise, clicked, gradient, curvature)
    elif loss == LOGISTIC:
        bound = _heights(scores, exps, is_near, clicked, slopes)
        value, slope, rise = weighting(code, bound)
        rise *= weight / (LN2 * LN2)
        _add(slopes, 1.0, weight * slope / LN2, rise, clicked, gradient, curvature)
    else:
        raise ValueError("no loss has this code")
    return weight * value


@part(error_model="numpy")
def _add_softmax(
    scores: Floats, items: Ints, weights: Floats, gradient: Floats, curvature: Floats
) -> float:
    """Σ_d weight_d · (ln Σ e^s − s_d), for all clicked items d of the query at once."""
    largest = scores.max()
    for k in range(len(scores)):
        gradient[k] = np.exp(scores[k] - largest)
    exps = total(gradient)
    log_exps = np.log(exps) + largest
    weight = weights.sum()
    for k in range(len(scores)):
        p = gradient[k] / exps
        gradient[k] = weight * p
        curvature[k] = weight * p * (1.0 - p)
    value = 0.0
    for click in range(len(items)):
        gradient[items[click]] -= weights[click]
        value += weights[click] * (log_exps - scores[items[click]])
    return value


@part(error_model="numpy")
def _add_lambda(
    scores: Floats, exps: Floats, is_near: bool, clicked: int, weight: float, discounts: Floats,
    slopes: Floats, gradient: Floats, curvature: Floats,
) -> float:  # fmt: skip
    """Σ_other |D(rank_clicked) − D(rank_other)| · log2(1 + e^−(s_clicked − s_other)), D fixed."""
    value = pushed = curved = 0.0
    if is_near:
        _shares(exps, clicked, slopes)
        for k in range(len(scores)):
            height = np.log1p(exps[k] / exps[clicked])
            value += abs(discounts[clicked] - discounts[k]) * height
    else:
        for k in range(len(scores)):
            height, slopes[k] = _softplus(scores[clicked] - scores[k])
            value += abs(discounts[clicked] - discounts[k]) * height
    for k in range(len(scores)):  # the clicked item has a swap of 0
        swap = weight / LN2 * abs(discounts[clicked] - discounts[k])
        push = swap * slopes[k]
        curve = push * (1.0 - slopes[k])
        gradient[k] += push
        curvature[k] += curve
        pushed += push
        curved += curve
    gradient[clicked] -= pushed
    curvature[clicked] += curved
    return weight / LN2 * value


@kernel(error_model="numpy")
def evaluate(
    scores: Floats, offsets: Ints, starts: Ints, item: Ints, weight: Floats, code: int, loss: int,
    first: int, last: int, values: Floats, gradient: Floats, curvature: Floats,
) -> None:  # fmt: skip
    """Write value, gradient and curvature of the lists first … last − 1.

    For arguments and results see `countersample.objectives.score_space`; code and loss are λ and φ.
    """
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    slopes, exps, discounts = np.empty(most), np.empty(most), np.empty(most)
    for k in range(first, last):
        start, end = offsets[k], offsets[k + 1]
        query_gradient, query_curvature = gradient[start:end], curvature[start:end]
        query_gradient[:] = query_curvature[:] = values[k] = 0.0
        begin, stop = starts[k], starts[k + 1]
        if begin == stop:
            continue
        query_scores, n = scores[start:end], end - start
        if code == SOFTMAX:
            values[k] = _add_softmax(
                query_scores, item[begin:stop], weight[begin:stop], query_gradient, query_curvature
            )
            continue
        if code == LAMBDA:
            order = np.argsort(-query_scores, kind="mergesort")
            for rank in range(1, n + 1):
                discounts[order[rank - 1]] = 1.0 / np.log2(1.0 + rank)
        is_near = loss == LOGISTIC and _exponentials(query_scores, exps)
        for click in range(begin, stop):
            if code == LAMBDA:
                values[k] += _add_lambda(
                    query_scores, exps[:n], is_near, item[click], weight[click], discounts,
                    slopes[:n], query_gradient, query_curvature,
                )  # fmt: skip
            else:
                values[k] += _add_bounded(
                    query_scores, exps[:n], is_near, item[click], weight[click], code, loss,
                    slopes[:n], query_gradient, query_curvature,
                )  # fmt: skip
