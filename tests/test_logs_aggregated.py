"""Aggregated logs: they give the same counts, propensities, weights and rankers as the raw log."""

import shutil
import subprocess
import sys
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from day_logs import day_log
from pyarrow import csv, parquet
from shops import make

from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.fitting import fit_from_impressions
from countersample.logs import (
    aggregated,
    count_days,
    read_features,
    read_impressions,
)
from countersample.logs.aggregated import is_aggregated
from countersample.logs.findings import PAGE_SUMS
from countersample.options import EvaluationOptions

ARRAYS = ("query", "item", "position", "context", "impressions", "clicks", "value", "sessions",
          "query_ids", "item_ids", "context_ids")  # fmt: skip
FIGURES = ("impressions", "clicks", "sessions", "queries", "items", "pairs", "policies",
           "pairs_at_several_positions", "without_session", "sessions_of_several_policies",
           "positions", "shuffled")  # fmt: skip
LOGS = {
    "all": {},
    "some without a session": {"has_null_sessions": True},
    "least": {"only": ["timestamp"]},
    "sessions": {"only": ["timestamp", "session"], "has_text": False},
    "policies": {"only": ["timestamp", "session", "policy"]},
    "no sessions": {"only": ["timestamp", "policy", "context"]},
    "nameless sessions": {"only": ["timestamp", "session"], "has_null_sessions": True},
}


def same_counts(aggregated, raw):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(aggregated, name), getattr(raw, name), err_msg=name)
    assert (aggregated.sessions_from, aggregated.n_sessions, aggregated.rest) == (
        raw.sessions_from, raw.n_sessions, raw.rest,
    )  # fmt: skip


def same_log(folder, source, **options):
    """Compare an aggregated log with the raw log: all, by day, by policy, propensities."""
    raw, aggregated = read_impressions(source, **options), read_impressions(folder, **options)
    first, second = raw.check(), aggregated.check()
    figures = [each.to_dict() for each in (first, second)]
    assert [figures[1][name] for name in FIGURES] == [figures[0][name] for name in FIGURES]
    same_counts(second.counts, first.counts)
    same_counts(aggregated.counts(), raw.counts())
    if "timestamp" in raw.columns:
        assert aggregated.days() == raw.days()
        last = raw.days().days[-1]
        for days in [{"since": last}, {"until": last}][: len(raw.days().days)]:
            same_counts(aggregated.of_days(**days).counts(), raw.of_days(**days).counts())
    if "policy" in raw.columns:
        for policies in (["a"], ["a", "random"]):
            same_counts(aggregated.of_policy(*policies).counts(), raw.of_policy(*policies).counts())
    if "propensity" in raw.columns:
        np.testing.assert_allclose(
            aggregated.logged_propensities(second.counts).value,
            raw.logged_propensities(first.counts).value,
            rtol=1e-12,
        )


@pytest.mark.parametrize("kind", LOGS)
def test_an_aggregated_log_has_the_counts_of_the_raw_log(kind, tmp_path):
    table = day_log(SEED, **LOGS[kind])
    days = count_days(read_impressions(table), tmp_path / "counts")
    assert [day.day for day in days] == [date(2026, 3, k) for k in (1, 2, 3)]
    assert sum(day.n_impressions for day in days) == len(table)
    same_log(tmp_path / "counts", table)


def test_every_engine_writes_the_same_table(engine, tmp_path):
    table = day_log(SEED, has_null_sessions=True)
    parquet.write_table(table, tmp_path / "log.parquet")
    count_days(read_impressions(table), tmp_path / "expected")
    with read_impressions(tmp_path / "log.parquet", engine=engine) as log:
        count_days(log, tmp_path / "counts")
    for path in (tmp_path / "expected").rglob("*.parquet"):
        expected = parquet.read_table(path, partitioning=None)
        other = tmp_path / "counts" / path.parent.name / path.name
        assert parquet.read_table(other, partitioning=None).equals(expected)
    with read_impressions(tmp_path / "counts", engine=engine) as log:
        same_counts(log.counts(), read_impressions(table).counts())


