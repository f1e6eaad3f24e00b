"""Missing values: the imputer against scikit-learn's, datasets that hold them, who refuses them."""

import json
import warnings

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_rankers import with_holes
from shops import make, opened
from sklearn.impute import SimpleImputer

from countersample import (
    ClickLog,
    RankingDataset,
    load_letor,
    save_letor,
    simulate_clicks,
    synthetic,
    train,
)
from countersample.clicks.impressions import PositionCounts
from countersample.data import imputing
from countersample.data.frames import read_table, write_parquet
from countersample.data.imputing import METHODS, Imputer, filled, filled_table
from countersample.errors import DataError, ParameterError
from countersample.evaluation.doubly_robust import relevance_model
from countersample.fitting import find_leaks, fit_from_impressions, write_page
from countersample.plans import Examples
from countersample.propensity import estimate as estimate_propensities
from countersample.rankers import load_ranker
from countersample.theory import gradient_bounds


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
        """Median and indicator; a column without any value is 0, where theirs is told to be."""
        imputer = Imputer.fit_table(table)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of columns without any value
            peer = SimpleImputer(strategy="median", keep_empty_features=True, add_indicator=True)
            expected = peer.fit_transform(table)
        n = table.shape[1]
        made = imputer.transform(table)
        np.testing.assert_allclose(made[:, :n], expected[:, :n], rtol=1e-6)
        # theirs has indicators of columns without any value, too
        some = ~np.isnan(table).all(axis=0)
        kept = [k for k, f in enumerate(peer.indicator_.features_) if some[f]]
        np.testing.assert_array_equal(made[:, n:], expected[:, n:][:, kept])
        assert imputer.indicators == tuple(peer.indicator_.features_[kept])

    @pytest.mark.parametrize("how", METHODS)
    def test_what_it_fills_in(self, how):
        table = np.array([[1, np.nan], [5, np.nan], [np.nan, np.nan], [9, np.nan]], np.float32)
        imputer = Imputer.fit_table(table, how)
        assert imputer.fill == ((0.0, 0.0) if how == "zero" else (5.0, 0.0))
        assert imputer.indicators == ((0,) if how == "median-indicator" else ())
        # A value that was never missing when it was fitted is filled in, too
        assert np.isfinite(imputer.transform(np.full((1, 2), np.nan, np.float32))).all()

    def test_some_columns_at_a_time(self, holed, monkeypatch):
        whole = Imputer.fit(holed)
        monkeypatch.setattr(imputing, "_VALUES_AT_ONCE", 70)
        assert Imputer.fit(holed) == whole
        assert whole.indicators == (0, 1, 4, 5)
        assert whole.n_outputs == 10

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
        own, missing = imputer.unfolded(weights)
        by_hand = np.where(np.isnan(holed.features), missing, np.nan_to_num(holed.features) * own)
        expected = imputer.transform(holed.features) @ weights
        np.testing.assert_allclose(by_hand.sum(axis=1), expected, rtol=1e-6, atol=1e-9)

    def test_through_json(self, holed):
        imputer = Imputer.fit(holed)
        assert Imputer.from_dict(json.loads(json.dumps(imputer.to_dict()))) == imputer

    @pytest.mark.parametrize(
        "change",
        [
            {"version": 2}, {"version": True}, {"n_features": -1}, {"n_features": 2.0},
            {"n_features": 3}, {"fill": [1.0]}, {"fill": [1.0, np.nan]}, {"fill": [1.0, 1e39]},
            {"fill": [1.0, "2"]}, {"fill": [1.0, True]}, {"fill": None}, {"fill": 7},
            {"fill": [1, 10**400]}, {"indicators": [2]}, {"indicators": [-1]},
            {"indicators": [1, 0]}, {"indicators": [1, 1]}, {"indicators": [0.0]},
            {"indicators": None}, {"indicators": [True]}, {"indicators": [[0]]},
        ],
    )  # fmt: skip
    def test_what_is_not_as_written_is_refused(self, change):
        good = Imputer(2, (1.0, 2.0), (0,)).to_dict()
        (name,) = change
        with pytest.raises(
            DataError, match=f"{name if 'n_f' not in name else ''}.* of a saved imp"
        ):
            Imputer.from_dict(good | change)
        with pytest.raises(DataError, match="version of a saved imputer is None"):
            Imputer.from_dict([])

    def test_another_method_or_width(self, holed):
        with pytest.raises(ParameterError, match="how is 'mean', expected one of median-indicator"):
            Imputer.fit(holed, "mean")
        with pytest.raises(DataError, match=r"shape \(2, 3\), expected \(n_items, 6\)"):
            Imputer.fit(holed).transform(np.zeros((2, 3), np.float32))

    def test_a_repr_is_short(self):
        assert len(repr(Imputer(700, (0.0,) * 700, tuple(range(700))))) < 150


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

    def test_folders_and_tables(self, holed, tmp_path):
        holed.save(tmp_path / "folder")
        assert RankingDataset.open(tmp_path / "folder") == holed
        write_parquet(holed, tmp_path / "data.parquet")
        assert read_table(tmp_path / "data.parquet") == holed
        (tmp_path / "data.csv").write_text("qid,label,a,b\n1,0,,2\n1,1,3,\n")
        np.testing.assert_array_equal(
            read_table(tmp_path / "data.csv").features, [[np.nan, 2], [3, np.nan]]
        )

    def test_letor_text_cannot_say_it(self, holed, tmp_path):
        with pytest.raises(
            DataError, match=r"feature 3 is missing \(NaN\) in row 0, and LETOR text"
        ):
            save_letor(holed, tmp_path / "data.txt")
        assert not any(tmp_path.iterdir())
        (tmp_path / "data.txt").write_text("1 qid:1 1:nan 2:3\n")
        with pytest.raises(DataError, match="what is missing can be told in Parquet, CSV or TSV"):
            load_letor(tmp_path / "data.txt")

    def test_described(self, holed):
        found = holed.describe()
        assert found.missing == np.isnan(holed.features).mean()
        assert found.density == np.mean(np.nan_to_num(holed.features) != 0)
        assert found.feature_min == np.nanmin(holed.features)
        assert found.feature_max == np.nanmax(holed.features)
        assert found.n_constant_features == 1

    def test_on_the_command_line(self, run, holed, tmp_path):
        write_parquet(holed, tmp_path / "data.parquet")
        share = 100 * np.isnan(holed.features).mean()
        assert f"{share:.1f} % of the values" in run("data", "info", "data.parquet")
        assert json.loads(run("data", "info", "data.parquet", "--json"))["data.parquet"]["missing"]
        run("simulate", "data.parquet", "-o", "log.parquet", "--clicks", 500, "--relevant", 1)
        train = ("train", "data.parquet", "log.parquet", "-o", "ranker.json", "--no-evaluation")
        run(*train, "--impute", "median")
        assert load_ranker(tmp_path / "ranker.json").imputer_ == Imputer.fit(holed, "median")
        run("rank", "ranker.json", "data.parquet", "-o", "ranks.csv")
        assert "ndcg@10" in run("evaluate", "ranker.json", "data.parquet")
        said = run(*train, "--impute", "error", fails=True)
        assert "NaN in row 0, column 2 (both counted from 0), of 'c', and impute is 'error'" in said
        said = run(*train, "--impute", "mean", fails=True)
        assert "impute is 'mean', expected one of median-indicator, median, zero, error" in said
        assert "impute is not an option of the model" in run(
            *train, "--impute", "median", "--model", "lightgbm", fails=True
        )
        assert "codes have no room for what is missing" in run(*train, "--bits", 8, fails=True)


