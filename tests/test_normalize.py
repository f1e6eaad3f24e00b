"""Normalisation: against scikit-learn, against the twin, and what a saved normalizer must be."""

import json
import warnings

import numpy as np
import pytest
import twins_normalize
from conftest import SEED
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from countersample import RankingDataset, synthetic
from countersample.data import columns
from countersample.data.columns import row_blocks
from countersample.data.heavy_tails import rooted
from countersample.data.normalize import METHODS, Normalizer
from countersample.errors import DataError, ParameterError

GLOBAL = [how for how, fit_columns in METHODS.items() if fit_columns is not None]
PEERS = {"minmax": MinMaxScaler, "root-minmax": MinMaxScaler, "standard": StandardScaler}


@pytest.fixture
def data(rng):
    """Ten queries of features on scales from 1e-4 to 1e6, far from zero, one of them constant."""
    sizes = rng.integers(1, 12, 10)
    scales = 10.0 ** np.arange(-4, 7)
    values = scales * (3 + rng.standard_normal((sizes.sum(), len(scales))))
    values[:, 4] = 0.1
    return RankingDataset.from_arrays(values, np.zeros(len(values)), np.repeat(range(10), sizes))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(columns, "_BLOCK_VALUES", 30)  # two or three rows


@st.composite
def ragged(draw):
    """Queries of 1 to 6 items with 1 to 5 features of any finite value, ties likely."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    n_features = draw(st.integers(1, 5))
    numbers = st.sampled_from([0.0, 1.0, -1.0, 0.1]) | st.floats(width=32, allow_nan=False)
    finite = numbers.filter(np.isfinite)
    values = draw(arrays(np.float32, (sum(sizes), n_features), elements=finite))
    return values, np.concatenate([[0], np.cumsum(sizes)])


# -- values --------------------------------------------------------------------------------------


def test_worked_example():
    data = RankingDataset.from_arrays(
        X=[[1, 7], [3, 7], [2, 7], [10, 0], [20, 4]], y=np.zeros(5), qid=[1, 1, 1, 2, 2]
    )
    by_query = [[0, 0], [2 / 2, 0], [1 / 2, 0], [0, 0], [1, 1]]
    np.testing.assert_array_equal(data.normalized("query-minmax").features, np.float32(by_query))
    over_all = [[0, 1], [2 / 19, 1], [1 / 19, 1], [9 / 19, 0], [19 / 19, 4 / 7]]
    np.testing.assert_array_equal(data.normalized("minmax").features, np.float32(over_all))


@given(ragged())
def test_query_minmax_equals_its_twin(queries):
    values, offsets = queries
    result = Normalizer("query-minmax", values.shape[1]).transform(values, offsets)
    twin = twins_normalize.query_minmax(values, offsets)
    np.testing.assert_allclose(result, twin, rtol=1e-6, atol=1e-38)
    assert result.min() == 0
    assert result.max() in {0, 1}


def test_query_minmax_equals_scikit_learn_by_query(data):
    result = data.normalized("query-minmax").features
    for start, end in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        block = data.features[start:end].astype(np.float64)
        expected = MinMaxScaler().fit_transform(block)
        np.testing.assert_allclose(result[start:end], expected, atol=1e-6)


@pytest.mark.parametrize("how", GLOBAL)
@pytest.mark.parametrize("blocks", ["one block", "small_blocks"])
def test_global_methods_equal_scikit_learn(data, how, blocks, request):
    if blocks == "small_blocks":
        request.getfixturevalue("small_blocks")
        assert len(list(row_blocks(data.features))) > 5
    train, test = data.split(0.6, 0.4, rng=SEED)
    normalizer, peer = Normalizer.fit(train, how), PEERS[how]().fit(np.float64(train.features))
    for part in (train, test):
        expected = peer.transform(np.float64(part.features))
        expected[:, 4] = 0  # scikit-learn gives rounding noise for a constant feature
        np.testing.assert_allclose(normalizer(part).features, expected, rtol=1e-5, atol=1e-6)


@given(ragged())
def test_global_methods_stay_finite(queries):
    values, offsets = queries
    data = RankingDataset(
        values, np.zeros(len(values), np.float32), offsets, np.arange(len(offsets) - 1)
    )
    ranged = data.normalized("minmax").features
    assert (ranged.min(axis=0) == 0).all()
    assert np.isin(ranged.max(axis=0), [0, 1]).all()
    standard = Normalizer.fit(data, "standard")
    result = standard(data).features
    constant = values.min(axis=0) == values.max(axis=0)
    assert np.isfinite(result).all()
    assert (result[:, constant] == 0).all()
    assert np.array_equal(np.array(standard.scale) == 0, constant)


@pytest.mark.usefixtures("small_blocks")
def test_standard_is_accurate_far_from_zero():
    """A mean 10⁶ standard deviations away: the textbook E[x²] − E[x]² has no digit left."""
    values = (2.0**20 + np.arange(64) % 2)[:, None].astype(np.float32)
    data = RankingDataset.from_arrays(values, np.zeros(64), np.zeros(64, int))
    normalizer = Normalizer.fit(data, "standard")
    assert normalizer.shift == pytest.approx([2**20 + 1 / 2], rel=1e-15)
    assert normalizer.scale == pytest.approx([1 / 2], rel=1e-12)


def test_values_outside_the_fitted_range_are_not_clipped():
    normalizer = Normalizer("minmax", 1, shift=(10.0,), scale=(5.0,))
    result = normalizer.transform(np.array([[0.0], [20.0]]))
    np.testing.assert_array_equal(result, [[(0 - 10) / 5], [(20 - 10) / 5]])


def test_a_constant_feature_is_0_for_any_value():
    normalizer = Normalizer("standard", 1, shift=(3.0,), scale=(0.0,))
    np.testing.assert_array_equal(normalizer.transform(np.array([[3.0], [4.0]])), [[0], [0]])


@pytest.mark.parametrize("how", METHODS)
def test_the_dataset_keeps_all_but_its_features(how):
    data = synthetic("tiny", n_queries=5, rng=SEED)
    result = data.normalized(how)
    assert result.features.dtype == np.float32
    assert result.with_features(data.features) == data
    assert Normalizer.fit(data, how)(data.subset([])).n_items == 0


@pytest.mark.parametrize("how", METHODS)
def test_memory_maps_and_strides(how, data, tmp_path):
    path = tmp_path / "features.npy"
    np.save(path, data.features)
    mapped = data.with_features(np.load(path, mmap_mode="r"))
    expected = data.normalized(how)
    assert mapped.normalized(how) == expected
    normalizer = Normalizer.fit(data, how)
    strided = np.asfortranarray(data.features, dtype=np.float64)
    np.testing.assert_array_equal(normalizer.transform(strided, data.offsets), expected.features)


# -- a small value that can be kept --------------------------------------------------------------


@pytest.mark.parametrize("how", METHODS)
def test_round_trip_through_json_is_exact(how, data):
    normalizer = Normalizer.fit(data, how)
    again = Normalizer.from_dict(json.loads(json.dumps(normalizer.to_dict())))
    assert again == normalizer
    assert hash(again) == hash(normalizer)
    assert repr(again) == f"Normalizer(how={how!r}, n_features=11)"
    assert again(data) == normalizer(data)


def test_equality(data):
    assert Normalizer.fit(data, "minmax") != Normalizer.fit(data, "standard")
    assert Normalizer.fit(data, "minmax") != Normalizer.fit(data.subset([0, 1]), "minmax")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version of a saved normalizer is 2, expected 1"),
        ({"how": "max"}, "how of a saved normalizer is 'max', expected one of query-minmax, "),
        ({"how": ["minmax"]}, "how of a saved normalizer is ..minmax"),
        ({"n_features": 2.0}, "n_features of a saved normalizer is 2.0, expected a whole number"),
        ({"n_features": 3}, "shift of a saved normalizer is .0.0, 0.0., expected 3 entries"),
        ({"shift": None}, "shift of a saved normalizer is None, expected 2 entries"),
        (
            {"shift": [0.0, float("nan")]},
            "shift.1. of a saved normalizer is nan, expected",
        ),
        ({"shift": [0.0, "1"]}, "shift.1. of a saved normalizer is '1', expected a number"),
        (
            {"scale": [1.0, -1.0]},
            "scale.1. of a saved normalizer is -1.0, expected a number >= 0",
        ),
    ],
)
def test_what_is_not_a_saved_normalizer(change, message):
    saved = Normalizer("minmax", 2, (0.0, 0.0), (1.0, 1.0)).to_dict()
    with pytest.raises(DataError, match=message):
        Normalizer.from_dict(saved | change)


# -- errors --------------------------------------------------------------------------------------


def test_unknown_method(data):
    with pytest.raises(ParameterError, match="how is 'max', expected one of query-minmax, minm"):
        data.normalized("max")


def test_offsets_are_needed_by_query_minmax():
    with pytest.raises(ParameterError, match=r"needs offsets.*pass offsets=\[0, 3\] if"):
        Normalizer("query-minmax", 2).transform(np.zeros((3, 2)))


@pytest.mark.parametrize("offsets", [[], [0], [0, 2], [1, 3], [0, 2, 2, 3], [0, 4, 3], [[0, 3]]])
def test_offsets_that_do_not_fit(offsets):
    with pytest.raises(DataError, match="offsets must increase from 0 to 3"):
        Normalizer("query-minmax", 2).transform(np.zeros((3, 2)), offsets)


@pytest.mark.parametrize("how", METHODS)
def test_another_number_of_features(how, data):
    normalizer = Normalizer.fit(data, how)
    with pytest.raises(DataError, match=r"shape \(2, 3\), expected \(n_items, 11\)"):
        normalizer.transform(np.zeros((2, 3)), [0, 2])


@pytest.mark.parametrize("how", GLOBAL)
@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_values_that_are_not_finite(how, bad):
    values = np.zeros((3, 2), np.float32)
    values[1, 1] = bad
    data = RankingDataset(values, np.zeros(3, np.float32), np.array([0, 3]), np.array([1]))
    with pytest.raises(DataError, match="column 1 of the features has a value that is not finite"):
        Normalizer.fit(data, how)


@pytest.mark.parametrize("how", METHODS)
def test_what_is_missing_stays_so_and_does_not_count(how, data, rng):
    """Against NumPy's own functions that leave NaN out, query by query or over all."""
    holes = rng.random(data.features.shape) < 0.3
    holes[:, 0] = True
    holes[data.offsets[0] : data.offsets[1], 1] = True
    features = np.where(holes, np.float32(np.nan), data.features)
    holed = data.with_features(features)
    normalizer = Normalizer.fit(holed, how)
    found = normalizer(holed).features
    np.testing.assert_array_equal(np.isnan(found), holes)
    values = features.astype(float)
    if normalizer.roots is not None:
        values = rooted(values, normalizer.roots)
    parts = (
        [slice(0, data.n_items)] if how in GLOBAL else map(slice, data.offsets, data.offsets[1:])
    )
    for rows in parts:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of columns without any value
            low, high = np.nanmin(values[rows], axis=0), np.nanmax(values[rows], axis=0)
            shift, scale = low, high - low
            if how == "standard":
                shift, scale = np.nanmean(values[rows], axis=0), np.nanstd(values[rows], axis=0)
        varies = high > low
        expected = np.where(varies, (values[rows] - shift) / np.where(varies, scale, 1), 0)
        expected[holes[rows]] = np.nan
        np.testing.assert_allclose(found[rows], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", GLOBAL)
def test_no_items(how, data):
    with pytest.raises(DataError, match=f"cannot fit '{how}' on a dataset without items"):
        Normalizer.fit(data.subset([]), how)
