"""Every estimator of propensities, on logs whose truth is known: one suite over the registry."""

from functools import cache

import numpy as np
import pytest
from conftest import SEED
from scipy.special import expit
from twins_propensity import curve, served, shuffled, swapped

from countersample import PositionBias, synthetic
from countersample.clicks import simulate_impressions
from countersample.errors import DataError
from countersample.logs import PositionCounts
from countersample.propensity import (
    METHODS,
    Propensities,
    Support,
    estimate,
    estimate_gamma,
    pair_ids,
    supported,
)
from countersample.propensity.cells import cells_of
from countersample.propensity.estimation import resample
from countersample.propensity.support import needs_features

THETA = 1 / np.arange(1, 6)


def streams(n):
    return [np.random.default_rng(seed) for seed in np.random.SeedSequence(SEED).spawn(n)]


@cache
def everything():
    """A log that supports every method, with the features of its pairs."""
    rng = np.random.default_rng(SEED)
    features = rng.standard_normal((60, 5, 2))
    relevance = expit(features @ [1.0, -1.0] - 1)
    counts = shuffled(rng, THETA, n_queries=60, sessions=60, relevance=relevance)
    return counts, features[pair_ids(counts)]


def options_of(method, features):
    return {"features": features} if needs_features(method) else {}


def fitted(method, counts, features):
    return METHODS[method](cells_of(counts), **options_of(method, features))


# -- conformance


def test_the_log_supports_every_method():
    counts, features = everything()
    found = supported(counts, features=features)
    for method in METHODS:
        assert found[method] == Support(method, is_supported=True, reason=None, depth=5)


@pytest.mark.parametrize("method", METHODS)
class TestConformance:
    def test_the_estimate_is_close_to_the_truth(self, method):
        counts, features = everything()
        result = estimate(
            counts, method=method, n_bootstrap=20, rng=SEED, **options_of(method, features)
        )
        assert isinstance(result, Propensities)
        assert result.method == method
        np.testing.assert_array_equal(result.position, np.arange(1, 6))
        np.testing.assert_array_equal(result.n_impressions, counts.by_position[1])
        assert result.value[0] == result.low[0] == result.high[0] == 1
        assert ((result.low < result.value) & (result.value < result.high))[1:].all()
        # Five standard errors, by the intervals of 95 %.
        error = np.log(result.value / THETA)[1:]
        assert (np.abs(error) < 5 * np.log(result.high / result.low)[1:] / 3.9 + 0.05).all()

    def test_the_curve_is_that_of_its_twin(self, method):
        counts, features = everything()
        (found,) = fitted(method, counts, features).curves(np.ones((1, 60)))
        # The last three are maxima of a likelihood, found by another optimiser.
        rtol = {"all-pairs": 2e-3, "em": 2e-3, "regression-em": 2e-3}.get(method, 1e-9)
        np.testing.assert_allclose(found, curve(method, counts, features, 5), rtol=rtol)

    def test_same_seed_same_bytes(self, method):
        counts, features = everything()
        options = {"n_bootstrap": 20, "depth": 3, **options_of(method, features)}
        one = estimate(counts, method=method, rng=3, **options)
        same = estimate(counts, method=method, rng=np.random.default_rng(3), **options)
        other = estimate(counts, method=method, rng=4, **options)
        assert len(one.value) == 3
        np.testing.assert_array_equal(one.low, same.low)
        np.testing.assert_array_equal(one.high, same.high)
        np.testing.assert_array_equal(one.value, other.value)
        assert (one.low != other.low).any()

    def test_a_resample_is_the_log_of_its_queries(self, method, rng):
        """Weights of 0, 1, 2, … give the curve of a log with queries left out and repeated.

        The written log has other query ids, so that the order of queries does not matter either.
        """
        counts, features = everything()
        times = rng.multinomial(60, np.full(60, 1 / 60))
        queries = rng.permutation(np.repeat(np.arange(60), times))
        rows = [np.flatnonzero(counts.query == query) for query in queries]
        copy, row = np.repeat(np.arange(60), list(map(len, rows))), np.concatenate(rows)
        log = PositionCounts.from_columns(
            copy, counts.item[row], counts.position[row], counts.clicks[row],
            counts.impressions[row],
        )  # fmt: skip
        columns = features.reshape(60, 5, 2)[queries]
        (drawn,) = fitted(method, counts, features).curves(times[None].astype(float))
        (written,) = fitted(method, log, columns[pair_ids(log)]).curves(np.ones((1, 60)))
        # The last two take one step from the whole log's maximum if that step is short.
        rtol = {"em": 0.03, "regression-em": 0.05}.get(method, 1e-9)
        np.testing.assert_allclose(drawn, written, rtol=rtol)

    def test_the_reference_is_one(self, method):
        counts, features = everything()
        options = {"reference": 3, "n_bootstrap": 20, **options_of(method, features)}
        result = estimate(counts, method=method, rng=0, **options)
        assert result.value[2] == result.low[2] == result.high[2] == 1
        assert result.reference == 3
        assert (result.value[:2] > 1).all()
        assert (result.value[3:] < 1).all()

    def test_logs_without_two_clicked_positions(self, method):
        for log, message in (
            (PositionCounts.from_columns([0, 1], [0, 0], [1, 1], [1, 1]), "at position 1 only"),
            (PositionCounts.from_columns([0, 1], [0, 0], [1, 2], [0, 0]), "has no click"),
        ):
            with pytest.raises(DataError, match=message):
                estimate(log, method=method)
            assert message in supported(log)[method].reason