class TestOthers:
    """What uses features beside rankers fills them in, or says that it does not."""

    def test_training_alone_refuses(self, holed):
        log = ClickLog(query=[0], item=[0], propensity=[0.5])
        with pytest.raises(
            DataError, match=r"NaN in row 0, column 2 .*imputing\.Imputer, or train a"
        ):
            train(holed, log, learning_rate=0.1, steps=10)
        with pytest.raises(
            DataError, match=r"NaN in row 0, column 2 .*imputing\.Imputer, or train a"
        ):
            gradient_bounds(holed, Examples.of(log, "click"))

    def test_the_model_of_relevance(self, holed, rng):
        query, item = np.divmod(np.arange(60), 6)
        log = ClickLog(
            query, item, np.full(60, 0.5), rng.integers(0, 3, 60), position=item + 1,
            impressions=np.full(60, 9),
        )  # fmt: skip
        by_hand = Imputer.fit(holed)(holed)
        a, b = (
            relevance_model(log, data, rng=np.random.default_rng(0)) for data in (holed, by_hand)
        )
        np.testing.assert_array_equal(a, b)
        assert a.std() > 0

    def test_tables_that_are_filled(self, holed):
        np.testing.assert_array_equal(filled_table(holed.features), filled(holed).features)
        whole = np.ones((3, 2), np.float32)
        assert filled_table(whole) is whole
        data = synthetic("tiny", rng=SEED)
        assert filled(data) is data

    def test_leaks_of_features_that_are_missing_at_times(self, rng):
        query, item = np.divmod(np.arange(4000), 10)
        clicks = rng.binomial(40, 0.2 / (item + 1))
        values = np.column_stack([rng.random(4000), clicks / 40, np.full(4000, np.nan)])
        values[rng.random((4000, 3)) < 0.2] = np.nan
        data = RankingDataset.from_arrays(values, np.zeros(4000), query)
        log = ClickLog(query, item, 1 / (item + 1), clicks, impressions=np.full(4000, 40))
        assert [leak.feature for leak in find_leaks(log, data, rng=rng)] == [1]
        later = ClickLog(
            query, item, 1 / (item + 1), rng.binomial(40, 0.2 / (item + 1)), position=item + 1,
            impressions=np.full(4000, 40),
        )  # fmt: skip
        earlier = log.replace(position=item + 1)
        found = find_leaks(earlier, data, judged=later, rng=rng)
        assert {leak.feature for leak in found} == {1}

    def test_simulated_users_do_not_look_at_features(self, holed):
        log = simulate_clicks(holed, np.arange(60.0), 20, relevant=1, rng=SEED)
        assert log.n_clicks == 20


