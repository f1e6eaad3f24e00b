"""What is done with propensities: files, cross-checks, the correction of trust."""

import csv
import json
import lzma

import numpy as np
import pytest
from conftest import SEED
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from twins_propensity import served

from countersample import PositionBias
from countersample.clicks import PositionBased, TableBias, TrustBias
from countersample.clicks.impressions import PositionCounts
from countersample.errors import DataError, ParameterError
from countersample.propensity import (
    METHODS,
    Propensities,
    cross_check,
    estimate,
    supported,
    trust_correct,
)
from countersample.propensity.agreement import _verdict

THETA = 1 / np.arange(1, 6)


def curve(value, low=None, high=None, **options):
    low = value if low is None else low
    high = value if high is None else high
    shown = np.full(np.shape(value), 10)
    return Propensities(value, low, high, n_impressions=shown, method="given", **options)


# -- Propensities


def test_what_is_saved_is_read_again(tmp_path, rng):
    counts, _ = served(rng, THETA, n_queries=60, sessions=60)
    found = estimate(counts, reference=2, confidence=0.9, rng=rng).clip(0.2)
    found.save(tmp_path / "examination.json")
    again = Propensities.load(tmp_path / "examination.json")
    for name in ("position", "value", "low", "high", "n_impressions"):
        np.testing.assert_array_equal(getattr(found, name), getattr(again, name))
    assert found.to_dict() == again.to_dict()
    assert (again.reference, again.confidence, again.method) == (2, 0.9, "all-pairs")
    assert "clipped at 0.2" in again.notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ("not json", "not JSON: Expecting value"),
        ("[1, 2]", "not propensities of this package"),
        ("{}", "no entry 'schema_version'"),
        ({"schema_version": 9}, "schema version 9, expected 1"),
        ({"value": [1, 0]}, "the propensity of position 2 is 0, expected a number above 0"),
        ({"value": ["a", "b"]}, "value must be numbers"),
    ],
)
def test_bad_files(tmp_path, text, message):
    path = tmp_path / "examination.json"
    if isinstance(text, dict):
        path.write_text(json.dumps(curve([1.0, 0.5]).to_dict() | text))
    elif text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=f"examination.json: .*{message}"):
        Propensities.load(path)


def test_where_a_bias_is_wanted():
    examination = curve([1.0, 0.5, 0.2])
    np.testing.assert_array_equal(examination.propensity([3, 1]), [0.2, 1])
    assert examination.bias == TableBias([1.0, 0.5, 0.2])
    clicks = PositionBased(bias=examination, noise=0.5).click_probabilities([4, 0, 4])
    np.testing.assert_allclose(clicks, [1, 0.25, 0.2])


def test_values_above_one_are_made_probabilities():
    examination = curve([1.0, 2.0, 0.5])
    np.testing.assert_array_equal(examination.at([1, 2, 3]), [1, 2, 0.5])
    np.testing.assert_array_equal(examination.propensity([1, 2, 3]), [0.5, 1, 0.25])
    assert examination.bias == TableBias([0.5, 1.0, 0.25])


@pytest.mark.parametrize("positions", [6, [1, 6], 0, [2.5], -1])
def test_positions_beyond_the_table_are_refused(positions):
    with pytest.raises(DataError, match="has no propensity, expected positions from 1 to 5"):
        curve(THETA).at(positions)
    with pytest.raises(DataError, match="has no propensity"):
        curve(THETA).propensity(positions)


def test_clip():
    examination = curve([1.0, 0.5, 0.2], low=[1, 0.2, 0.1], high=[1, 0.7, 0.3]).clip(0.4)
    np.testing.assert_array_equal(examination.value, [1, 0.5, 0.4])
    np.testing.assert_array_equal(examination.low, [1, 0.4, 0.4])
    np.testing.assert_array_equal(examination.high, [1, 0.7, 0.4])
    for wrong in (0, 1.1, np.nan):
        with pytest.raises(ParameterError, match=r"expected a number above 0 and at most 1"):
            examination.clip(wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value": []}, r"value has shape \(0,\)"),
        ({"value": [[1.0]]}, r"value has shape \(1, 1\)"),
        ({"value": [1, np.nan]}, "position 2 is nan"),
        ({"value": [1.0, 0.5], "low": [1.0]}, r"low has shape \(1,\), expected \(2,\)"),
        ({"value": [1.0, 0.5], "low": [1.0, 0.6]}, "interval of position 2 is 0.6 to 0.5"),
    ],
)
def test_a_curve_that_is_none_is_refused(options, message):
    with pytest.raises(DataError, match=message):
        curve(**options)


def test_a_curve_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        curve(THETA).value[0] = 2


# -- cross_check


def is_falling_by_linprog(low, high):
    """Is there a falling curve within [low, high·1.001], and no flat one?"""
    n_positions = low.shape[1]
    step = np.eye(n_positions, k=1)[:-1] - np.eye(n_positions)[:-1]  # x_{k+1} − x_k ≤ 0
    fall = np.zeros(n_positions)
    fall[0], fall[-1] = 1, -1
    ends = list(zip(low.max(axis=0), high.min(axis=0) * 1.001, strict=True))
    if any(a > b for a, b in ends):
        return False
    found = linprog(fall, A_ub=step, b_ub=np.zeros(n_positions - 1), bounds=ends)
    return bool(found.status == 0 and found.fun > 1e-12)


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
    low = np.stack([found.low for found in estimates.values()])
    high = np.stack([found.high for found in estimates.values()])
    assert is_agreed == is_falling_by_linprog(low, high)
    assert is_agreed == ("agree:" in sentence or "tells a falling curve" in sentence)
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


