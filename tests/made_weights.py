"""Weights of every shape, their exact shares, and whether draws follow them."""

from fractions import Fraction

import numpy as np
from scipy.stats import chi2

# Each maps a generator to weights.
SHAPES = {
    "one": lambda _: np.array([3.0]),
    "one of two": lambda _: np.array([0.0, 2.0]),
    "two": lambda _: np.array([1.0, 3.0]),
    "equal": lambda _: np.full(1000, 0.1),
    "nearly equal": lambda rng: 1 + 1e-15 * rng.integers(-4, 5, 1000),
    "uniform": lambda rng: rng.random(1000),
    "integers": lambda rng: rng.integers(0, 4, 1000) + (np.arange(1000) == 0),
    "rising": lambda _: np.arange(1.0, 1001),
    "falling": lambda _: np.arange(1000.0, 0, -1),
    "one heavy, first": lambda _: np.r_[1000.0, np.ones(999)],
    "one heavy, last": lambda _: np.r_[np.full(999, 0.3), 1e6],
    "half heavy": lambda _: np.tile([1.0, 99.0], 500),
    "pareto": lambda rng: rng.pareto(0.5, 1000),
    "inverse propensity": lambda rng: rng.integers(1, 140, 1000) ** 1.5,
    "lognormal": lambda rng: rng.lognormal(0, 3, 1000),
    "many zeros": lambda rng: rng.random(1000) * (np.arange(1000) % 10 == 7),
    "all zero but one": lambda _: np.arange(1000) == 500,
    "tiny and huge": lambda _: np.r_[np.full(500, 1e-300), np.full(500, 1e300)],
    "sum too large": lambda _: np.full(100, 1e308),
    "subnormal": lambda _: 5e-324 * np.arange(1, 101),
}


def fractions_of(weights):
    """The weights' shares, rounded only at the end."""
    exact = [Fraction(float(weight)) for weight in weights]
    total = sum(exact)
    return np.array([float(weight / total) for weight in exact])


def goodness_of_fit(counts, expected):
    """The p-value of Pearson's χ², cells below 25 expected draws taken together."""
    rare = expected < 25
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    if expected[-1] < 25:
        counts, expected = counts[:-1], expected[:-1]
    if len(counts) < 2:
        return 1.0
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1)
