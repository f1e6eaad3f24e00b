"""Counts joined to the features of their items."""

from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from countersample import PositionBias, RankingDataset
from countersample.clicks import TableBias
from countersample.errors import DataError, ParameterError
from countersample.logs import (
    PositionCounts,
    RowPropensities,
    join_features,
    read_features,
)
from countersample.logs.joins import Matched


@pytest.fixture
def features():
    return pa.table(
        {
            "query_id": ["b", "a", "b", "a"],
            "item_id": [7, 8, 9, 7],
            "bm25": [0.1, 0.2, 0.3, 0.4],
        }
    )


def counts_of(rows):
    return PositionCounts.from_columns(*zip(*rows, strict=True))


def test_clicks_find_the_features_of_their_items(features):
    table = read_features(features)
    assert not table.has_labels
    counts = counts_of([("a", 7, 1, 1), ("b", 7, 2, 1), ("b", 7, 3, 1), ("b", 9, 1, 0)])
    log, report = join_features(counts, [1.0, 0.5, 0.25], table.dataset, table.item_ids)
    log.check(table.dataset)
    row = table.dataset.offsets[log.query] + log.item
    assert table.dataset.features[row, 0].tolist() == pytest.approx([0.4, 0.1, 0.1])
    # b has one session, by its first position, in which item 7 is examined 0.5 + 0.25 times
    assert log.weights.tolist() == pytest.approx([1, 1 / 0.75, 1 / 0.75])
    by_position, _ = join_features(
        counts, [1.0, 0.5, 0.25], table.dataset, table.item_ids, exposure="position-only"
    )
    assert by_position.weights.tolist() == [1, 2, 4]
    assert (report.n_clicks, report.n_joined, report.n_skipped) == (3, 3, 0)


def test_clicks_that_cannot_be_used_are_counted(features):
    table = read_features(features)
    rows = [("a", 7, 1, 1), ("z", 7, 1, 1), ("a", 9, 1, 1), ("b", 9, 3, 1), ("a", 5, 1, 0)]
    counts = counts_of(rows)
    said = (
        r"3 of 4 clicks cannot be used: 1 on queries without features, 1 on items .*, "
        r"1 at positions beyond 2, .*missing='skip'"
    )
    with pytest.raises(DataError, match=said):
        join_features(counts, [1.0, 0.5], table.dataset, table.item_ids)
    log, report = join_features(counts, [1.0, 0.5], table.dataset, table.item_ids, missing="skip")
    assert log.n_clicks == report.n_joined == 1
    assert (report.no_query, report.no_item, report.no_propensity) == (1, 1, 1)
    assert (report.n_pairs, report.n_pairs_without_features) == (5, 3)


@pytest.mark.parametrize(
    ("propensities", "weights"),
    [
        ([1.0, 0.5, 0.25], [1, 4]),
        (PositionBias(gamma=1.0), [1, 3]),
        (TableBias([1.0, 0.5, 0.2, 0.0]), [1, 5]),
        (RowPropensities(np.array([0.5, 0.1])), [2, 10]),
    ],
)
def test_propensities_of_every_kind(features, propensities, weights):
    table = read_features(features)
    counts = counts_of([("a", 7, 1, 1), ("b", 9, 3, 1)])
    log, _ = join_features(counts, propensities, table.dataset, table.item_ids)
    assert log.weights.tolist() == pytest.approx(weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"propensities": [1.0, 0.0]}, "the propensity of position 2 is 0, expected a number ab"),
        ({"propensities": [1.5, 1.0]}, "the propensity of position 1 is 1.5"),
        ({"propensities": [[1.0]]}, r"propensities have shape \(1, 1\)"),
        ({"propensities": RowPropensities(np.ones(5))}, "5 propensities for 2 rows"),
        ({"counts": counts_of([("a", 7, 1, 0)])}, "no click, so there is nothing to learn from"),
        ({"counts": counts_of([(1, 7, 1, 1)])}, "query_id is integers in the log and text in"),
        ({"counts": counts_of([("a", "7", 1, 1)])}, "item_id is text in the log and integers in"),
        ({"counts": counts_of([("z", 7, 1, 1)])}, "no click has both features and a propensity"),
        ({"item_ids": [1]}, r"item_ids have shape \(1,\), expected \(4,\)"),
        ({"item_ids": [7, 7, 8, 8]}, "two rows of item 7 of query b, expected one"),
        ({"missing": "drop"}, "missing is 'drop', expected one of error, skip"),
    ],
)
def test_what_cannot_be_joined(features, change, message):
    table = read_features(features)
    good = {
        "counts": counts_of([("a", 7, 1, 1), ("b", 9, 2, 1)]),
        "propensities": [1.0, 0.5],
        "dataset": table.dataset,
        "item_ids": table.item_ids,
    }
    with pytest.raises((DataError, ParameterError), match=message):
        join_features(**{**good, **change})


