"""Counts of days: the same answers as the log itself gives, and nothing else."""

import json
import shutil
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from day_logs import day_log
from pyarrow import csv, parquet
from shops import make

from countersample.clicks.impressions import (
    count_days,
    forget_counts,
    read_features,
    read_impressions,
)
from countersample.clicks.impressions.counted.files import BUCKETS, read_part, write_part
from countersample.clicks.impressions.counted.tables import bucket_of
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.fitting import fit_from_impressions
from countersample.options import EvaluationOptions

ARRAYS = ("query", "item", "position", "context", "impressions", "clicks", "value", "sessions",
          "query_ids", "item_ids", "context_ids")  # fmt: skip
LOGS = {
    "all": {},
    "some without a session": {"has_null_sessions": True},
    "least": {"only": ["timestamp"]},
    "sessions": {"only": ["timestamp", "session"], "has_text": False},
    "policies": {"only": ["timestamp", "session", "policy"]},
    "no sessions": {"only": ["timestamp", "policy", "context"]},
}


def same_counts(counted, raw):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(counted, name), getattr(raw, name), err_msg=name)
    assert (counted.sessions_from, counted.n_sessions, counted.rest) == (
        raw.sessions_from, raw.n_sessions, raw.rest,
    )  # fmt: skip


def same_log(folder, table, **options):
    """Hold all that is asked of a log against what its counts say."""
    raw, counted = read_impressions(table, **options), read_impressions(folder)
    assert counted.columns == raw.columns
    first, second = raw.check(), counted.check()
    told = [each.to_dict() for each in (first, second)]
    for each in told:
        for name in ("source", "engine", "suspicious"):
            del each[name]
    assert told[1] == told[0]
    same_counts(second.counts, first.counts)
    same_counts(counted.counts(), raw.counts())
    if "timestamp" in raw.columns:
        assert counted.days() == raw.days()
        last = raw.days().days[-1]
        for days in [{"since": last}, {"until": last}][: len(raw.days().days)]:
            same_counts(counted.of_days(**days).counts(), raw.of_days(**days).counts())
    if "policy" in raw.columns:
        for policies in (["a"], ["a", "random"]):
            same_counts(counted.of_policy(*policies).counts(), raw.of_policy(*policies).counts())
    if "propensity" in raw.columns:
        np.testing.assert_allclose(
            counted.logged_propensities(second.counts).value,
            raw.logged_propensities(first.counts).value,
            rtol=1e-12,
        )


@pytest.mark.parametrize("kind", LOGS)
def test_counts_answer_as_their_log(kind, tmp_path):
    table = day_log(SEED, **LOGS[kind])
    days = count_days(read_impressions(table), tmp_path / "counts")
    assert [day.label for day in days] == ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert sum(day.n_impressions for day in days) == len(table)
    same_log(tmp_path / "counts", table)


@pytest.mark.parametrize("engine", ["polars", "pandas"])
def test_every_engine_counts_the_same_bytes(engine, tmp_path):
    table = day_log(SEED, has_null_sessions=True)
    for name in ("duckdb", engine):
        count_days(read_impressions(table, engine=name), tmp_path / name, keep_users=True)
    for path in sorted((tmp_path / "duckdb").rglob("*.parquet")):
        own, other = (parquet.read_table(p) for p in (path, path_in(tmp_path / engine, path)))
        assert own.equals(other), path.name


def path_in(folder, path):
    return folder / path.parent.name / path.name


def test_a_log_that_was_counted_before_and_one_of_text_are_counted_too(tmp_path):
    table = day_log(SEED, only=["timestamp", "policy"], has_text=False)
    raw = table.append_column("impressions", pa.array(np.full(len(table), 3)))
    count_days(read_impressions(raw), tmp_path / "before")
    same_log(tmp_path / "before", raw)
    csv.write_csv(table, tmp_path / "log.csv")
    count_days(read_impressions(tmp_path / "log.csv"), tmp_path / "text")
    same_log(tmp_path / "text", tmp_path / "log.csv")


def test_a_log_without_days_is_counted_under_a_name(tmp_path):
    table = day_log(SEED, only=["session"])
    with pytest.raises(DataError, match=r"no column 'timestamp'.*--name"):
        count_days(read_impressions(table), tmp_path)
    for name in ("../x", "", "2026-03-01"):
        with pytest.raises(ParameterError, match="expected letters"):
            count_days(read_impressions(table), tmp_path, name=name)
    count_days(read_impressions(table), tmp_path, name="spring")
    same_log(tmp_path, table)
    with pytest.raises(DataError, match="days cannot be told"):
        read_impressions(tmp_path).of_days(since=date(2026, 3, 1))
    count_days(read_impressions(day_log(SEED, only=["session", "timestamp"])), tmp_path)
    with pytest.raises(DataError, match="differ in columns"):
        read_impressions(tmp_path)


