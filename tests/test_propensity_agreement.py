"""All methods on one log: whether their curves agree."""

import json

import numpy as np
import pytest
from conftest import SEED
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from twins_propensity import served

from countersample.logs import PositionCounts
from countersample.propensity import (
    METHODS,
    Propensities,
    cross_check,
)
from countersample.propensity.agreement import _verdict

THETA = 1 / np.arange(1, 6)


def curve(value, low, high):
    return Propensities(value, low, high, n_impressions=np.full(np.shape(value), 10), method="em")


def is_falling_by_linprog(low, high):
    """Is there a falling curve within [low, high·1.001], and no flat one?"""
    n_positions = low.shape[1]
    step = np.eye(n_positions, k=1)[:-1] - np.eye(n_positions)[:-1]  # x_{k+1} − x_k ≤ 0
    fall = np.zeros(n_positions)
    fall[0], fall[-1] = 1, -1
    ends = list(zip(low.max(axis=0), high.min(axis=0) * 1.001, strict=True))
    if any(a > b for a, b in ends):
        return False
    result = linprog(fall, A_ub=step, b_ub=np.zeros(n_positions - 1), bounds=ends)
    return bool(result.status == 0 and result.fun > 1e-12)


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from([0.02, 0.1, 0.5, 1.5]))
def test_the_verdict_is_what_the_numbers_say(seed, n_methods, width):
    rng = np.random.default_rng([SEED, seed])
    estimates = {}
    for name in list(METHODS)[:n_methods]:
        value = np.append(1, THETA[1:4] * np.exp(0.3 * width * rng.standard_normal(3)))
        half = np.append(0, rng.uniform(0, width, 3))
        estimates[name] = curve(value, value * np.exp(-half), value * np.exp(half))
    is_agreed, sentence = _verdict(estimates)
    low = np.stack([result.low for result in estimates.values()])
    high = np.stack([result.high for result in estimates.values()])
    assert is_agreed == is_falling_by_linprog(low, high)
    assert is_agreed == ("agree:" in sentence or "has a falling curve" in sentence)
    assert ("do not agree" in sentence) == (low.max(axis=0) > high.min(axis=0) * 1.001).any()


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (([1, 0.5, 0.3], 0.1), "The 2 methods agree: one falling curve is within all"),
        (([1, 0.5, 0.9], 0.1), "do not agree at position 3: at position 3, em (0.81 to 0.99) and"),
        (([1, 0.9, 0.9], 0.1), "do not agree at positions 2–3: at position 3, em (0.81 to"),
        (([1, 0.2, 0.45], 0.5), "do not agree at position 2: at position 2, all-pairs (0.45 to"),
    ],
)
def test_the_words_of_the_verdict(other, sentence):
    value, half = np.array(other[0]), np.array([0, other[1], other[1]])
    first = curve([1, 0.5, 0.3], [1, 0.45, 0.27], [1, 0.55, 0.33])
    second = curve(value, value * (1 - half), value * (1 + half))
    _, told = _verdict({"all-pairs": first, "em": second})
    assert sentence in told


def test_a_curve_that_rises_or_is_flat_is_told():
    rising = curve([1, 0.2, 0.5], [1, 0.1, 0.45], [1, 0.3, 0.55])
    assert _verdict({"em": rising}) == (
        False,
        (
            "There is one method only (em), and no falling curve is within all intervals: position "
            "3 is examined more (0.45 or more) than position 2 (0.3 or less)."
        ),
    )
    flat = curve([1, 0.9, 0.9], [1, 0.5, 0.5], [1, 1.2, 1.2])
    is_agreed, told = _verdict({"em": flat, "pivot": flat})
    assert not is_agreed
    assert "a flat curve is within all intervals, too" in told


def test_methods_agree_where_the_model_holds():
    counts, _ = served(np.random.default_rng(SEED), THETA, n_queries=300, sessions=60)
    check = cross_check(counts, n_bootstrap=100, confidence=0.99, rng=SEED)
    assert check.is_agreed, check.sentence
    assert list(check.estimates) == ["swaps", "pivot", "adjacent-chain", "all-pairs", "em"]
    assert set(check.unsupported) == {"randomized", "regression-em"}
    rows = check.to_frame("pyarrow").to_pylist()
    assert len(rows) == 5 * 5
    values = [row["value"] for row in rows if row["method"] == "em"]
    np.testing.assert_array_equal(values, check.estimates["em"].value)
    assert json.loads(json.dumps(check.to_dict()))["is_agreed"]


def test_a_user_that_is_not_of_the_model_is_told():
    """Users who look less at bad items: the pairs that moved far tell another curve."""
    rng = np.random.default_rng(SEED)
    relevance = rng.beta(1, 1, (400, 5))
    counts, _ = served(rng, THETA, n_queries=400, sessions=400, relevance=relevance)
    # Clicks at positions 2 and below are taken away from pairs that were also at the first.
    starts = np.repeat(counts.pair_starts[:-1], np.diff(counts.pair_starts))
    was_first = counts.position[starts] == 1
    clicks = np.where(was_first & (counts.position > 2), counts.clicks // 3, counts.clicks)
    odd = PositionCounts.from_columns(
        counts.query, counts.item, counts.position, clicks, counts.impressions
    )
    check = cross_check(odd, n_bootstrap=40, rng=SEED)
    assert not check.is_agreed
    assert "do not agree at" in check.sentence
