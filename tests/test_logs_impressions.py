"""Reading, counting and checking of raw logs: what is the same on every engine."""

import bz2
import json

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from invoking import invoke
from pyarrow import parquet
from twins_impressions import as_dict, count, random_log, rows_of

from countersample.errors import DataError, ParameterError
from countersample.logs import PositionCounts, read_impressions
from countersample.logs.counts import MAX_IMPRESSIONS, MAX_POSITION, row_keys
from countersample.propensity import estimate, supported

GOOD = {"query_id": [1, 1], "item_id": [1, 2], "position": [1, 2], "click": [0, 1]}


def log_of(**changed):
    return read_impressions(pa.table({**GOOD, **changed}))


# -- counts from arrays


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(-3, 3), st.integers(1, 4), st.integers(0, 1)),
        min_size=1,
    )
)
def test_counts_from_columns_are_those_of_the_twin(rows):
    query, item, position, click = zip(*rows, strict=True)
    counts = PositionCounts.from_columns(query, item, position, click)
    assert as_dict(counts) == count(rows)
    assert list(as_dict(counts)) == sorted(as_dict(counts))
    positions, impressions, clicks = counts.by_position
    for k, n, c in zip(positions, impressions, clicks, strict=True):
        assert n == position.count(k)
        assert c == sum(row[3] for row in rows if row[2] == k)
    assert len(counts.pair_starts) - 1 == len({row[:2] for row in rows})


def test_keys_of_rows_keep_their_order_beyond_64_bits(rng):
    columns = rng.integers(0, 2**31, (3, 100))
    columns[:, 50:] = columns[:, :50]
    keys = row_keys(*columns)
    rows = [tuple(row) for row in columns.T.tolist()]
    _, expected = np.unique(rows, axis=0, return_inverse=True)
    np.testing.assert_array_equal(np.unique(keys, return_inverse=True)[1], expected.ravel())


@pytest.mark.parametrize("position", [MAX_POSITION + 1, 2_000_000_000, 2e9])
def test_a_position_beyond_the_limit_is_impossible(position):
    check = log_of(position=[MAX_POSITION, position], click=[1, 0]).check()
    assert check.counts.position.tolist() == [MAX_POSITION]
    message = f"a position that is not a whole number from 1 to {MAX_POSITION:,}"
    assert message in check.warnings[0]
    with pytest.raises(DataError, match=message):
        log_of(position=[1, position]).counts()
    with pytest.raises(DataError, match=f"position is .* expected from 1 to {MAX_POSITION}"):
        PositionCounts.from_columns([1, 1], [1, 2], [1, position], [0, 1])


def test_impressions_are_exact_up_to_their_limit():
    many = MAX_IMPRESSIONS // 2
    counts = log_of(impressions=[many, many], position=[1, 1]).counts()
    assert counts.by_position[1].tolist() == [2 * many]
    for more in (1, MAX_IMPRESSIONS):
        log = log_of(impressions=[MAX_IMPRESSIONS, more])
        message = f"the log has {MAX_IMPRESSIONS + more:,} impressions, expected at most"
        with pytest.raises(DataError, match=message):
            log.counts()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"position": [0, 1]}, "position is 0 in row 0, expected from 1"),
        ({"position": [1, 1.5]}, "position is 1.5 in row 1, expected a whole number"),
        ({"click": [0, 2]}, "click is 2 in row 1, expected 0 or 1"),
        ({"impressions": [1, 0]}, "impressions is 0 in row 1, expected at least 1"),
        ({"impressions": [1, 2], "click": [0, 3]}, "expected from 0 to its impressions"),
        ({"query_id": [1, "a"]}, "query_id has values of type int and str, expected all"),
        ({"query_id": [1.0, 2.0]}, "query_id has values of type float64, expected all integers"),
        ({"item_id": [1]}, "item_id has 1 values, expected 2"),
        ({"click": ["x", "y"]}, "click is of type <U1, expected whole numbers"),
        ({name: [] for name in GOOD}, "no impressions, expected at least one"),
    ],
)
def test_arrays_that_cannot_be_counted(columns, message):
    with pytest.raises(DataError, match=message):
        PositionCounts.from_columns(**{**GOOD, **columns})


# -- frames


@pytest.mark.slow
@pytest.mark.parametrize(
    "frame_of",
    [
        lambda t: t.to_pandas(),
        lambda t: t.to_pandas(types_mapper=pd.ArrowDtype),
        pl.from_arrow,
        lambda t: pl.from_arrow(t).lazy(),
        lambda t: t,
        lambda t: duckdb.connect().from_arrow(t),
    ],
    ids=["pandas", "pandas-arrow", "polars", "polars-lazy", "pyarrow", "duckdb"],
)
@pytest.mark.parametrize("text", [False, True])
def test_duckdb_counts_frames_of_other_libraries(rng, frame_of, text):
    table = random_log(rng, 500, text=text)
    log = read_impressions(frame_of(table))
    counts = log.counts()
    assert log.engine == "duckdb"
    assert as_dict(counts) == count(rows_of(table))
    assert counts.query_ids.dtype.kind == ("U" if text else "i")


