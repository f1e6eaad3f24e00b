"""Recent days count more in what is learned, and intervals stay honest."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from time import tzset

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from day_logs import day_log
from shops import make

from countersample.errors import DataError, ParameterError
from countersample.fitting import fit as fit_module
from countersample.fitting import fit_from_impressions, judgements_from_impressions
from countersample.logs import (
    PositionCounts,
    count_days,
    read_features,
    read_impressions,
)
from countersample.logs.days import Days, effective_impressions, weighted
from countersample.options import EvaluationOptions, PropensityOptions, RankerOptions
from countersample.propensity import estimate

DAYS = 4


@pytest.fixture(scope="module")
def table():
    return day_log(SEED, days=DAYS, only=[
        "session", "timestamp", "policy", "context", "value", "propensity",
    ])  # fmt: skip


def by_hand(table, half_life, column):
    """Add up a column, weighted by day, row by row of the log."""
    totals = {}
    names = ("query_id", "item_id", "position", "context", "timestamp", column)
    for *key, stamp, value in zip(*(table[name].to_pylist() for name in names), strict=True):
        age = DAYS - int(stamp[8:10])
        totals[tuple(key)] = totals.get(tuple(key), 0.0) + 0.5 ** (age / half_life) * value
    return totals


def keys_of(counts):
    return zip(
        counts.query_ids[counts.query].tolist(), counts.item_ids[counts.item].tolist(),
        counts.position.tolist(), counts.context_ids[counts.context].tolist(), strict=True,
    )  # fmt: skip


# -- timestamps that are numbers


def log_at(stamps, dtype=None):
    n = len(stamps)
    return pa.table({
        "query_id": ["q"] * n, "item_id": ["i"] * n, "position": [1] * n, "click": [1] * n,
        "timestamp": pa.array(stamps, dtype),
    })  # fmt: skip


MIDDAY = 1_767_268_800  # 2026-01-01T12:00:00Z


@pytest.mark.parametrize(
    ("factor", "dtype"),
    [
        (1, pa.decimal128(12, 1)),
        (10**3, pa.float64()),
        (10**6, pa.int64()),
        (10**9, pa.int64()),
    ],
)
def test_timestamps_are_numbers_of_any_type_and_unit(engine, factor, dtype):
    stamps = [MIDDAY * factor, None, (MIDDAY + 86_400) * factor]
    decimals = [None if stamp is None else Decimal(stamp) for stamp in stamps]
    table = log_at(decimals if pa.types.is_decimal(dtype) else stamps, dtype)
    days = (date(2026, 1, 1), date(2026, 1, 2))
    assert read_impressions(table, engine=engine).days() == Days(days, (1, 1))


@pytest.mark.parametrize(
    ("stamps", "message"),
    [
        ([MIDDAY] * 39 + [MIDDAY * 1000],
         r"several units: 39 in seconds \(such as 1767268800\), 1 in milliseconds \(such as 17672"),
        ([MIDDAY, 0], r"units: 1 in no unit since 1970 \(such as 0\), 1 in seconds"),
        ([20260331], "timestamp 20260331 is a date written as a number, expected text such as"),
        ([202603311259], "timestamp 202603311259 is a date written as a number"),
        ([20260331125959], "timestamp 20260331125959 is a date written as a number"),
        (["20260331125959"], "timestamp 20260331125959 is a date written as a number"),
        ([17, 18, 19], "numbers up to 19, too small for seconds since 1970"),
        (["Monday", "Tuesday", "Monday"], "the timestamp 'Monday' is no time"),
        ([None, None, None], "no row has a timestamp|is Null|expected times"),
    ],
)  # fmt: skip
def test_what_is_no_time_since_1970_is_rejected(stamps, message):
    with pytest.raises(DataError, match=message):
        read_impressions(log_at(stamps)).days()


@pytest.mark.slow
@pytest.mark.parametrize("source", ["log", "counts"])
def test_a_day_counts_half_after_the_half_life(table, source, tmp_path):
    log = read_impressions(table)
    if source == "counts":
        count_days(log, tmp_path)
        log = read_impressions(tmp_path)
    recent = log.with_half_life("2d")
    found = weighted(recent, recent.counts())
    same = table.append_column("shown", pa.array(np.ones(len(table))))
    for name, column in (("impressions", "shown"), ("clicks", "click"), ("value", "value")):
        expected = by_hand(same, 2, column)
        np.testing.assert_allclose(
            getattr(found, name), [expected[key] for key in keys_of(found)], rtol=1e-12
        )
    np.testing.assert_array_equal(found.logged, log.counts().impressions)
    visits = {}
    columns = (table[name].to_pylist() for name in ("query_id", "session", "timestamp"))
    for query, session, stamp in zip(*columns, strict=True):
        visits[query, session] = 0.5 ** ((DAYS - int(stamp[8:10])) / 2)
    for place, query in enumerate(found.query_ids.tolist()):
        own = sum(weight for (asked, _), weight in visits.items() if asked == query)
        np.testing.assert_allclose(found.sessions[place], own)
    # A row's own propensity is the mean over its weighted clicks.
    inverse = pa.array(np.array(table["value"]) / np.array(table["propensity"]))
    expected = by_hand(table.append_column("weight", inverse), 2, "weight")
    own = recent.logged_propensities(found).value
    clicked = found.value > 0
    weights = np.array([expected[key] for key in keys_of(found)])
    np.testing.assert_allclose((found.value / own)[clicked], weights[clicked], rtol=1e-12)


def test_items_that_are_counted_together_stay_so(table):
    recent = read_impressions(table.slice(0, 60)).with_half_life("2d")
    every, large = (weighted(recent, recent.counts(max_groups=most)) for most in (10**9, 0))
    assert large.rest is not None
    for name in ("impressions", "clicks", "value"):
        np.testing.assert_allclose(getattr(large, name).sum(), getattr(every, name).sum())
        both = [np.bincount(c.position, getattr(c, name)) for c in (large, every)]
        np.testing.assert_allclose(*both)


def test_what_a_half_life_leaves(table):
    recent = read_impressions(table).with_half_life("1d")
    days = recent.days()
    w = 0.5 ** np.arange(DAYS - 1, -1, -1)
    n = np.array(days.rows)
    assert np.isclose(effective_impressions(recent), (w @ n) ** 2 / (w**2 @ n))


def simulated(rng, half_life, *, theta=(1.0, 0.5), n_queries=200, days=6):
    """Return counts of days whose users examine positions as `theta` says, weighted by day."""
    shape = (n_queries, 2, 2)  # items, positions
    relevance = rng.beta(1, 3, (n_queries, 2, 1))
    total = np.zeros((2, *shape))
    logged = np.zeros(shape)
    for age in range(days):
        shown = rng.poisson(rng.gamma(1.0, 4.0, (n_queries, 1, 1)), shape) + 1
        clicks = rng.binomial(shown, relevance * np.array(theta))
        total += 0.5 ** (age / half_life) * np.stack([shown, clicks])
        logged += shown
    query, item, position = (axis.ravel() for axis in np.indices(shape))
    columns = {
        "query": query, "item": item, "position": position + 1,
        "impressions": logged.ravel(), "clicks": np.zeros(logged.size),
    }  # fmt: skip
    counts = PositionCounts.from_codes(columns, np.arange(n_queries), np.arange(2))
    shown, clicks = total.reshape(2, -1)
    return replace(
        counts, impressions=shown, clicks=clicks, value=clicks, logged=counts.impressions
    )


@pytest.mark.parametrize("method", ["all-pairs", "pivot"])
def test_intervals_of_weighted_days_cover(method):
    rng = np.random.default_rng(SEED)
    n, covered, widths = 120, 0, []
    for _ in range(n):
        curve = estimate(simulated(rng, 1.0), method=method, n_bootstrap=200, rng=rng)
        covered += curve.low[1] <= 0.5 <= curve.high[1]
        widths.append(curve.high[1] - curve.low[1])
    # Of 120 intervals that cover with 94 %, fewer than 104 do once in a thousand tests.
    assert covered >= 104, covered
    # They are wider than those of all six days, as the weights are worth about three of one.
    whole = [estimate(simulated(rng, 1e9), method=method, n_bootstrap=200, rng=rng)
             for _ in range(20)]  # fmt: skip
    assert np.mean(widths) > 1.15 * np.mean([c.high[1] - c.low[1] for c in whole])


def test_shuffles_are_seen_by_whole_numbers():
    rng = np.random.default_rng(SEED)
    shuffled = simulated(rng, 0.5)
    shown = rng.binomial(shuffled.logged.reshape(-1, 2).sum(1), 0.5)
    even = np.stack([shown, shuffled.logged.reshape(-1, 2).sum(1) - shown], axis=1).ravel()
    estimate(replace(shuffled, logged=even), method="randomized", n_bootstrap=20, rng=0)
    ordered = even * np.tile([1, 0.2, 0.2, 1], len(even) // 4)
    with pytest.raises(DataError, match="shuffle"):
        estimate(replace(shuffled, logged=ordered), method="randomized", n_bootstrap=20, rng=0)


@pytest.fixture(scope="module")
def shop():
    """Return the log of a shop over five days, and its features."""
    log, features = make(SEED, queries=60, sessions=1500)
    stamps = [f"2026-03-{session % 5 + 1:02d}" for session in log["session"].to_pylist()]
    return log.append_column("timestamp", [stamps]), read_features(features)


def test_what_cannot_be_weighted_is_told(table, shop):
    log = read_impressions(table)
    for bad in ("3", "soon", "0d", 14):
        with pytest.raises(ParameterError, match=r"half_life is .*, expected days or weeks"):
            log.with_half_life(bad)
    with pytest.raises(DataError, match="no column 'timestamp'"):
        read_impressions(table.drop_columns("timestamp")).with_half_life("3d")
    log, features = shop
    recent = read_impressions(log).with_half_life("3d")
    with pytest.raises(ParameterError, match=r"needs whole numbers of clicks.*--half-life"):
        fit_from_impressions(recent, features, propensities=PropensityOptions(method="trust"))


@pytest.fixture(scope="module")
def turned():
    """Return the log of a shop whose users want the opposite in its first days."""
    log, features = make(SEED, queries=60, sessions=1500)
    session = log["session"].to_numpy()
    old = session % 5 < 4
    click = np.array(log["click"])
    position = np.array(log["position"])
    label = dict(zip(features["item_id"].to_pylist(), features["label"].to_pylist(), strict=True))
    wanted = np.array([label[item] for item in log["item_id"].to_pylist()])
    rng = np.random.default_rng(SEED)
    unwanted = rng.random(len(click)) < (1 - wanted) ** 3 / position
    day = np.where(old, session % 5, 27)
    log = log.set_column(log.column_names.index("click"), "click",
                         pa.array(np.where(old, unwanted, click).astype(np.int64)))  # fmt: skip
    stamps = [f"2026-03-{d + 1:02d}T00:00:00" for d in day]
    return log.append_column("timestamp", [stamps]), read_features(features), label


@pytest.mark.slow
def test_recent_days_are_what_a_ranker_learns_from(turned):
    log, features, label = turned
    wanted = np.array([label[item] for item in features.item_ids.tolist()])
    fits = {}
    for half_life in (None, "1d"):
        opened = read_impressions(log)
        fits[half_life] = fit_from_impressions(
            opened if half_life is None else opened.with_half_life(half_life),
            features,
            ranker=RankerOptions(safety=0),
            propensities=[1 / k for k in range(1, 11)],
            evaluation=EvaluationOptions(holdout_by="queries"),
            seed=SEED,
        )
    scores = {name: fit.ranker.predict(features.dataset) for name, fit in fits.items()}
    follows = {name: np.corrcoef(each, wanted)[0, 1] for name, each in scores.items()}
    assert follows["1d"] > 0.5 > follows[None]
    assert fits["1d"].settings["half_life"] == 1
    assert any("half-life of 1 days the log is worth" in text for text in fits["1d"].warnings)
    assert fits["1d"].check.counts.n_clicks == fits[None].check.counts.n_clicks


def test_where_every_day_counts_alike_a_half_life_is_refused():
    log, _ = make(SEED, queries=20, sessions=200)
    log = log.append_column("timestamp", pa.array(["2026-03-01"] * len(log)))
    weighted = read_impressions(log).with_half_life("14d")
    with pytest.raises(ParameterError, match="has a half-life, expected none for judgements"):
        judgements_from_impressions(weighted)


@pytest.mark.slow
def test_the_leak_check_counts_every_impression_alike(shop, monkeypatch):
    """Judged by time, with logged propensities: what leaks is of clicks, whatever their age."""
    log, features = shop
    day = np.array([int(stamp[8:10]) for stamp in log["timestamp"].to_pylist()])
    looks = (1 + day % 3) / 3 / np.array(log["position"])  # otherwise from day to day
    log = log.append_column("propensity", pa.array(looks))
    seen = []

    def find_leaks(earlier, *_args, **options):
        seen.append((earlier.propensity, options["evaluation"].propensity))
        return ()

    monkeypatch.setattr(fit_module, "find_leaks", find_leaks)
    opened = read_impressions(log)
    for each in (opened, opened.with_half_life("1d")):
        last_day = EvaluationOptions(holdout_by="time", holdout_last="1d")
        fit_from_impressions(each, features, evaluation=last_day, seed=SEED)
    for plain, recent in zip(*seen, strict=True):
        np.testing.assert_array_equal(recent, plain)


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu"])
def machine_zone(request, monkeypatch):
    """Let the machine be in a time zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        tzset()
        yield request.param
    tzset()


