"""Draws by blocks: exactly the weights, drawn as often as they say, for any weights and any n."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import twins_blocks
from conftest import SEED
from hypothesis import given
from hypothesis import strategies as st
from made_weights import SHAPES, fractions_of, goodness_of_fit

from countersample.errors import DataError
from countersample.torch.samplers import BlockTable

# So rarely, over all shapes together, would correct draws fail: it is safe to try any seed.
ALPHA = 1e-9


@pytest.fixture(params=SHAPES)
def weights(request, rng):
    return SHAPES[request.param](rng)


# -- exactly the weights -------------------------------------------------------------------------


def test_the_probabilities_are_those_of_the_weights(weights):
    result, expected = twins_blocks.probabilities(weights), fractions_of(weights)
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=0)
    assert (result[expected == 0] == 0).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 70))
def test_draws_are_those_of_the_twin(seed, n):
    rng = np.random.default_rng(seed)
    weights = rng.choice([0, 1e-9, 0.3, 1, 2, 1e9], n) * rng.random(n)
    weights[rng.integers(n)] = 1
    before = weights.copy()
    drawn = BlockTable(weights).sample(50, np.random.default_rng(seed))
    expected = twins_blocks.draws(weights, 50, np.random.default_rng(seed))
    assert drawn.dtype == np.int64
    np.testing.assert_array_equal(drawn, expected)
    np.testing.assert_array_equal(weights, before)
    assert (weights[drawn] > 0).all()


# -- drawn as often as they say ------------------------------------------------------------------


def test_draws_follow_the_weights(weights, rng):
    expected = fractions_of(weights)
    size = 400_000
    counts = np.bincount(BlockTable(weights).sample(size, rng), minlength=len(weights))
    assert counts.shape == (len(weights),)
    assert (counts[expected == 0] == 0).all()
    assert goodness_of_fit(counts, size * expected) > ALPHA / len(SHAPES)


def test_same_seed_same_draws_in_any_number_of_threads():
    table = BlockTable(np.arange(1.0, 1000))

    def drawn(seed):
        return table.sample(10_000, np.random.default_rng(seed)).tolist()

    seeds = [SEED, SEED + 1, SEED] * 4
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(drawn, seeds)) == [drawn(seed) for seed in seeds]
    assert drawn(SEED) != drawn(SEED + 1)
    assert table.sample(0, np.random.default_rng(SEED)).shape == (0,)


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, np.inf], r"weights\[1\] is inf, expected a finite number of at least 0"),
        ([0.0, 0.0], r"weights are all 0 \(0 to 1\), expected at least one above 0"),
    ],
)
def test_weights_that_are_refused(weights, message):
    with pytest.raises(DataError, match=message):
        BlockTable(weights)