def test_categories_and_unsigned_ids_are_ids():
    frame = pd.DataFrame(GOOD).astype({"query_id": "str"}).astype({"query_id": "category"})
    assert read_impressions(frame).counts().query_ids.tolist() == ["1"]
    unsigned = pa.array([1, 2**63 - 1], pa.uint64())
    assert log_of(item_id=unsigned).counts().item_ids.tolist() == [1, 2**63 - 1]
    with pytest.raises(DataError, match=r"cannot be read or counted: .*out of range"):
        log_of(item_id=pa.array([1, 2**63], pa.uint64())).counts()


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame(GOOD).assign(item_id=pd.Series([1, "a"], dtype=object)),
         "the pandas-like frame|the pandas frame: cannot be read or counted"),
        (pd.DataFrame(GOOD).assign(item_id=[1, None]), "item_id is Float64, expected integers or"),
        (pd.DataFrame(GOOD).assign(click=pd.to_datetime(["2020-01-01"] * 2)),
         "click is Datetime.*, expected numbers"),
        (pa.table(GOOD).drop_columns(["item_id", "click"]),
         "no columns 'item_id' and 'click': the columns are query_id, position;"),
        (pa.table({**GOOD, "item_id": pa.array([True, False])}), "item_id is Boolean, expected"),
        ([1, 2], "a list is neither a path nor a data frame"),
        (pa.table(GOOD).slice(0, 0), "the log has no rows"),
    ],
)  # fmt: skip
def test_frames_that_are_no_log(frame, message):
    with pytest.raises(DataError, match=message):
        read_impressions(frame).counts()


def test_a_missing_column_is_named_with_what_to_do():
    table = pa.table(GOOD).rename_columns({"query_id": "query", "item_id": "doc"})
    with pytest.raises(DataError, match=r"\(--columns query_id=query,item_id=doc\)|item_id=…"):
        read_impressions(table)
    with pytest.raises(DataError, match="no column 'q'"):
        read_impressions(pa.table(GOOD), columns={"query_id": "q"})
    with pytest.raises(ParameterError, match="columns has 'qid', expected names of query_id"):
        read_impressions(pa.table(GOOD), columns={"qid": "q"})


# -- files


def test_files_that_are_no_log(tmp_path):
    for name, message in [
        ("nothing.parquet", "no such file or folder"),
        ("log.xlsx", "the name does not show the format, expected .parquet"),
        ("empty", "no file of a log in this folder"),
        ("both", r"files of several formats \(csv, parquet\)"),
        ("none*.csv", "no such file or folder"),
    ]:
        path = tmp_path / name
        if name == "log.xlsx":
            path.touch()
        if name in {"empty", "both"}:
            path.mkdir()
        if name == "both":
            (path / "a.csv").touch()
            (path / "a.parquet").touch()
        with pytest.raises(DataError, match=message):
            read_impressions(path)


def test_an_unknown_engine_and_bad_settings():
    with pytest.raises(ParameterError, match="engine is 'dask', expected one of duckdb, spark"):
        read_impressions(pa.table(GOOD), engine="dask")
    with pytest.raises(ParameterError, match="DuckDB rejects memory_limit='much'"):
        read_impressions(pa.table(GOOD), memory_limit="much")
    with pytest.raises(ParameterError, match="master is a setting of spark, not of duckdb"):
        read_impressions(pa.table(GOOD), master="local[1]")
    with pytest.raises(ParameterError, match="are for files, not for a frame"):
        read_impressions(duckdb.connect().from_arrow(pa.table(GOOD)), memory_limit="1GB")


def test_duckdb_spills_to_disk_beyond_its_memory(tmp_path, rng):
    n = 600_000
    table = pa.table(
        {
            "query_id": np.arange(n) % 1000,
            "item_id": rng.permutation(n),
            "position": 1 + np.arange(n) % 10,
            "click": np.zeros(n, np.int64),
        }
    )
    path = tmp_path / "log.parquet"
    parquet.write_table(table, path)
    log = read_impressions(path, memory_limit="60MB", temp_dir=tmp_path / "spill")
    assert len(log.counts()) == n
    with pytest.raises(DataError, match=r"ran out of memory .*raise memory_limit"):
        read_impressions(path, memory_limit="1MB", temp_dir=tmp_path / "spill").counts()


