"""Updates of the weights: what `countersample.training.optimizers` names, one pass over them each.

Every update adds the old weights to their sum and writes the new ones as float64 and as float32.
"""

import numpy as np
from numpy.typing import NDArray

from countersample._arrays import Floats
from countersample._kernels.codes import ADAGRAD, ADAM, DOG, SGD
from countersample._kernels.compiling import part
from countersample._kernels.sums import squared_norm

Vector = NDArray[np.float32]

# Positions in the array of settings
LEARNING_RATE, MOMENTUM, BETA1, BETA2, EPSILON, FIRST_DISTANCE, L2, RADIUS = range(8)

# Positions in an optimizer's numbers: the largest ‖w − w₀‖, and Σ‖g‖², so far
REACH, SQUARES = range(2)

TOO_LARGE = 1e30  # squared norm at which weights count as exploded: float32 scores end at 1e38


@part(error_model="numpy")
def update(
    w: Floats, total: Floats, small: Vector, g: Vector, first: Floats, second: Floats,
    numbers: Floats, step: int, optimizer: int, settings: Floats,
) -> bool:  # fmt: skip
    """Add w to the total, take a step and project; return whether the weights are still sound.

    `first`, `second` and `numbers` are the optimizer's state. Of DoG, `first` has the weights that
    it started from, `numbers` REACH and SQUARES, and `second` is scratch space.

    One function, as each function of its own is compiled twice; several loops over the weights,
    each of few arrays: a compiler that has to prove that many arrays do not overlap gives up, and
    takes one weight at a time.
    """
    rate, momentum, epsilon = settings[LEARNING_RATE], settings[MOMENTUM], settings[EPSILON]
    beta1, beta2, l2 = settings[BETA1], settings[BETA2], settings[L2]
    width = len(w)
    for k in range(width):
        total[k] += w[k]
    if optimizer == SGD and momentum == 0.0:
        for k in range(width):
            w[k] -= rate * (g[k] + l2 * w[k])
    elif optimizer == SGD:
        for k in range(width):
            first[k] = momentum * first[k] + g[k] + l2 * w[k]
        for k in range(width):
            w[k] -= rate * first[k]
    elif optimizer == ADAM:
        rate /= 1.0 - beta1**step
        correction = 1.0 / np.sqrt(1.0 - beta2**step)
        for k in range(width):
            gradient = g[k] + l2 * w[k]
            first[k] = beta1 * first[k] + (1.0 - beta1) * gradient
            second[k] = beta2 * second[k] + (1.0 - beta2) * gradient * gradient
        for k in range(width):
            w[k] -= rate * first[k] / (np.sqrt(second[k]) * correction + epsilon)
    elif optimizer == ADAGRAD:
        for k in range(width):
            gradient = g[k] + l2 * w[k]
            second[k] += gradient * gradient
        for k in range(width):
            w[k] -= rate * (g[k] + l2 * w[k]) / (np.sqrt(second[k]) + epsilon)
    elif optimizer == DOG:
        if step == 1:
            for k in range(width):
                first[k] = w[k]
        for k in range(width):
            second[k] = w[k] - first[k]
        reached = max(settings[FIRST_DISTANCE], np.sqrt(_squared_norm(second)))
        numbers[REACH] = max(numbers[REACH], reached)
        for k in range(width):
            second[k] = g[k] + l2 * w[k]
        numbers[SQUARES] += _squared_norm(second)
        if numbers[SQUARES] != 0.0:  # else there was no gradient so far
            rate = rate * numbers[REACH] / np.sqrt(numbers[SQUARES])
        for k in range(width):
            w[k] -= rate * second[k]
    else:
        raise ValueError("no optimizer has this code")
    for k in range(width):
        small[k] = w[k]
    norm = _squared_norm(w)
    if not norm < np.inf:
        return False
    largest = settings[RADIUS] * settings[RADIUS]
    if norm > largest:
        shrink = settings[RADIUS] / np.sqrt(norm)
        for k in range(width):
            w[k] *= shrink
            small[k] = w[k]
    return min(norm, largest) < TOO_LARGE


@part(error_model="numpy")
def _squared_norm(a: Floats) -> float:
    return squared_norm(a)  # a function, so that its many instructions are there once