def test_sessions_in_buckets_are_those_of_the_log(tmp_path):
    table = day_log(SEED)
    count_days(read_impressions(table), tmp_path)
    raw, counted = read_impressions(table), read_impressions(tmp_path)
    counts = raw.counts()
    own, kept = raw.visits(counts), counted.visits(counts)
    n_queries, n_rows = len(counts.query_ids), len(counts)
    np.testing.assert_array_equal(
        np.bincount(kept.query, kept.times, n_queries), np.bincount(own.query, minlength=n_queries)
    )
    np.testing.assert_allclose(
        np.bincount(kept.row, kept.value, n_rows), np.bincount(own.row, own.value, n_rows)
    )
    assert 30 < kept.n_sessions <= 3 * 20 + own.n_sessions / 20 + 10  # 20 clients a day, and none
    # With rows of nobody they are not told, as a log does not.
    count_days(read_impressions(day_log(SEED, has_null_sessions=True)), tmp_path / "n")
    assert read_impressions(tmp_path / "n").visits(counts) is None


def test_buckets_are_about_equally_full():
    full = np.bincount([bucket_of(f"session-{n}") for n in range(100 * BUCKETS)], minlength=BUCKETS)
    assert len(full) == BUCKETS
    assert np.sum((full - 100) ** 2 / 100) < BUCKETS + 5 * np.sqrt(2 * BUCKETS)  # χ²


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Return a shop's log of five days, with its features and the folder of its counts."""
    log, features = make(SEED, queries=60, sessions=1200)
    session = log["session"].to_numpy()
    log = log.append_column("timestamp", [[f"2026-03-{s % 5 + 1:02d}T10:00:00" for s in session]])
    folder = tmp_path_factory.mktemp("shop") / "counts"
    count_days(read_impressions(log), folder)
    return log, read_features(features), folder


@pytest.mark.parametrize("judge_by", ["queries", "time"])
def test_the_ranker_of_counts_is_that_of_the_log(shop, judge_by):
    table, features, folder = shop
    raw, counted = (
        fit_from_impressions(
            read_impressions(log),
            features,
            seed=SEED,
            evaluation=EvaluationOptions(holdout_by=judge_by),
        )
        for log in (table, folder)
    )
    assert counted.ranker.coef_.tobytes() == raw.ranker.coef_.tobytes()
    curves = [each.propensity_source.curve for each in (raw, counted)]
    for name in ("value", "low", "high"):
        np.testing.assert_array_equal(getattr(curves[1], name), getattr(curves[0], name))
    assert counted.judged_by == raw.judged_by
    assert counted.gain.relative == raw.gain.relative
    if judge_by == "queries":
        assert counted.gain == raw.gain
        assert counted.verdict == raw.verdict
    else:  # sessions are drawn in buckets, not one by one
        widths = [each.gain.relative_high - each.gain.relative_low for each in (raw, counted)]
        assert 0.75 < widths[1] / widths[0] < 1.33


