"""Trust bias: P(click) = β_k + α_k·r, estimated on logs whose α and β are known."""

import numpy as np
import pytest
from scipy.optimize import minimize
from twins_propensity import repeat_queries, served, streams

from countersample.clicks import TrustBias
from countersample.errors import DataError
from countersample.logs import PositionCounts
from countersample.propensity import TrustPropensities, estimate_trust, supported
from countersample.propensity.cells import cells_of
from countersample.propensity.trust import Affine, level_of_irrelevance


def users_of(depth, *, has_trust=True):
    """α and β of TrustBias, from its own probabilities of clicks; or of users without trust."""
    if not has_trust:
        return 1 / np.arange(1, depth + 1), np.zeros(depth)
    users = TrustBias(relevant=1)
    wrong = users.click_probabilities(np.zeros(depth))
    return users.click_probabilities(np.ones(depth)) - wrong, wrong


def normalize(alpha, beta):
    """Return α and β with α = 1 at the first position and β = 0 at the last."""
    return alpha / alpha[0], beta - alpha * beta[-1] / alpha[-1]


def moved(rng, alpha, beta, *, n_queries, sessions, n_rankers=4, relevance=None, noise=1.0):
    """Draw a log in which several rankers order items that are relevant or not."""
    depth = len(alpha)
    if relevance is None:
        relevance = (rng.random((n_queries, depth)) < 0.3).astype(float)
    options = {"n_queries": n_queries, "sessions": sessions, "n_rankers": n_rankers}
    return served(rng, alpha, beta=beta, relevance=relevance, noise=noise, **options)[0]


# -- the estimator


@pytest.mark.slow
@pytest.mark.parametrize(("has_trust", "sessions"), [(True, 60), (True, 12), (False, 60)])
def test_bias_and_coverage(has_trust, sessions):
    """Also where an item has three impressions a position: there is no relevance to be known."""
    n_logs, depth = 25, 4
    alpha, beta = normalize(*users_of(depth, has_trust=has_trust))
    errors, hits, p_values = [], [], []
    for rng in streams(n_logs):
        counts = moved(rng, *users_of(depth, has_trust=has_trust), n_queries=500, sessions=sessions)
        result = estimate_trust(counts, n_bootstrap=60, rng=rng)
        in_alpha = (result.alpha_low <= alpha) & (alpha <= result.alpha_high)
        in_beta = (result.beta_low <= beta) & (beta <= result.beta_high)
        hits.append(np.concatenate([in_alpha[1:], in_beta[:-1]]))
        errors.append(np.concatenate([(result.alpha - alpha)[1:], (result.beta - beta)[:-1]]))
        p_values.append(result.p_value)
    mean, spread = np.mean(errors, axis=0), np.std(errors, axis=0)
    assert (np.abs(mean) < 4.5 * spread / np.sqrt(n_logs) + 0.3 * spread).all()
    assert (spread < 0.2).all()
    # A log has about two of its six numbers of its own; 60 resamples give 92 %.
    assert 0.92 - 4 * np.sqrt(0.92 * 0.08 / (2 * n_logs)) < np.mean(hits) <= 1
    if has_trust:
        assert max(p_values) < 1e-6
    else:
        assert np.mean(np.array(p_values) < 0.05) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / n_logs)


