"""Drift: few false alarms however clicks depend, and real changes are found."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from html_pages import Page
from pyarrow import parquet
from scipy import stats

from countersample.errors import DataError, ParameterError
from countersample.fitting import find_drift
from countersample.fitting.drift import LEVEL, Limits, Rate, compare_rates
from countersample.logs import count_days, read_features, read_impressions
from countersample.propensity import estimate

N_QUERIES, N_ITEMS, N_POSITIONS = 60, 8, 4
# Users differ in patience, so that clicks of one user depend on each other.
TRUTH = np.random.default_rng(0)
RELEVANCE = TRUTH.beta(1, 2, (N_QUERIES, N_ITEMS))
ORDERS = [TRUTH.permutation(N_ITEMS) for _ in range(2)]
VALUES = TRUTH.normal(size=(N_QUERIES * N_ITEMS, 3)).astype(np.float32)


def day(rng, *, sessions=3000, first=1.0, policies=(0.5, 0.5, 0.0), mean_users=3, start=0):
    """Return a day's log; `first` scales clicks at position 1."""
    user = rng.integers(sessions // mean_users, size=sessions)
    patience = rng.gamma(2.0, 0.5, sessions // mean_users)[user]
    query = (N_QUERIES * rng.random(sessions) ** 2).astype(int)
    policy = rng.choice(3, size=sessions, p=policies)
    item = np.stack([ORDERS[0], ORDERS[1], ORDERS[0][::-1]])[policy][:, :N_POSITIONS]
    theta = np.array([first, 0.6, 0.4, 0.3])
    chance = np.minimum(0.95, patience[:, None] * theta * RELEVANCE[query[:, None], item])
    n = sessions * N_POSITIONS
    return pa.table({
        "query_id": np.repeat(query, N_POSITIONS),
        "item_id": (item + N_ITEMS * query[:, None]).ravel(),
        "position": np.tile(np.arange(1, N_POSITIONS + 1), sessions),
        "click": (rng.random((sessions, N_POSITIONS)) < chance).ravel().astype(int),
        "session": np.repeat(np.arange(sessions) + start, N_POSITIONS),
        "client": np.repeat(user + start, N_POSITIONS),
        "policy": np.repeat(np.array(["a", "b", "c"])[policy], N_POSITIONS),
        "context": np.repeat(np.array(["phone", "desktop"])[user % 2], N_POSITIONS),
        "timestamp": ["2026-03-01"] * n,
    })  # fmt: skip


def features(scale=1.0):
    values = VALUES.copy()
    values[:, 0] *= scale
    return read_features(pa.table({
        "query_id": np.repeat(np.arange(N_QUERIES), N_ITEMS),
        "item_id": np.arange(N_QUERIES * N_ITEMS),
        "price": values[:, 0], "sales": values[:, 1], "stock": values[:, 2],
    }))  # fmt: skip


def drift(after, before, **options):
    return find_drift(read_impressions(after), read_impressions(before), **options)


def names(result):
    return {f"{change.kind} {change.name}" for change in result.relevant_changes}


def ratio(before, after, margin=0.1, min_count=0):
    return compare_rates("clicks", "1", [before, after], Limits("ratio", margin, min_count))


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_the_level():
    """Days of the same users and queries, at a level of 20 %, so that there are some."""
    rng = np.random.default_rng(SEED)
    table = features()
    days = [day(rng, sessions=1000, start=10**6 * k) for k in range(11)]
    alarms = sum(
        drift(b, a, features=table, level=0.2, seed=SEED).is_drift for a, b in pairwise(days)
    )
    # P(more than 6 of 10) is 0.1 %.
    assert alarms <= 6


@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_the_level_holds_at_the_margin_with_clustered_clicks(margin):
    """A rate that changed by exactly the margin is reported as often as the level."""
    rng = np.random.default_rng(SEED)
    n, alarms = 800, 0
    for _ in range(n):
        rates = []
        for factor in (1.0, 1 + margin):
            user = rng.integers(600, size=3000)
            p = np.minimum(1, 0.2 * factor * rng.gamma(1.0, 1.0, 600)[user])
            unit = rng.integers(256, size=600)[user]
            clicks = rng.random(3000) < p
            rates.append(Rate(np.bincount(unit, clicks, 256), np.bincount(unit, minlength=256)))
        alarms += ratio(*rates, margin).p_value < 0.05
    # Both directions share the level; at a margin one of them is out of reach.
    assert alarms / n <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / n)
    assert alarms / n >= 0.01  # and it is a test


def test_few_clicks_on_one_side_by_chance():
    """As many as expected, but fewer than a test needs: rarely an alarm."""
    rng = np.random.default_rng(SEED)
    alarms = 0
    for _ in range(200):
        many, few = (
            Rate(rng.binomial(20, rate, 400).astype(float), np.full(400, 20.0))
            for rate in (0.0072, 0.006)
        )
        p = ratio(many, few, margin=0.2, min_count=50).p_value
        alarms += p is not None and p < 0.05
    assert alarms <= 20  # 5 % of 200, and chance


def test_more_rows_are_no_alarm():
    """A change within the margin causes no alarm, however many clicks show it."""
    units = np.ones(256)
    noise = np.random.default_rng(SEED).normal(size=(2, 256)) * 1e-6  # of very many rows
    before = Rate(0.200 * units + noise[0], units)
    small, large = (ratio(before, Rate(p * units + noise[1], units)) for p in (0.215, 0.230))
    assert small.low > 0.07
    assert small.p_value > 0.99
    assert large.p_value < 1e-9


@pytest.fixture(scope="module")
def usual():
    return day(np.random.default_rng(SEED), start=0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"first": 0.5}, {"clicks position 1"}),
        ({"policies": (0.4, 0.4, 0.2)}, {"policy a", "policy b", "policy c"}),
    ],
)
def test_real_changes_are_found(usual, change, expected):
    later = day(np.random.default_rng(SEED + 1), start=10**6, **change)
    result = drift(later, usual, features=features())
    assert result.is_drift
    assert expected <= names(result)
    others = ("feature price", "context", "queries")
    assert not any(name.startswith(others) for name in names(result))
    assert result.level == LEVEL
    assert result.sentence.startswith("Drift: ")


