"""Stochastic gradient steps of a linear ranker, for every unit, plan, objective and optimizer.

A step reads the feature block of a drawn query once: scores and gradient come from it while it is
in cache. Several runs that differ in their settings only (K learning rates, say) take their
steps together, so that one pass over memory serves all of them: batched runs. Features, scores and
gradients are float32; weights and their sums are float64, so that millions of small steps add up.
Nothing is allocated in a step, and the GIL is not held.

Four runs share a row for the scores, and eight rows are added to the gradient at a time, never as
views: that is what keeps vector registers busy and reference counts out of the loops.

The order of every sum is fixed (`_kernels.sums`), and is that of a run by itself: a run ends with
the same bytes whatever runs beside it, and on every CPU that has fused multiply-add.
"""

import numpy as np
from numpy.typing import NDArray

from countersample._arrays import Floats, Ints
from countersample._kernels.compiling import kernel, part
from countersample._kernels.objectives import add_coefficients
from countersample._kernels.rows import add_2_rows, add_4_rows_to_4, add_8_rows, fetch
from countersample._kernels.sums import dot, eight_dots
from countersample._kernels.updates import update

Matrix = NDArray[np.float32]
Vector = NDArray[np.float32]

ROWS = 8  # rows of features that one sweep over the gradient adds
AHEAD = 64  # examples looked up at a time: reads from far apart wait together, not in turn


@part(error_model="numpy")
def _scores(
    features: Matrix, start: int, end: int, following: int, until: int, weights: Matrix, out: Matrix
) -> None:
    """``out[k, i] = features[start + i] · weights[k]`` for each row i and run k.

    Meanwhile the rows from `following` until `until` are brought near, which come next.
    """
    n_runs, n_items = len(weights), end - start
    for i in range(n_items):
        if following + i < until:
            fetch(features, following + i)
        run = 0
        if i + 1 < n_items and i % 2 == 0:
            while run + 4 <= n_runs:
                a0, a1, a2, a3, b0, b1, b2, b3 = eight_dots(features, start + i, weights, run)
                out[run, i], out[run + 1, i], out[run + 2, i], out[run + 3, i] = a0, a1, a2, a3
                out[run, i + 1], out[run + 1, i + 1] = b0, b1
                out[run + 2, i + 1], out[run + 3, i + 1] = b2, b3
                run += 4
        elif i % 2 == 1:
            run = n_runs // 4 * 4
        while run < n_runs:
            out[run, i] = dot(features, start + i, weights, run)
            run += 1
    for row in range(following + n_items, until):
        fetch(features, row)


@part(error_model="numpy")
def _add_gradient(
    features: Matrix, start: int, n_items: int, coefficients: Matrix, rows: Ints,
    factor: np.float32, out: Matrix,
) -> None:  # fmt: skip
    """Add factor · Xᵀ coefficients[k] to ``out[k]`` for each run k, X the rows of the query.

    `rows` is scratch space: the rows in which some run has a coefficient.
    """
    n_runs = len(out)
    n_rows = 0
    for i in range(n_items):  # without a branch, which nobody could predict
        is_needed = coefficients[0, i] != 0.0
        for run in range(1, n_runs):
            is_needed |= coefficients[run, i] != 0.0
        rows[n_rows] = i
        n_rows += is_needed
    four = n_runs // 4 * 4
    done = 0
    while done + 4 <= n_rows and four > 0:
        i0, i1, i2, i3 = rows[done], rows[done + 1], rows[done + 2], rows[done + 3]
        taken = (start + i0, start + i1, start + i2, start + i3)
        for k in range(0, four, 4):
            add_4_rows_to_4(out, k, features, taken, (
                factor * coefficients[k, i0], factor * coefficients[k, i1],
                factor * coefficients[k, i2], factor * coefficients[k, i3],
                factor * coefficients[k + 1, i0], factor * coefficients[k + 1, i1],
                factor * coefficients[k + 1, i2], factor * coefficients[k + 1, i3],
                factor * coefficients[k + 2, i0], factor * coefficients[k + 2, i1],
                factor * coefficients[k + 2, i2], factor * coefficients[k + 2, i3],
                factor * coefficients[k + 3, i0], factor * coefficients[k + 3, i1],
                factor * coefficients[k + 3, i2], factor * coefficients[k + 3, i3],
            ))  # fmt: skip
        done += 4
    for run in range(n_runs):
        _add_rows(
            features, start, coefficients, run, rows, done if run < four else 0, n_rows, factor, out
        )


@part(error_model="numpy")
def _add_rows(
    features: Matrix, start: int, coefficients: Matrix, run: int, rows: Ints, first: int,
    n_rows: int, factor: np.float32, out: Matrix,
) -> None:  # fmt: skip
    """Add to the gradient of one run the rows from the first one on."""
    done = first
    while n_rows - done >= 8:
        i0, i1, i2, i3 = rows[done], rows[done + 1], rows[done + 2], rows[done + 3]
        i4, i5, i6, i7 = rows[done + 4], rows[done + 5], rows[done + 6], rows[done + 7]
        add_8_rows(
            out, run, features,
            (start + i0, start + i1, start + i2, start + i3,
             start + i4, start + i5, start + i6, start + i7),
            (factor * coefficients[run, i0], factor * coefficients[run, i1],
             factor * coefficients[run, i2], factor * coefficients[run, i3],
             factor * coefficients[run, i4], factor * coefficients[run, i5],
             factor * coefficients[run, i6], factor * coefficients[run, i7]),
        )  # fmt: skip
        done += 8
    while done < n_rows:
        last = n_rows - 1
        i0, i1 = rows[done], rows[min(done + 1, last)]
        c1 = factor * coefficients[run, i1] if done < last else np.float32(0.0)
        add_2_rows(
            out, run, features, (start + i0, start + i1), (factor * coefficients[run, i0], c1)
        )
        done += 2


