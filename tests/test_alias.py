"""The alias table: exactly the weights, drawn as often as they say, for any weights and any n."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_weights import SHAPES, fractions_of, goodness_of_fit

from countersample import AliasTable
from countersample.errors import DataError, ParameterError

# So rarely, over all shapes together, would correct draws fail: it is safe to try any seed.
ALPHA = 1e-9


@pytest.fixture(params=SHAPES)
def weights(request, rng):
    return SHAPES[request.param](rng)


# -- exactly the weights -------------------------------------------------------------------------


def test_the_table_has_the_weights(weights):
    expected = fractions_of(weights)
    table = AliasTable(weights)
    assert len(table) == len(weights)
    np.testing.assert_allclose(table.probabilities, expected, rtol=1e-12, atol=0)
    assert (table.probabilities[expected == 0] == 0).all()


@given(
    st.lists(
        st.sampled_from([0.0, 1.0, 2.0, 1e-3, 1e3]) | st.floats(0, 1e300, allow_subnormal=False),
        min_size=1,
        max_size=60,
    ).filter(any)
)
def test_the_table_has_any_weights(weights):
    expected = fractions_of(weights)
    np.testing.assert_allclose(AliasTable(weights).probabilities, expected, rtol=1e-12, atol=1e-307)


# -- drawn as often as they say ------------------------------------------------------------------


def test_draws_follow_the_weights(weights, rng):
    expected = fractions_of(weights)
    size = 400_000
    counts = np.bincount(AliasTable(weights).sample(size, rng), minlength=len(weights))
    assert counts.sum() == size
    assert (counts[expected == 0] == 0).all()
    assert goodness_of_fit(counts, size * expected) > ALPHA / len(SHAPES)


def test_draws_are_independent(rng):
    """Pairs of draws one after the other follow the product of the probabilities."""
    p = np.array([0.1, 0.2, 0.3, 0.4])
    first, second = AliasTable(p).sample(400_000, rng).reshape(-1, 2).T
    counts = np.bincount(4 * first + second, minlength=16)
    assert goodness_of_fit(counts, 200_000 * np.outer(p, p).ravel()) > ALPHA


# -- any n ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_more_weights_than_float32_can_count(rng):
    """2²⁴ + 1 weights, where PyTorch's sampler gives up.

    Two heavy ones fill up all others. Rounded to a float64 each time they would lose 2⁻³¹ times as
    many, and be wrong by 2·10⁻¹⁰: the table is right because rounding errors are kept.
    """
    n = 2**24 + 1
    light = 0.9 * 2.0**-31 / n
    heavy = (1 - (n - 2) * light) / 2
    weights = np.full(n, light)
    weights[[0, -1]] = heavy
    table = AliasTable(weights)
    np.testing.assert_allclose(table.probabilities, weights, rtol=1e-12, atol=0)
    counts = np.bincount((table.sample(100_000, rng) > 0).astype(int), minlength=2)
    assert goodness_of_fit(counts, np.full(2, 50_000)) > ALPHA


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -0.5, -1.0], r"weights\[1\] is -0.5, expected a finite number of at least 0"),
        ([1.0, 2.0, np.nan], r"weights\[2\] is nan"),
        ([np.inf, 1.0], r"weights\[0\] is inf"),
        ([1.0, -np.inf], r"weights\[1\] is -inf"),
        ([0.0, 0.0, 0.0], r"weights are all 0 \(0 to 2\), expected at least one above 0"),
        ([], r"weights have shape \(0,\), expected a vector that is not empty"),
        (1.0, r"weights have shape \(\)"),
        ([[1.0, 2.0]], r"weights have shape \(1, 2\)"),
        (["a", "b"], r"weights must be a vector of numbers \(.*'a'"),
        ([[1.0], [1.0, 2.0]], "weights must be a vector of numbers"),
    ],
)
def test_weights_that_are_refused(weights, message):
    with pytest.raises(DataError, match=message):
        AliasTable(weights)


def test_a_size_that_is_refused(rng):
    with pytest.raises(ParameterError, match="size is -1, expected a whole number of at least 0"):
        AliasTable([1.0]).sample(-1, rng)
