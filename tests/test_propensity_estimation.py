"""Every estimator on logs whose truth is known, and which methods a log supports."""

from functools import cache

import numpy as np
import pytest
from conftest import SEED
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from twins_propensity import curve, repeat_queries, served, shuffled, streams, swapped

from countersample.errors import DataError, ParameterError
from countersample.logs import PositionCounts
from countersample.propensity import (
    METHODS,
    Propensities,
    Support,
    cross_check,
    estimate,
    estimate_gamma,
    pair_ids,
    supported,
)
from countersample.propensity.cells import cells_of
from countersample.propensity.estimation import needs_features, resample, summarize_support

THETA = 1 / np.arange(1, 6)


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
    result = supported(counts, features=features)
    for method in METHODS:
        assert result[method] == Support(method, is_supported=True, reason=None, depth=5)


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
        (result,) = fitted(method, counts, features).curves(np.ones((1, 60)))
        # The last three are maxima of a likelihood, found by another optimiser.
        rtol = {"all-pairs": 2e-3, "em": 2e-3, "regression-em": 2e-3}.get(method, 1e-9)
        np.testing.assert_allclose(result, curve(method, counts, features, 5), rtol=rtol)

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
        log = repeat_queries(counts, queries)
        columns = features.reshape(60, 5, 2)[queries]
        (drawn,) = fitted(method, counts, features).curves(times[None].astype(float))
        (written,) = fitted(method, log, columns[pair_ids(log)]).curves(np.ones((1, 60)))
        # The last two take one step from the whole log's maximum if that step is short.
        rtol = {"em": 0.03, "regression-em": 0.05}.get(method, 1e-9)
        np.testing.assert_allclose(drawn, written, rtol=rtol)

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
        result = estimate(counts, method=method, n_bootstrap=60, rng=rng, **options)
        errors.append(np.log(result.value / THETA)[1:])
        hits.append(((result.low <= THETA) & (result.high >= THETA))[1:])
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
        result = estimate(counts, method="all-pairs", n_bootstrap=20, rng=rng)
        errors.append(result.value / theta - 1)
    assert np.abs(errors).mean(axis=1).max() < 0.05  # every log, over its positions
    assert np.sqrt(np.square(errors).mean(axis=0)).max() < 0.05  # every position, over logs
    assert np.abs(np.mean(errors, axis=0)).max() < 0.02


def test_em_says_when_it_is_badly_off(rng):
    few, _ = served(rng, THETA, n_queries=400, sessions=4)
    many, _ = served(rng, THETA, n_queries=60, sessions=200)
    assert any("biases em" in note for note in fitted("em", few, None).notes)
    assert not fitted("em", many, None).notes