def test_methods_agree_where_the_model_holds(tmp_path):
    counts, _ = served(np.random.default_rng(SEED), THETA, n_queries=300, sessions=60)
    check = cross_check(counts, n_bootstrap=100, confidence=0.99, rng=SEED)
    assert check.is_agreed, check.sentence
    assert list(check.estimates) == ["swaps", "pivot", "adjacent-chain", "all-pairs", "em"]
    assert set(check.unsupported) == {"randomized", "regression-em"}
    check.save(tmp_path / "report")
    assert (tmp_path / "report" / "propensities.png").read_bytes()[:4] == b"\x89PNG"
    with (tmp_path / "report" / "propensities.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * 5
    mine = [float(row["value"]) for row in rows if row["method"] == "em"]
    np.testing.assert_array_equal(mine, check.estimates["em"].value)
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


def test_the_real_log(shared, tmp_path):
    """No truth there: the sentence must say what the numbers say."""
    with lzma.open(shared / "sogou_clicks" / "impressions.tsv.xz", "rt") as file:
        names = file.readline().split()
        columns = dict(zip(names, np.loadtxt(file, np.int64).T, strict=True))
    counts = PositionCounts.from_columns(
        columns["query_id"], columns["item_id"], columns["position"], columns["click"]
    )
    reasons = {name: each.reason for name, each in supported(counts).items()}
    assert "not shuffled uniformly" in reasons["randomized"]
    assert "positions 8 and 1 was clicked at position 8" in reasons["pivot"]
    check = cross_check(counts, n_bootstrap=60, rng=SEED)
    assert list(check.estimates) == ["swaps", "adjacent-chain", "all-pairs", "em"]
    low = np.stack([found.low for found in check.estimates.values()])
    high = np.stack([found.high for found in check.estimates.values()])
    assert check.is_agreed == is_falling_by_linprog(low, high)
    assert ("do not agree" in check.sentence) == (low.max(axis=0) > high.min(axis=0) * 1.001).any()
    # Those of one family do agree, on a curve that falls by more than a factor of 5.
    family = [name for name in check.estimates if name != "em"]
    is_agreed, _ = _verdict({name: check.estimates[name] for name in family})
    assert is_agreed
    assert all(check.estimates[name].value[-1] < 0.2 for name in family)
    # And em says itself why it is the odd one.
    assert any("em is biased" in note for note in check.estimates["em"].notes)
    check.save(tmp_path)


# -- trust


def trust_of(depth):
    rank = np.arange(1, depth + 1)
    return 1 - (np.minimum(rank, 20) + 1) / 100, 0.65 / np.minimum(rank, 10)


@pytest.mark.parametrize("bias", [PositionBias(1.0), PositionBias(0.3, offset=1), TableBias(THETA)])
def test_the_correction_is_unbiased_by_enumeration(bias):
    """P(click)·v(click) + P(none)·v(none) is 1 for relevant items and 0 for others."""
    labels = np.array([0, 4, 0, 3, 4])
    chance = TrustBias(bias=bias, relevant=3).click_probabilities(labels)
    right, wrong = trust_of(5)
    rank = np.arange(1, 6)
    of_click = trust_correct(np.ones(5), rank, bias, right, wrong)
    of_none = trust_correct(np.zeros(5), rank, bias, right, wrong)
    mean = chance * of_click + (1 - chance) * of_none
    np.testing.assert_allclose(mean, labels >= 3, atol=1e-12)
    # Plain weights are not: an item that is not relevant gets 0.65 at the top.
    assert (chance / bias.propensity(rank))[0] == pytest.approx(0.65)


def test_the_correction_of_counts_is_the_sum_of_its_rows(rng):
    right, wrong = trust_of(5)
    rank, click = rng.integers(1, 6, 300), rng.integers(0, 2, 300)
    rows = trust_correct(click, rank, PositionBias(), right, wrong)
    shown = np.bincount(rank, minlength=6)[1:]
    clicked = np.bincount(rank, click, minlength=6)[1:]
    counted = trust_correct(clicked, np.arange(1, 6), PositionBias(), right, wrong, shown)
    np.testing.assert_allclose(counted, np.bincount(rank, rows)[1:], rtol=1e-10)


def test_without_trust_it_is_the_plain_weight():
    found = trust_correct([1, 0, 1], [1, 2, 3], curve(THETA), np.ones(5), np.zeros(5))
    np.testing.assert_allclose(found, [1, 0, 3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eps_plus": [0.9, 0.1]}, "at position 2 eps_plus is 0.1 and eps_minus 0.2"),
        ({"eps_plus": [1.1, 0.5]}, "at position 1 eps_plus is 1.1"),
        ({"eps_minus": [-0.1, 0.2]}, "at position 1 eps_plus is 0.9 and eps_minus -0.1"),
        ({"eps_minus": [0.1]}, r"eps_minus \(1,\), expected a number a position"),
        ({"position": [1, 3]}, "position 3 has no eps_plus, expected positions from 1 to 2"),
        ({"position": [0, 1]}, "position 0 has no eps_plus"),
        ({"theta": TableBias([1.0, 0.0])}, "the propensity of position 2 is 0, expected above 0"),
    ],
)
def test_a_correction_that_is_none_is_refused(change, message):
    given = {"clicks": [1, 0], "position": [1, 2], "theta": PositionBias()}
    given |= {"eps_plus": [0.9, 0.8], "eps_minus": [0.1, 0.2]}
    with pytest.raises(DataError, match=message):
        trust_correct(**(given | change))
