"""Updates of the weights: what `countersample.training.optimizers` names, one pass over them each.

Every update adds the old weights to their sum and writes the new ones as float64 and as float32.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from countersample._arrays import Floats
from countersample._kernels.codes import ADAGRAD, ADAM, SGD
from countersample._kernels.sums import squared_norm

Vector = NDArray[np.float32]

# Positions in the array of settings
LEARNING_RATE, MOMENTUM, BETA1, BETA2, EPSILON, L2, RADIUS = range(7)

TOO_LARGE = 1e30  # squared norm at which weights count as exploded: float32 scores end at 1e38


@njit(nogil=True, cache=True, fastmath=False, error_model="numpy")
def _sgd(w: Floats, total: Floats, small: Vector, g: Vector, s: Floats) -> None:
    rate, l2 = s[LEARNING_RATE], s[L2]
    for k in range(len(w)):
        old = w[k]
        total[k] += old
        new = old - rate * (g[k] + l2 * old)
        w[k] = new
        small[k] = new


# From here on in several loops over the weights, each of few arrays: a compiler that has to prove
# that many arrays do not overlap gives up, and takes one weight at a time.


@njit(nogil=True, cache=True, fastmath=False, error_model="numpy")
def _momentum(w: Floats, total: Floats, small: Vector, g: Vector, first: Floats, s: Floats) -> None:
    rate, momentum, l2 = s[LEARNING_RATE], s[MOMENTUM], s[L2]
    for k in range(len(w)):
        first[k] = momentum * first[k] + g[k] + l2 * w[k]
    for k in range(len(w)):
        total[k] += w[k]
        new = w[k] - rate * first[k]
        w[k] = new
        small[k] = new


@njit(nogil=True, cache=True, fastmath=False, error_model="numpy")
def _adam(
    w: Floats, total: Floats, small: Vector, g: Vector, first: Floats, second: Floats, step: int,
    s: Floats,
) -> None:  # fmt: skip
    beta1, beta2, epsilon, l2 = s[BETA1], s[BETA2], s[EPSILON], s[L2]
    rate = s[LEARNING_RATE] / (1.0 - beta1**step)
    correction = 1.0 / np.sqrt(1.0 - beta2**step)
    for k in range(len(w)):
        total[k] += w[k]
    for k in range(len(w)):
        gradient = g[k] + l2 * w[k]
        first[k] = beta1 * first[k] + (1.0 - beta1) * gradient
        second[k] = beta2 * second[k] + (1.0 - beta2) * gradient * gradient
    for k in range(len(w)):
        new = w[k] - rate * first[k] / (np.sqrt(second[k]) * correction + epsilon)
        w[k] = new
        small[k] = new


@njit(nogil=True, cache=True, fastmath=False, error_model="numpy")
def _adagrad(w: Floats, total: Floats, small: Vector, g: Vector, second: Floats, s: Floats) -> None:
    rate, epsilon, l2 = s[LEARNING_RATE], s[EPSILON], s[L2]
    for k in range(len(w)):
        total[k] += w[k]
    for k in range(len(w)):
        gradient = g[k] + l2 * w[k]
        second[k] += gradient * gradient
    for k in range(len(w)):
        new = w[k] - rate * (g[k] + l2 * w[k]) / (np.sqrt(second[k]) + epsilon)
        w[k] = new
        small[k] = new


@njit(nogil=True, cache=True, fastmath=False, error_model="numpy")
def update(
    w: Floats, total: Floats, small: Vector, gradient: Vector, first: Floats, second: Floats,
    step: int, optimizer: int, settings: Floats,
) -> bool:  # fmt: skip
    """Add w to the total, take a step and project; return whether the weights are still sound."""
    if optimizer == SGD and settings[MOMENTUM] == 0.0:
        _sgd(w, total, small, gradient, settings)
    elif optimizer == SGD:
        _momentum(w, total, small, gradient, first, settings)
    elif optimizer == ADAM:
        _adam(w, total, small, gradient, first, second, step, settings)
    elif optimizer == ADAGRAD:
        _adagrad(w, total, small, gradient, second, settings)
    else:
        raise ValueError("no optimizer has this code")
    norm = squared_norm(w)
    if not norm < np.inf:
        return False
    largest = settings[RADIUS] * settings[RADIUS]
    if norm > largest:
        shrink = settings[RADIUS] / np.sqrt(norm)
        for k in range(len(w)):
            w[k] *= shrink
            small[k] = w[k]
    return min(norm, largest) < TOO_LARGE