def by_definition(counts, state, depth):
    """Σ hᵀ·Ω⁻¹·h, in loops over positions, queries and pairs."""
    alpha, beta = np.append(1, np.exp(state[: depth - 1])), np.append(state[depth - 1 :], 0)
    table = {}
    columns = (counts.query, counts.item, counts.position, counts.clicks, counts.impressions)
    for query, item, position, clicks, shown in zip(*(c.tolist() for c in columns), strict=True):
        table.setdefault((query, item), {})[position - 1] = (clicks, shown)
    total = 0.0
    for j in range(depth):
        for k in range(j + 1, depth):
            rows = []
            for (query, _), cells in table.items():
                if j in cells and k in cells and min(cells[j][1], cells[k][1]) > 1:
                    (c, n), (d, m) = cells[j], cells[k]
                    xx, yy = c * (c - 1) / (n * (n - 1)), d * (d - 1) / (m * (m - 1))
                    rows.append((query, n * m / (n + m), c / n, d / m, c * d / (n * m), xx, yy))
            query, weight, *columns = (np.array(column) for column in zip(*rows, strict=True))
            x, y, xy, xx, yy = (weight @ column / weight.sum() for column in columns)
            moments = np.array([x, y, xy - x * y, xx - x**2, yy - y**2])
            of_pair = np.stack([
                columns[0] - x, columns[1] - y, columns[2] - y * columns[0] - x * columns[1]
                + x * y - moments[2], columns[3] - 2 * x * columns[0] + x**2 - moments[3],
                columns[4] - 2 * y * columns[1] + y**2 - moments[4],
            ]) * weight / weight.sum()  # fmt: skip
            by_query = np.stack([np.bincount(query, row) for row in of_pair])
            a, b = alpha[j], alpha[k]
            design = np.array([[-b, a, 0, 0, 0], [0, 0, a, -b, 0], [0, 0, -b, 0, a]])
            h = design @ (moments - np.array([beta[j], beta[k], 0, 0, 0]))
            total += h @ np.linalg.solve(design @ by_query @ by_query.T @ design.T, h)
    return total


def test_the_estimate_is_the_minimum(rng):
    counts = moved(rng, *users_of(3), n_queries=60, sessions=40)
    assert counts.impressions.min() > 1
    (result,) = Affine(cells_of(counts)).curves(np.ones((1, 60)))
    state = np.concatenate([np.log(result[1:3]), result[3:5]])
    best = minimize(lambda s: by_definition(counts, s, 3), state + 0.02, method="BFGS")
    np.testing.assert_allclose(state, best.x, atol=2e-3)


def test_a_resample_is_the_log_of_its_queries(rng):
    """To first order: the weights of the equations are those of the whole log."""
    counts = moved(rng, *users_of(3), n_queries=200, sessions=60)
    times = rng.multinomial(200, np.full(200, 1 / 200))
    log = repeat_queries(counts, np.repeat(np.arange(200), times))
    (drawn,) = Affine(cells_of(counts)).curves(times[None].astype(float))
    (written,) = Affine(cells_of(log)).curves(np.ones((1, 200)))
    np.testing.assert_allclose(drawn, written, atol=0.04)


# -- what a log supports


def test_items_alike_tell_nothing_of_trust(rng):
    """Where all items are equally relevant, no line goes through one point."""
    counts = moved(rng, *users_of(3), n_queries=200, sessions=60, relevance=np.full((200, 3), 0.5))
    with pytest.raises(DataError, match="do not differ enough in their clicks to tell trust from"):
        estimate_trust(counts)
    result = supported(counts)
    assert not result["trust"].is_supported
    assert result["all-pairs"].is_supported


def test_the_depth_that_is_named_works(rng):
    """Items of position 4 keep their place."""
    counts = moved(rng, *users_of(3), n_queries=200, sessions=60)
    below = [np.arange(200), np.full(200, 9), np.full(200, 4), np.full(200, 5), np.full(200, 60)]
    columns = (counts.query, counts.item, counts.position, counts.clicks, counts.impressions)
    log = PositionCounts.from_columns(
        *(np.concatenate([first, more]) for first, more in zip(columns, below, strict=True))
    )
    with pytest.raises(DataError, match=r"1–3 and in position 4.* to depth=3 .--depth 3.$"):
        estimate_trust(log)
    assert supported(log)["trust"].depth == 3
    assert len(estimate_trust(log, depth=3, n_bootstrap=20).alpha) == 3


# -- use of the estimate