# -- statistics: bias, and coverage of the intervals


def logs(kind, rng):
    """A log of a kind, 36,000 impressions, with the features of its pairs."""
    if kind == "served":
        return served(rng, THETA, n_queries=120, sessions=60)[0], None
    if kind == "one ranker":
        features = rng.standard_normal((120, 5, 2))
        relevance = expit(features @ [1.0, -1.0] - 1)
        counts, _ = served(rng, THETA, n_queries=120, sessions=60, n_rankers=1, relevance=relevance)
        return counts, features[pair_ids(counts)]
    if kind == "lengths":
        lengths = rng.integers(2, 6, 120)
        relevance = rng.beta(1, 3, (120, 5)) * (lengths / 5)[:, None]
        return shuffled(
            rng, THETA, n_queries=120, sessions=60, relevance=relevance, lengths=lengths
        ), None
    return swapped(rng, THETA, n_queries=120, sessions=60, chain=kind == "neighbours"), None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "kind", "n_logs"),
    [
        ("randomized", "lengths", 40),
        ("swaps", "swaps", 40),
        ("swaps", "neighbours", 40),
        ("pivot", "served", 60),
        ("adjacent-chain", "served", 60),
        ("all-pairs", "served", 80),
        ("all-pairs", "swaps", 40),
        ("em", "served", 20),
        ("regression-em", "one ranker", 20),
    ],
)
def test_bias_and_coverage(method, kind, n_logs):
    errors, hits = [], []
    for rng in streams(n_logs):
        counts, features = logs(kind, rng)
        options = options_of(method, features)
        found = estimate(counts, method=method, n_bootstrap=60, rng=rng, **options)
        errors.append(np.log(found.value / THETA)[1:])
        hits.append(((found.low <= THETA) & (found.high >= THETA))[1:])
    mean, spread = np.mean(errors, axis=0), np.std(errors, axis=0)
    # The mean over logs is that of log p, whose own curvature is −spread²/2.
    assert (np.abs(mean) < 4 * spread / np.sqrt(n_logs) + spread**2).all()
    assert (spread < 0.3).all()  # and the logs do say something
    # Positions share their clicks: a log has about two of its own, of five. 60 resamples of 120
    # queries give intervals of about 92 %.
    slack = 4 * np.sqrt(0.92 * 0.08 / (2 * n_logs))
    assert 0.92 - slack < np.mean(hits) < 0.995


def test_all_pairs_within_five_percent_at_a_million_impressions():
    theta = 1 / np.arange(1, 11)
    errors = []
    for rng in streams(20):
        relevance = rng.beta(2, 3, (2000, 10))
        counts, _ = served(
            rng, theta, n_queries=2000, sessions=50, n_rankers=5, noise=1, relevance=relevance
        )
        assert counts.n_impressions == 10**6
        found = estimate(counts, method="all-pairs", n_bootstrap=20, rng=rng)
        errors.append(found.value / theta - 1)
    assert np.abs(errors).mean(axis=1).max() < 0.05  # every log, over its positions
    assert np.sqrt(np.square(errors).mean(axis=0)).max() < 0.05  # every position, over logs
    assert np.abs(np.mean(errors, axis=0)).max() < 0.02


