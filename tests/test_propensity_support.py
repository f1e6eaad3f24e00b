"""Which estimators a log supports: `supported` agrees with `estimate` on logs of all kinds."""

import numpy as np
import pytest
from conftest import SEED
from hypothesis import given, settings
from hypothesis import strategies as st
from twins_propensity import served, shuffled

from countersample.errors import DataError, ParameterError
from countersample.logs import PositionCounts
from countersample.propensity import METHODS, Support, cross_check, estimate, pair_ids, supported
from countersample.propensity.support import needs_features

THETA = 1 / np.arange(1, 6)


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
    """Return the number of positions that `estimate` gives, 0 if it refuses."""
    given_features = {"features": features} if needs_features(method) else {}
    options |= {"n_bootstrap": 20, "rng": 0, **given_features}
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
    found = supported(counts, features=features)
    assert list(found) == [*METHODS, "trust"]
    assert not found["trust"].is_supported  # which asks for more than so small a log has
    for method in METHODS:
        support = found[method]
        assert support.is_supported == bool(estimated(counts, method, features)), support
        assert support.is_supported == (support.reason is None)
        deepest = max(estimated(counts, method, features, depth=d) for d in range(2, last + 1))
        assert (support.depth or 0) == deepest, support
        if not support.is_supported and deepest:
            assert f"estimate down to depth={support.depth}" in support.reason


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 3))
def test_supported_at_another_reference_and_depth(seed, reference):
    rng = np.random.default_rng([SEED, seed])
    counts = small_log(rng)
    depth = int(rng.integers(2, 5))
    options = {"reference": reference, "depth": depth}
    if reference > (np.unique(counts.position) <= depth).sum():
        assert not estimated(counts, "all-pairs", None, **options)
        return
    found = supported(counts, **options)
    for method in METHODS:
        support = found[method]
        assert support.is_supported == bool(estimated(counts, method, None, **options)), support
        if support.depth is not None:
            assert estimated(counts, method, None, **(options | {"depth": support.depth}))


def test_an_advice_that_names_a_method_is_right():
    """Two rankers: not shuffled, but positions are connected."""
    counts, _ = served(np.random.default_rng(SEED), THETA, n_queries=60, sessions=60)
    found = supported(counts)
    assert found["randomized"].reason.endswith(", or by method='all-pairs'")
    assert found["all-pairs"] == Support("all-pairs", is_supported=True, reason=None, depth=5)
    with pytest.raises(DataError, match="shuffled share of the traffic, or by method='all-pairs'"):
        estimate(counts, method="randomized")


def test_a_shuffled_top_is_found():
    """The first three positions are shuffled, what is below keeps its place."""
    rng = np.random.default_rng(SEED)
    top = shuffled(rng, THETA[:3], n_queries=60, sessions=60)
    below = [np.repeat(np.arange(60), 2), np.tile([3, 4], 60), np.tile([4, 5], 60)]
    columns = [
        np.concatenate([mine, more])
        for mine, more in zip((top.query, top.item, top.position), below, strict=True)
    ]
    clicks = np.concatenate([top.clicks, np.full(120, 5)])
    shown = np.concatenate([top.impressions, np.full(120, 60)])
    found = supported(PositionCounts.from_columns(*columns, clicks, shown))
    assert (found["randomized"].is_supported, found["randomized"].depth) == (False, 3)


def test_what_is_said_to_be_shuffled_is_supported_as_it_is_estimated():
    """Each item was shown once for its query."""
    rows = [(q, k, k, int((q + k) % 3 == 0)) for q in range(60) for k in (1, 2, 3)]
    counts = PositionCounts.from_columns(*map(list, zip(*rows, strict=True)))
    assert not supported(counts)["randomized"].is_supported
    assert supported(counts, declared=True)["randomized"].is_supported
    for method in ("auto", "randomized"):
        found = estimate(counts, method=method, declared=True, rng=0)
        assert (found.method, len(found.value)) == ("randomized", 3)
        with pytest.raises(DataError):
            estimate(counts, method=method)
    moved, _ = served(np.random.default_rng(SEED), THETA, n_queries=60, sessions=60)
    assert not supported(moved, declared=True)["randomized"].is_supported
    assert estimate(moved, declared=True, rng=0).method == "all-pairs"


