"""The estimators beside slow twins, closed forms, and another optimiser."""

import numpy as np
import pytest
from conftest import SEED
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csgraph
from scipy.special import expit
from twins_propensity import all_pairs_by_scipy, served

from countersample.logs import PositionCounts
from countersample.propensity import METHODS, estimate, estimators
from countersample.propensity.cells import cells_of, find_connected
from countersample.propensity.estimators import all_pairs_curves

THETA = 1 / np.arange(1, 5)


def test_pivot_is_the_ratio_of_mantel_and_haenszel():
    """Two strata by hand, at positions 1 and 2: Σ c₂·n₁/(n₁ + n₂) over Σ c₁·n₂/(n₁ + n₂)."""
    log = PositionCounts.from_columns(
        [0, 0, 1, 1], [0] * 4, [1, 2, 1, 2], click=[5, 2, 9, 30], impressions=[10, 30, 20, 80]
    )
    expected = (2 * 10 / 40 + 30 * 20 / 100) / (5 * 30 / 40 + 9 * 80 / 100)
    assert estimate(log, method="pivot", rng=0).value[1] == pytest.approx(expected, rel=1e-12)
    equal = (2 / 30 + 30 / 80) / (5 / 10 + 9 / 20)
    result = estimate(log, method="pivot", weighting="equal", rng=0)
    assert result.value[1] == pytest.approx(equal, rel=1e-12)


def test_swaps_leave_out_what_moved_alone():
    """Items 0 and 1 change places; item 2 moved to position 1 and nothing went where it was."""
    rows = [(q, item, k, clicks, 10) for q in range(3) for item, k, clicks in
            [(0, 1, 8), (0, 2, 4), (1, 1, 6), (1, 2, 3), (2, 1, 9), (2, 3, 9), (3, 2, 5), (3, 3, 1),
             (4, 2, 5), (4, 3, 1)]]  # fmt: skip
    log = PositionCounts.from_columns(*zip(*rows, strict=True))
    swaps = estimate(log, method="swaps", rng=0)
    np.testing.assert_allclose(swaps.value, [1, 7 / 14, 7 / 14 * 2 / 10])
    assert "from swaps of neighbours" in swaps.notes
    assert estimate(log, method="pivot", rng=0).value[2] == 1  # 9 of 10 at both


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(2, 6))
def test_all_pairs_is_the_maximum_that_another_optimiser_finds(seed, depth):
    rng = np.random.default_rng([SEED, seed])
    weight = np.triu(rng.gamma(1, 50, (depth, depth)) * (rng.random((depth, depth)) < 0.7), 1)
    weight[np.arange(depth - 1), np.arange(1, depth)] += 1  # a chain at least
    weight += weight.T
    rate = rng.uniform(0.02, 0.5, (depth, 1)) * rng.uniform(0.2, 1, (depth, depth))
    clicks = weight * rate
    (result,) = all_pairs_curves(clicks[None], weight[None])
    expected = all_pairs_by_scipy(clicks, weight)
    np.testing.assert_allclose(result, expected, rtol=2e-3)


def test_all_pairs_is_exact_where_the_model_is():
    """Rates that are p_j · r_jk exactly give p back, whatever r."""
    rng = np.random.default_rng(SEED)
    theta = np.array([1, 0.3, 0.6, 0.05, 1.7])
    relevance = rng.uniform(0.05, 0.5, (5, 5))
    relevance = np.minimum(relevance, relevance.T)
    weight = rng.gamma(1, 100, (5, 5)) * (1 - np.eye(5))
    weight += weight.T
    (result,) = all_pairs_curves((weight * theta[:, None] * relevance)[None], weight[None])
    np.testing.assert_allclose(result, theta, rtol=1e-7)


@settings(max_examples=50)
@given(st.integers(0, 2**32))
def test_connected_is_strongly_connected(seed):
    edges = (np.random.default_rng([SEED, seed]).random((5, 6, 6)) < 0.25).astype(float)
    for row, graph in zip(find_connected(edges), edges, strict=True):
        _, group = csgraph.connected_components(graph, connection="strong")
        np.testing.assert_array_equal(row, group == group[0])


def test_a_position_without_a_click_is_zero_and_one_without_pairs_unknown():
    weight = np.array([[0, 9, 9, 0], [9, 0, 9, 0], [9, 9, 0, 0], [0, 0, 0, 0]], float)
    clicks = np.array([[0, 4, 4, 0], [2, 0, 2, 0], [0, 0, 0, 0], [0, 0, 0, 0]], float)
    (result,) = all_pairs_curves(clicks[None], weight[None])
    np.testing.assert_allclose(result, [1, 0.5, 0, np.nan])


def test_one_step_of_newton_is_where_em_would_end(rng, monkeypatch):
    log, _ = served(rng, THETA, n_queries=300, sessions=60)
    method = METHODS["em"](cells_of(log))
    weights = rng.multinomial(300, np.full(300, 1 / 300), size=20).astype(float)
    quick = method.curves(weights)
    monkeypatch.setattr(estimators, "_MAX_NEWTON_STEP", -1)
    exact = method.curves(weights)
    assert np.log(exact).std(axis=0)[1:].min() > 0.01  # they do differ from each other
    assert np.abs(np.log(quick / exact)).max() < 0.02
    assert np.abs(np.log(quick / exact)).max() > 1e-7  # and the step was taken


def test_a_long_step_is_not_taken(rng, monkeypatch):
    log, _ = served(rng, THETA, n_queries=15, sessions=30)
    method = METHODS["em"](cells_of(log))
    weights = rng.multinomial(15, np.full(15, 1 / 15), size=40).astype(float)
    is_far = np.abs(method._steps(weights)).max(axis=1) > 0.2
    assert is_far.any()
    result = method.curves(weights)
    monkeypatch.setattr(estimators, "_MAX_NEWTON_STEP", -1)
    np.testing.assert_allclose(result[is_far], method.curves(weights)[is_far], rtol=1e-9)
    monkeypatch.setattr(estimators, "_MAX_NEWTON_STEP", np.inf)
    assert np.nanmax(np.abs(np.log(result / method.curves(weights)))[is_far]) > 0.01


def test_the_step_of_regression_em_is_where_climbing_ends(rng, monkeypatch):
    features = rng.standard_normal((300, 4, 2))
    relevance = expit(features @ [1.0, -0.5] - 1)
    log, _ = served(rng, 0.7 * THETA, n_queries=300, sessions=60, relevance=relevance)
    method = METHODS["regression-em"](cells_of(log), features=features.reshape(-1, 2))
    weights = rng.multinomial(300, np.full(300, 1 / 300), size=40).astype(float)
    quick = np.log(method.curves(weights))[:, 1:]
    monkeypatch.setattr(estimators, "_MAX_NEWTON_STEP", -1)
    exact = np.log(method.curves(weights))[:, 1:]
    assert (exact.std(axis=0) > 0.01).all()  # they do differ from each other
    assert (np.abs(quick - exact) < 0.5 * exact.std(axis=0) + 0.01).all()
    np.testing.assert_allclose(quick.std(axis=0), exact.std(axis=0), rtol=0.1)
    assert np.abs(quick - exact).max() > 1e-7  # and the step was taken
