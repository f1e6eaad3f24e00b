"""Days of a log: from any kind of timestamp, in UTC, and where they are cut."""

from datetime import UTC, date, datetime, timedelta
from time import tzset

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from shops import make

from countersample.errors import DataError, ParameterError
from countersample.logs import read_impressions
from countersample.logs.days import Days
from countersample.options import EvaluationOptions

FIRST = datetime(2026, 3, 1)  # noqa: DTZ001 (a log without time zones)
KINDS = {
    "times": lambda stamps: pa.array(stamps, pa.timestamp("us")),
    "in a zone": lambda stamps: pa.array([each.replace(tzinfo=UTC) for each in stamps]),
    "dates": lambda stamps: pa.array([each.date() for each in stamps]),
    "text": lambda stamps: pa.array([each.isoformat() for each in stamps]),
    "seconds": lambda stamps: pa.array([_seconds(each) for each in stamps]),
    "milliseconds": lambda stamps: pa.array([1000 * _seconds(each) for each in stamps]),
    "seconds in text": lambda stamps: pa.array([str(_seconds(each)) for each in stamps]),
    "fractions": lambda stamps: pa.array([_seconds(each) + 0.5 for each in stamps]),
}


def _seconds(stamp):
    return int(stamp.replace(tzinfo=UTC).timestamp())


def stamped(log, *, days=10, kind="times"):
    """Return a log whose sessions are spread over days."""
    codes = np.unique(log["session"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    hours = codes * 24 * days // (codes.max() + 1)
    stamps = [FIRST + timedelta(hours=int(hour)) for hour in hours]
    return log.append_column("timestamp", KINDS[kind](stamps))


@pytest.fixture(scope="module")
def shop():
    return make(SEED)


@pytest.mark.parametrize("kind", KINDS)
def test_days_and_their_rows(engine, shop, kind):
    log = stamped(shop[0].slice(0, 500), days=4, kind=kind)
    found = read_impressions(log, engine=engine)
    stamps = stamped(shop[0].slice(0, 500), days=4)["timestamp"].to_pylist()
    own = np.array([each.date() for each in stamps])
    days = found.days()
    assert days.days == tuple(FIRST.date() + timedelta(days=k) for k in range(4))
    assert days.rows == tuple(int((own == day).sum()) for day in days.days)
    cut = days.days[2]
    before, after = found.of_days(until=cut), found.of_days(since=cut)
    assert before.counts().n_impressions == (own < cut).sum()
    assert after.counts().n_impressions == (own >= cut).sum()


@pytest.mark.parametrize(
    ("zone", "here"), [("UTC", "Asia/Tokyo"), ("Asia/Tokyo", "America/New_York")]
)
def test_days_are_of_utc_whatever_the_zones(zone, here, monkeypatch):
    """Of the column, and of the machine, by which DuckDB shows times."""
    stamps = [datetime(2026, 3, 1, hour, tzinfo=UTC) for hour in (0, 2, 23)]
    when = pa.array([*stamps, None], pa.timestamp("us", zone))
    log = pa.table({"query_id": [1] * 4, "item_id": [1, 2, 3, 4], "position": [1, 2, 3, 4],
                    "click": [0, 1, 1, 0], "timestamp": when})  # fmt: skip
    try:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", here)
            tzset()
            found = read_impressions(log)
            days = found.days()
            assert days == Days((date(2026, 3, 1),), (3,))
            assert found.of_days(since=days.days[0]).counts().n_impressions == 3
            assert found.of_days(until=days.days[0]).counts().n_impressions == 1
    finally:
        tzset()


def test_rows_without_a_time_are_learned_from(shop):
    log = stamped(shop[0].slice(0, 100), days=2)
    some = pa.array([None] * 10 + log["timestamp"].to_pylist()[10:], log["timestamp"].type)
    found = read_impressions(log.set_column(log.num_columns - 1, "timestamp", some))
    cut = found.days().days[-1]
    total = found.of_days(until=cut).counts().n_impressions
    assert total + found.of_days(since=cut).counts().n_impressions == 100
    assert sum(found.days().rows) == 90


def test_the_usual_cut_leaves_a_fifth():
    day = [date(2026, 1, 1) + timedelta(days=k) for k in range(10)]
    assert Days(tuple(day), (10,) * 10).usual_cut() == day[8]
    assert Days(tuple(day[:2]), (50, 50)).usual_cut() == day[1]
    assert Days(tuple(day[:2]), (10, 90)).usual_cut() is None
    assert Days(tuple(day[:1]), (10,)).usual_cut() is None


def test_a_cut_that_is_asked_for():
    days = Days(tuple(date(2026, 1, k) for k in range(1, 31)), (1,) * 30)

    def cut(first=None, last=None):
        return days.cut(EvaluationOptions(holdout_from=first, holdout_last=last))

    assert cut("2026-01-20") == date(2026, 1, 20)
    assert cut(datetime(2026, 1, 20, 12, tzinfo=UTC)) == date(2026, 1, 20)
    assert cut(last="7d") == date(2026, 1, 24)
    assert cut(last="2w") == date(2026, 1, 17)
    for first, last, message in [
        ("2026-01-01", None, "leave nothing to learn from"),
        ("2026-02-01", None, "nothing to evaluate on: the log is of 2026-01-01 to 2026-01-30"),
        (None, "31d", "leave nothing to learn from"),
        ("today", None, "expected a day such as '2026-03-31'"),
        (None, "900000d", "holdout_last is '900000d', expected less than the log has"),
        (None, "99999999999999d", "of 2026-01-01 to 2026-01-30"),
        (None, "7h", "expected days or weeks: '7d' or '2w'"),
        ("2026-01-20", "7d", "both given"),
    ]:
        with pytest.raises(ParameterError, match=message):
            cut(first, last)


@pytest.mark.parametrize(
    ("stamps", "told"),
    [
        ([17, 18, 19], "numbers up to 19, too small for seconds since 1970"),
        (["Monday", "Tuesday", "Monday"], "the timestamp 'Monday' is no time"),
        ([None, None, None], "no row has a timestamp|is Null|expected times"),
    ],
)
def test_what_is_no_time(stamps, told):
    log = pa.table({"query_id": [1, 1, 2], "item_id": [1, 2, 1], "position": [1, 2, 1],
                    "click": [0, 1, 1], "timestamp": stamps})  # fmt: skip
    with pytest.raises(DataError, match=told):
        read_impressions(log).days()
