"""Normalizers and imputers: against scikit-learn and a twin; their steps as one, in files."""

import json
import warnings

import numpy as np
import pytest
import twins_normalize
from conftest import SEED
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_rankers import with_holes
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from countersample import (
    ClickLog,
    RankingDataset,
    load_letor,
    save_letor,
    synthetic,
    train,
)
from countersample.data import matrices
from countersample.data.encoder import EncodedColumn, FeatureEncoder
from countersample.data.labelled_files import write_parquet
from countersample.data.matrices import row_blocks
from countersample.data.preprocessing import (
    IMPUTATIONS,
    SCALINGS,
    Imputer,
    Normalizer,
    Preprocessing,
    take_roots,
)
from countersample.errors import DataError, ParameterError
from countersample.plans import Examples
from countersample.rankers import load_ranker
from countersample.theory import gradient_bounds

GLOBAL = [how for how in SCALINGS if how != "query-minmax"]
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
    monkeypatch.setattr(matrices, "BLOCK_VALUES", 30)  # two or three rows


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


@given(ragged())
def test_query_minmax_equals_its_twin(queries):
    values, offsets = queries
    result = Normalizer("query-minmax", values.shape[1]).transform(values, offsets)
    twin = twins_normalize.query_minmax(values, offsets)
    np.testing.assert_allclose(result, twin, rtol=1e-6, atol=1e-38)
    assert result.min() == 0
    assert result.max() in {0, 1}


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


@pytest.mark.usefixtures("small_blocks")
def test_standard_is_accurate_far_from_zero():
    """A mean 10⁶ standard deviations away: the textbook E[x²] − E[x]² has no digit left."""
    values = (2.0**20 + np.arange(64) % 2)[:, None].astype(np.float32)
    data = RankingDataset.from_arrays(values, np.zeros(64), np.zeros(64, int))
    normalizer = Normalizer.fit(data, "standard")
    assert normalizer.shift == pytest.approx([2**20 + 1 / 2], rel=1e-15)
    assert normalizer.scale == pytest.approx([1 / 2], rel=1e-12)


@pytest.mark.parametrize("how", SCALINGS)
def test_memory_maps_and_strides(how, data, tmp_path):
    path = tmp_path / "features.npy"
    np.save(path, data.features)
    mapped = data.with_features(np.load(path, mmap_mode="r"))
    expected = data.normalized(how)
    assert mapped.normalized(how) == expected
    normalizer = Normalizer.fit(data, how)
    strided = np.asfortranarray(data.features, dtype=np.float64)
    np.testing.assert_array_equal(normalizer.transform(strided, data.offsets), expected.features)


# -- errors --------------------------------------------------------------------------------------


def test_unknown_methods_and_missing_offsets(data):
    with pytest.raises(ParameterError, match="how is 'max', expected one of query-minmax, minm"):
        data.normalized("max")
    with pytest.raises(DataError, match="on a dataset without items"):
        Normalizer.fit(data.subset([]), "query-minmax", "log")
    with pytest.raises(ParameterError, match=r"needs offsets.*pass offsets=\[0, 3\] if"):
        Normalizer("query-minmax", 2).transform(np.zeros((3, 2)))
    for offsets in ([], [0, 2], [1, 3], [0, 2, 2, 3], [[0, 3]]):
        with pytest.raises(DataError, match=r"offsets|no items"):
            Normalizer("query-minmax", 2).transform(np.zeros((3, 2)), offsets)


def test_values_outside_the_fitted_range_and_of_constant_features():
    normalizer = Normalizer("minmax", 2, shift=(10.0, 3.0), scale=(5.0, 0.0))
    result = normalizer.transform(np.array([[0.0, 3.0], [20.0, 4.0]]))
    np.testing.assert_array_equal(result, [[(0 - 10) / 5, 0], [(20 - 10) / 5, 0]])


def test_another_number_of_features(data):
    for step in (Normalizer.fit(data, "minmax"), Imputer.fit(data)):
        with pytest.raises(DataError, match=r"shape \(2, 3\), expected \(n_items, 11\)"):
            step.transform(np.zeros((2, 3)))


@pytest.mark.parametrize("how", GLOBAL)
def test_values_that_are_not_finite(how):
    values = np.zeros((3, 2), np.float32)
    values[1, 1] = -np.inf
    data = RankingDataset(values, np.zeros(3, np.float32), np.array([0, 3]), np.array([1]))
    with pytest.raises(DataError, match="column 1 of the features has a value that is not finite"):
        Normalizer.fit(data, how)