#: Minutes beside midnight, in summer and in winter, and the hours in which clocks change.
MOMENTS = [
    datetime(2026, 1, 14, 23, 30, tzinfo=UTC), datetime(2026, 1, 15, 0, 10, tzinfo=UTC),
    datetime(2026, 3, 29, 1, 30, tzinfo=UTC), datetime(2026, 7, 1, 23, 30, tzinfo=UTC),
    datetime(2026, 7, 2, 0, 10, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
]  # fmt: skip
MOMENT_DAYS = Days(
    (date(2026, 1, 14), date(2026, 1, 15), date(2026, 3, 29), date(2026, 7, 1), date(2026, 7, 2),
     date(2026, 10, 25)),
    (1,) * 6,
)  # fmt: skip
SECONDS = [int(moment.timestamp()) for moment in MOMENTS]
KINDS = {
    "UTC": pa.array(MOMENTS, pa.timestamp("us", "UTC")),
    "another zone": pa.array(MOMENTS, pa.timestamp("ms", "America/New_York")),
    "nanoseconds": pa.array(MOMENTS, pa.timestamp("ns", "UTC")),
    "no zone": pa.array([each.replace(tzinfo=None) for each in MOMENTS], pa.timestamp("us")),
    "dates": pa.array([each.date() for each in MOMENTS]),
    "text": pa.array([each.isoformat() for each in MOMENTS]),
    "seconds": pa.array(SECONDS),
    "fractions": pa.array([each + 0.5 for each in SECONDS]),
    "milliseconds": pa.array([1000 * each for each in SECONDS]),
    "seconds in text": pa.array(list(map(str, SECONDS))),
}


def log_of_moments(kind):
    """Return a log with one row per moment."""
    n = len(MOMENTS)
    return pa.table({
        "query_id": ["a"] * n, "item_id": range(n), "position": range(1, n + 1),
        "click": [0, 1] * (n // 2), "session": ["s"] * n, "timestamp": KINDS[kind],
    })  # fmt: skip


def assert_days_are_of_utc(log):
    assert log.days() == MOMENT_DAYS
    summer = date(2026, 7, 2)
    assert log.of_days(since=summer).counts().n_impressions == 2
    assert log.of_days(until=summer).counts().n_impressions == 4


@pytest.mark.usefixtures("machine_zone")
@pytest.mark.parametrize("kind", KINDS)
def test_days_are_of_utc_in_any_zone_of_the_machine(kind):
    assert_days_are_of_utc(read_impressions(log_of_moments(kind)))


@pytest.mark.usefixtures("machine_zone")
def test_days_of_a_relation_of_the_user_are_of_utc():
    relation = duckdb.connect().from_arrow(log_of_moments("UTC"))
    assert_days_are_of_utc(read_impressions(relation))


@pytest.mark.parametrize("kind", KINDS)
def test_days_are_of_utc_in_a_spark_session_of_another_zone(cluster, kind):
    zone = cluster.conf.get("spark.sql.session.timeZone")
    cluster.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        assert_days_are_of_utc(read_impressions(log_of_moments(kind), engine="spark"))
    finally:
        cluster.conf.set("spark.sql.session.timeZone", zone)


def test_rows_without_a_time_are_learned_from():
    log = read_impressions(log_at([*MOMENTS, None, None], pa.timestamp("us", "UTC")))
    cut = log.days().days[-1]
    parts = log.of_days(until=cut), log.of_days(since=cut)
    assert sum(part.counts().n_impressions for part in parts) == len(MOMENTS) + 2
    assert log.days() == MOMENT_DAYS


@pytest.mark.usefixtures("machine_zone")
def test_partitions_of_days_are_of_utc_in_any_zone_of_the_machine(tmp_path):
    days = count_days(read_impressions(log_of_moments("another zone")), tmp_path / "counts")
    assert tuple(each.day for each in days) == MOMENT_DAYS.days
    assert read_impressions(tmp_path / "counts").days() == MOMENT_DAYS


@pytest.mark.usefixtures("machine_zone")
def test_a_half_life_is_of_utc_in_any_zone_of_the_machine():
    log = read_impressions(log_of_moments("UTC")).with_half_life("1w")
    ages = np.array([(MOMENT_DAYS.days[-1] - day).days for day in MOMENT_DAYS.days])
    np.testing.assert_allclose(weighted(log, log.counts()).impressions, 0.5 ** (ages / 7))


@pytest.mark.usefixtures("machine_zone")
def test_ages_of_dates_are_of_utc_in_any_zone_of_the_machine():
    for zone in ("UTC", "America/New_York", None):
        stamps = [each if zone else each.replace(tzinfo=None) for each in MOMENTS]
        table = pa.table({
            "query_id": ["a"] * len(MOMENTS), "item_id": range(len(MOMENTS)),
            "published": pa.array(stamps, pa.timestamp("us", zone)),
        })  # fmt: skip
        ages = read_features(table, age_at="2026-12-31").dataset.features[:, 0]
        midnight = datetime(2026, 12, 31, tzinfo=UTC)
        expected = [(midnight - moment) / timedelta(days=1) for moment in MOMENTS]
        np.testing.assert_allclose(ages, expected, rtol=1e-6)


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
        ("2026-01-01", None, "expected a day of the log after its first"),
        ("2026-02-01", None, "after its first: the log covers 2026-01-01 to 2026-01-30"),
        (None, "31d", "expected a day of the log after its first"),
        ("today", None, "expected a day such as '2026-03-31'"),
        (None, "900000d", "expected days or weeks: '7d' or '2w'"),
        (None, "7h", "expected days or weeks: '7d' or '2w'"),
        ("2026-01-20", "7d", "both given"),
    ]:
        with pytest.raises(ParameterError, match=message):
            cut(first, last)