def test_it_is_plain_parquet_by_day_without_ids_of_people(tmp_path):
    table = day_log(SEED)
    count_days(read_impressions(table), tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")) == [
        f"day=2026-03-0{k}/part.parquet" for k in (1, 2, 3)
    ]
    (one, *_) = sorted(tmp_path.rglob("*.parquet"))
    assert parquet.read_schema(one).names == [
        "query_id", "item_id", "position", "context", "policy", "session_policies", "timestamp",
        "impressions", "click", "value", "propensity", "sessions",
    ]  # fmt: skip
    assert b"u7" not in one.read_bytes()
    rows = parquet.read_table(tmp_path)  # by any reader of Parquet
    assert pa.compute.sum(rows["impressions"]).as_py() == len(table)
    assert is_aggregated(str(tmp_path))


@pytest.mark.slow
def test_sources_that_are_aggregated_or_text_are_aggregated_too(tmp_path):
    table = day_log(SEED, only=["timestamp", "policy"], has_text=False)
    threefold = table.append_column("impressions", pa.array(np.full(len(table), 3)))
    count_days(read_impressions(threefold), tmp_path / "threefold")
    same_log(tmp_path / "threefold", threefold)
    csv.write_csv(table, tmp_path / "log.csv")
    count_days(read_impressions(tmp_path / "log.csv"), tmp_path / "text")
    same_log(tmp_path / "text", tmp_path / "log.csv")  # ids are integers in both


def test_a_frame_or_csv_with_the_same_columns_is_the_same_log(tmp_path):
    table = day_log(SEED)
    count_days(read_impressions(table), tmp_path / "counts")
    rows = parquet.read_table(tmp_path / "counts").drop_columns(["day"])
    csv.write_csv(rows, tmp_path / "counts.csv")
    expected = read_impressions(table).counts()
    same_counts(read_impressions(rows).counts(), expected)
    same_counts(read_impressions(rows.to_pandas()).counts(), expected)
    same_counts(read_impressions(tmp_path / "counts.csv").counts(), expected)


def test_the_day_of_a_log_without_timestamps_is_an_option(tmp_path):
    table = day_log(SEED, only=["session"])
    with pytest.raises(DataError, match=r"no column 'timestamp'.*--day"):
        count_days(read_impressions(table), tmp_path)
    with pytest.raises(ParameterError, match="day is 'monday', expected a day such as"):
        count_days(read_impressions(table), tmp_path, day="monday")
    with pytest.raises(ParameterError, match="the log has timestamps"):
        count_days(read_impressions(day_log(SEED)), tmp_path, day="2026-03-01")
    count_days(read_impressions(table), tmp_path, day="2026-03-01")
    same_log(tmp_path, table)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Return a shop's log of five days, its features, and the folder of the aggregated log."""
    log, features = make(SEED, queries=60, sessions=1200)
    session = log["session"].to_numpy()
    log = log.append_column("timestamp", [[f"2026-03-{s % 5 + 1:02d}T10:00:00" for s in session]])
    folder = tmp_path_factory.mktemp("shop") / "counts"
    count_days(read_impressions(log), folder)
    return log, read_features(features), folder


@pytest.mark.slow
@pytest.mark.parametrize("judge_by", ["queries", "time"])
def test_the_ranker_is_that_of_the_raw_log(shop, judge_by):
    table, features, folder = shop
    raw, aggregated = (
        fit_from_impressions(
            read_impressions(log),
            features,
            evaluation=EvaluationOptions(holdout_by=judge_by),
            seed=SEED,
        )
        for log in (table, folder)
    )
    assert aggregated.ranker.coef_.tobytes() == raw.ranker.coef_.tobytes()
    curves = [each.propensity_source.curve for each in (raw, aggregated)]
    for name in ("value", "low", "high"):
        np.testing.assert_array_equal(getattr(curves[1], name), getattr(curves[0], name))
    values = [[fit.gain.new.value, fit.gain.logged.value] for fit in (raw, aggregated)]
    assert values[1] == values[0]
    if judge_by == "queries":
        assert (aggregated.gain, aggregated.verdict) == (raw.gain, raw.verdict)
    else:  # without ids of sessions, queries are drawn again: the bias differs
        assert aggregated.gain.relative == pytest.approx(raw.gain.relative, rel=0.01)
        assert aggregated.holdout.since == raw.holdout.since
        assert "queries like those from" in str(aggregated.holdout)