@pytest.mark.parametrize("how", SCALINGS)
def test_what_is_missing_stays_so_and_does_not_count(how, data, rng):
    """Against NumPy's own functions that leave NaN out, query by query or over all."""
    holes = rng.random(data.features.shape) < 0.3
    holes[:, 0] = True
    holes[data.offsets[0] : data.offsets[1], 1] = True
    features = np.where(holes, np.float32(np.nan), data.features)
    holed = data.with_features(features)
    normalizer = Normalizer.fit(holed, how)
    result = normalizer(holed).features
    np.testing.assert_array_equal(np.isnan(result), holes)
    values = features.astype(float)
    if normalizer.roots is not None:
        values = take_roots(values, normalizer.roots)
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
        np.testing.assert_allclose(result[rows], expected, rtol=1e-4, atol=1e-5)


# -- missing values -----------------------------------------------------------------------------


@pytest.fixture
def holed(rng):
    """Ten queries; the third of six features is always missing, the fourth never."""
    values = with_holes(rng.standard_normal((60, 6)).astype(np.float32), rng, share=0.3)
    values[:, 2], values[:, 3] = np.nan, rng.standard_normal(60)
    return RankingDataset.from_arrays(
        values, rng.integers(0, 3, 60), np.repeat(range(10), 6), feature_names=list("abcdef")
    )


finite = st.floats(-(2.0**99), 2.0**99, width=32)
tables = arrays(
    np.float32,
    st.tuples(st.integers(1, 30), st.integers(1, 6)),
    elements=st.one_of(finite, st.just(np.nan)),
)


class TestImputer:
    @given(tables)
    def test_as_scikit_learn_does(self, table):
        """Median and indicator; a column without any value is filled with 0."""
        imputer = Imputer.fit(table)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of columns without any value
            peer = SimpleImputer(strategy="median", keep_empty_features=True, add_indicator=True)
            expected = peer.fit_transform(table)
        n = table.shape[1]
        features = imputer.transform(table)
        np.testing.assert_allclose(features[:, :n], expected[:, :n], rtol=1e-6)
        # theirs has indicators of columns without any value, too
        some = ~np.isnan(table).all(axis=0)
        columns = [k for k, f in enumerate(peer.indicator_.features_) if some[f]]
        np.testing.assert_array_equal(features[:, n:], expected[:, n:][:, columns])
        assert imputer.indicators == tuple(peer.indicator_.features_[columns])

    @pytest.mark.parametrize("how", IMPUTATIONS)
    def test_what_it_fills_in(self, how):
        table = np.array([[1, np.nan], [5, np.nan], [np.nan, np.nan], [9, np.nan]], np.float32)
        imputer = Imputer.fit(table, how)
        assert imputer.fill == ((0.0, 0.0) if how == "zero" else (5.0, 0.0))
        assert imputer.indicators == ((0,) if how == "median-indicator" else ())
        # A value that was never missing when it was fitted is filled in, too
        assert np.isfinite(imputer.transform(np.full((1, 2), np.nan, np.float32))).all()

    def test_the_dataset(self, holed):
        made = Imputer.fit(holed)(holed)
        assert made.feature_names[6:] == tuple(f"{name} is missing" for name in "abef")
        assert not made.has_missing
        assert made.query_ids is holed.query_ids
        np.testing.assert_array_equal(
            made.features[:, 6:], np.isnan(holed.features[:, [0, 1, 4, 5]])
        )

    def test_codes_miss_nothing(self, rng):
        data = synthetic("tiny", rng=SEED)
        imputer = Imputer.fit(data.with_features(with_holes(data.features, rng)))
        small = data.compact(8)
        made = imputer(small)
        assert made.bits == 8
        np.testing.assert_array_equal(made.features[:, :5], small.features[:])
        assert not made.features[:, 5:].any()

    def test_one_sum_over_the_features(self, holed, rng):
        imputer = Imputer.fit(holed)
        weights = rng.standard_normal(imputer.n_outputs)
        own, missing = imputer.unfold(weights)
        by_hand = np.where(np.isnan(holed.features), missing, np.nan_to_num(holed.features) * own)
        expected = imputer.transform(holed.features) @ weights
        np.testing.assert_allclose(by_hand.sum(axis=1), expected, rtol=1e-6, atol=1e-9)