def test_features_with_labels_and_from_judged_data(tmp_path):
    frame = pd.DataFrame(
        {"q": [1, 1], "doc": ["x", "y"], "label": [0, 2], "a": [0.5, 1.5], "name": ["n", "m"]}
    )
    table = read_features(frame, query="q", item="doc", include=["a"])
    assert table.has_labels
    assert table.dataset.labels.tolist() == [0, 2]
    assert table.dataset.feature_names == ("a",)
    data = RankingDataset.from_arrays(X=[[1.0], [2.0], [3.0]], y=[0, 1, 0], qid=[5, 5, 6])
    data.save(tmp_path / "saved")
    assert read_features(tmp_path / "saved").item_ids.tolist() == [0, 1, 0]


def test_features_that_are_chosen(tmp_path):
    frame = pd.DataFrame(
        {"query_id": [1, 1], "item_id": [7, 8], "label": [0, 2], "a": [0.5, 1.5], "b": [3, 4],
         "name": ["n", "m"]}
    )  # fmt: skip
    for options in ({"include": ["b"]}, {"exclude": ["name", "a"]}):
        table = read_features(frame, **options)
        assert table.has_labels
        assert table.dataset.feature_names == ("b",)
        assert table.dataset.features.ravel().tolist() == [3, 4]
    with pytest.raises(DataError, match="no feature 'label'"):
        read_features(frame, exclude=["label"])
    (tmp_path / "letor.txt").write_text("0 qid:1 1:5 2:6 3:7\n1 qid:1 1:8 2:9 3:10\n")
    table = read_features(tmp_path / "letor.txt", exclude=["2"])
    assert table.dataset.feature_names == ("f1", "f3")
    assert table.dataset.features.tolist() == [[5, 7], [8, 10]]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"qid": [1], "item_id": [1], "a": [1.0]}), "no column 'query_id': the col"),
        (pd.DataFrame({"query_id": ["a", None], "item_id": [1, 2], "a": [1.0, 2.0]}),
         "1 rows have no query_id"),
        (pd.DataFrame({"query_id": [1], "item_id": [1], "a": ["x"]}),
         "no feature is left, expected at least one: 'a' .text"),
        ([1], "a list is neither a path nor a data frame"),
    ],
)  # fmt: skip
def test_features_that_cannot_be_read(frame, message):
    with pytest.raises(DataError, match=message):
        read_features(frame)


def test_shown_rows_are_those_of_plain_loops(rng):
    """The same (query, item, position) → (impressions, clicks, propensity) as a dictionary."""
    n = 400
    rows = list(zip(rng.integers(0, 6, n).tolist(), rng.integers(0, 7, n).tolist(),
                    rng.integers(1, 5, n).tolist(), (rng.random(n) < 0.3).astype(int).tolist(),
                    strict=True))  # fmt: skip
    known = [(q, i) for q in range(5) for i in range(6)]  # query 5 and item 6 have none
    table = pa.table({
        "query_id": [q for q, _ in known],
        "item_id": [i for _, i in known],
        "x": rng.random(len(known)),
    })  # fmt: skip
    looks = [1.0, 0.5, 0.25]  # position 4 has none
    shown, clicked = Counter(), Counter()
    for q, i, k, c in rows:
        if (q, i) in known:
            shown[q, i, k] += 1
            clicked[q, i, k] += c * (k <= 3)
    features = read_features(table)
    dataset = features.dataset
    counts = PositionCounts.from_columns(*zip(*rows, strict=True))
    log, _, places = Matched.of(counts, dataset, features.item_ids).shown(looks)
    item = features.item_ids[dataset.offsets[log.query] + log.item]
    keys = list(zip(dataset.query_ids[log.query].tolist(), item.tolist(),
                    log.position.tolist(), strict=True))  # fmt: skip
    assert dict(zip(keys, log.impressions.tolist(), strict=True)) == shown
    filled = Counter((q, k) for q, _, k, _ in rows)
    looks.append(0.0)  # where nothing is known, what was shown counts, and no click does
    for (q, i, k), row in zip(keys, range(len(log)), strict=True):
        examined = sum(n * looks[j - 1] for (a, b, j), n in shown.items() if (a, b) == (q, i))
        share = examined / max(filled[q, j] for j in range(1, 5))
        part = 1 / max(1, share)  # of an item that is examined more than once a session
        assert log.clicks[row] == pytest.approx(clicked[q, i, k] * part)
        assert log.examination[row] == pytest.approx(looks[k - 1] * part)
        if k <= 3:
            assert log.propensity[row] == pytest.approx(min(1, share))
    assert (counts.impressions[places] == log.impressions).all()
