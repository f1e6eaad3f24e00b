"""One step of each optimizer that `countersample.training.optimizers` lists.

A step gets the gradient g of the batch and does five things, for one of K runs:

1. add the old weights w to their sum, from which the average of all steps is computed;
2. compute a direction from g + l2·w and the state of the optimizer, and move w along it;
3. project w onto the ball of a given radius, if it is outside;
4. write w · scale as float32, which the next step scores with;
5. return whether the weights are still finite and not absurdly large.

Weights are float64, gradients float32.
"""

import numpy as np
from numpy.typing import NDArray

from countersample._arrays import Floats
from countersample._kernels.codes import ADAGRAD, ADAM, AMSGRAD, DOG, SGD
from countersample._kernels.compiling import part
from countersample._kernels.vectors import dot

Matrix = NDArray[np.float32]

# Positions in the array of settings
LEARNING_RATE, MOMENTUM, BETA1, BETA2, EPSILON, FIRST_DISTANCE, L2, RADIUS = range(8)

# Positions in an optimizer's numbers: the largest ‖w − w₀‖, and Σ‖g‖², so far
REACH, SQUARES = range(2)

TOO_LARGE = 1e30  # squared norm at which weights count as exploded: float32 scores end at 1e38


@part(error_model="numpy")
def update(
    w: Floats, total: Floats, small: Matrix, g: Matrix, first: Floats, second: Floats,
    numbers: Floats, scale: Floats, settings: Floats, run: int, step: int, optimizer: int,
) -> bool:  # fmt: skip
    """Add w to the total, take a step and project; return whether the weights are still sound.

    g is the gradient with respect to w · scale; it is multiplied by `scale` here. small becomes
    w · scale.

    `first`, `second` and `numbers` are the state of the optimizer. For DoG, `first` holds the
    initial weights, `numbers` holds REACH and SQUARES, and `second` is scratch space. For AMSGrad,
    `second` is twice as wide as the weights: v, and then the largest v so far.

    This is one function, because each further function would be compiled twice. Its loops use few
    arrays each: a compiler that has to prove that many arrays do not overlap gives up, and takes
    one weight at a time.
    """
    rate, momentum, l2 = settings[run, LEARNING_RATE], settings[run, MOMENTUM], settings[run, L2]
    beta1, beta2, epsilon = settings[run, BETA1], settings[run, BETA2], settings[run, EPSILON]
    width = w.shape[1]
    for k in range(width):
        total[run, k] += w[run, k]
    if len(scale) > 0:
        for k in range(width):
            g[run, k] *= scale[k]
    if optimizer == SGD and momentum == 0.0:
        for k in range(width):
            w[run, k] -= rate * (g[run, k] + l2 * w[run, k])
    elif optimizer == SGD:
        for k in range(width):
            first[run, k] = momentum * first[run, k] + g[run, k] + l2 * w[run, k]
        for k in range(width):
            w[run, k] -= rate * first[run, k]
    elif optimizer in (ADAM, AMSGRAD):
        rate /= 1.0 - beta1**step
        correction = 1.0 / np.sqrt(1.0 - beta2**step)
        for k in range(width):
            gradient = g[run, k] + l2 * w[run, k]
            first[run, k] = beta1 * first[run, k] + (1.0 - beta1) * gradient
            second[run, k] = beta2 * second[run, k] + (1.0 - beta2) * gradient * gradient
        v = 0  # the column of `second` at which the squares start that divide the step
        if optimizer == AMSGRAD:
            v = width
            for k in range(width):
                second[run, v + k] = max(second[run, v + k], second[run, k])
        for k in range(width):
            w[run, k] -= rate * first[run, k] / (np.sqrt(second[run, v + k]) * correction + epsilon)
    elif optimizer == ADAGRAD:
        for k in range(width):
            gradient = g[run, k] + l2 * w[run, k]
            second[run, k] += gradient * gradient
        for k in range(width):
            w[run, k] -= rate * (g[run, k] + l2 * w[run, k]) / (np.sqrt(second[run, k]) + epsilon)
    elif optimizer == DOG:
        if step == 1:
            for k in range(width):
                first[run, k] = w[run, k]
        for k in range(width):
            second[run, k] = w[run, k] - first[run, k]
        reached = max(settings[run, FIRST_DISTANCE], np.sqrt(_squared_norm(second, run)))
        numbers[run, REACH] = max(numbers[run, REACH], reached)
        for k in range(width):
            second[run, k] = g[run, k] + l2 * w[run, k]
        numbers[run, SQUARES] += _squared_norm(second, run)
        if numbers[run, SQUARES] != 0.0:  # otherwise all gradients were 0 so far
            rate = rate * numbers[run, REACH] / np.sqrt(numbers[run, SQUARES])
        for k in range(width):
            w[run, k] -= rate * second[run, k]
    else:
        raise ValueError("no optimizer has this code")
    narrow(w, scale, small, run)
    return _is_sound(w, small, scale, run, settings[run, RADIUS])


@part(error_model="numpy")
def narrow(w: Floats, scale: Floats, out: Matrix, run: int) -> None:
    """``out[run] = w[run] · scale``, rounded to float32. An empty scale stands for ones."""
    for k in range(w.shape[1]):
        out[run, k] = w[run, k] * scale[k] if len(scale) > 0 else w[run, k]


@part(error_model="numpy")
def _is_sound(w: Floats, small: Matrix, scale: Floats, run: int, radius: float) -> bool:
    """Project the weights onto the ball; return whether they are finite and not too large."""
    norm = _squared_norm(w, run)
    if not norm < np.inf:
        return False
    largest = radius * radius
    if norm > largest:
        shrink = radius / np.sqrt(norm)
        for k in range(w.shape[1]):
            w[run, k] *= shrink
        narrow(w, scale, small, run)
    return min(norm, largest) < TOO_LARGE


@part(error_model="numpy")
def _squared_norm(a: Floats, run: int) -> float:
    return dot(a, run, a, run)  # a function, so that its many instructions exist once
