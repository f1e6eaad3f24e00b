"""Contexts, what clicks are worth, events, sessions that look wrong: the same on every engine."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from twins_impressions import in_full, random_log, sessions_of

from countersample.errors import DataError, ParameterError
from countersample.logs import (
    PositionCounts,
    join_query_ids,
    read_features,
    read_impressions,
)
from countersample.logs.checks import without_suspicious

GOOD = {"query_id": [1, 1], "item_id": [1, 2], "position": [1, 2], "click": [0, 1]}
EVENTS = pa.table(
    {
        "session": [1, 1, 1, 1, 1, 2, 2, None, None],
        "query_id": ["a"] * 7 + ["b", "b"],
        "item_id": [7, 7, 7, 7, 8, 7, 8, 7, 7],
        "position": [1, 1, 1, 1, 2, 2, 1, 1, 1],
        "event": ["impression", "click", "click", "cart", "view", "cart", None, "click", "cart"],
        "timestamp": list(range(9)),
        "device": [None, "phone", "phone", "phone", "phone", "desktop", "desktop", "tv", "tv"],
    }
)
VALUES = {"click": 1, "cart": 3}


def changed(table, **columns):
    for name, values in columns.items():
        table = table.drop_columns([name]) if name in table.column_names else table
        table = table.append_column(name, pa.array(values))
    return table


def twin(rows):
    """Count rows of dicts one by one."""
    groups = {}
    for row in rows:
        key = row["query_id"], row["item_id"], row["position"], row.get("context", "")
        shown, clicks, value = groups.get(key, (0, 0, 0.0))
        worth = row.get("value", 1) if row["click"] else 0
        groups[key] = shown + 1, clicks + row["click"], value + worth
    return {key: groups[key] for key in sorted(groups)}


def test_contexts_values_and_sessions_are_those_of_the_twin(engine, rng):
    table = random_log(rng, 800, text=engine == "spark")
    contexts = rng.choice(["phone", "desktop", "é"], len(table)).tolist()
    values = (rng.integers(0, 40, len(table)) / 4).tolist()  # sums are exact
    table = changed(table, context=contexts, value=values)
    rows = table.to_pylist()
    visits = {(row["query_id"], row["session"]) for row in rows}
    queries = [query for query, _ in visits]
    log = read_impressions(table, engine=engine)
    for counts in (log.counts(), log.check().counts):
        assert in_full(counts) == twin(rows)
        assert list(in_full(counts)) == sorted(in_full(counts))
        assert sessions_of(counts) == {query: queries.count(query) for query in set(queries)}
        assert counts.sessions_from == "sessions"
    same = PositionCounts.from_columns(
        *(table[name].to_numpy() for name in ("query_id", "item_id", "position", "click")),
        session=table["session"].to_numpy(), context=contexts,
        value=[v if c else 0 for v, c in zip(values, table["click"].to_pylist(), strict=True)],
    )  # fmt: skip
    assert in_full(same) == in_full(counts)
    assert sessions_of(same) == sessions_of(counts)


def test_several_columns_are_one_context(tmp_path):
    table = pa.table(
        {
            "query_id": [1] * 4, "item_id": [1] * 4, "position": [1] * 4, "click": [1, 0, 1, 0],
            "device": ["phone", "phone", None, "phone"], "columns": [2, 2, 1, None],
            "dark": [True, True, False, None],
        }
    )  # fmt: skip
    log = read_impressions(table, context=["device", "columns", "dark"])
    assert in_full(log.counts()) == {
        (1, 1, 1, "(none) / 1 / false"): (1, 1, 1.0),
        (1, 1, 1, "phone / (none) / (none)"): (1, 0, 0.0),
        (1, 1, 1, "phone / 2 / true"): (2, 1, 1.0),
    }
    one = read_impressions(table, columns={"context": "device"})
    assert one.counts().context_ids.tolist() == ["(none)", "phone"]
    csv.write_csv(table, tmp_path / "log.csv")
    file = read_impressions(tmp_path / "log.csv", context=["device", "columns"])
    assert file.counts().context_ids.tolist() == ["(none) / 1", "phone / (none)", "phone / 2"]


@pytest.mark.slow
def test_events_of_a_session_are_one_impression(engine):
    log = read_impressions(EVENTS, values=VALUES, context="device", engine=engine)
    assert in_full(log.counts()) == {
        ("a", 7, 1, "phone"): (1, 1, 1 + 3),  # an impression, a click twice, a cart
        ("a", 7, 2, "desktop"): (1, 1, 3),
        ("a", 8, 1, "desktop"): (1, 0, 0),
        ("a", 8, 2, "phone"): (1, 0, 0),
        ("b", 7, 1, "tv"): (2, 2, 1 + 3),  # rows without a session are an impression each
    }
    assert sessions_of(log.counts()) == {"a": 2, "b": 2}
    plain = read_impressions(EVENTS.drop_columns(["session"]), values=VALUES, engine=engine)
    assert in_full(plain.counts())["a", 7, 1, ""] == (4, 3, 1 + 1 + 3)


@pytest.mark.slow
def test_a_click_without_a_value_is_a_problem():
    table = pa.table(
        {
            "query_id": [1] * 6, "item_id": [1] * 6, "position": [1] * 6,
            "click": [1, 1, 1, 1, 0, 1],
            "value": [2.5, -1.0, float("inf"), None, None, float("nan")],
        }
    )  # fmt: skip
    log = read_impressions(table)
    assert in_full(log.check().counts) == {(1, 1, 1, ""): (2, 1, 2.5)}
    with pytest.raises(DataError, match="4 with a click whose value is not a number of at least 0"):
        log.counts()


def test_sessions_without_ids_are_impressions_of_the_first_position():
    rows = {
        "query_id": [1, 1, 1, 1, 2, 2], "item_id": [1, 2, 1, 2, 1, 1],
        "position": [1, 2, 1, 2, 3, 3], "click": [0] * 6,
    }  # fmt: skip
    counts = read_impressions(pa.table(rows)).counts()
    assert (sessions_of(counts), counts.sessions_from) == ({1: 2, 2: 2}, "first position")
    # with ids: a session counts once for a query, however often it shows it; impossible rows not
    some = pa.table({**rows, "session": [5, 5, 5, 5, None, None], "click": [0, 0, 0, 0, 0, 2]})
    counts = read_impressions(some).check().counts
    assert (sessions_of(counts), counts.sessions_from) == ({1: 1, 2: 1}, "sessions")
    many = pa.table({**rows, "session": [5, 5, 6, 6, 7, 7], "impressions": [9] * 6})
    log = read_impressions(many)
    arrays = {name: many[name].to_numpy() for name in many.column_names}
    for counts in (log.counts(), log.check().counts, PositionCounts.from_columns(**arrays)):
        assert (sessions_of(counts), counts.sessions_from) == ({1: 18, 2: 18}, "first position")
        assert counts.n_sessions is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"values": VALUES, "columns": {"event": "device"}, "context": "where"},
         "no column 'where' for the context: the columns are session, query_id"),
        ({}, r"no column 'click'.*with values=\{'click': 1\}"),
        ({"values": VALUES, "columns": {"impressions": "timestamp"}},
         "values are for a log with one row per event"),
    ],
)  # fmt: skip
def test_columns_that_are_not_there(options, message):
    with pytest.raises(DataError, match=message):
        read_impressions(EVENTS, **options)


# -- sessions that look wrong


def honest_sessions(rng, n=400, n_items=6):
    """Sessions that click one item of six or none, at most, of clients with one session each."""
    session = np.repeat(np.arange(n), n_items)
    clicked = rng.integers(0, 2 * n_items, n)  # half of them nothing
    return {
        "session": session, "client": session + 1000, "query_id": session % 20,
        "item_id": np.tile(np.arange(n_items), n), "position": np.tile(np.arange(n_items) + 1, n),
        "click": (np.tile(np.arange(n_items), n) == clicked[session]).astype(int),
    }  # fmt: skip


def stacked(*parts):
    return pa.table({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def test_sessions_that_look_wrong_are_counted_and_left_out(engine, rng):
    honest = honest_sessions(rng)
    greedy = honest_sessions(rng, 30)
    greedy |= {"session": greedy["session"] + 1000, "client": greedy["client"] + 1000,
               "click": np.ones(180, int)}  # fmt: skip
    busy = honest_sessions(rng, 150)
    busy |= {"session": busy["session"] + 2000, "client": np.full(900, 7)}
    again = {name: column[:60] for name, column in honest.items()}
    table = stacked(honest, greedy, busy, again)
    log = read_impressions(table, engine=engine)
    suspicious = log.check().suspicious
    assert (suspicious.sessions, suspicious.session_clicks, suspicious.least_shown) == (30, 180, 5)
    assert (suspicious.clients, suspicious.client_sessions) == (1, 150)
    assert suspicious.many_sessions == 100
    assert suspicious.client_clicks == busy["click"].sum()
    assert (suspicious.duplicates, suspicious.duplicate_clicks) == (60, again["click"].sum())
    assert suspicious.n_clicks == sum(table["click"].to_pylist())
    warnings = log.check().warnings
    assert "30 sessions clicked everything on their page, at least 5 items: " in warnings[0]
    assert f"{180 / suspicious.n_clicks:.1%} of all clicks; leave them out with" in warnings[0]
    assert "1 client with more than 100 sessions had 150 of them" in warnings[1]
    assert "60 rows repeated" in warnings[2]
    clean = log.without_suspicious()
    assert in_full(clean.counts()) == in_full(read_impressions(stacked(honest)).counts())
    check = clean.check()
    assert check.n_sessions == 400
    assert (check.suspicious.sessions, check.suspicious.is_left_out) == (30, True)
    assert check.warnings[0].endswith("; left out.")


@pytest.mark.slow
def test_of_repeated_rows_the_click_stays():
    table = pa.table(
        {"session": [1, 1, None, None], "query_id": [1] * 4, "item_id": [1] * 4,
         "position": [1] * 4, "click": [0, 1, 1, 1]}
    )  # fmt: skip
    log = read_impressions(table)
    assert log.check().suspicious.duplicates == 1  # rows without a session cannot be told
    assert in_full(log.without_suspicious().counts()) == {(1, 1, 1, ""): (3, 3, 3)}


@pytest.mark.parametrize("later", [False, True])
def test_rows_of_another_context_or_policy_repeat_nothing(engine, later):
    table = pa.table(
        {"session": [1, 1, 1, 1], "query_id": [1] * 4, "item_id": [1] * 4, "position": [1] * 4,
         "click": [1, 1, 1, 0], "device": ["a", "b", "a", "a"], "policy": ["x", "x", "y", "y"],
         "timestamp": ["2026-03-09T10:00"] * 4}
    )  # fmt: skip
    log = read_impressions(table, context=("device",), engine=engine)
    assert log.check().suspicious.duplicates == 1
    once = without_suspicious(log.frame, log.check().suspicious, merges_views=later)
    assert read_impressions(log.collect(once)).check().policies == {"x": 2, "y": 1}
    assert in_full(log.without_suspicious().counts()) == {(1, 1, 1, "a"): (2, 2, 2),
                                                          (1, 1, 1, "b"): (1, 1, 1)}  # fmt: skip


def test_ordinary_sessions_do_not_look_wrong(rng):
    log = read_impressions(stacked(honest_sessions(rng)))
    suspicious = log.check().suspicious
    assert (suspicious.sessions, suspicious.clients, suspicious.duplicates) == (0, 0, 0)
    assert in_full(log.without_suspicious().counts()) == in_full(log.counts())
    # where half of all rows are clicks, five clicks of five are chance: 1/32 > 1/1000
    half = honest_sessions(rng, 100, 5)
    half["click"] = np.repeat(np.arange(100) % 2, 5)
    suspicious = read_impressions(stacked(half)).check().suspicious
    assert (suspicious.least_shown, suspicious.sessions) == (10, 0)
    every = honest_sessions(rng, 100, 12)
    every["click"] = np.ones(1200, int)
    check = read_impressions(stacked(every)).check()
    assert (check.suspicious.least_shown, check.suspicious.sessions) == (None, 0)
    assert "Every impression has a click: rows of results" in check.warnings[0]


def test_many_is_against_the_median_client(rng):
    busy = honest_sessions(rng, 1300)
    busy["client"] = np.where(busy["session"] < 1200, busy["session"] // 10, -1)
    suspicious = read_impressions(stacked(busy)).check().suspicious
    # 120 clients of 10, one of 100
    assert (suspicious.clients, suspicious.many_sessions) == (0, 20 * 10)
    busy["client"] = np.where(busy["session"] < 1200, busy["session"], -1)
    assert read_impressions(stacked(busy)).check().suspicious.clients == 0  # 100 is not many
    busy["client"] = np.where(busy["session"] < 1199, busy["session"], -1)
    assert read_impressions(stacked(busy)).check().suspicious.clients == 1


def test_without_sessions_nothing_can_look_wrong():
    log = read_impressions(pa.table(GOOD))
    assert log.check().suspicious is None
    with pytest.raises(DataError, match="no column 'session', so sessions that look wrong cannot"):
        log.without_suspicious()


def test_interleaved_sessions_are_told():
    table = pa.table(
        {
            "session": [1, 1, 2, 2, 3, 3], "query_id": [1] * 6, "item_id": [1, 2, 2, 1, 1, 2],
            "position": [1, 2, 1, 2, 1, 2], "click": [1, 0, 1, 0, 0, 0],
            "policy": ["a", "b", "b", "a", "a", "a"],
        }
    )  # fmt: skip
    check = read_impressions(table).check()
    assert (check.n_mixed, check.n_sessions, check.n_moved) == (2, 3, 2)
    assert check.counts.n_impressions == 6  # all rows count
    assert check.to_dict()["sessions_of_several_policies"] == 2


# -- ids and positions


QUERIES = [
    "Red  Shoe", " red shoe", "RED\tSHOE\u00a0", "ÉTÉ", "été", "ΟΔΟΣ", "οδος", "İzmir", "izmir",
    "STRASSE", "straße", "", " ", "a.b", "A.B",
]  # fmt: skip


@pytest.mark.slow
def test_queries_are_joined_as_those_of_features_are(engine):
    table = pa.table(
        {"query_id": QUERIES, "item_id": range(len(QUERIES)), "position": [1] * len(QUERIES),
         "click": [0] * len(QUERIES)}
    )  # fmt: skip
    counts = read_impressions(table, join_queries=True, engine=engine).counts()
    joined = join_query_ids(QUERIES)
    assert counts.query_ids[counts.query[np.argsort(counts.item)]].tolist() == joined.tolist()
    assert len(counts.query_ids) == len(set(joined.tolist())) == 8
    apart = read_impressions(table, engine=engine).counts()
    assert len(apart.query_ids) == len(QUERIES)


@pytest.mark.slow
def test_joined_ids_that_are_integers_are_so_in_log_and_features(tmp_path):
    log, features = tmp_path / "log.csv", tmp_path / "features.csv"
    log.write_text("query_id,item_id,position,click\n7 ,x,1,1\n7,y,2,0\n 8,x,1,0\n8,y,2,1\n")
    features.write_text("query_id,item_id,f\n7 ,x,1\n7,y,2\n 7,x,5\n8,x,3\n8,y,4\n")
    counts = read_impressions(log, join_queries=True).counts()
    table = read_features(features, join_queries=True)
    assert counts.query_ids.tolist() == table.dataset.query_ids.tolist() == [7, 8]
    assert table.dataset.features.ravel().tolist() == [1, 2, 3, 4]


def test_positions_from_zero_are_recognised():
    table = pa.table({**GOOD, "position": [0, 1]})
    log = read_impressions(table)
    with pytest.raises(DataError, match=r"seem to count from 0: set positions_from=0 \(--p"):
        log.counts()
    assert log.check().problems.is_from_zero
    shifted = read_impressions(table, positions_from=0)
    assert shifted.counts().position.tolist() == [1, 2]


@pytest.mark.parametrize("position", [[0, 1, 1, 1], [0, -1, 1, 1], [0, 1, 1.5, 1]])
def test_a_few_odd_positions_are_not_positions_from_zero(position):
    table = pa.table(
        {"query_id": [1] * 4, "item_id": range(4), "position": position, "click": [0] * 4}
    )
    assert not read_impressions(table).check().problems.is_from_zero
    with pytest.raises(ParameterError, match="positions_from is 2, expected"):
        read_impressions(table, positions_from=2)


def test_names_of_the_raw_log_serve_its_aggregated_log():
    """One countersample.toml has the names of both."""
    columns = {"query_id": "phrase", "session": "sid", "position": "slot"}
    aggregated = pa.table({"query_id": ["a"], "item_id": [1], "position": [1], "click": [1],
                           "impressions": [4], "context": ["phone"]})  # fmt: skip
    log = read_impressions(aggregated, columns=columns, context=["device"])
    assert log.counts().impressions.tolist() == [4]
    assert log.counts().context_ids.tolist() == ["phone"]
    with pytest.raises(DataError, match="no column 'item'"):  # neither name is there
        read_impressions(aggregated.drop_columns(["item_id"]), columns={"item_id": "item"})


def test_the_command_leaves_out_what_looks_wrong(tmp_path, rng, run):
    greedy = honest_sessions(rng, 30)
    greedy |= {"session": greedy["session"] + 1000, "click": np.ones(180, int)}
    csv.write_csv(stacked(honest_sessions(rng), greedy), tmp_path / "log.csv")
    words = ("log", "check", tmp_path / "log.csv")
    assert "sessions that clicked all  30" in run(*words)
    figures = json.loads(run(*words, "--suspicious", "skip", "--json"))
    assert (figures["sessions"], figures["suspicious"]["sessions"]) == (400, 30)
