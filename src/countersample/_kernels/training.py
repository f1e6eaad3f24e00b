"""Stochastic gradient steps of a linear ranker, for every unit, plan, objective and optimizer.

A step reads the features of a drawn query once, and computes scores and gradient while they are in
cache. Several runs that differ in their settings only (K learning rates, for example) take their
steps together, so that one pass over memory serves all of them: batched runs. Features, scores and
gradients are float32; weights and their sums are float64, so that millions of small steps add up.
A step allocates nothing, and the GIL is released.

Scores are computed for two rows and four runs at a time. The gradient is summed in registers, for a
few columns and four runs at a time. Meanwhile the rows of the next query are fetched into the
cache. Arrays are indexed, never sliced, to keep reference counts out of the loops.

A batch is cut into parts. Each part has its own gradient, and the gradient of the batch is the sum
over its parts, in order: float32 loses fewer digits in short sums.

The order of every sum is fixed (`_kernels.vectors`) and does not depend on the number of runs. So a
run ends with the same bytes, alone or with others, and on every CPU that has fused multiply-add.
"""

import numpy as np
from numpy.typing import NDArray

from countersample._arrays import Floats, Ints
from countersample._kernels.compiling import kernel, part
from countersample._kernels.objectives import add_coefficients, rank_bound, value_of
from countersample._kernels.updates import narrow, update
from countersample._kernels.vectors import (
    LINE,
    add_8_rows,
    add_rows,
    add_rows_to_4,
    dot,
    eight_dots,
    fetch,
)

Matrix = NDArray[np.float32]
Vector = NDArray[np.float32]

COLUMNS = 32  # of the gradient that are summed at a time
WHILE_SCORING = WHILE_ADDING = 0.4  # shares of the next query to fetch meanwhile, for batched runs
AHEAD = 64  # examples looked up at a time: reads of distant memory wait together, not in turn


@part(error_model="numpy")
def score_rows(
    features: Matrix, start: int, n_items: int, weights: Matrix, following: int, n_lines: int,
    out: Matrix,
) -> None:  # fmt: skip
    """``out[k, i] = features[start + i] · weights[k]`` for each row i and run k.

    Meanwhile, `n_lines` lines of memory are fetched, from the row `following` on.
    """
    n_runs = len(weights)
    each = (n_lines + n_items - 1) // n_items
    for i in range(n_items):
        fetch(features, following, i * each, each)
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


@part(error_model="numpy")
def _add_gradient(
    features: Matrix, start: int, n_items: int, coefficients: Matrix, factor: np.float32,
    rows: Ints, factors: Matrix, following: int, line: int, n_lines: int, anew: bool, first: int,
    out: Matrix,
) -> None:  # fmt: skip
    """Add factor · Xᵀ coefficients[k] to ``out[first + k]`` of each run k, X a query's rows.

    With `anew`, the old content of ``out`` is replaced. `rows` and `factors` are scratch space: the
    rows in which some run has a coefficient, and their factors. Meanwhile lines of memory are
    fetched, as in `score_rows`.
    """
    n_runs = len(coefficients)
    n_rows = 0
    for i in range(n_items):  # without a branch, which a CPU could not predict
        is_needed = coefficients[0, i] != 0.0
        for run in range(1, n_runs):
            is_needed |= coefficients[run, i] != 0.0
        rows[n_rows] = start + i
        n_rows += is_needed
    for run in range(n_runs):
        for row in range(n_rows):
            factors[row, run] = factor * coefficients[run, rows[row] - start]
    width = features.shape[1]
    four = n_runs // 4 * 4
    if four > 0:
        n_blocks = (width + COLUMNS - 1) // COLUMNS
        each = (n_lines + n_blocks - 1) // n_blocks
        for block in range(n_blocks):
            fetch(features, following, line + block * each, each)
            column, end = block * COLUMNS, min(width, (block + 1) * COLUMNS)
            for run in range(0, four, 4):
                add_rows_to_4(
                    out, first + run, features, rows, 0, n_rows, factors, run, anew, column, end
                )
    for run in range(four, n_runs):
        row = 0
        while row + 8 <= n_rows:
            add_8_rows(
                out, first + run, features, rows, row, row + 8, factors, run, anew and row == 0, 0,
                width,
            )  # fmt: skip
            row += 8
        if row < n_rows or row == 0:
            add_rows(
                out, first + run, features, rows, row, n_rows, factors, run, anew and row == 0, 0,
                width,
            )  # fmt: skip