@part(error_model="numpy")
def _look_up(
    draws: Ints, first: int, query: NDArray[np.int32], offsets: Ints, starts: Ints,
    item: NDArray[np.int32], shares: Vector, multipliers: Vector, out: Ints, factors: Matrix,
) -> None:  # fmt: skip
    """Write down where items and clicks of the next examples start and end, and their factors."""
    n_ahead = min(AHEAD, len(draws) - first)
    for k in range(n_ahead):
        example = draws[first + k]
        out[k, 0] = offsets[query[example]]
        out[k, 1] = offsets[query[example] + 1]
        out[k, 2] = starts[example]
        out[k, 3] = starts[example + 1]
        factors[k, 0] = multipliers[example]
    for k in range(n_ahead):
        out[k, 4] = item[out[k, 2]]
        factors[k, 1] = shares[out[k, 2]]


@part(error_model="numpy")
def _narrow(w: Floats, scale: Floats, out: Matrix, run: int) -> None:
    """``out[run] = w[run] · scale``, rounded to float32; ``w[run]`` where there is no scale."""
    for k in range(w.shape[1]):
        out[run, k] = w[run, k] * scale[k] if len(scale) > 0 else w[run, k]


@kernel(error_model="numpy")
def take_steps(
    features: Matrix,
    offsets: Ints,
    query: NDArray[np.int32],
    starts: Ints,
    item: NDArray[np.int32],
    shares: Vector,
    multipliers: Vector,
    scale: Floats,
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
    numbers: Floats,
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
    query, starts, item, shares, multipliers
        The examples and the plan, as `countersample.plans` has them: a step's gradient is the mean
        over its batch of m_i Σ_j share_j ∇f_j.
    scale : float64 (width,), or (0,) for none
        Features are multiplied by it; scores from w · scale are the same, without a copy of them.
    draws : int64
        The examples drawn, `batch_size` for each step.
    objective, optimizer, settings
        Codes, and float64 (K, 8) as `_kernels.updates` takes them.
    step : int
        The steps taken before.
    w, total : float64 (K, width), in and out
        The weights w_t, and the sum w_1 + … + w_{t−1}.
    first, second, numbers : float64 (K, width), (K, width) and (K, 2), in and out
        The optimizer's state, as `_kernels.updates` has it.
    stopped : int64 (K,), in and out
        0, or the step at which the weights of a run exploded; such a run stands still.
    record_at : int64 (n_records,)
        Rising steps at which w and w̄ are written down.
    weights_at, averages_at : float64 (K, n_records, width), out
    """
    n_runs, width = w.shape
    most = 0
    for position in range(len(offsets) - 1):
        most = max(most, offsets[position + 1] - offsets[position])
    is_scaled = len(scale) > 0
    small = np.empty((n_runs, width), np.float32)
    for run in range(n_runs):
        _narrow(w, scale, small, run)
    gradient = np.empty((n_runs, width), np.float32)
    scores = np.empty((n_runs, most), np.float32)
    coefficients = np.empty((n_runs, most), np.float32)
    rows = np.empty(most, np.int64)
    factor = np.float32(1.0 / batch_size)
    record = 0
    while record < len(record_at) and record_at[record] <= step:
        record += 1
    found = np.empty((AHEAD, 5), np.int64)
    factors = np.empty((AHEAD, 2), np.float32)
    for batch in range(len(draws) // batch_size):
        for run in range(n_runs):
            for column in range(width):
                gradient[run, column] = 0.0
        for k in range(batch * batch_size, (batch + 1) * batch_size):
            if k % AHEAD == 0:
                _look_up(
                    draws, k, query, offsets, starts, item, shares, multipliers, found, factors
                )  # fmt: skip
            ahead = k % AHEAD
            start, end = found[ahead, 0], found[ahead, 1]
            first_click, last_click = found[ahead, 2], found[ahead, 3]
            n_items = end - start
            following = until = 0
            if ahead + 1 < min(AHEAD, len(draws) - k + ahead):
                following, until = found[ahead + 1, 0], found[ahead + 1, 1]
            _scores(features, start, end, following, until, small, scores)
            for run in range(n_runs):
                for i in range(n_items):
                    coefficients[run, i] = 0.0
                for click in range(first_click, last_click):
                    is_first = click == first_click  # looked up ahead
                    clicked = found[ahead, 4] if is_first else np.int64(item[click])
                    share = factors[ahead, 1] if is_first else shares[click]
                    add_coefficients(scores, run, n_items, clicked, share, objective, coefficients)
            _add_gradient(
                features, start, n_items, coefficients, rows, factor * factors[ahead, 0],
                gradient,
            )  # fmt: skip
        step += 1
        n_running = 0
        for run in range(n_runs):
            if stopped[run] == 0:
                n_running += 1
                if is_scaled:
                    for column in range(width):
                        gradient[run, column] *= scale[column]
                if not update(
                    w[run], total[run], small[run], gradient[run], first[run], second[run],
                    numbers[run], step, optimizer, settings[run],
                ):  # fmt: skip
                    stopped[run] = step
                if is_scaled:
                    _narrow(w, scale, small, run)
        if n_running == 0:
            return
        if record < len(record_at) and step == record_at[record]:
            for run in range(n_runs):
                for column in range(width):
                    weights_at[run, record, column] = w[run, column]
                    averages_at[run, record, column] = total[run, column] / step
            record += 1