def test_gamma_is_weighted_least_squares(rng):
    """By numpy's, with the points divided by their standard deviations over the same resamples."""
    counts, _ = served(rng, THETA, n_queries=60, sessions=60)
    options = {"method": "pivot", "n_bootstrap": 50, "confidence": 0.9}
    law = estimate_gamma(counts, offset=1, rng=1, **options)
    drawn, resamples = resample(counts, rng=1, **options)
    scale = np.log(resamples).std(axis=0)[1:]
    x = np.log((np.array([2, 3, 4, 5]) + 1) / (1 + 1)) / scale
    slopes = [
        np.linalg.lstsq(x[:, None], -np.log(curve)[1:] / scale)[0][0]
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


def test_auto_takes_the_best_that_is_supported(rng):
    counts, features = everything()
    assert estimate(counts, n_bootstrap=20).method == "randomized"
    several, _ = served(rng, THETA, n_queries=60, sessions=60)
    assert estimate(several, n_bootstrap=20, features=None).method == "all-pairs"
    alone, features = logs("one ranker", rng)
    assert estimate(alone, n_bootstrap=20, features=features).method == "regression-em"
    with pytest.raises(DataError, match="no query-item pair was shown both in position 1 and"):
        estimate(alone)


# -- which methods a log supports


def small_log(rng):
    """A log of a few queries, whose items move, stay, are clicked or not as it happens."""
    n_queries, depth = rng.integers(1, 7), rng.integers(2, 6)
    contexts = np.array(["", "phone"][: rng.integers(1, 3)])
    n = int(rng.integers(3, 60))
    shown = rng.integers(1, 4, n)
    # Positions are likelier at the top, and one item in three stays at its own.
    item = rng.integers(0, depth, n)
    position = np.minimum(rng.geometric(0.4, n), depth)
    position = np.where(item % 3 == 0, item + 1, position)
    return PositionCounts.from_columns(
        rng.integers(0, n_queries, n), item, position,
        rng.binomial(shown, rng.choice([0.1, 0.5, 1.0])), shown, context=rng.choice(contexts, n),
    )  # fmt: skip


def estimated(counts, method, features, **options):
    """Return the number of positions that `estimate` returns, 0 if it rejects the log."""
    options |= {"n_bootstrap": 20, "rng": 0, **options_of(method, features)}
    try:
        return len(estimate(counts, method=method, **options).value)
    except (DataError, ParameterError):
        return 0


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_supported_is_what_estimate_does(seed):
    rng = np.random.default_rng([SEED, seed])
    counts = small_log(rng)
    features = rng.standard_normal((len(pair_ids(counts)[0]), 2))
    last = max(2, int(counts.position.max()))
    result = supported(counts, features=features)
    assert list(result) == [*METHODS, "trust"]
    assert not result["trust"].is_supported  # which asks for more than so small a log has
    for method in METHODS:
        support = result[method]
        assert support.is_supported == bool(estimated(counts, method, features)), support
        assert support.is_supported == (support.reason is None)
        deepest = max(estimated(counts, method, features, depth=d) for d in range(2, last + 1))
        assert (support.depth or 0) == deepest, support
        if not support.is_supported and deepest:
            assert f"estimate down to depth={support.depth}" in support.reason


def test_a_shuffled_top_is_found():
    """The first three positions are shuffled, what is below keeps its place."""
    rng = np.random.default_rng(SEED)
    top = shuffled(rng, THETA[:3], n_queries=60, sessions=60)
    below = [np.repeat(np.arange(60), 2), np.tile([3, 4], 60), np.tile([4, 5], 60)]
    columns = [
        np.concatenate([first, more])
        for first, more in zip((top.query, top.item, top.position), below, strict=True)
    ]
    clicks = np.concatenate([top.clicks, np.full(120, 5)])
    shown = np.concatenate([top.impressions, np.full(120, 60)])
    result = supported(PositionCounts.from_columns(*columns, clicks, shown))
    assert (result["randomized"].is_supported, result["randomized"].depth) == (False, 3)


def test_an_advice_that_names_a_method_is_right():
    """Two rankers: not shuffled, but positions are connected."""
    counts, _ = served(np.random.default_rng(SEED), THETA, n_queries=60, sessions=60)
    result = supported(counts)
    assert result["randomized"].reason.endswith(
        ", or by method='all-pairs' (--propensity-method all-pairs)"
    )
    assert result["all-pairs"] == Support("all-pairs", is_supported=True, reason=None, depth=5)
    with pytest.raises(DataError, match="shuffled share of the traffic, or by method='all-pairs'"):
        estimate(counts, method="randomized")


def test_a_depth_that_would_fail_again_is_not_named():
    """Position 4 is without clicks, so depth 3; but there nothing joins position 3, so depth 2."""
    rows = [(q, 0, k, 3, 10) for q in range(3) for k in (1, 2)]
    rows += [(q, 1, 3, 3, 10) for q in range(3)]
    rows += [(q, 1, 4, 0, 10) for q in range(3)]
    counts = PositionCounts.from_columns(*map(list, zip(*rows, strict=True)))
    for method in ("pivot", "adjacent-chain", "all-pairs", "em"):
        with pytest.raises(DataError, match=r"position 4 has no click.* down to depth=2 "):
            estimate(counts, method=method)
        assert len(estimate(counts, method=method, depth=2, rng=0).value) == 2
    assert supported(counts, features=np.ones((6, 1)))["regression-em"].depth == 3


def test_uniform_shuffles_are_supported():
    for seed in np.random.SeedSequence(SEED).spawn(30):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, 6, 40)
        lengths[0] = 5
        log = shuffled(rng, THETA, n_queries=40, sessions=30, lengths=lengths)
        assert supported(log)["randomized"].is_supported


def test_the_summary_names_the_commands_that_take_features():
    text = summarize_support(supported(PositionCounts.from_columns([0], [0], [1], [1])).values())
    assert "no   regression-em\n         fit and log propensity give it, with --features." in text


def test_what_is_said_to_be_shuffled_is_supported_as_it_is_estimated():
    """Each item was shown once for its query."""
    rows = [(q, k, k, int((q + k) % 3 == 0)) for q in range(60) for k in (1, 2, 3)]
    counts = PositionCounts.from_columns(*map(list, zip(*rows, strict=True)))
    assert not supported(counts)["randomized"].is_supported
    assert supported(counts, declared=True)["randomized"].is_supported
    for method in ("auto", "randomized"):
        result = estimate(counts, method=method, declared=True, rng=0)
        assert (result.method, len(result.value)) == ("randomized", 3)
        with pytest.raises(DataError):
            estimate(counts, method=method)
    moved, _ = served(np.random.default_rng(SEED), THETA, n_queries=60, sessions=60)
    assert not supported(moved, declared=True)["randomized"].is_supported
    assert estimate(moved, declared=True, rng=0).method == "all-pairs"