def test_em_says_when_it_is_badly_off(rng):
    few, _ = served(rng, THETA, n_queries=400, sessions=4)
    many, _ = served(rng, THETA, n_queries=60, sessions=200)
    assert any("biases em" in note for note in fitted("em", few, None).notes)
    assert not fitted("em", many, None).notes


def test_gamma_is_found_with_coverage():
    n_logs, hits, found = 60, [], []
    for rng in streams(n_logs):
        theta = PositionBias(0.7).propensity(np.arange(1, 6))
        counts, _ = served(rng, theta, n_queries=120, sessions=60)
        law = estimate_gamma(counts, method="all-pairs", n_bootstrap=100, rng=rng)
        hits.append(law.low <= 0.7 <= law.high)
        found.append(law.gamma)
    assert abs(np.mean(found) - 0.7) < 4 * np.std(found) / np.sqrt(n_logs) + 0.005
    assert np.mean(hits) > 0.93 - 4 * np.sqrt(0.93 * 0.07 / n_logs)
    assert law.bias == PositionBias(law.gamma)
    assert law.to_dict()["gamma"] == law.gamma


def test_gamma_is_weighted_least_squares(rng):
    """By numpy's, with the points divided by their standard deviations over the same resamples."""
    counts, _ = served(rng, THETA, n_queries=60, sessions=60)
    options = {"method": "pivot", "n_bootstrap": 50, "confidence": 0.9, "reference": 2}
    law = estimate_gamma(counts, offset=1, rng=1, **options)
    drawn, resamples = resample(counts, rng=1, **options)
    others = [0, 2, 3, 4]
    scale = np.log(resamples).std(axis=0)[others]
    x = np.log((np.array([1, 3, 4, 5]) + 1) / (2 + 1)) / scale
    slopes = [
        np.linalg.lstsq(x[:, None], -np.log(curve)[others] / scale)[0][0]
        for curve in [drawn.value, *resamples]
    ]
    assert law.gamma == pytest.approx(slopes[0])
    np.testing.assert_allclose([law.low, law.high], np.quantile(slopes[1:], [0.05, 0.95]))


def test_curves_that_are_no_power_law(rng):
    counts, _ = served(rng, np.array([1, 0.9, 0.9, 0.9, 0.1]), n_queries=300, sessions=60)
    assert not estimate_gamma(counts, method="all-pairs", rng=rng).is_within
    counts, _ = served(rng, THETA[::-1].copy(), n_queries=300, sessions=60)
    law = estimate_gamma(counts, method="all-pairs", rng=rng)
    assert law.high < 0
    with pytest.raises(DataError, match="users would examine more the lower"):
        _ = law.bias


# -- through the package's own users


def test_simulated_users_of_several_rankers():
    data = synthetic("tiny", rng=SEED)
    bias = PositionBias(gamma=0.8)
    noise = np.random.default_rng(SEED)
    tables = []
    for seed in range(3):
        scores = data.labels + 2 * noise.standard_normal(data.n_items)
        tables.append(simulate_impressions(data, scores, 30_000, bias=bias, top=5, relevant=2,
                                           noise=0.2, rng=[SEED, seed]))  # fmt: skip
    columns = [
        np.concatenate([table[name].to_numpy() for table in tables])
        for name in ("query_id", "item_id", "position", "click")
    ]
    counts = PositionCounts.from_columns(*columns)
    found = estimate(counts, rng=SEED)
    assert found.method == "all-pairs"
    np.testing.assert_allclose(found.value, bias.propensity(found.position), rtol=0.1)
    # An estimate is a law to simulate with.
    again = simulate_impressions(data, data.labels, 100, bias=found, top=5, rng=SEED)
    same = simulate_impressions(data, data.labels, 100, bias=found.bias, top=5, rng=SEED)
    assert again.equals(same)


def test_auto_takes_the_best_that_is_supported(rng):
    counts, features = everything()
    assert estimate(counts, n_bootstrap=20).method == "randomized"
    several, _ = served(rng, THETA, n_queries=60, sessions=60)
    assert estimate(several, n_bootstrap=20, features=None).method == "all-pairs"
    alone, features = logs("one ranker", rng)
    assert estimate(alone, n_bootstrap=20, features=features).method == "regression-em"
    with pytest.raises(DataError, match="no query-item pair was shown both in position 1 and"):
        estimate(alone)