class TestDatasets:
    def test_equal_and_hashed_alike_whatever_bits_say_nan(self, holed):
        other = holed.features.copy()
        other.view(np.uint32)[np.isnan(other)] = 0xFFC00001  # another NaN
        assert np.isnan(other).any()
        changed = holed.with_features(other)
        assert changed == holed
        assert changed.fingerprint == holed.fingerprint
        other = holed.features.copy()
        other[np.unravel_index(np.isnan(other).argmax(), other.shape)] = 0
        assert holed.with_features(other) != holed
        assert holed.with_features(other).fingerprint != holed.fingerprint

    def test_letor_text_cannot_say_it(self, holed, tmp_path):
        with pytest.raises(DataError, match=r"feature 3 is missing \(NaN\) in row 0"):
            save_letor(holed, tmp_path / "data.txt")
        assert not any(tmp_path.iterdir())
        (tmp_path / "data.txt").write_text("1 qid:1 1:nan 2:3\n")
        with pytest.raises(DataError, match="Parquet, CSV and TSV can have missing values"):
            load_letor(tmp_path / "data.txt")

    def test_on_the_command_line(self, run, holed, tmp_path):
        write_parquet(holed, tmp_path / "data.parquet")
        share = 100 * np.isnan(holed.features).mean()
        assert f"{share:.1f} % of the values" in run("data", "info", "data.parquet")
        run("simulate", "data.parquet", "-o", "log.parquet", "--clicks", 500, "--relevant", 1)
        train = ("train", "data.parquet", "log.parquet", "-o", "ranker.json", "--no-evaluation")
        run(*train, "--impute", "median")
        assert load_ranker(tmp_path / "ranker.json").preprocessing_.imputer == Imputer.fit(
            holed, "median"
        )
        error = run(*train, "--impute", "error", fails=True)
        assert "NaN in row 0, column 2 (both counted from 0), of 'c'" in error
        assert "codes cannot store missing values" in run(*train, "--bits", 8, fails=True)


class TestOthers:
    """What uses features beside rankers fills them in, or says that it does not."""

    def test_training_alone_refuses(self, holed):
        log = ClickLog(query=[0], item=[0], propensity=[0.5])
        with pytest.raises(DataError, match=r"NaN in row 0, column 2 .*preprocessing\.Imputer"):
            train(holed, log, learning_rate=0.1, steps=10)
        with pytest.raises(DataError, match=r"NaN in row 0, column 2 .*preprocessing\.Imputer"):
            gradient_bounds(holed, Examples.of(log, "click"))


# -- all steps in a file -------------------------------------------------------------------------

CATEGORY = EncodedColumn("color", "category", values=("blue", "red"))
STEPS = Preprocessing(
    FeatureEncoder((EncodedColumn("price", "number"), CATEGORY)),
    Imputer((1.0, 0.0, 0.0), (0,)),
    Normalizer("minmax", 4, (0.0,) * 4, (1.0,) * 4, logs=(2.0, 0.0, 0.0, 0.0)),
)


@pytest.mark.parametrize("how", SCALINGS)
def test_steps_through_json_are_the_same(how, data):
    steps = Preprocessing(imputer=Imputer.fit(data), normalizer=Normalizer.fit(data, how))
    again = Preprocessing.from_dict(json.loads(json.dumps(steps.to_dict())))
    assert again == steps
    assert Preprocessing.from_dict(json.loads(json.dumps(STEPS.to_dict()))) == STEPS
    np.testing.assert_array_equal(
        again.features(data.features, data.offsets), steps.features(data.features, data.offsets)
    )


@pytest.mark.parametrize(
    ("step", "change"),
    [
        ("normalizer", {"how": "max"}), ("normalizer", {"n_features": 3}),
        ("normalizer", {"shift": None}), ("normalizer", {"scale": [1.0, 1.0, 1.0, -1.0]}),
        ("normalizer", {"roots": [6, 0, 0, 0], "logs": None}), ("normalizer", {"roots": []}),
        ("imputer", {"fill": [1.0, 0.0, 1e39]}), ("imputer", {"indicators": [3]}),
        ("imputer", {"indicators": [1, 0]}), ("imputer", {"indicators": [True]}),
        ("encoder", {"columns": [{"name": "a", "kind": "number"}] * 2}),
    ],
    ids=str,
)  # fmt: skip
def test_a_changed_file_is_rejected(step, change):
    values = STEPS.to_dict()
    with pytest.raises(DataError, match="expected"):
        Preprocessing.from_dict(values | {step: values[step] | change})


def test_steps_must_fit_each_other():
    STEPS.check_widths(3, ("price", "color=blue", "color=red"), 4)
    for n_features, names, n_scored in (
        (4, None, 4), (3, ("a", "b", "c"), 4), (3, ("price", "color=blue", "color=red"), 3),
    ):  # fmt: skip
        with pytest.raises(DataError, match="its "):
            STEPS.check_widths(n_features, names, n_scored)


def test_an_imputer_leaves_the_features_as_they_are():
    features = np.array([[1.0, np.nan], [3.0, np.nan]])
    features.setflags(write=False)
    assert Imputer.fit(features).fill == (2.0, 0.0)