def test_nothing_is_left_in_a_connection_of_duckdb():
    connection = duckdb.connect()
    log = read_impressions(connection.from_arrow(pa.table(GOOD)))
    assert log.check(max_groups=0).counts.n_impressions == 2
    assert connection.sql("from duckdb_tables()").fetchall() == []
    assert connection.sql("from duckdb_views() where not internal").fetchall() == []


def test_what_was_unpacked_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    path = tmp_path / "log.csv.bz2"
    path.write_bytes(
        bz2.compress(b"query_id,item_id,position,click,policy\n1,1,1,1,a\n1,1,1,1,b\n")
    )

    def unpacked():
        return len(list((tmp_path / "temporary").iterdir()))

    log = read_impressions(path)
    assert log.counts().n_clicks == 2
    assert unpacked() == 1
    log.close()
    assert unpacked() == 0
    part = read_impressions(path).of_policy("a")  # what it reads stays while a handle is there
    assert (part.counts().n_clicks, unpacked()) == (1, 1)
    del part
    assert unpacked() == 0


# -- what a log can give


def test_randomized_traffic_is_told_or_named():
    table = pa.table({**GOOD, "policy": ["a", "random-shuffle"]})
    log = read_impressions(table)
    assert log.check().shuffled == ("random-shuffle",)
    assert log.check(randomized="a").shuffled == ("a",)
    assert log.of_policy("a", "random-shuffle").counts().n_impressions == 2
    with pytest.raises(ParameterError, match="expected a policy of the log: a, random-shuffle"):
        log.check(randomized="b")
    assert read_impressions(table.set_column(4, "policy", [["a", "b"]])).check().shuffled == ()
    assert log_of().check().shuffled == ()


def test_an_event_log_without_sessions_is_warned_about():
    rows = {"query_id": [1, 1], "item_id": [1, 1], "position": [1, 1], "event": ["view", "click"]}
    alone = read_impressions(pa.table(rows), values={"click": 1}).check()
    assert (alone.counts.n_impressions, len(alone.warnings)) == (2, 1)
    assert alone.warnings[0].startswith("The log has events and no sessions")
    told = pa.table({**rows, "session": [5, 5]})
    one = read_impressions(told, values={"click": 1}).check()
    assert one.counts.n_impressions == 1
    assert not any("no sessions" in warning for warning in one.warnings)
    assert log_of().check().warnings == ()


def test_estimates_without_items_that_were_never_clicked(rng):
    """Ratios of clicks are the same; all pairs weighs them by what it knows of other items."""
    n = 60_000
    query, item, position = (rng.integers(0, m, n) for m in (100, 30, 5))
    clicked = rng.random(n) < 0.6 / (1 + position) * (item < 10) * (0.2 + item / 15)
    table = pa.table({"query_id": query, "item_id": item, "position": position + 1,
                      "click": clicked.astype(int)})  # fmt: skip
    every, merged = (read_impressions(table).counts(max_groups=m) for m in (10**9, 0))
    assert len(merged) < len(every) / 2
    for method in ("randomized", "pivot", "adjacent-chain", "em"):
        curves = [estimate(c, method=method, n_bootstrap=20, rng=0).value for c in (every, merged)]
        np.testing.assert_allclose(*curves, rtol=1e-4 if method == "em" else 1e-9, err_msg=method)
    full = estimate(every, method="all-pairs", rng=0)
    less = estimate(merged, method="all-pairs", n_bootstrap=20, rng=0)
    assert (abs(less.value - full.value) <= (full.high - full.low) / 10).all()
    for method in ("trust", "regression-em"):
        answer = supported(merged, features=np.ones((len(merged.pair_starts) - 1, 1)))[method]
        assert "needs each item that was shown" in answer.reason


# -- the command


def run(*arguments):
    return invoke("log", "check", *arguments)


def test_the_command_describes_a_log(tmp_path, rng):
    path = tmp_path / "log.parquet"
    table = random_log(rng)
    parquet.write_table(table.rename_columns({"query_id": "q"}), path)
    picture = tmp_path / "rates.png"
    said = run(path, "--columns", "query_id=q", "--plot", picture, "--engine", "duckdb")
    assert said.exit_code == 0, said.output
    assert f"{path} (duckdb)" in said.output
    assert "2,000, of which 0 impossible" in said.output
    assert "down to position 7, from the rows of random." in said.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    figures = json.loads(run(path, "--columns", "query_id=q", "--json").output)
    assert figures["rows"] == 2000
    assert sum(p["impressions"] for p in figures["positions"]) == 2000
    assert figures["clicks"] == sum(table["click"].to_pylist())
    assert figures["policies"].keys() == {"production", "random"}