def test_a_depth_that_would_fail_again_is_not_named():
    """Position 4 is without clicks, so depth 3; but there nothing joins position 3, so depth 2."""
    rows = [(q, 0, k, 3, 10) for q in range(3) for k in (1, 2)]
    rows += [(q, 1, 3, 3, 10) for q in range(3)]
    rows += [(q, 1, 4, 0, 10) for q in range(3)]
    counts = PositionCounts.from_columns(*map(list, zip(*rows, strict=True)))
    for method in ("pivot", "adjacent-chain", "all-pairs", "em"):
        with pytest.raises(DataError, match=r"position 4 has no click.* down to depth=2$"):
            estimate(counts, method=method)
        assert len(estimate(counts, method=method, depth=2, rng=0).value) == 2
    assert supported(counts, features=np.ones((6, 1)))["regression-em"].depth == 3


def test_resamples_that_lose_a_position_are_foreseen():
    """Each of two positions hangs on one query of its own: 1 − (1 − 1/e)² or so lose one."""
    rows = [(q, 0, k, 4, 10) for q in range(30) for k in (1, 2)]
    rows += [(0, 1, k, 4, 10) for k in (2, 3)] + [(1, 1, k, 4, 10) for k in (3, 4)]
    counts = PositionCounts.from_columns(*map(list, zip(*rows, strict=True)))
    found = supported(counts)["all-pairs"]
    assert (found.is_supported, found.depth) == (False, 3)
    assert "of resampled logs leave a position without connection" in found.reason
    assert estimate(counts, method="all-pairs", depth=3, rng=SEED).value.shape == (3,)
    with pytest.raises(DataError, match=r"too many for intervals.* down to depth=3$"):
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


@pytest.fixture(scope="module")
def log():
    """60 queries of 5 items each, shuffled."""
    return shuffled(np.random.default_rng(SEED), THETA, n_queries=60, sessions=60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "guess"}, "method is 'guess', expected one of auto, randomized, swaps"),
        ({"n_bootstrap": 19}, "n_bootstrap is 19"),
        ({"confidence": 1}, "confidence is 1"),
        ({"reference": 6}, "reference is 6, expected a whole number from 1 to 5"),
        ({"depth": 1}, "depth is 1"),
        ({"method": "pivot", "weighting": "fair"}, "weighting is 'fair'"),
        ({"method": "pivot", "max_rounds": 3}, "method 'pivot' has no such option: .*max_rounds"),
        ({"method": "regression-em"}, "regression-em needs features="),
        ({"method": "regression-em", "features": np.ones((3, 2))}, r"shape \(3, 2\), expected a"),
        ({"method": "regression-em", "features": np.ones(300)}, r"shape \(300,\)"),
        ({"method": "regression-em", "features": np.full((300, 1), np.inf)}, "inf in row 0"),
    ],
)
def test_bad_arguments(log, options, message):
    with pytest.raises((ParameterError, DataError), match=message):
        estimate(log, **options)


def test_uniform_shuffles_are_supported():
    for seed in np.random.SeedSequence(SEED).spawn(30):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, 6, 40)
        lengths[0] = 5
        log = shuffled(rng, THETA, n_queries=40, sessions=30, lengths=lengths)
        assert supported(log)["randomized"].is_supported


def test_resamples_that_lose_a_position_are_noted():
    """One query in three has the only link to position 3, so 8 in 27 resamples lack it."""
    rows = [(q, 0, k, 4, 10) for q in range(3) for k in (1, 2)]
    rows += [(0, 1, 2, 4, 10), (0, 1, 3, 4, 10), (1, 2, 3, 1, 10)]
    log = PositionCounts.from_columns(*map(list, zip(*rows, strict=True)))
    result = estimate(log, method="all-pairs", n_bootstrap=500, rng=SEED)
    note = next(note for note in result.notes if "without connection" in note)
    assert abs(int(note.split()[0]) / 500 - 8 / 27) < 4 * np.sqrt(0.3 * 0.7 / 500)
    assert any("3 queries only" in note for note in result.notes)