def test_a_feature_in_another_unit_is_found_alone(usual):
    later = day(np.random.default_rng(SEED + 1), start=10**6)
    result = drift(later, usual, features=features(scale=100.0), features_before=features())
    [change] = result.relevant_changes
    assert change.name == "price"
    assert change.stability_index > 0.25


def test_new_queries_beyond_chance_are_found(usual):
    later = day(np.random.default_rng(SEED + 1), start=10**6)
    query = np.array(later["query_id"])
    other = later.set_column(0, "query_id", pa.array(np.where(query % 3 == 0, query + 1000, query)))
    assert {"queries new", "queries gone"} <= names(drift(other, usual))
    # A long tail has new ones every day, which is no drift.
    rng = np.random.default_rng(SEED)
    tails = []
    for k in range(2):
        table = day(rng, start=10**6 * k)
        tail = rng.zipf(1.3, len(table) // N_POSITIONS).clip(max=10**6).repeat(N_POSITIONS)
        tails.append(table.set_column(0, "query_id", pa.array(tail)))
    assert not {name for name in names(drift(*tails)) if name.startswith("queries")}


@pytest.mark.slow
def test_aggregated_days_are_compared_as_logs_without_ids(usual, tmp_path):
    later = day(np.random.default_rng(SEED + 1), start=10**6, first=0.5)
    count_days(read_impressions(usual), tmp_path / "before")
    count_days(read_impressions(later), tmp_path / "after")
    without_ids = [table.drop_columns(["session", "client"]) for table in (later, usual)]
    raw = drift(*without_ids, features=features(), seed=SEED)
    aggregated = drift(tmp_path / "after", tmp_path / "before", features=features(), seed=SEED)
    assert aggregated.is_drift
    assert aggregated.after["clustered_by"] == "query"
    for one, other in zip(raw.changes, aggregated.changes, strict=True):
        first, second = one.to_dict(), other.to_dict()
        assert first.keys() == second.keys()
        for name, value in first.items():
            assert second[name] == (pytest.approx(value) if isinstance(value, float) else value)


def test_limits_of_a_comparison_are_noted(usual):
    least = usual.select(["query_id", "item_id", "position", "click"])
    result = drift(least, usual)
    notes = " ".join(result.notes)
    for note in ("by client before and by query", "has a column 'policy'", "New queries were not"):
        assert note in notes
    assert not result.of_kind("queries")
    assert not drift(least, least).is_drift
    bad = usual.set_column(2, "position", pa.array(np.arange(len(usual)) % N_POSITIONS))
    assert any("rows are impossible" in note for note in drift(bad, usual).notes)
    few = drift(usual.slice(0, 8), usual)
    assert not few.is_drift
    assert "too small to test anything" in few.summary()
    assert "Examination was not compared" in few.summary()
    assert json.dumps(few.to_dict(), allow_nan=False)


def test_wrong_arguments(usual):
    with pytest.raises(ParameterError, match="level"):
        drift(usual, usual, level=2)
    other = read_features(pa.table({"query_id": [1], "item_id": [1], "weight": [0.5]}))
    with pytest.raises(DataError, match="different names"):
        drift(usual, usual, features=features(), features_before=other)


@pytest.mark.slow
def test_the_command_has_an_exit_code_and_a_page(usual, run):
    later = day(np.random.default_rng(SEED + 1), start=10**6, first=0.5)
    parquet.write_table(usual, "yesterday.parquet")
    parquet.write_table(later, "today.parquet")
    run("log", "count", "yesterday.parquet", "-o", "counts")
    check = ("log", "check", "today.parquet", "--against", "counts")
    assert "position 1" in run(*check, "--report", "drift.html", code=3)
    page = Path("drift.html").read_text(encoding="utf-8")
    [notice] = Page(page).all("div", **{"class": "notice bad"})
    assert notice["text"].startswith("Drift: ")
    assert "● clicks: position 1" in page
    same = run("log", "check", "yesterday.parquet", "--against", "counts", "--json")
    assert json.loads(same)["is_drift"] is False
    pairs = usual.group_by(["query_id", "item_id"]).aggregate([])
    for name, brands in (("old.parquet", "ab"), ("new.parquet", "abc")):  # one has a new value
        brand = [brands[k % len(brands)] for k in range(len(pairs))]
        parquet.write_table(pairs.append_column("brand", [brand]), name)
    both = ("--features", "new.parquet", "--features-before", "old.parquet")
    figures = json.loads(run(*check, *both, "--json", code=3))
    assert {"brand=a", "brand=b"} <= {each["name"] for each in figures["changes"]}
    for words, error in [
        ((*check, "--plot", "x.png"), "--plot is for a log alone"),
        ((*check, "--features-before", "x.parquet"), "--features-before is given without features"),
        (
            ("log", "check", "today.parquet", "--against", "counts", "--columns", "query_id=x"),
            "column 'x'",
        ),
        (("log", "check", "today.parquet", "--report", "x.html"), "the earlier log with --against"),
    ]:
        assert error in run(*words, fails=True)


@pytest.mark.parametrize("at", [slice(None), slice(4, 5)])
def test_clicks_that_vanish_or_appear(at):
    """Broken logging is the first thing to find."""
    rng = np.random.default_rng(SEED)
    shown = np.full((200, 10), 20.0)
    clicks = rng.binomial(20, 0.1, shown.shape).astype(float)
    gone = clicks.copy()
    gone[:, at] = 0
    for position in range(10):
        was, now = (Rate(each[:, position], shown[:, position]) for each in (clicks, gone))
        gone_away, back = ratio(was, now, min_count=50), ratio(now, was, min_count=50)
        if now.value == 0:
            assert gone_away.p_value < 1e-9
            assert gone_away.size == "-100.0 %"
            assert back.p_value < 1e-9
            assert back.size == "from nothing"
        else:
            assert gone_away.p_value == back.p_value == 1


def shuffled_log(rng, sessions):
    """Return a log of four items per query in a random order, examined with probability 1/k."""
    item = rng.permuted(np.tile(np.arange(4), (sessions, 1)), axis=1)
    click = rng.random(item.shape) < 0.5 / np.arange(1, 5)
    return pa.table({
        "query_id": np.repeat(rng.integers(N_QUERIES, size=sessions), 4),
        "item_id": item.ravel(), "position": np.tile(np.arange(1, 5), sessions),
        "click": click.ravel().astype(int), "session": np.repeat(np.arange(sessions), 4),
    })  # fmt: skip


@pytest.mark.parametrize("sessions", [(500, 10_000), (10_000, 500)])
def test_a_change_of_examination_is_as_uncertain_as_the_shorter_log(sessions):
    """The variances of both curves add up, so it does not matter which log comes first."""
    rng = np.random.default_rng(SEED)
    before, after = (shuffled_log(rng, n) for n in sessions)
    changes = [each for each in drift(after, before).changes if each.kind == "examination"]
    widths = [np.log((1 + change.high) / (1 + change.low)) for change in changes]
    short = read_impressions(min(before, after, key=len)).counts()
    curve = estimate(short, n_bootstrap=200, rng=SEED)
    assert len(widths) == 3
    assert (widths > 0.7 * np.log(curve.high / curve.low)[1:]).all()


def test_both_rates_vary_if_one_is_rare():
    """100 clicks in 10⁴ impressions, 0 or 2 per unit, against 20: R = 1 %, R' = 0.2 %.

    Each unit has ψ = ±10⁻⁴, so that Var R = 100/99·100·10⁻⁸, which is 100/99 of the Poisson
    variance R/10⁴. Var R' is that of c·R·10⁴ expected clicks.
    """
    shown = np.full(100, 100.0)
    many = Rate(np.tile([0.0, 2.0], 50), shown)
    few = Rate(np.repeat([1.0, 0.0], [20, 80]), shown)
    c, rate, variance = 1 / 1.1, 0.01, 100 / 99 * 1e-6
    error = np.sqrt(c * variance + c**2 * variance)
    expected = 2 * stats.t.sf((c * rate - 0.002) / error, 99)
    for rates in ((many, few), (few, many)):
        assert ratio(*rates, min_count=50).p_value == pytest.approx(expected, rel=1e-9)
