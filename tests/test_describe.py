"""The figures of a dataset."""

import json

import numpy as np
import pytest
from conftest import SEED

from countersample import RankingDataset, synthetic
from countersample.data import matrices
from countersample.data.dataset import Histogram, describe
from countersample.errors import DataError


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


@pytest.mark.parametrize(
    ("sizes", "edges"),
    [([1], (1, 2)), ([2], (2, 5)), ([9, 10], (5, 10, 20)), ([99], (50, 100)), ([100], (100, 200))],
)
def test_histogram_starts_and_ends_where_the_sizes_do(sizes, edges):
    histogram = describe(dataset(sizes)).items_histogram
    assert histogram.edges == edges
    assert sum(histogram.counts) == len(sizes)


@pytest.mark.parametrize(("n_labels", "counted"), [(20, True), (21, False)])
def test_many_different_labels_are_not_counted(n_labels, counted):
    figures = describe(dataset([n_labels], labels=np.arange(n_labels) / 2))
    assert (figures.grades is not None) == counted
    assert figures.label_max == (n_labels - 1) / 2


@pytest.mark.parametrize("labels", [[0, 1.5], np.arange(30)])
def test_to_dict_is_json(labels):
    figures = describe(dataset([len(labels)], labels))
    assert json.loads(json.dumps(figures.to_dict(), allow_nan=False)) == figures.to_dict() | {
        "items_histogram": {"edges": list(figures.items_histogram.edges), "counts": [1]}
    }
    if len(labels) == 2:
        assert figures.to_dict()["grades"] == {"0": 1, "1.5": 1}


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
