"""One step of each optimizer that `countersample.training.optimizers` lists.

A step gets the gradient g of the batch and does five things, for one of K runs:

1. add the old weights w to their sum, from which the average of all steps is computed;
2. compute a direction from g + l2·w and the state of the optimizer, and move w along it;
3. project w onto the ball of a given radius, if it is outside;
4. write w · scale as float32, which the next step scores with;
5. return whether the weights are still finite and not absurdly large.

Weights are float64, gradients float32. Plain SGD without momentum, the most frequent case, does 1,
2 and 4 in a single pass over memory (`descend`); the others take several short loops.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numpy.typing import NDArray

from countersample._arrays import Floats
from countersample._kernels.codes import ADAGRAD, ADAM, AMSGRAD, DOG, SGD
from countersample._kernels.compiling import part
from countersample._kernels.vectors import (
    added_up,
    broadcast,
    dot,
    load_numbers,
    row_of,
    store_numbers,
)

Value = Any  # of numba or llvmlite, which have no types
intrinsic: Any = extending.intrinsic
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
    rate, momentum, epsilon = (
        settings[run, LEARNING_RATE],
        settings[run, MOMENTUM],
        settings[run, EPSILON],
    )
    beta1, beta2, l2 = settings[run, BETA1], settings[run, BETA2], settings[run, L2]
    width = w.shape[1]
    if optimizer == SGD and momentum == 0.0:
        norm = descend(w, total, small, g, run, scale, rate, l2)
        return _is_sound(w, small, scale, run, norm, settings[run, RADIUS])
    for k in range(width):
        total[run, k] += w[run, k]
    if len(scale) > 0:
        for k in range(width):
            g[run, k] *= scale[k]
    if optimizer == SGD:
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
    return _is_sound(w, small, scale, run, _squared_norm(w, run), settings[run, RADIUS])


@intrinsic
def descend(
    _: Value, w: Value, total: Value, small: Value, g: Value, run: Value, scale: Value,
    rate: Value, l2: Value,
) -> Value:  # fmt: skip
    """``total += w``; ``w -= rate · (g·scale + l2·w)``; ``small = w·scale``; return ‖w‖².

    All are rows `run` of their matrices. An empty scale stands for ones. w, total and scale are
    float64, small and g float32; g·scale is rounded to float32. This is plain gradient descent in
    one pass, written with vectors: a compiler that has to prove that so many arrays do not overlap
    gives up, and takes one weight at a time.
    """

    def generate(context: Value, builder: Value, signature: Value, args: Value) -> Value:
        (w, n), (total, _), (small, _), (g, _) = (
            row_of(context, builder, kind, value, args[4])
            for kind, value in zip(signature.args[:4], args[:4], strict=True)
        )
        scale, n_scales = row_of(context, builder, signature.args[5], args[5])
        rate, l2 = args[6:]
        double = ir.DoubleType()

        def loop(is_scaled: bool) -> Value:
            def terms(k: Value, size: int) -> list[tuple[Value, Value]]:
                singles = ir.VectorType(ir.FloatType(), size)
                doubles = ir.VectorType(double, size)
                before = load_numbers(builder, w, k, size, double)
                sums = builder.fadd(load_numbers(builder, total, k, size, double), before)
                store_numbers(builder, sums, total, k)
                gradient = builder.fpext(load_numbers(builder, g, k, size, ir.FloatType()), doubles)
                if is_scaled:
                    factor = load_numbers(builder, scale, k, size, double)
                    gradient = builder.fptrunc(builder.fmul(gradient, factor), singles)
                    gradient = builder.fpext(gradient, doubles)
                decay = builder.fmul(broadcast(builder, l2, size), before)
                step = builder.fmul(broadcast(builder, rate, size), builder.fadd(gradient, decay))
                after = builder.fsub(before, step)
                store_numbers(builder, after, w, k)
                scaled = builder.fmul(after, factor) if is_scaled else after
                store_numbers(builder, builder.fptrunc(scaled, singles), small, k)
                return [(after, after)]

            return added_up(builder, double, 1, n, terms)[0]

        norm = cgutils.alloca_once(builder, double)
        with builder.if_else(builder.icmp_signed("==", n_scales, n_scales.type(0))) as (yes, no):
            with yes:
                builder.store(loop(is_scaled=False), norm)
            with no:
                builder.store(loop(is_scaled=True), norm)
        return builder.load(norm)

    fits = all(each.layout == "C" for each in (w, total, small, g, scale))
    kinds = types.float64(w, total, small, g, run, scale, rate, l2)
    return (kinds, generate) if fits else None


@part(error_model="numpy")
def narrow(w: Floats, scale: Floats, out: Matrix, run: int) -> None:
    """``out[run] = w[run] · scale``, rounded to float32. An empty scale stands for ones."""
    for k in range(w.shape[1]):
        out[run, k] = w[run, k] * scale[k] if len(scale) > 0 else w[run, k]


@part(error_model="numpy")
def _is_sound(
    w: Floats, small: Matrix, scale: Floats, run: int, norm: float, radius: float
) -> bool:
    """Project weights of this squared norm onto the ball; return whether they are not too large."""
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
