"""Can this log tell? What `supported` says is what `estimate` does, on logs of all kinds."""

import numpy as np
import pytest
from conftest import SEED
from hypothesis import given, settings
from hypothesis import strategies as st
from twins_propensity import served, shuffled

from countersample.clicks.impressions import PositionCounts
from countersample.errors import DataError, ParameterError
from countersample.propensity import METHODS, Support, estimate, pair_ids, supported
from countersample.propensity.methods import needs_features

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


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_supported_is_what_estimate_does(seed):
    rng = np.random.default_rng([SEED, seed])
    counts = small_log(rng)
    features = rng.standard_normal((len(pair_ids(counts)[0]), 2))
    last = max(2, int(counts.position.max()))
    found = supported(counts, features=features)
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


def test_every_method_is_answered():
    assert list(supported(PositionCounts.from_columns([0], [0], [1], [1]))) == [
        *METHODS,
        "trust",
    ]
