"""Stochastic gradient steps of a linear ranker, for every unit, plan, objective and optimizer.

A step reads the feature block of a drawn query once: scores and gradient come from it while it is
in cache. Several runs that differ in their settings only (*lanes*: K learning rates, say) take
their steps together, so that one pass over memory serves all of them. Features, scores and
gradients are float32; weights and their sums are float64, so that millions of small steps add up.
Nothing is allocated in a step, and the GIL is not held.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from countersample._kernels.objectives import FAST, add_coefficients

Matrix = NDArray[np.float32]
Vector = NDArray[np.float32]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SGD = 0
ADAM = 1
ADAGRAD = 2

# Places in the array of settings
LEARNING_RATE, MOMENTUM, BETA1, BETA2, EPSILON, L2, RADIUS = range(7)

TOO_LARGE = 1e30  # squared norm at which weights count as exploded: float32 scores end at 1e38


@njit(nogil=True, cache=True, fastmath=FAST)
def _scores(block: Matrix, weights: Matrix, out: Matrix) -> None:
    """``out[k, i] = block[i] · weights[k]`` for each row i and lane k."""
    n_rows, width = block.shape
    lane = 0
    while lane + 4 <= len(weights):  # a row with four lanes
        w0, w1, w2, w3 = weights[lane], weights[lane + 1], weights[lane + 2], weights[lane + 3]
        for row in range(n_rows):
            x = block[row]
            s0 = s1 = s2 = s3 = np.float32(0.0)
            for column in range(width):
                s0 += x[column] * w0[column]
                s1 += x[column] * w1[column]
                s2 += x[column] * w2[column]
                s3 += x[column] * w3[column]
            out[lane, row] = s0
            out[lane + 1, row] = s1
            out[lane + 2, row] = s2
            out[lane + 3, row] = s3
        lane += 4
    while lane < len(weights):  # row after row, as they lie in memory
        w = weights[lane]
        for row in range(n_rows):
            x = block[row]
            total = np.float32(0.0)
            for column in range(width):
                total += x[column] * w[column]
            out[lane, row] = total
        lane += 1


@njit(nogil=True, cache=True, fastmath=FAST)
def _add_gradient(block: Matrix, coefficients: Vector, factor: np.float32, out: Vector) -> None:
    """Add factor · blockᵀ coefficients to `out`, four rows with a coefficient at a time."""
    n_rows, width = block.shape
    row = 0
    zero = np.float32(0.0)
    while row < n_rows:
        found = 0
        r0 = r1 = r2 = r3 = 0
        while row < n_rows and found < 4:
            if coefficients[row] != zero:
                if found == 0:
                    r0 = r1 = r2 = r3 = row
                elif found == 1:
                    r1 = row
                elif found == 2:
                    r2 = row
                else:
                    r3 = row
                found += 1
            row += 1
        if found == 0:
            return
        c0 = factor * coefficients[r0]
        c1 = factor * coefficients[r1] if found > 1 else zero
        c2 = factor * coefficients[r2] if found > 2 else zero
        c3 = factor * coefficients[r3] if found > 3 else zero
        x0, x1, x2, x3 = block[r0], block[r1], block[r2], block[r3]
        if found > 2:
            for column in range(width):
                out[column] += (c0 * x0[column] + c1 * x1[column]) + (
                    c2 * x2[column] + c3 * x3[column]
                )
        else:
            for column in range(width):
                out[column] += c0 * x0[column] + c1 * x1[column]


@njit(nogil=True, cache=True, fastmath=FAST)
def _sgd(w: Floats, total: Floats, small: Vector, g: Vector, first: Floats, s: Floats) -> float:
    rate, momentum, l2 = s[LEARNING_RATE], s[MOMENTUM], s[L2]
    norm = 0.0
    if momentum == 0.0:
        for k in range(len(w)):
            old = w[k]
            total[k] += old
            new = old - rate * (g[k] + l2 * old)
            w[k] = new
            small[k] = new
            norm += new * new
    else:
        for k in range(len(w)):
            old = w[k]
            total[k] += old
            velocity = momentum * first[k] + g[k] + l2 * old
            first[k] = velocity
            new = old - rate * velocity
            w[k] = new
            small[k] = new
            norm += new * new
    return norm


@njit(nogil=True, cache=True, fastmath=FAST)
def _adam(
    w: Floats, total: Floats, small: Vector, g: Vector, first: Floats, second: Floats, step: int,
    s: Floats,
) -> float:  # fmt: skip
    beta1, beta2, epsilon, l2 = s[BETA1], s[BETA2], s[EPSILON], s[L2]
    rate = s[LEARNING_RATE] / (1.0 - beta1**step)
    correction = 1.0 / np.sqrt(1.0 - beta2**step)
    norm = 0.0
    for k in range(len(w)):
        old = w[k]
        total[k] += old
        gradient = g[k] + l2 * old
        first[k] = beta1 * first[k] + (1.0 - beta1) * gradient
        second[k] = beta2 * second[k] + (1.0 - beta2) * gradient * gradient
        new = old - rate * first[k] / (np.sqrt(second[k]) * correction + epsilon)
        w[k] = new
        small[k] = new
        norm += new * new
    return norm


@njit(nogil=True, cache=True, fastmath=FAST)
def _adagrad(
    w: Floats, total: Floats, small: Vector, g: Vector, second: Floats, s: Floats
) -> float:
    rate, epsilon, l2 = s[LEARNING_RATE], s[EPSILON], s[L2]
    norm = 0.0
    for k in range(len(w)):
        old = w[k]
        total[k] += old
        gradient = g[k] + l2 * old
        second[k] += gradient * gradient
        new = old - rate * gradient / (np.sqrt(second[k]) + epsilon)
        w[k] = new
        small[k] = new
        norm += new * new
    return norm


@njit(nogil=True, cache=True)
def run(
    features: Matrix,
    offsets: Ints,
    query: NDArray[np.int32],
    starts: Ints,
    item: NDArray[np.int32],
    shares: Vector,
    multipliers: Vector,
    draws: Ints,
    batch_size: int,
    objective: int,
    optimizer: int,
    settings: Floats,
    step: int,
    w: Floats,
    total: Floats,
    first: Floats,
    second: Floats,
    stopped: Ints,
    record_at: Ints,
    weights_at: Floats,
    averages_at: Floats,
) -> None:
    """Take ``len(draws) / batch_size`` steps of K runs that share their draws.

    Parameters
    ----------
    features, offsets
        The dataset: (n_items, width) and (n_queries + 1,).
    query, starts, item : (n,), (n + 1,), (n_clicked,)
        The examples, as `countersample.plans.Examples` has them.
    shares, multipliers : (n_clicked,), (n,)
        The plan: a step's gradient is the mean over its batch of m_i Σ_j share_j ∇f_j.
    draws : int64
        The examples drawn, `batch_size` for each step.
    objective, optimizer : int
        Codes.
    settings : float64 (K, 7)
    step : int
        The steps taken before.
    w, total : float64 (K, width), in and out
        The weights w_t, and the sum w_1 + … + w_{t−1}.
    first, second : float64 (K, width), in and out
        The optimizer's state.
    stopped : int64 (K,), in and out
        0, or the step at which the weights of a run exploded; such a run stands still.
    record_at : int64 (n_records,)
        Rising steps at which w and w̄ are written down.
    weights_at, averages_at : float64 (K, n_records, width), out
    """
    lanes, width = w.shape
    most = 0
    for position in range(len(offsets) - 1):
        most = max(most, offsets[position + 1] - offsets[position])
    small = w.astype(np.float32)
    gradient = np.empty((lanes, width), np.float32)
    scores = np.empty((lanes, most), np.float32)
    coefficients = np.empty(most, np.float32)
    factor = np.float32(1.0 / batch_size)
    record = np.searchsorted(record_at, step + 1)
    for batch in range(len(draws) // batch_size):
        gradient[:] = np.float32(0.0)
        for k in range(batch * batch_size, (batch + 1) * batch_size):
            example = draws[k]
            start, end = offsets[query[example]], offsets[query[example] + 1]
            block = features[start:end]
            n_items = end - start
            _scores(block, small, scores)
            for lane in range(lanes):
                coefficients[:n_items] = np.float32(0.0)
                for click in range(starts[example], starts[example + 1]):
                    add_coefficients(
                        scores[lane], n_items, item[click], shares[click], objective, coefficients
                    )
                _add_gradient(block, coefficients, factor * multipliers[example], gradient[lane])
        step += 1
        for lane in range(lanes):
            if stopped[lane] == 0 and not _update(
                w[lane], total[lane], small[lane], gradient[lane], first[lane], second[lane],
                step, optimizer, settings[lane],
            ):  # fmt: skip
                stopped[lane] = step
        if record < len(record_at) and step == record_at[record]:
            for lane in range(lanes):
                weights_at[lane, record] = w[lane]
                averages_at[lane, record] = total[lane] / step
            record += 1


@njit(nogil=True, cache=True)
def _update(
    w: Floats, total: Floats, small: Vector, gradient: Vector, first: Floats, second: Floats,
    step: int, optimizer: int, settings: Floats,
) -> bool:  # fmt: skip
    """Add w to the total and take a step; return whether the weights are still sound."""
    if optimizer == SGD:
        norm = _sgd(w, total, small, gradient, first, settings)
    elif optimizer == ADAM:
        norm = _adam(w, total, small, gradient, first, second, step, settings)
    else:
        norm = _adagrad(w, total, small, gradient, second, settings)
    if not norm < TOO_LARGE:
        return False
    if norm > settings[RADIUS] ** 2:
        shrink = settings[RADIUS] / np.sqrt(norm)
        for k in range(len(w)):
            w[k] *= shrink
            small[k] = w[k]
    return True
