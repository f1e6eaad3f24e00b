"""Logs and arguments that do not say what an estimator of propensities needs: each a sentence."""

import numpy as np
import pytest
from conftest import SEED
from twins_propensity import served, shuffled

from countersample.clicks.impressions import PositionCounts
from countersample.errors import DataError, ParameterError
from countersample.propensity import cross_check, estimate, estimate_gamma, supported

THETA = 1 / np.arange(1, 6)


@pytest.fixture(scope="module")
def log():
    """60 queries of 5 items each, shuffled."""
    return shuffled(np.random.default_rng(SEED), THETA, n_queries=60, sessions=60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "guess"}, "method is 'guess', expected one of auto, randomized, swaps"),
        ({"n_bootstrap": 19}, "n_bootstrap is 19, expected a whole number of at least 20"),
        ({"confidence": 1}, "confidence is 1, expected a number above 0 and below 1"),
        ({"reference": 6}, "reference is 6, expected a whole number from 1 to 5"),
        ({"reference": 0}, "reference is 0, expected a whole number from 1"),
        ({"depth": 1}, "depth is 1, expected None or a whole number of at least 2"),
        ({"method": "pivot", "weighting": "fair"}, "weighting is 'fair', expected one of harmonic"),
        ({"method": "pivot", "max_rounds": 3}, "method 'pivot' has no such option: .*max_rounds"),
        ({"method": "regression-em"}, "regression-em needs features="),
        (
            {"method": "regression-em", "features": np.ones((300, 1)), "model": "magic"},
            "model is 'magic', expected one of logistic, boosting",
        ),
    ],
)
def test_bad_arguments(log, options, message):
    with pytest.raises(ParameterError, match=message):
        estimate(log, **options)


def test_gamma_needs_a_sound_offset(log):
    with pytest.raises(ParameterError, match="offset is -1"):
        estimate_gamma(log, offset=-1)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.ones((3, 2)), r"features have shape \(3, 2\), expected a row for each of 300 "),
        (np.ones(300), r"features have shape \(300,\)"),
        (
            np.where(np.arange(300)[:, None] == 7, np.inf, 1.0),
            "features has inf in row 7, column 0",
        ),
    ],
)
def test_bad_features(log, features, message):
    with pytest.raises(DataError, match=message):
        estimate(log, method="regression-em", features=features)


def cells(*rows):
    """Count rows of (query, item, position, clicks, impressions)."""
    query, item, position, clicks, impressions = zip(*rows, strict=True)
    return PositionCounts.from_columns(query, item, position, clicks, impressions)


def test_a_gap_is_named():
    """Positions 1–2 and 3–4 each share pairs; nothing joins them."""
    halves = cells(
        *[(q, 0, k, 3, 10) for q in range(3) for k in (1, 2)],
        *[(q, 1, k, 3, 10) for q in range(3) for k in (3, 4)],
    )
    gap = "no query-item pair was shown both in positions 1–2 and in positions 3–4, so how"
    for method in ("all-pairs", "em"):
        with pytest.raises(DataError, match=gap + ".* estimate down to depth=2"):
            estimate(halves, method=method)
    with pytest.raises(DataError, match="both in positions 1–2 and in positions 3–4"):
        estimate(halves, method="adjacent-chain")
    with pytest.raises(DataError, match="among items that changed places, no query-item pair"):
        estimate(halves, method="swaps")
    assert len(estimate(halves, method="all-pairs", depth=2).value) == 2


def test_a_gap_of_clicks_is_named():
    log = cells(
        *[(q, 0, k, 3, 10) for q in range(3) for k in (1, 2)],
        *[(q, 1, k, 3 * (k == 2), 10) for q in range(3) for k in (2, 3)],
        *[(q, 2, k, 3, 10) for q in range(3) for k in (3, 4)],
    )
    with pytest.raises(
        DataError, match="both in positions 1–2 and in positions 3–4 was clicked in each"
    ):
        estimate(log, method="all-pairs")


