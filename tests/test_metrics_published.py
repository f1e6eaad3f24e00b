"""Microsoft's published results of ranking OHSUMED by each single feature: all 525 numbers."""

import csv
import lzma

import numpy as np
import pytest

from countersample.metrics import get_metric


def read_ohsumed(folder):
    """All five parts the slow and obvious way: features, labels and offsets of the 106 queries."""
    rows = []
    for part in range(1, 6):
        with lzma.open(folder / f"S{part}.txt.xz", "rt") as lines:
            rows += [line.split("#")[0].split() for line in lines]
    features = np.array([[float(cell.split(":")[1]) for cell in row[2:]] for row in rows])
    labels = np.array([float(row[0]) for row in rows])
    starts = [i for i, row in enumerate(rows) if i == 0 or row[1] != rows[i - 1][1]]
    return features, labels, np.array([*starts, len(rows)])


@pytest.fixture(scope="module")
def ohsumed(shared):
    return read_ohsumed(shared / "ohsumed")


@pytest.fixture(scope="module")
def published(shared):
    """The published numbers: a metric's name to its value for each feature."""
    with (shared / "ohsumed" / "published_single_feature.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["feature"] for row in rows] == [str(i + 1) for i in range(25)]
    return {name: [float(row[name]) for row in rows] for name in rows[0] if name != "feature"}


NAMES = [f"{name}@{k}" for name in ("NDCG", "P") for k in range(1, 11)] + ["MAP"]
OURS = {"NDCG": "ndcg", "P": "precision", "MAP": "average_precision"}


@pytest.mark.parametrize("name", NAMES)
def test_published(name, ohsumed, published):
    features, labels, offsets = ohsumed
    family, at, k = name.partition("@")
    options = {"discount": "letor"} if family == "NDCG" else {}
    metric = get_metric(OURS[family] + at + k, **options)  # else the defaults: ties as in the file
    means = [metric(labels, scores, offsets).mean() for scores in features.T]
    np.testing.assert_allclose(means, published[name], rtol=0, atol=1e-6)


def test_there_are_525_numbers(ohsumed, published):
    features, labels, offsets = ohsumed
    assert (len(labels), len(offsets) - 1, features.shape[1]) == (16_140, 106, 25)
    assert sorted(published) == sorted(NAMES)
    assert sum(map(len, published.values())) == 525
