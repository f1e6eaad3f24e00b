"""The hinge bound on the rank and what is made of it, in score space."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins_plans import objective_gradient, objective_value, rank_bound

from countersample.errors import ParameterError
from countersample.objectives import OBJECTIVES, coefficients, get_objective

NAMES = [*sorted(OBJECTIVES), "precision@2"]
CONVEX = [name for name in NAMES if get_objective(name).convex]
SEEDS = st.integers(0, 2**32 - 1)


def random_scores(seed, scale=2.0):
    rng = np.random.default_rng(seed)
    scores = (scale * rng.normal(size=rng.integers(1, 40))).astype(np.float32)
    return scores, int(rng.integers(len(scores)))


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS)
def test_equals_the_twin(name, seed):
    scores, item = random_scores(seed)
    expected = objective_gradient(scores, item, name)
    np.testing.assert_allclose(coefficients(scores, item, objective=name), expected, 1e-5, 1e-6)


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS)
def test_finite_differences(name, seed):
    """∂f/∂s = (f(s + h) − f(s − h)) / 2h, away from margins of 1, where f has a kink."""
    scores, item = random_scores(seed)
    h = 1e-5
    scores = scores.astype(np.float64)
    near = np.abs(scores[item] - scores - 1) < 1e-3
    scores[near] -= 0.01
    slopes = [
        (objective_value(scores + e, item, name) - objective_value(scores - e, item, name))
        / (2 * h)
        for e in h * np.eye(len(scores))
    ]
    np.testing.assert_allclose(coefficients(scores, item, objective=name), slopes, 1e-4, 1e-5)


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS)
def test_the_bound_is_above_the_rank_and_the_value_is_its_weighting(name, seed):
    scores, item = random_scores(seed)
    bound = rank_bound(scores.astype(np.float64), item)
    assert bound >= 1 + np.sum(scores > scores[item])
    values = get_objective(name).values([bound])
    np.testing.assert_allclose(values, [objective_value(scores, item, name)])


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS)
def test_no_slope_is_above_the_steepest(name, seed):
    scores, item = random_scores(seed)
    others = np.delete(coefficients(scores, item, objective=name), item)
    assert others.max(initial=0) <= get_objective(name).steepest * (1 + 1e-6)


@pytest.mark.parametrize("name", CONVEX)
@given(seed=SEEDS)
def test_convex(name, seed):
    """f((a + b)/2) ≤ (f(a) + f(b))/2 for any a, b."""
    a, item = random_scores(seed)
    b = 3 * np.random.default_rng([seed, 1]).normal(size=len(a))
    middle = objective_value((a + b) / 2, item, name)
    ends = objective_value(a, item, name) + objective_value(b, item, name)
    assert middle <= ends / 2 + 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_a_margin_of_exactly_one_is_no_violation(name):
    assert not coefficients([1.0, 0.0], 0, objective=name).any()


@pytest.mark.parametrize("name", NAMES)
def test_large_scores_keep_the_item_itself_exact(name):
    """1 − s + s is not 1 in float32 for s = 2^25; the margin of an item to itself is 0."""
    s = 2.0**25
    np.testing.assert_array_equal(coefficients([s, 0.0, 0.0], 0, objective=name), 0)


def test_refusals():
    with pytest.raises(ParameterError, match="expected one of rank, log-rank, dcg"):
        get_objective("mrr")
    for item in (-1, 2):
        with pytest.raises(ParameterError, match=f"item is {item}, expected one of 0 to 1"):
            coefficients([0.0, 1.0], item)
    with pytest.raises(ParameterError, match="expected a vector"):
        coefficients([[0.0, 1.0]], 0)
