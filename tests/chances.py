"""Counts compared with the chances they should have, with a bound on false alarms."""

from math import log, log1p

import numpy as np

# The chance that one of these checks fails though all is well, whatever the seed.
ALPHA = 1e-9


def surprise(k, n, p):
    """n · KL(k/n ‖ p): seen k times of n, P(at least so far off to that side) ≤ exp(−surprise).

    Chernoff's bound holds for every n and p, so no cell needs to be large.
    """
    if (p == 0 and k > 0) or (p == 1 and k < n):
        return np.inf
    one = k * log(k / n / p) if k else 0.0
    return one + ((n - k) * (log1p(-k / n) - log1p(-p)) if k < n else 0.0)


def check_cells(cells):
    """Cells of (k, n, p): each k a binomial count. Both sides and all cells share ALPHA."""
    highest = log(2 * len(cells) / ALPHA)
    for name, (k, n, p) in cells.items():
        assert surprise(k, n, min(p, 1.0)) <= highest, f"{name}: {k} of {n}, expected {p:.4g}"