def test_a_day_is_counted_once(tmp_path):
    table = day_log(SEED, days=2)
    log = read_impressions(table)
    count_days(log, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(DataError, match=r"2026-03-01: this day was counted before.*--replace"):
        count_days(log, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    half = read_impressions(table.slice(0, len(table) // 2))
    count_days(half, tmp_path, replace=True)
    same_log(tmp_path, table.slice(0, len(table) // 2))
    (tmp_path / "2026-03-09").mkdir()
    (tmp_path / "2026-03-09" / "mine.txt").write_text("mine")
    other = table.set_column(
        table.column_names.index("timestamp"), "timestamp", [["2026-03-09"] * len(table)]
    )
    with pytest.raises(DataError, match="is no day of counts, so it is not replaced"):
        count_days(read_impressions(other), tmp_path, replace=True)


def test_adding_a_day_reads_no_other(tmp_path):
    table = day_log(SEED, days=2)
    log = read_impressions(table)
    count_days(log.of_days(until=date(2026, 3, 2)), tmp_path)
    old = tmp_path / "2026-03-01"
    for path in old.iterdir():
        path.write_bytes(b"")  # whoever reads it is told
    count_days(log.of_days(since=date(2026, 3, 2)), tmp_path)
    shutil.rmtree(old)
    same_log(tmp_path, table.filter(pa.compute.starts_with(table["timestamp"], "2026-03-02")))


def without(table, *, query=None, user=None, day=None):
    kept = np.ones(len(table), np.bool_)
    if query is not None:
        kept &= np.array(table["query_id"].to_pylist()) != query
    if user is not None:
        kept &= np.array([client != user for client in table["client"].to_pylist()])
    if day is not None:
        kept &= np.array([stamp[:10] != day for stamp in table["timestamp"].to_pylist()])
    return table.filter(kept)


@pytest.mark.parametrize(
    "what", [{"query": "q3"}, {"user": "u7"}, {"day": "2026-03-02"}, {"query": "q0", "user": "u1"}]
)
def test_what_is_forgotten_was_never_logged(what, tmp_path):
    table = day_log(SEED)
    count_days(read_impressions(table), tmp_path / "all", keep_users=True)
    found = forget_counts(tmp_path / "all", **{
        {"query": "queries", "user": "users", "day": "days"}[name]: [value]
        for name, value in what.items()
    })  # fmt: skip
    rest = without(table, **what)
    assert found.n_impressions == len(table) - len(rest)
    assert found.n_clicks == sum(table["click"].to_pylist()) - sum(rest["click"].to_pylist())
    count_days(read_impressions(rest), tmp_path / "rest", keep_users=True)
    same_log(tmp_path / "all", rest)
    paths = sorted(path.relative_to(tmp_path / "rest") for path in (tmp_path / "rest").rglob("*.*"))
    for path in paths:
        assert (tmp_path / "all" / path).read_bytes() == (tmp_path / "rest" / path).read_bytes()
    assert not [path for path in (tmp_path / "all").iterdir() if path.name.startswith(".")]


def test_nothing_of_a_user_is_kept_unless_asked_for(tmp_path):
    count_days(read_impressions(day_log(SEED)), tmp_path)
    for path in tmp_path.rglob("*.parquet"):
        assert not {"client", "session"} & {*parquet.read_schema(path).names}
        assert b"u7" not in path.read_bytes()
    with pytest.raises(DataError, match=r"do not know whose they are.*--keep-users"):
        forget_counts(tmp_path, users=["u7"])
    with pytest.raises(DataError, match="no column 'client', so there are no users to keep"):
        count_days(
            read_impressions(day_log(SEED, only=["timestamp"])), tmp_path / "x", keep_users=True
        )


def test_what_cannot_be_forgotten_is_told(tmp_path):
    with pytest.raises(DataError, match="no counts of days"):
        forget_counts(tmp_path, days=["2026-03-01"])
    count_days(read_impressions(day_log(SEED)), tmp_path)
    with pytest.raises(ParameterError, match="nothing to forget is named"):
        forget_counts(tmp_path)
    with pytest.raises(ParameterError, match="no day '2026-04-01': it has 2026-03-01 to"):
        forget_counts(tmp_path, days=["2026-04-01"])
    assert forget_counts(tmp_path, queries=["nothing"]).n_impressions == 0


def test_settings_of_a_raw_log_are_refused_for_counts(tmp_path):
    log = read_impressions(day_log(SEED))
    count_days(log, tmp_path)
    for name, value in {
        "reader": "ubi", "columns": {"query_id": "q"}, "context": "device", "values": {"click": 1},
        "positions_from": 0, "engine": "polars", "master": "local",
    }.items():  # fmt: skip
        with pytest.raises(ParameterError, match=f"{name} was said when the days were counted"):
            read_impressions(tmp_path, **{name: value})
    with pytest.raises(ParameterError, match=r"join_queries.* give it as it was"):
        read_impressions(tmp_path, join_queries=True)
    with pytest.raises(DataError, match="when a day is counted"):
        read_impressions(tmp_path).without_suspicious()
    for name in ("one", "two"):
        shutil.copytree(tmp_path / "2026-03-01", tmp_path / name / "2026-03-01")
    with pytest.raises(DataError, match="2026-03-01 is there twice"):
        read_impressions(f"{tmp_path}/[ot]*")


def test_places_that_are_not_for_counts_are_refused(tmp_path):
    log = read_impressions(day_log(SEED, only=["timestamp"]))
    (tmp_path / "file").write_text("")
    with pytest.raises(ParameterError, match="is a file, expected a folder"):
        count_days(log, tmp_path / "file")
    with pytest.raises(ParameterError, match=r"has files that are no counts \(file\)"):
        count_days(log, tmp_path)
    with pytest.raises(CounterSampleError, match="cannot be written"):
        count_days(log, tmp_path / "file" / "inner")
    count_days(log, tmp_path / "counts")
    with pytest.raises(ParameterError, match="these are counts already"):
        count_days(read_impressions(tmp_path / "counts"), tmp_path / "again")


def test_queries_that_are_joined_stay_so(tmp_path):
    table = day_log(SEED, only=["timestamp"])
    names = [
        name.upper() if k % 2 else name for k, name in enumerate(table["query_id"].to_pylist())
    ]
    log = read_impressions(table.set_column(0, "query_id", [names]), join_queries=True)
    count_days(log, tmp_path)
    with pytest.raises(ParameterError, match="join_queries"):
        read_impressions(tmp_path)
    same_counts(read_impressions(tmp_path, join_queries=True).counts(), log.counts())
    taken = forget_counts(tmp_path, queries=["Q1 "])
    assert taken.n_impressions == table["query_id"].to_pylist().count("q1")


def test_rows_that_cannot_be_counted_are_refused_or_told(tmp_path):
    table = day_log(SEED, only=["timestamp", "session"])
    position = table["position"].to_pylist()
    position[4] = 0
    bad = table.set_column(2, "position", [position])
    with pytest.raises(DataError, match=r"1 of .* rows are impossible.*--missing skip"):
        count_days(read_impressions(bad), tmp_path / "a")
    assert not (tmp_path / "a").exists()  # no day is written where another cannot be
    count_days(read_impressions(bad), tmp_path / "a", skip_impossible=True)
    assert read_impressions(tmp_path / "a").check().problems.n_invalid == 1
    stamps = table["timestamp"].to_pylist()
    stamps[0] = None
    bad = table.set_column(table.column_names.index("timestamp"), "timestamp", [stamps])
    with pytest.raises(DataError, match="1 rows have no timestamp"):
        count_days(read_impressions(bad), tmp_path / "b")
    days = count_days(read_impressions(bad), tmp_path / "b", skip_impossible=True)
    assert sum(day.n_impressions for day in days) == len(table) - 1
    many = table.append_column("policy", [[f"p{n}" for n in range(len(table))]])
    with pytest.raises(DataError, match="at most 62"):
        count_days(read_impressions(many), tmp_path / "c")


@pytest.mark.parametrize(
    ("table", "column", "value", "said"),
    [
        ("counts", "impressions", 0, "impressions has a value that is not from 1"),
        ("counts", "clicks", 10**6, "clicks are more than impressions"),
        ("counts", "position", -3, "position has a value that is not from 1"),
        ("counts", "value", float("nan"), "value has a value that is not from 0"),
        ("counts", "query_id", None, "query_id has values that are missing"),
        ("counts", "timestamp", date(2026, 3, 9), "rows of another day"),
        ("clicks", "bucket", 256, "bucket has a value that is not from 0 to 255"),
        ("visits", "sessions", -1, "sessions has a value that is not from 0"),
        ("weights", "weight", float("inf"), "weight has a value that is not from 0"),
        ("pages", "clicks", -1, "clicks has a value that is not from 0"),
    ],
)
def test_counts_that_a_stranger_made_are_refused(table, column, value, said, crafted):
    """Though every hash is right."""
    folder, part = crafted
    tables = {name: part.read(name) for name in part.tables()}
    changed = tables[table]
    values = changed[column].to_pylist()
    values[0] = value
    place = changed.column_names.index(column)
    column_type = changed.schema.field(column).type
    tables[table] = changed.set_column(place, column, pa.array(values, column_type))
    write_part(folder / part.label, part, tables)
    with pytest.raises(DataError, match=said):
        everything(folder)


@pytest.fixture
def crafted(tmp_path):
    count_days(read_impressions(day_log(SEED, sessions=20, days=1)), tmp_path)
    return tmp_path, read_part(tmp_path / "2026-03-01")


def everything(folder):
    log = read_impressions(folder)
    return log.visits(log.counts()), log.weights_of_rows(), log.pages()


def test_damaged_counts_are_refused(tmp_path):
    count_days(read_impressions(day_log(SEED)), tmp_path / "whole")
    day = "2026-03-02"
    for name in ("counts", "visits", "clicks", "weights", "pages"):
        shutil.copytree(tmp_path / "whole", tmp_path / name)
        path = tmp_path / name / day / f"{name}.parquet"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(DataError, match=f"{name}.parquet is not what was written"):
            everything(tmp_path / name)
    header = tmp_path / "whole" / day / "header.json"
    told = json.loads(header.read_text())
    for change, said in (
        ({"version": 2}, "format version 2, expected 1"),
        ({"n_sessions": 5}, "header.json is not what was written"),
    ):
        header.write_text(json.dumps(told | change))
        with pytest.raises(DataError, match=said):
            read_impressions(tmp_path / "whole")


def test_what_needs_rows_is_refused(tmp_path):
    log, _ = make(SEED, queries=20, sessions=200)
    count_days(read_impressions(log), tmp_path / "counts", name="a")
    counts = read_impressions(tmp_path / "counts")
    with pytest.raises(DataError, match="sample the log, then count the sample"):
        counts.sample_queries(5)
    with pytest.raises(DataError, match="no rows to draw from or to write"):
        counts.write(tmp_path / "x.parquet")
