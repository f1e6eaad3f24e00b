"""How long a run is, and where it is evaluated."""

from __future__ import annotations

FEWEST_POINTS = 20
MOST_POINTS = 500


def n_steps(*, epochs: float, clicks: int, batch_size: int) -> int:
    """T = epochs · clicks / batch_size, at least 1.

    Examples
    --------
    >>> from countersample.study.design.length import n_steps
    >>> n_steps(epochs=5, clicks=1_000_000, batch_size=10)
    500000
    """
    return max(1, round(epochs * clicks / batch_size))


def evaluation_points(*, steps: int, evaluate_every: int, batch_size: int) -> list[int]:
    """Return the steps that are evaluated: every `evaluate_every` clicks, and the last.

    At least 20 points (if there are as many steps) and at most 500, as the paper has: studies
    that vary the number of clicks would have too few or too many.

    Examples
    --------
    >>> from countersample.study.design.length import evaluation_points
    >>> len(evaluation_points(steps=5_000_000, evaluate_every=10_000, batch_size=1))
    500
    """
    every = round(evaluate_every / batch_size)
    every = max(1, min(every, steps // FEWEST_POINTS), -(-steps // MOST_POINTS))
    return sorted({*range(every, steps + 1, every), steps})
