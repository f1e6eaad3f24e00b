"""`RankingDataset`: checks, parts and variants, and its statistics."""

import numpy as np
import pytest
from conftest import SEED
from hypothesis import given
from hypothesis import strategies as st

from countersample import RankingDataset, synthetic
from countersample.data import matrices
from countersample.data.dataset import Histogram, describe
from countersample.errors import CounterSampleError, DataError, ParameterError


@pytest.fixture
def data():
    return RankingDataset.from_arrays(
        X=[[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]],
        y=[0, 1, 2, 3, 4],
        qid=["a", "b", "b", "c", "c"],
    )


class TestFromArrays:
    def test_types(self, data):
        assert data.features.dtype == np.float32
        assert data.labels.dtype == np.float32
        assert data.offsets.tolist() == [0, 1, 3, 5]
        assert data.query_ids.tolist() == ["a", "b", "c"]
        assert (data.n_queries, data.n_items, data.n_features, len(data)) == (3, 5, 2, 3)
        assert data.query_sizes.tolist() == [1, 2, 2]

    @given(st.lists(st.integers(-3, 3), min_size=1, max_size=20))
    def test_gathers_in_first_seen_order(self, ids):
        rows = np.arange(len(ids))
        data = RankingDataset.from_arrays(X=rows[:, None], y=rows, qid=ids)
        queries = {}
        for row, query in enumerate(ids):
            queries.setdefault(query, []).append(row)
        assert data.query_ids.tolist() == list(queries)
        assert data.labels.tolist() == [row for members in queries.values() for row in members]
        assert data.query_sizes.tolist() == [len(members) for members in queries.values()]
        assert data.features[:, 0].tolist() == data.labels.tolist()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"X": [1, 2]}, "expected a float32 matrix"),
            ({"X": [[1, 2], [3]]}, "X must be an array of numbers"),
            ({"X": [["a"], ["b"]]}, "X is of type <U1, expected numbers"),
            ({"X": np.empty((0, 1)), "y": [], "qid": []}, "X has no rows"),
            ({"X": [[1], [1e39]]}, "X has inf in row 1, column 0"),
            ({"X": [[np.nan], [-np.inf]]}, "X has -inf in row 1, column 0"),
            ({"y": [1, np.nan]}, "y has nan at row 1, expected finite"),
            ({"y": [1]}, r"y has shape \(1,\), expected \(2,\)"),
            ({"qid": [1.5, 2.5]}, "query ids are of type float64, expected integers or strings"),
            ({"feature_names": ["a", "b"]}, "2 feature names for 1 features"),
        ],
    )
    def test_refuses(self, change, message):
        arguments = {"X": [[1], [2]], "y": [0, 1], "qid": [1, 1]} | change
        with pytest.raises(DataError, match=message):
            RankingDataset.from_arrays(**arguments)


class TestConstructor:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"features": np.ones((2, 1))}, "features are float64"),
            ({"features": np.ones((4, 2), np.float32).T}, "not C-contiguous"),
            ({"labels": np.ones(3, np.float32)}, r"labels have shape \(3,\), expected \(2,\)"),
            ({"offsets": np.array([0, 1])}, "offsets run from 0 to 1, expected 0 to 2"),
            ({"offsets": np.array([0, 0, 2])}, "query 0 has no items"),
            ({"offsets": np.array([0.0, 2.0])}, "offsets must be an int64 vector"),
            ({"query_ids": np.array([1, 2])}, r"query_ids have shape \(2,\), expected \(1,\)"),
        ],
    )
    def test_refuses(self, change, message):
        arrays = {
            "features": np.ones((2, 1), np.float32),
            "labels": np.ones(2, np.float32),
            "offsets": np.array([0, 2]),
            "query_ids": np.array([1]),
        }
        with pytest.raises(DataError, match=message):
            RankingDataset(**(arrays | change))


class TestParts:
    def test_subset(self, data):
        part = data.subset([2, 0])
        assert part.query_ids.tolist() == ["c", "a"]
        assert part.labels.tolist() == [3, 4, 0]
        assert part.features[:, 0].tolist() == [7, 9, 1]
        assert part == data.subset([-1, 0])
        assert data.subset([True, False, True]) == data.subset([0, 2])
        assert data.subset([]).n_queries == 0

    @pytest.mark.parametrize(
        ("queries", "message"),
        [
            ([3], "query 3 of a dataset with 3 queries"),
            ([True], "a mask of shape"),
            ([0.5], "queries are positions"),
        ],
    )
    def test_subset_refuses(self, data, queries, message):
        with pytest.raises(ParameterError, match=message):
            data.subset(queries)

    @given(st.integers(1, 30), st.integers(0, 10))
    def test_split_covers_all_queries_once(self, n_queries, seed):
        rows = np.arange(n_queries)
        data = RankingDataset.from_arrays(X=rows[:, None], y=rows, qid=rows)
        parts = data.split(0.5, 0.3, 0.2, rng=seed)
        ids = np.concatenate([part.query_ids for part in parts])
        assert sorted(ids.tolist()) == rows.tolist()
        assert parts == data.split(0.5, 0.3, 0.2, rng=np.random.default_rng(seed))

    @pytest.mark.parametrize("fractions", [(), (0.0, 0.5), (0.8, 0.3), (-0.1,)])
    def test_split_refuses(self, data, fractions):
        with pytest.raises(ParameterError, match="expected positive numbers that sum to at most 1"):
            data.split(*fractions)