def test_resamples_that_lose_a_position_are_foreseen():
    """Each of two positions hangs on one query of its own: 1 − (1 − 1/e)² or so lose one."""
    rows = [(q, 0, k, 4, 10) for q in range(30) for k in (1, 2)]
    rows += [(0, 1, k, 4, 10) for k in (2, 3)] + [(1, 1, k, 4, 10) for k in (3, 4)]
    counts = PositionCounts.from_columns(*map(list, zip(*rows, strict=True)))
    result = supported(counts)["all-pairs"]
    assert (result.is_supported, result.depth) == (False, 3)
    assert "of resampled logs leave a position without connection" in result.reason
    assert estimate(counts, method="all-pairs", depth=3, rng=SEED).value.shape == (3,)
    with pytest.raises(DataError, match=r"too many for intervals.* down to depth=3 .--depth 3.$"):
        estimate(counts, method="all-pairs", rng=SEED)


# -- errors


def cells(*items, queries=3, clicks=3, impressions=10):
    """Count a log in which each query shows its i-th item at these positions, clicked or not.

    ``"12"`` is an item that was shown and clicked at positions 1 and 2; ``"1-2"`` is one that was
    not clicked at 2.
    """
    rows = [
        (query, item, int(text[k]), clicks * (text[k - 1 : k] != "-"), impressions)
        for query in range(queries)
        for item, text in enumerate(items)
        for k in range(len(text))
        if text[k] != "-"
    ]
    return PositionCounts.from_columns(*map(list, zip(*rows, strict=True)))


@pytest.mark.parametrize(
    ("methods", "log", "message"),
    [
        ("all-pairs em", cells("12", "34"),
         "no query-item pair was shown both in positions 1–2 and in positions 3–4.* to depth=2"),
        ("adjacent-chain", cells("12", "34"), "both in positions 1–2 and in positions 3–4"),
        ("swaps", cells("12", "34"), "among items that changed places, no query-item pair"),
        ("all-pairs", cells("12", "2-3", "34"), "1–2 and in positions 3–4 was clicked in each"),
        ("all-pairs", cells("12-3"), "position 3 has no click, so its propensity would be 0.*=2"),
        ("all-pairs em", cells("12-3", "3"), "shown elsewhere was clicked at position 3, so its"),
        ("pivot", cells("12-3", "3"), "positions 3 and 1 was clicked at position 3, so its"),
        ("pivot", cells("12", "-123", "23"), "positions 1 and 3 was clicked at position 1, so how"),
        ("auto", cells("13"), "at position 3 but none at position 2.* without gaps$"),
        ("auto", cells("124"), "at position 4 but none at position 3.*depth=2"),
        ("auto", cells("12", queries=1), "has one query, expected at least two"),
        ("randomized", cells("1", "2", queries=30, impressions=1, clicks=1), "was shown twice"),
        ("randomized", cells("1", "2", queries=30), "results were not shuffled uniformly"),
    ],
)  # fmt: skip
def test_logs_that_do_not_support_a_method(methods, log, message):
    for method in methods.split():
        with pytest.raises(DataError, match=message):
            estimate(log, method=method)


def test_a_log_that_supports_nothing():
    with pytest.raises(DataError, match="supports no estimator of propensities: no query-item"):
        cross_check(cells("1", "2", queries=30))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "guess"}, "method is 'guess', expected one of auto, randomized, swaps"),
        ({"n_bootstrap": 19}, "n_bootstrap is 19"),
        ({"depth": 1}, "depth is 1"),
        ({"method": "pivot", "weighting": "fair"}, "weighting is 'fair'"),
        ({"method": "pivot", "rounds": 3}, "method 'pivot' has no option 'rounds', expected weigh"),
        ({"weights": 3}, "method 'auto' has no option 'weights', expected declared, features, w"),
        ({"method": "regression-em"}, "regression-em needs features="),
        ({"method": "regression-em", "features": np.ones((3, 2))}, r"shape \(3, 2\), expected a"),
        ({"method": "regression-em", "features": np.full((300, 1), np.inf)}, "inf in row 0"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises((ParameterError, DataError), match=message):
        estimate(everything()[0], **options)


def test_resamples_that_lose_a_position_are_noted():
    """One query in three has the only link to position 3, so 8 in 27 resamples lack it."""
    rows = [(q, 0, k, 4, 10) for q in range(3) for k in (1, 2)]
    rows += [(0, 1, 2, 4, 10), (0, 1, 3, 4, 10), (1, 2, 3, 1, 10)]
    log = PositionCounts.from_columns(*map(list, zip(*rows, strict=True)))
    result = estimate(log, method="all-pairs", n_bootstrap=500, rng=SEED)
    note = next(note for note in result.notes if "without connection" in note)
    assert abs(int(note.split()[0]) / 500 - 8 / 27) < 4 * np.sqrt(0.3 * 0.7 / 500)
    assert any("3 queries only" in note for note in result.notes)