@part(error_model="numpy")
def _look_up(
    draws: Ints, first: int, query: NDArray[np.int32], offsets: Ints, starts: Ints,
    item: NDArray[np.int32], shares: Vector, multipliers: Vector, levels: Vector, out: Ints,
    factors: Matrix,
) -> None:  # fmt: skip
    """Write start and end of the items and clicks of the next examples, and their factors."""
    n_ahead = min(AHEAD, len(draws) - first)
    for k in range(n_ahead):
        example = draws[first + k]
        out[k, 0] = offsets[query[example]]
        out[k, 1] = offsets[query[example] + 1]
        out[k, 2] = starts[example]
        out[k, 3] = starts[example + 1]
        factors[k, 0] = multipliers[example]
        if len(levels) > 0:
            factors[k, 2] = levels[example]
    for k in range(n_ahead):
        out[k, 4] = item[out[k, 2]]
        factors[k, 1] = shares[out[k, 2]]


@part(error_model="numpy")
def _tilt(
    scores: Matrix, run: int, n_items: int, item: NDArray[np.int32], shares: Vector,
    first_click: int, last_click: int, level: float, code: int, tilts: Floats,
) -> np.float32:  # fmt: skip
    """1 + κ·(u − ū) of an example, u = level · Σ_j share_j λ(bound_j) at the scores of a run."""
    value = 0.0
    for click in range(first_click, last_click):
        bound = np.float64(rank_bound(scores, run, n_items, np.int64(item[click])))
        value += shares[click] * value_of(code, bound)
    return np.float32(1.0 + tilts[run, 0] * (level * value - tilts[run, 1]))


@kernel(error_model="numpy")
def take_steps(
    features: Matrix, offsets: Ints, query: NDArray[np.int32], starts: Ints,
    item: NDArray[np.int32], shares: Vector, multipliers: Vector, levels: Vector, tilts: Floats,
    scale: Floats, draws: Ints, batch_size: int, n_parts: int, objective: int, optimizer: int,
    settings: Floats, step: int, w: Floats, total: Floats, first: Floats, second: Floats,
    numbers: Floats, stopped: Ints, record_at: Ints, weights_at: Floats, averages_at: Floats,
) -> None:  # fmt: skip
    """Take ``len(draws) / batch_size`` steps of K runs that share their draws.

    Parameters
    ----------
    features, offsets
        The dataset: (n_items, width) and (n_queries + 1,).
    query, starts, item, shares, multipliers
        The examples and the plan, as `countersample.plans` has them: a step's gradient is the mean
        over its batch of m_i Σ_j share_j ∇f_j.
    levels : float32 (n,), or (0,) for none
        u_i = level_i Σ_j share_j f_j of an example; the objective is the mean of u_i.
    tilts : float64 (K, 2)
        κ and ū of each run: if there are levels, gradients are multiplied by 1 + κ·(u_i − ū), with
        u_i at the current weights.
    scale : float64 (width,), or (0,) for none
        The features are multiplied by it: scores use w · scale, without a copy of the features.
    draws : int64
        The examples drawn, `batch_size` for each step.
    n_parts : int
        Parts of a batch, each with a gradient of its own.
    objective, optimizer, settings
        Codes, and float64 (K, 8) as `_kernels.updates` takes them.
    step : int
        The number of steps taken before.
    w, total : float64 (K, width), in and out
        The weights w_t, and the sum w_1 + … + w_{t−1}.
    first, second, numbers : float64 (K, width), (K, width) and (K, 2), in and out
        The state of the optimizer (`_kernels.updates`); for AMSGrad, second is (K, 2 · width).
    stopped : int64 (K,), in and out
        0, or the step at which the weights of a run exploded; such a run stops.
    record_at : int64 (n_records,)
        Increasing steps at which w and w̄ are recorded.
    weights_at, averages_at : float64 (K, n_records, width), out
    """
    n_runs, width = w.shape
    most = _longest(offsets)
    scores = np.empty((n_runs, most), np.float32)
    coefficients = np.empty((n_runs, most), np.float32)
    rows = np.empty(most, np.int64)
    weighted = np.empty((most, n_runs), np.float32)
    examples = np.empty((AHEAD, 5), np.int64)
    factors = np.empty((AHEAD, 3), np.float32)
    gradients = np.empty((n_parts * n_runs, width), np.float32)
    small = np.empty((n_runs, width), np.float32)
    for run in range(n_runs):
        narrow(w, scale, small, run)
    factor = np.float32(1.0 / batch_size)
    lines_of_a_row = width * features.itemsize / LINE
    while_scoring, while_adding = (WHILE_SCORING, WHILE_ADDING) if n_runs >= 4 else (1.0, 0.0)
    following = line = n_lines = 0  # the next query: its first row, and the lines to fetch
    record = 0
    while record < len(record_at) and record_at[record] <= step:
        record += 1
    for batch in range(0, len(draws), batch_size):
        for k in range(batch, batch + batch_size):
            # Part p starts at the draw ⌊p · batch_size / n_parts⌋ of the batch.
            place = ((k - batch + 1) * n_parts - 1) // batch_size
            begins = k - batch == place * batch_size // n_parts
            ahead = k % AHEAD
            if ahead == 0:
                _look_up(
                    draws, k, query, offsets, starts, item, shares, multipliers, levels, examples,
                    factors,
                )  # fmt: skip
            start, n_items = examples[ahead, 0], examples[ahead, 1] - examples[ahead, 0]
            first_click, last_click = examples[ahead, 2], examples[ahead, 3]
            line = n_lines = 0
            if ahead + 1 < min(AHEAD, len(draws) - k + ahead):
                following = examples[ahead + 1, 0]
                n_lines = int((examples[ahead + 1, 1] - following) * lines_of_a_row)
                line = int(n_lines * while_scoring)
            score_rows(features, start, n_items, small, following, line, scores)
            for run in range(n_runs):
                for i in range(n_items):
                    coefficients[run, i] = 0.0
                tilt = np.float32(1.0)
                if len(levels) > 0:
                    tilt = _tilt(
                        scores, run, n_items, item, shares, first_click, last_click,
                        factors[ahead, 2], objective, tilts,
                    )  # fmt: skip
                for click in range(first_click, last_click):
                    is_first = click == first_click  # looked up ahead
                    clicked = examples[ahead, 4] if is_first else np.int64(item[click])
                    share = factors[ahead, 1] if is_first else shares[click]
                    add_coefficients(
                        scores, run, n_items, clicked, tilt * share, objective, coefficients
                    )
            _add_gradient(
                features, start, n_items, coefficients, factor * factors[ahead, 0], rows, weighted,
                following, line, int(n_lines * while_adding), begins, place * n_runs, gradients,
            )  # fmt: skip
        line += int(n_lines * while_adding)
        step += 1
        n_running = 0
        for run in range(n_runs):
            each = (n_lines - line + n_runs - 1) // n_runs
            fetch(features, following, line + run * each, each)
            if stopped[run] == 0:
                n_running += 1
                for position in range(1, n_parts):
                    for column in range(width):
                        gradients[run, column] += gradients[position * n_runs + run, column]
                if not update(
                    w, total, small, gradients, first, second, numbers, scale, settings, run, step,
                    optimizer,
                ):  # fmt: skip
                    stopped[run] = step
        if n_running == 0:
            break
        if record < len(record_at) and step == record_at[record]:
            for run in range(n_runs):
                for column in range(width):
                    weights_at[run, record, column] = w[run, column]
                    averages_at[run, record, column] = total[run, column] / step
            record += 1