def trust(**change):
    given = {
        "alpha": [1, 0.8], "alpha_low": [1, 0.7], "alpha_high": [1, 0.9], "beta": [0.3, 0],
        "beta_low": [0.2, 0], "beta_high": [0.4, 0], "n_impressions": [9, 9], "p_value": 0.01,
    }  # fmt: skip
    return TrustPropensities(**(given | change))


def test_the_correction_is_unbiased_whatever_the_gauge(rng):
    """(clicks − β)/α has the mean a·r + b, with the same a > 0 and b at every position."""
    alpha, beta = users_of(4)
    relevance = rng.random(50)
    result = trust(**dict.fromkeys(("alpha", "alpha_low", "alpha_high"), normalize(alpha, beta)[0]),
                  **dict.fromkeys(("beta", "beta_low", "beta_high"), normalize(alpha, beta)[1]),
                  n_impressions=[9] * 4)  # fmt: skip
    a, b = alpha[0], beta[-1] * alpha[0] / alpha[-1]
    for position in range(1, 5):
        rate = beta[position - 1] + alpha[position - 1] * relevance
        slope, by_chance = result.examination_of(np.full(50, position), np.full(50, ""))
        np.testing.assert_allclose((rate - by_chance) / slope, a * relevance + b)


def test_a_beta_below_zero_moves_the_origin():
    """b = 0.1/0.5 makes the smaller 0; what is corrected by it is 0.2 larger at each position."""
    result = trust(alpha=[1, 0.5, 0.4], alpha_low=[1, 0, 0], alpha_high=[1, 1, 1],
                  beta=[0.3, -0.1, 0], beta_low=[0.2, -0.3, 0], beta_high=[0.4, 0.1, 0],
                  n_impressions=[9, 9, 9])  # fmt: skip
    slope, by_chance = result.examination_of([1, 2, 3], ["", "", ""])
    np.testing.assert_array_equal(slope, [1, 0.5, 0.4])
    np.testing.assert_allclose(by_chance, [0.3 + 0.2, 0, 0.08], atol=1e-15)
    assert by_chance.min() >= 0
    rates = np.array([0.3, -0.1, 0]) + 0.6 * slope  # of an item of relevance 0.6
    np.testing.assert_allclose((rates - by_chance) / slope, np.full(3, 0.6 - 0.2))


@pytest.mark.parametrize("sessions", [12, 60])
def test_the_origin_is_that_of_irrelevant_items(sessions):
    """Of items that are relevant or not: β of the last position as a share of its α."""
    result = []
    for rng in streams(20):
        counts = moved(rng, *users_of(4), n_queries=300, sessions=sessions)
        result.append(level_of_irrelevance(cells_of(counts), *normalize(*users_of(4))))
    alpha, beta = users_of(4)
    true = beta[3] / alpha[3] * alpha[0]
    assert abs(np.mean(result) - true) < 4.5 * np.std(result) / np.sqrt(20) + 0.05 * true
    assert np.std(result) < 0.2 * true


def test_the_origin_is_used():
    """β + origin·α; what is corrected by it is 0 for an item of that relevance."""
    slope, by_chance = trust(origin=0.1).examination_of([1, 2], ["", ""])
    np.testing.assert_allclose(by_chance, [0.3 + 0.1, 0.08])
    np.testing.assert_allclose(
        (np.array([0.3, 0]) + 0.1 * slope - by_chance) / slope, 0, atol=1e-15
    )


def test_alpha_above_one_is_divided():
    slope, by_chance = trust(alpha=[1, 2]).examination_of([1, 2, 3, 0], ["", "", "", ""])
    np.testing.assert_array_equal(slope, [0.5, 1, np.nan, np.nan])
    np.testing.assert_array_equal(by_chance, [0.3, 0, np.nan, np.nan])


def test_the_sentence():
    assert trust().sentence == "Users trust high ranks: β is above 0 at position 1."
    assert trust(p_value=0.3).sentence.startswith("No trust bias is detected")
    assert "none is surely above it" in trust(beta_low=[-0.1, 0]).sentence
