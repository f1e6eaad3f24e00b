"""Estimates of propensities as objects and files."""

import json

import numpy as np
import pytest

from countersample.clicks import PositionBased, TableBias
from countersample.errors import DataError, ParameterError
from countersample.propensity import (
    ContextPropensities,
    Propensities,
    TrustPropensities,
    load_propensities,
)

THETA = 1 / np.arange(1, 6)


def curve(value, low=None, high=None, **options):
    low = value if low is None else low
    high = value if high is None else high
    options = {"n_impressions": np.full(np.shape(value), 10), "method": "pivot"} | options
    return Propensities(value, low, high, **options)


def by_context():
    return ContextPropensities({"a": curve([1.0, 2.0]), "b": curve([1.0, 0.5, 0.25])}, {"c": "few"})


def trust():
    return TrustPropensities(
        alpha=[1, 0.8], alpha_low=[1, 0.7], alpha_high=[1, 0.9], beta=[0.3, 0], beta_low=[0.2, 0],
        beta_high=[0.4, 0], n_impressions=[9, 9], p_value=0.01, notes=("a note",),
    )  # fmt: skip


KINDS = {
    "positions": curve([1.0, 0.5], confidence=0.9),
    "by context": by_context(),
    "with trust": trust(),
}


# -- objects


@pytest.mark.parametrize(
    ("value", "propensity"),
    [([1.0, 0.5, 0.2], [1.0, 0.5, 0.2]), ([1.0, 2.0, 0.5], [0.5, 1.0, 0.25])],
)
def test_a_curve_is_a_position_bias(value, propensity):
    """Values above 1 become probabilities."""
    estimate = curve(value)
    np.testing.assert_array_equal(estimate.at([1, 2, 3]), value)
    np.testing.assert_array_equal(estimate.propensity([1, 2, 3]), propensity)
    assert estimate.bias == TableBias(propensity)
    clicks = PositionBased(bias=estimate, noise=0.5).click_probabilities([4, 0, 4])
    np.testing.assert_allclose(clicks, np.array(propensity) * [1, 0.5, 1])


def test_values_above_one_are_divided_by_one_number():
    """So that position 1 stays equal in all contexts."""
    alpha, beta = by_context().examination_of([1, 2, 1, 2, 3, 9], ["a", "a", "b", "b", "b", "b"])
    np.testing.assert_array_equal(alpha, [0.5, 1, 0.5, 0.25, 0.125, np.nan])
    assert not beta.any()


@pytest.mark.parametrize("positions", [6, [1, 6], 0, [2.5], -1])
def test_positions_beyond_the_table_are_rejected(positions):
    for method in (curve(THETA).at, curve(THETA).propensity):
        with pytest.raises(DataError, match="has no propensity, expected positions from 1 to 5"):
            method(positions)


def test_clip():
    estimate = curve([1.0, 0.5, 0.2], low=[1, 0.2, 0.1], high=[1, 0.7, 0.3]).clip(0.4)
    np.testing.assert_array_equal(estimate.value, [1, 0.5, 0.4])
    np.testing.assert_array_equal(estimate.low, [1, 0.4, 0.4])
    np.testing.assert_array_equal(estimate.high, [1, 0.7, 0.4])
    assert estimate.notes == ("clipped at 0.4",)
    for wrong in (0, 1.1, np.nan):
        with pytest.raises(ParameterError, match="min_propensity"):
            estimate.clip(wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value": []}, r"value has shape \(0,\)"),
        ({"value": [[1.0]]}, r"value has shape \(1, 1\)"),
        ({"value": [1, np.nan]}, "position 2 is nan"),
        ({"value": [1.0, 0.5], "low": [1.0]}, r"low has shape \(1,\), expected \(2,\)"),
        ({"value": [1.0, 0.5], "low": [1.0, 0.6]}, "interval of position 2 is 0.6 to 0.5"),
        ({"value": [1.0], "n_impressions": [-1]}, "n_impressions has -1"),
    ],
)
def test_bad_curves(options, message):
    with pytest.raises(DataError, match=message):
        curve(**options)


# -- files and frames


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_estimate_is_read_again(kind, tmp_path):
    estimate = KINDS[kind]
    estimate.save(tmp_path / "estimate.json")
    again = load_propensities(tmp_path / "estimate.json")
    assert type(again) is type(estimate)
    assert again.to_dict() == estimate.to_dict()
    assert again.notes == estimate.notes
    assert again.to_frame("pyarrow").equals(estimate.to_frame("pyarrow"))


def test_the_frame_of_contexts_has_one_row_per_position():
    rows = by_context().to_frame("pyarrow").to_pylist()
    names = [(row["context"], row["position"]) for row in rows]
    assert names == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3)]


@pytest.mark.parametrize("text", [None, "not json", "[1, 2]", "{}"])
def test_files_of_something_else(text, tmp_path):
    if text is not None:
        (tmp_path / "bad.json").write_text(text)
    with pytest.raises(DataError, match=r"bad\.json: "):
        load_propensities(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("positions", {"schema_version": 9}, "schema version 9 and of the kind 'positions', exp"),
        ("positions", {"kind": "moon"}, "of the kind 'moon'"),
        ("positions", {"value": [1, 0]}, "the propensity of position 2 is 0"),
        ("positions", {"value": ["a", "b"]}, r"value\[0\] of .* is 'a', expected a number"),
        ("positions", {"confidence": 2}, "confidence is 2"),
        ("by context", {"curves": {}}, "curves of .* is {}"),
        ("by context", {"curves": {"a": {}}}, "has no schema_version"),
        ("with trust", {"alpha": [1, 0]}, "the propensity of position 2 is 0"),
        ("with trust", {"beta": [1]}, r"beta has shape \(1,\), expected \(2,\)"),
        ("with trust", {"beta_low": [float("inf"), 0]}, "beta_low has a value that is not finite"),
    ],
)
def test_bad_files(kind, change, message, tmp_path):
    (tmp_path / "bad.json").write_text(json.dumps(KINDS[kind].to_dict() | change))
    with pytest.raises(DataError, match=f"bad.json: .*{message}"):
        load_propensities(tmp_path / "bad.json")