@pytest.mark.slow
def test_a_day_is_counted_once(tmp_path):
    table = day_log(SEED, days=2)
    log = read_impressions(table)
    count_days(log, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(DataError, match=r"day=2026-03-01: this day was counted before.*--replace"):
        count_days(log, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    most = table.slice(0, len(table) - 2)
    days = count_days(read_impressions(most), tmp_path, replace=True)
    n_before = sum(1 for text in table["timestamp"].to_pylist() if text < "2026-03-02")
    assert days[0].warnings[0] == f"This day replaces {n_before:,} impressions."
    same_log(tmp_path, most)
    (tmp_path / "day=2026-03-01" / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match="is no day of counts, so it is not replaced"):
        count_days(log, tmp_path, replace=True)


def log_of_a_day(*, n=20, day=1, first_session=0):
    """Return a log of sessions with five results each."""
    row = np.arange(n)
    return pa.table({
        "query_id": ["q"] * n, "item_id": row % 5, "position": row % 5 + 1,
        "click": (row % 3 == 0).astype(np.int8), "session": first_session + row // 5,
        "timestamp": [f"2026-03-{day:02d}T10:00:00"] * n,
    })  # fmt: skip


def test_late_rows_do_not_replace_their_day(tmp_path):
    count_days(read_impressions(log_of_a_day(n=2000)), tmp_path)
    late = read_impressions(log_of_a_day(n=1))
    with pytest.raises(DataError, match=r"with 2,000 impressions, and this log has only 1 of it"):
        count_days(late, tmp_path, replace=True)
    assert read_impressions(tmp_path).counts().n_impressions == 2000


def test_a_day_that_another_process_writes_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    log, other = (read_impressions(log_of_a_day(n=n)) for n in (100, 50))
    original = aggregated.describe_sessions

    def write_meanwhile(part):
        monkeypatch.setattr(aggregated, "describe_sessions", original)
        count_days(other, tmp_path)
        return original(part)

    monkeypatch.setattr(aggregated, "describe_sessions", write_meanwhile)
    with pytest.raises(DataError, match="another process counted this day meanwhile"):
        count_days(log, tmp_path, replace=True)
    assert read_impressions(tmp_path).counts().n_impressions == 50


@pytest.mark.parametrize("options", [[], ["--replace"]])
def test_two_processes_that_count_a_day_lose_nothing(tmp_path, options):
    """Each has a shard of the day. The one that is second is rejected, or replaces the first."""
    for shard in range(2):
        table = log_of_a_day(n=100, first_session=100 * shard)
        parquet.write_table(table, tmp_path / f"{shard}.parquet")
    command = [sys.executable, "-m", "countersample", "log", "count"]
    counting = [
        subprocess.Popen(
            [*command, tmp_path / f"{shard}.parquet", "-o", tmp_path / "counts", *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for shard in range(2)
    ]  # fmt: skip
    errors = [each.communicate()[1] for each in counting]
    codes = [each.returncode for each in counting]
    assert read_impressions(tmp_path / "counts").counts().n_impressions == 100
    if not options or codes != [0, 0]:
        assert sorted(map(bool, codes)) == [False, True]
        assert "this day" in errors[codes.index(max(codes))]


def test_a_write_that_fails_leaves_the_day_as_it_was(tmp_path, monkeypatch):
    count_days(read_impressions(log_of_a_day(n=50)), tmp_path)

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", fail)
    with pytest.raises(CounterSampleError, match="No space left"):
        count_days(read_impressions(log_of_a_day(n=100)), tmp_path, replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["day=2026-03-01"]
    assert read_impressions(tmp_path).counts().n_impressions == 50


@pytest.mark.parametrize("day", [1, 2])
@pytest.mark.parametrize("damage", ["empty", "cut", "footer", "metadata"])
def test_a_damaged_day_is_an_error(tmp_path, day, damage):
    for each in (1, 2):
        count_days(read_impressions(log_of_a_day(day=each)), tmp_path)
    file = tmp_path / f"day=2026-03-{day:02d}" / "part.parquet"
    content = file.read_bytes()
    if damage == "metadata":
        table = parquet.read_table(file)
        metadata = {**table.schema.metadata, PAGE_SUMS: b"[]"}
        parquet.write_table(table.replace_schema_metadata(metadata), file)
    else:
        file.write_bytes({"empty": b"", "cut": content[: len(content) // 2],
                          "footer": content[:-9] + bytes(9)}[damage])  # fmt: skip
    with pytest.raises(DataError, match=r"part\.parquet"):
        read_impressions(tmp_path).counts()


def test_a_day_whose_folder_is_deleted_is_forgotten(tmp_path):
    for each in (1, 2, 3):
        count_days(read_impressions(log_of_a_day(day=each, n=20 * each)), tmp_path)
    shutil.rmtree(tmp_path / "day=2026-03-02")
    count_days(read_impressions(log_of_a_day(day=4)), tmp_path)
    log = read_impressions(tmp_path)
    assert [day.day for day in log.days().days] == [1, 3, 4]
    assert log.counts().n_impressions == 20 + 60 + 20
    assert not [path for path in tmp_path.rglob("*") if "2026-03-02" in str(path)]


def test_places_that_are_not_for_days_are_rejected(tmp_path):
    log = read_impressions(day_log(SEED, only=["timestamp", "session"]))
    (tmp_path / "file").write_text("")
    with pytest.raises(CounterSampleError, match="file: cannot be written: File exists"):
        count_days(log, tmp_path / "file")
    with pytest.raises(ParameterError, match=r"has other files than days \(file\)"):
        count_days(log, tmp_path)
    with pytest.raises(CounterSampleError, match="cannot be written"):
        count_days(log, tmp_path / "file" / "inner")
    count_days(log, tmp_path / "counts")
    with pytest.raises(ParameterError, match="the log is aggregated already"):
        count_days(read_impressions(tmp_path / "counts"), tmp_path / "again")


def test_rows_that_cannot_be_counted_are_rejected_or_left_out(tmp_path):
    table = day_log(SEED, only=["timestamp", "session"])
    position = table["position"].to_pylist()
    position[4] = 0
    bad = table.set_column(2, "position", [position])
    with pytest.raises(DataError, match=r"1 of .* rows are impossible.*--missing skip"):
        count_days(read_impressions(bad), tmp_path / "a")
    assert not (tmp_path / "a").exists()  # no day is written if another cannot be
    days = count_days(read_impressions(bad), tmp_path / "a", skip_impossible=True)
    assert sum(day.n_impressions for day in days) == len(table) - 1
    stamps = table["timestamp"].to_pylist()
    stamps[0] = None
    bad = table.set_column(table.column_names.index("timestamp"), "timestamp", [stamps])
    with pytest.raises(DataError, match="1 rows have no timestamp"):
        count_days(read_impressions(bad), tmp_path / "b")
    days = count_days(read_impressions(bad), tmp_path / "b", skip_impossible=True)
    assert sum(day.n_impressions for day in days) == len(table) - 1


@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_impossible_sessions_are_rejected(value):
    log = pa.table({"query_id": [1], "item_id": [1], "position": [1], "click": [1],
                    "impressions": [2], "sessions": [value]})  # fmt: skip
    with pytest.raises(DataError, match="sessions is not a whole number from 1 in 1 rows"):
        read_impressions(log).counts()


@pytest.mark.slow
def test_the_command_adds_days(tmp_path, run):
    parquet.write_table(day_log(SEED, days=2), tmp_path / "log.parquet")
    assert "2026-03-02" in run("log", "count", "log.parquet", "-o", "counts")
    same_log(tmp_path / "counts", tmp_path / "log.parquet")
    assert "--replace" in run("log", "count", "log.parquet", "-o", "counts", fails=True)
    assert '"n_rows"' in run("log", "count", "log.parquet", "-o", "counts", "--replace", "--json")
    assert "impressions" in run("log", "check", "counts")


# -- sessions ------------------------------------------------------------------------------------


def sessions_of(source, **options):
    return read_impressions(source, **options).counts().sessions.tolist()


def test_a_session_in_which_only_some_rows_have_a_policy_counts_once(tmp_path):
    log = pa.table({"query_id": ["q", "q"], "item_id": [1, 2], "position": [1, 2], "click": [0, 1],
                    "session": ["s", "s"], "policy": ["A", None]})  # fmt: skip
    count_days(read_impressions(log), tmp_path / "days", day="2026-03-01")
    assert sessions_of(tmp_path / "days") == sessions_of(log) == [1]


def test_a_policy_whose_name_looks_like_two_is_rejected(tmp_path):
    log = pa.table({"query_id": ["q"] * 3, "item_id": [1, 2, 1], "position": [1, 2, 1],
                    "click": [0, 1, 0], "session": ["s", "s", "t"],
                    "policy": ["A", "B", "A + B"]})  # fmt: skip
    with pytest.raises(DataError, match=r"the policy 'A \+ B' has ' \+ ' in its name"):
        count_days(read_impressions(log), tmp_path / "days", day="2026-03-01")


def test_queries_are_joined_when_a_log_is_counted_and_not_later(tmp_path):
    log = pa.table({"query_id": ["Foo", "foo"], "item_id": [1, 1], "position": [1, 1],
                    "click": [0, 1], "session": ["s", "t"]})  # fmt: skip
    count_days(read_impressions(log), tmp_path / "apart", day="2026-03-01")
    with pytest.raises(DataError, match="join them when the log is counted"):
        read_impressions(tmp_path / "apart", join_queries=True)
    joined = read_impressions(log, join_queries=True)
    count_days(joined, tmp_path / "joined", day="2026-03-01")
    assert sessions_of(tmp_path / "joined", join_queries=True) == [2]


@pytest.mark.parametrize("kind", ["text", "time"])
def test_sessions_are_those_of_a_day_whatever_the_times_of_its_rows(kind):
    times = ["2026-03-01T10:00", "2026-03-01T11:00"]
    if kind == "time":
        times = [datetime.fromisoformat(each) for each in times]
    log = pa.table({"query_id": ["q", "q"], "item_id": [1, 2], "position": [1, 2], "click": [3, 1],
                    "impressions": [5, 5], "sessions": [5, 5], "timestamp": times})  # fmt: skip
    assert sessions_of(log) == [5]


def test_times_whose_day_depends_on_a_zone_are_rejected_beside_sessions():
    log = pa.table({"query_id": ["q"], "item_id": [1], "position": [1], "click": [1],
                    "impressions": [5], "sessions": [5],
                    "timestamp": [datetime(2026, 3, 1, tzinfo=UTC)]})  # fmt: skip
    with pytest.raises(DataError, match="expected a date, or text such as 2026-03-31"):
        read_impressions(log)


# -- days ----------------------------------------------------------------------------------------


def test_days_may_have_ids_of_other_widths(tmp_path):
    for day, width, item in (("2026-03-01", pa.int32(), 1), ("2026-03-02", pa.int64(), 2**40)):
        log = pa.table({"query_id": ["q"], "item_id": pa.array([item], width), "position": [1],
                        "click": [1], "session": ["s"]})  # fmt: skip
        count_days(read_impressions(log), tmp_path, day=day)
    assert read_impressions(tmp_path).counts().item_ids.tolist() == [1, 2**40]


def test_a_day_without_a_possible_row_is_skipped_with_such_rows(tmp_path):
    log = pa.table({"query_id": ["q", "q"], "item_id": [1, 1], "position": [1, 0], "click": [1, 1],
                    "timestamp": ["2026-03-01", "2026-03-02"]})  # fmt: skip
    with pytest.raises(DataError, match="2026-03-02"):
        count_days(read_impressions(log), tmp_path)
    days = count_days(read_impressions(log), tmp_path, skip_impossible=True)
    assert [str(each.day) for each in days] == ["2026-03-01"]
