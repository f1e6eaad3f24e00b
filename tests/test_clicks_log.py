"""Click logs: columns, weights, variants, files."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from countersample.clicks import ClickLog
from countersample.data import RankingDataset, synthetic
from countersample.errors import CounterSampleError, DataError, ParameterError

SHOWN = {
    "count": [1, 2, 0, 1], "session": [7, 3, 7, 9], "position": [2, 1, 1, 3],
    "impressions": [1, 4, 1, 1],
}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return RankingDataset.from_arrays(
        X=[[0.1], [0.9], [0.5], [0.4], [0.3]], y=[0, 2, 1, 0, 4], qid=["a", "a", "b", "b", "b"]
    )


def small(**columns):
    default = {"query": [0, 1, 0, 0], "item": [1, 2, 1, 0], "propensity": [0.25, 0.5, 0.5, 1.0]}
    return ClickLog(**(default | columns))


def columns_of(log):
    return [log.query.tolist(), log.item.tolist(), log.propensity.tolist(), log.clicks.tolist()]


# -- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "weights", "n_clicks", "largest"),
    [(None, [4, 2, 2, 1], 4, 4), ([0, 3, 1, 2], [0, 6, 2, 2], 6, 2)],  # 4 has no clicks then
)
def test_weights_are_clicks_over_propensity(count, weights, n_clicks, largest):
    log = small(count=count)
    assert log.weights.tolist() == weights
    assert (log.n_clicks, log.max_weight, log.n_rows, len(log)) == (n_clicks, largest, 4, 4)
    assert log.mean_weight == sum(weights) / n_clicks


@pytest.mark.parametrize("kind", [None, object])
def test_sessions_may_be_text(kind):
    assert small(session=np.array(["x", "a", "x", "b"], kind)).session.tolist() == [2, 0, 2, 1]


# -- variants ------------------------------------------------------------------------------------


def test_clip():
    log = small(**SHOWN, n_sessions=20, fingerprint="f").clip(0.5)
    assert log.propensity.tolist() == [0.5, 0.5, 0.5, 1.0]
    assert (log.fingerprint, log.n_sessions) == ("f", 20)
    for name, values in SHOWN.items():
        assert getattr(log, name).tolist() == values
    for bad in (0, 1.5, np.nan):
        with pytest.raises(ParameterError, match="min_propensity is"):
            small().clip(bad)


def test_temper():
    log = small(fingerprint="f", examination=[0.0, 0.5, 1.0, 1.0])
    np.testing.assert_allclose(log.temper(0.5).propensity, np.sqrt(log.propensity))
    np.testing.assert_array_equal(log.temper(0).weights, log.clicks)  # naive
    np.testing.assert_array_equal(log.temper(1).weights, log.weights)
    assert log.temper(0.5).fingerprint == "f"
    np.testing.assert_array_equal(log.temper(0).examination, log.examination)
    for bad in (-0.1, 1.1, "half"):
        with pytest.raises(ParameterError, match="temper is"):
            small().temper(bad)


def test_rows_of_a_log():
    log = small(**SHOWN, n_sessions=20)
    first = log.take(slice(2))
    assert columns_of(first) == [[0, 1], [1, 2], [0.25, 0.5], [1, 2]]
    assert first.n_sessions is None  # sessions without a click have no rows
    assert columns_of(log.of_queries([1])) == [[1], [2], [0.5], [2]]
    assert log.of_queries([1], exclude=True).session.tolist() == [7, 7, 9]
    assert columns_of(log.take(log.clicks > 1)) == columns_of(log.of_queries([1]))
    with pytest.raises(DataError, match="the click log is empty"):
        log.of_queries([5])


def test_merge_adds_up_weights_and_clicks():
    merged = small(fingerprint="f", session=[7, 3, 7, 9], n_sessions=20).merge()
    # (0, 0), (0, 1) twice with 4 + 2, (1, 2); a propensity is then clicks over weight
    assert columns_of(merged) == [[0, 0, 1], [0, 1, 2], [1.0, 2 / 6, 0.5], [1, 2, 1]]
    assert merged.weights.tolist() == [1, 6, 2]
    assert (merged.fingerprint, merged.n_sessions, merged.session) == ("f", 20, None)
    assert merged.max_weight == 3  # the mean of 4 and 2: no row has a weight of 4 any more
    assert len(small(count=[0, 1, 0, 1]).merge()) == 2
    last = 2**31 - 1
    merged = ClickLog([last, 0, last], [last, last, last], [1, 1, 1]).merge()
    assert columns_of(merged)[:2] == [[0, last], [last, last]]


def test_from_labels(data):
    log = ClickLog.from_labels(data)
    assert columns_of(log) == [[0, 1, 1], [1, 0, 2], [1, 1, 1], [2, 1, 4]]
    assert log.fingerprint == data.fingerprint
    assert columns_of(ClickLog.from_labels(data, relevant=2))[1] == [1, 2]
    assert len(ClickLog.from_labels(data, relevant=0)) == 3  # no clicks on label 0
    # 2^2 − 1, 2^1 − 1, 2^4 − 1
    assert ClickLog.from_labels(data, gain="exponential").count.tolist() == [3, 1, 15]
    with pytest.raises(ParameterError, match="gain is 'log'"):
        ClickLog.from_labels(data, gain="log")
    with pytest.raises(DataError, match="no item has a label of at least 5"):
        ClickLog.from_labels(data, relevant=5)


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"propensity": [1, 0, 1, 1]}, "propensity is 0.0 in row 1, expected a number above 0"),
        ({"propensity": [1, 1, 1, np.nan]}, "propensity is nan in row 3"),
        ({"propensity": ["a", "b", "c", "d"]}, "propensity is of type <U1, expected numbers"),
        ({"propensity": [[1], [1, 2]]}, "propensity must be a column"),
        ({"count": [1, -1, 1, 1]}, "count is -1.0 in row 1, expected a number of at least 0"),
        ({"count": [0, 0, 0, 0]}, "every count is 0"),
        ({"query": [0, -1, 0, 0]}, "query is -1 in row 1, expected an index"),
        ({"query": [0, 0, 2**31, 0]}, "query is 2147483648 in row 2"),
        ({"item": [0.0, 1.0, 2.0, 3.0]}, "item is of type float64, expected integers"),
        ({"item": None}, "item has shape"),
        ({"query": [], "item": [], "propensity": []}, "the click log is empty"),
        ({"session": [0.5, 1, 1, 1]}, "session is of type float64, expected integers or strings"),
        ({"position": [1, 0, 1, 1]}, "position is 0 in row 1, expected a rank, counted from 1"),
        ({"impressions": [1, 1, -1, 1]}, "impressions is -1.0 in row 2"),
        ({"session": [1, 2, 3, 4], "n_sessions": 3}, "n_sessions is 3, expected at least 4"),
    ],
)
def test_bad_columns(columns, message):
    with pytest.raises(DataError, match=message):
        small(**columns)


def test_check_compares_with_the_dataset(data):
    small(query=[0, 1, 0, 0]).check(data)
    for columns, message in (
        ({"query": [0, 2, 0, 0]}, "query is 2 in row 1, expected below 2"),
        ({"item": [1, 2, 2, 0]}, "item is 2 in row 2, expected below"),
        ({"fingerprint": "f"}, "of another dataset"),
    ):
        with pytest.raises(DataError, match=message):
            small(**columns).check(data)


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [{}, SHOWN | {"n_sessions": 20}])
def test_a_saved_log_is_loaded_again(data, tmp_path, columns):
    log = small(**columns, fingerprint=data.fingerprint)
    log.save(tmp_path / "log.parquet")
    loaded = ClickLog.load(tmp_path / "log.parquet", data)
    assert columns_of(loaded) == columns_of(log)
    assert (loaded.n_sessions, loaded.fingerprint) == (log.n_sessions, data.fingerprint)
    for name in SHOWN:
        assert np.array_equal(getattr(loaded, name), getattr(log, name))
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]
    note = json.loads(parquet.read_schema(tmp_path / "log.parquet").metadata[b"countersample"])
    assert (note["schema_version"], note["dataset"]) == (1, data.fingerprint)
    with pytest.raises(DataError, match=r"log.parquet: the click log is of another dataset"):
        ClickLog.load(tmp_path / "log.parquet", synthetic("tiny", n_queries=3, rng=0))


GOOD = '{"schema_version": 1, "dataset": null}'
COLUMNS = {"query": [0], "item": [0], "propensity": [1.0]}


@pytest.mark.parametrize(
    ("note", "columns", "message"),
    [
        (None, COLUMNS, "not a click log of this package"),
        (GOOD, {"query": [0]}, r"not a click log of this package \(columns query\)"),
        ("not json", COLUMNS, "the note of its schema version is damaged"),
        (GOOD.replace("1", "2"), COLUMNS, "of schema version 2, expected 1"),
        (GOOD, COLUMNS | {"propensity": [0.0]}, "propensity is 0.0 in row 0"),
        (GOOD, COLUMNS | {"query": pa.array([None], pa.int32())}, "query is of type float64"),
    ],
)
def test_bad_files(tmp_path, note, columns, message):
    metadata = None if note is None else {"countersample": note}
    table = pa.table(columns).replace_schema_metadata(metadata)
    parquet.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(DataError, match=f"log.parquet: {message}"):
        ClickLog.load(tmp_path / "log.parquet")


def test_paths_that_are_no_log(tmp_path):
    with pytest.raises(DataError, match=r"none.parquet: no such file"):
        ClickLog.load(tmp_path / "none.parquet")
    (tmp_path / "text").write_text("query,item\n0,1\n")
    with pytest.raises(DataError, match="text: not a click log in Parquet"):
        ClickLog.load(tmp_path / "text")
    with pytest.raises(CounterSampleError, match="cannot be written"):
        small().save(tmp_path / "nowhere" / "log.parquet")