def holed_shop(seed):
    """Return the log and the features of a shop, nulls in place of some of them."""
    log, features = make(seed, queries=60, sessions=2000)
    rng = np.random.default_rng(seed)
    for index, name in enumerate(features.column_names):
        if name not in {"query_id", "item_id", "label"}:
            gone = rng.random(len(features)) < 0.15
            column = pa.array(features[name].to_numpy(), mask=gone)
            features = features.set_column(index, name, column)
    return log, features


class TestLogs:
    def test_from_a_log_to_a_ranker(self, tmp_path):
        log, features = holed_shop(SEED)
        assert features["price"].null_count
        fit = fit_from_impressions(*opened(log, features), seed=SEED)
        assert fit.ranker.imputer_.n_outputs == 10
        assert fit.gain.relative > 0
        write_page(tmp_path / "page.html", fit, command="", ranker=tmp_path / "ranker.json")
        assert "price is missing" in (tmp_path / "page.html").read_text()

    def test_the_regression_of_propensities(self, rng):
        pair = np.repeat(np.arange(300), 3)
        position = np.tile([1, 2, 3], 300)
        clicks = rng.binomial(20, 0.5 / position)
        counts = PositionCounts.from_columns(
            pair // 10, pair % 10, position, clicks, np.full(900, 20)
        )
        features = with_holes(rng.standard_normal((300, 2)), rng)
        same, other = filled_table(features), np.nan_to_num(features)
        a, b, c = (
            estimate_propensities(
                counts, method="regression-em", features=each, n_bootstrap=20, rng=0
            ).value
            for each in (features, same, other)
        )
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)