@part()
def _longest(offsets: Ints) -> int:
    """Return the largest number of items of a query."""
    most = 0
    for query in range(len(offsets) - 1):
        most = max(most, offsets[query + 1] - offsets[query])
    return most


# -- the risk of single examples


@kernel(error_model="numpy")
def risk_moments(
    features: Matrix, offsets: Ints, query: NDArray[np.int32], item: NDArray[np.int32], pair: Ints,
    starts: Ints, shares: Vector, levels: Vector, scale: Floats, w: Floats, objective: int,
    moments: Floats,
) -> None:  # fmt: skip
    """Write ū = (1/n) Σ u_i and Σ (u_i − ū)² / (n − 1) of each run: the risk of single examples.

    u_i = level_i Σ_j share_j λ(bound_j), over the clicked items j of example i. One pass over the
    queries with clicks computes λ(bound) of each clicked item for all runs; a second pass over the
    examples computes their moments. Every sum has the order that it has for a single run, so a run
    gets the same bytes whatever other runs are computed with it.

    Parameters
    ----------
    features, offsets, scale
        As `take_steps` takes them.
    query, item : int32 (n_pairs,)
        The clicked items, each once, by query.
    pair : int64 (n_clicked,)
        The position in `query` and `item` of each clicked item of the examples.
    starts, shares, levels
        Of the n examples, as in `take_steps`.
    w : float64 (K, width)
    objective : int
    moments : float64 (K, 2)
        Written to.
    """
    n_runs, width = w.shape
    small = np.empty((n_runs, width), np.float32)
    for run in range(n_runs):
        narrow(w, scale, small, run)
    scores = np.empty((n_runs, _longest(offsets)), np.float32)
    values = np.empty((n_runs, len(query)))
    n_items = 0
    for k in range(len(query)):
        start = offsets[query[k]]
        if k == 0 or query[k] != query[k - 1]:
            n_items = offsets[query[k] + 1] - start
            score_rows(features, start, n_items, small, start, 0, scores)
        for run in range(n_runs):
            bound = np.float64(rank_bound(scores, run, n_items, np.int64(item[k])))
            values[run, k] = value_of(objective, bound)
    n = len(starts) - 1
    u = np.empty(n)
    for run in range(n_runs):
        total = 0.0
        for i in range(n):
            value = 0.0
            for j in range(starts[i], starts[i + 1]):
                value += shares[j] * values[run, pair[j]]
            u[i] = levels[i] * value
            total += u[i]
        mean = total / n
        squares = 0.0
        for i in range(n):
            squares += (u[i] - mean) * (u[i] - mean)
        moments[run, 0], moments[run, 1] = mean, squares / (n - 1)