def test_a_propensity_of_zero_is_refused():
    never = cells(*[(q, 0, k, 3 * (k < 3), 10) for q in range(3) for k in (1, 2, 3)])
    with pytest.raises(
        DataError, match=r"position 3 has no click, so its propensity would be 0.*=2"
    ):
        estimate(never, method="all-pairs")
    alone = cells(
        *[(q, 0, k, 3 * (k < 3), 10) for q in range(3) for k in (1, 2, 3)],
        *[(q, 1, 3, 3, 10) for q in range(3)],
    )
    for method in ("all-pairs", "em"):
        with pytest.raises(DataError, match="shown elsewhere was clicked at position 3, so its"):
            estimate(alone, method=method)
    with pytest.raises(DataError, match="positions 3 and 1 was clicked at position 3, so its"):
        estimate(alone, method="pivot")


def test_a_pivot_without_clicks_is_refused():
    log = cells(
        *[(q, 0, k, 3, 10) for q in range(3) for k in (1, 2)],
        *[(q, 1, k, 3 * (k > 1), 10) for q in range(3) for k in (1, 2, 3)],
        *[(q, 2, k, 3, 10) for q in range(3) for k in (2, 3)],
    )
    with pytest.raises(DataError, match="positions 1 and 3 was clicked at position 1, so how"):
        estimate(log, method="pivot")
    assert estimate(log, method="all-pairs", rng=0).value.shape == (3,)


def test_missing_positions_and_single_queries_are_refused():
    with pytest.raises(DataError, match=r"at position 3 but none at position 2.* without gaps$"):
        estimate(cells((0, 0, 1, 1, 2), (0, 0, 3, 1, 2), (1, 0, 1, 1, 2)))
    far = cells(*[(q, 0, k, 1, 2) for q in range(3) for k in (1, 2, 2**31 - 1)])
    with pytest.raises(DataError, match=r"at position 2147483647 but none at position 3.*depth=2$"):
        estimate(far)
    with pytest.raises(DataError, match="has one query, expected at least two"):
        estimate(cells((0, 0, 1, 1, 2), (0, 0, 2, 1, 2)))


def test_order_is_not_randomness(rng):
    ordered, _ = served(rng, THETA, n_queries=60, sessions=60, n_rankers=2)
    with pytest.raises(DataError, match="results were not shuffled uniformly"):
        estimate(ordered, method="randomized")
    once = cells(*[(q, k, k, 1, 1) for q in range(30) for k in (1, 2)])
    with pytest.raises(DataError, match="no query-item pair was shown twice"):
        estimate(once, method="randomized")


def test_uniform_shuffles_are_not_refused():
    for seed in np.random.SeedSequence(SEED).spawn(30):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, 6, 40)
        lengths[0] = 5
        log = shuffled(rng, THETA, n_queries=40, sessions=30, lengths=lengths)
        assert supported(log)["randomized"].is_supported


def test_resamples_that_lose_a_position_are_told():
    """One query in three carries the only link to position 3, so 8 in 27 resamples lack it."""
    log = cells(
        *[(q, 0, k, 4, 10) for q in range(3) for k in (1, 2)],
        *[(0, 1, k, 4, 10) for k in (2, 3)],
        (1, 2, 3, 1, 10),
    )
    found = estimate(log, method="all-pairs", n_bootstrap=500, rng=SEED)
    note = next(note for note in found.notes if "without connection" in note)
    assert abs(int(note.split()[0]) / 500 - 8 / 27) < 4 * np.sqrt(0.3 * 0.7 / 500)
    assert any("3 queries only" in note for note in found.notes)


def test_a_log_that_supports_nothing_is_refused():
    with pytest.raises(DataError, match="supports no estimator of propensities: no query-item"):
        cross_check(cells(*[(q, k, k, 1, 10) for q in range(30) for k in (1, 2)]))