class TestIdentity:
    @pytest.mark.parametrize("what", ["features", "labels", "offsets", "query_ids", "names"])
    def test_any_change_changes_both(self, data, what):
        arrays = {
            "features": data.features.copy(),
            "labels": data.labels.copy(),
            "offsets": data.offsets.copy(),
            "query_ids": data.query_ids.copy(),
        }
        if what == "names":
            other = RankingDataset(**arrays, feature_names=("x", "y"))
        else:
            arrays[what][1] = arrays[what][1] + 1 if what != "query_ids" else "z"
            other = RankingDataset(**arrays)
        assert other != data
        assert other.fingerprint != data.fingerprint

    def test_minus_zero_is_zero_and_text_is_no_number(self):
        plus = RankingDataset.from_arrays(X=[[0.0]], y=[0], qid=[1])
        minus = RankingDataset.from_arrays(X=[[-0.0]], y=[-0.0], qid=[1])
        assert plus == minus
        assert plus.fingerprint == minus.fingerprint
        text = RankingDataset.from_arrays(X=[[0.0]], y=[0], qid=["1"])
        assert text.fingerprint != plus.fingerprint


class TestSelectFeatures:
    NAMED = RankingDataset.from_arrays(
        X=[[1, 2, 3], [4, 5, 6]], y=[0, 1], qid=[1, 1], feature_names=["price", "sales", "stock"]
    )

    def test_by_name_in_the_order_asked_for(self):
        result = self.NAMED.select_features(["stock", "price"])
        assert result.feature_names == ("stock", "price")
        assert result.features.tolist() == [[3, 1], [6, 4]]
        assert result.features.flags.c_contiguous
        assert result.labels is self.NAMED.labels

    def test_all_but_some(self):
        assert self.NAMED.select_features(drop=["sales"]).feature_names == ("price", "stock")
        assert self.NAMED.select_features() is self.NAMED

    @pytest.mark.parametrize("chosen", [["3", "1"], ["f3", "f1"]])
    def test_by_number_without_names(self, chosen):
        plain = RankingDataset.from_arrays(self.NAMED.features, [0, 1], [1, 1])
        result = plain.select_features(chosen)
        assert result.feature_names == ("f3", "f1")  # so that a ranker knows which they are
        assert result.features.tolist() == [[3, 1], [6, 4]]

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"features": ["pricy"]}, r"no feature 'pricy' \(did you mean 'price'\?\): the feat"),
            ({"drop": ["1"]}, "no feature '1': the features are price, sales, stock"),
            ({"drop": ["price", "sales", "stock"]}, "no feature is left"),
            ({"features": ["price"], "drop": ["sales"]}, "both given, expected one of them"),
        ],
    )
    def test_what_cannot_be_chosen(self, options, told):
        with pytest.raises(CounterSampleError, match=told):
            self.NAMED.select_features(**options)


# -- statistics ------------------------------------------------------------------------------------


def dataset(sizes, labels=None, n_features=1):
    n_items = sum(sizes)
    return RankingDataset.from_arrays(
        X=np.ones((n_items, n_features)),
        y=np.zeros(n_items) if labels is None else labels,
        qid=np.repeat(np.arange(len(sizes)), sizes),
    )


def test_worked_example():
    data = RankingDataset.from_arrays(
        X=[[0, 5, -1], [0, 5, 0], [0, 5, 2], [0, 5, 0]], y=[0, 2, 1, 1], qid=[1, 1, 2, 2]
    ).describe()
    assert (data.n_queries, data.n_items, data.n_features) == (2, 4, 3)
    assert data.density == (4 + 2) / (4 * 3)
    assert (data.feature_min, data.feature_max) == (-1, 5)
    assert data.n_constant_features == 2
    assert (data.label_min, data.label_mean, data.label_max) == (0, (0 + 2 + 1 + 1) / 4, 2)
    assert data.grades == {0: 1, 1: 2, 2: 1}
    assert data.n_queries_one_grade == 1
    assert data.n_queries_none_relevant == data.n_queries_one_item == 0
    assert data.n_bytes == 4 * 3 * 4 + 4 * 4 + 3 * 8 + 2 * 8


def test_items_and_degenerate_queries():
    labels = [0, 0, 1, 1, 0, 1, 3, 0]  # queries of labels 00, 11, 01, 3 and 0
    figures = describe(dataset([2, 2, 2, 1, 1], labels))
    assert figures.n_queries_one_grade == 4
    assert figures.n_queries_none_relevant == 2
    assert figures.n_queries_one_item == 2
    figures = describe(dataset([1, 4, 4, 19, 20]))
    assert (figures.items_min, figures.items_max) == (1, 20)
    assert figures.items_median == 4
    assert figures.items_mean == (1 + 4 + 4 + 19 + 20) / 5
    assert figures.items_histogram == Histogram((1, 2, 5, 10, 20, 50), (1, 2, 0, 1, 1))


def test_blocks_do_not_matter(monkeypatch, tmp_path):
    data = synthetic("tiny", rng=SEED)
    expected = describe(data)
    assert expected.density == np.mean(data.features != 0)
    path = tmp_path / "features.npy"
    np.save(path, data.features)
    monkeypatch.setattr(matrices, "BLOCK_VALUES", 7)
    assert describe(data.with_features(np.load(path, mmap_mode="r"))) == expected


def test_nothing_to_describe():
    with pytest.raises(DataError, match="nothing to describe: 0 queries with 5 features"):
        describe(synthetic("tiny", n_queries=1, rng=SEED).subset([]))
