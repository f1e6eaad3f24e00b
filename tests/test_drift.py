"""What changed between two logs: few false alarms however clicks depend, and real changes seen."""

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

from countersample.clicks.impressions import count_days, read_features, read_impressions
from countersample.errors import DataError, ParameterError
from countersample.fitting import find_drift, write_drift_page
from countersample.fitting.drift.comparing import LEVEL
from countersample.fitting.drift.testing import Rate, compare, holm

N_QUERIES, N_ITEMS, N_POSITIONS = 60, 8, 4
#: Users of different patience: whoever clicks once is likelier to click again, and a query's
#: clicks go together.
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


def names(found):
    return {f"{change.kind} {change.name}" for change in found.found}


def test_false_alarms_are_as_rare_as_said():
    """Of days of the same users and queries, at a level of 20 %, to see more than none."""
    rng = np.random.default_rng(SEED)
    table = features()
    days = [day(rng, sessions=1000, start=10**6 * k) for k in range(11)]
    alarms = sum(
        drift(b, a, features=table, level=0.2, seed=SEED).is_drift for a, b in pairwise(days)
    )
    # Of 10 with a probability of 20 %, more than 6 come once in a thousand.
    assert alarms <= 6


@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_the_level_holds_at_the_margin_with_clicks_in_clusters(margin):
    """Of a rate that changed by exactly the margin, as many are told as the level says."""
    rng = np.random.default_rng(SEED)
    n, told = 800, 0
    for _ in range(n):
        rates = []
        for factor in (1.0, 1 + margin):
            user = rng.integers(600, size=3000)
            p = np.minimum(1, 0.2 * factor * rng.gamma(1.0, 1.0, 600)[user])
            unit = rng.integers(256, size=600)[user]
            clicks = rng.random(3000) < p
            rates.append(Rate(np.bincount(unit, clicks, 256), np.bincount(unit, minlength=256)))
        found = compare("clicks", "", *rates, measure="ratio", margin=margin)
        told += found.p_value < 0.05
    # Both directions share the level; at a margin one of them is out of reach.
    assert told / n <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / n)
    assert told / n >= 0.01  # and it is a test


def test_clusters_are_what_makes_it_hold():
    """Without them the same clicks would be taken for far more than they tell."""
    rng = np.random.default_rng(SEED)
    alarms = {True: 0, False: 0}
    for _ in range(300):
        rates = {True: [], False: []}
        for _ in range(2):
            user = rng.integers(100, size=4000)  # who come often
            clicks = rng.random(4000) < rng.beta(0.3, 1.0, 100)[user]
            units = {True: rng.permutation(256)[:100][user], False: rng.integers(256, size=4000)}
            for is_clustered, both in rates.items():
                unit = units[is_clustered]
                below = np.bincount(unit, minlength=256).astype(float)
                both.append(Rate(np.bincount(unit, clicks, 256), below))
        for is_clustered, both in rates.items():
            found = compare("clicks", "", *both, measure="ratio", margin=0.0)
            alarms[is_clustered] += found.p_value < 0.05
    assert alarms[True] <= 15 + 4 * np.sqrt(15)
    assert alarms[False] > 100


def test_more_rows_are_no_alarm():
    """A change that is there, and is not relevant, stays so however many clicks show it."""
    units = np.ones(256)
    noise = np.random.default_rng(SEED).normal(size=(2, 256)) * 1e-6  # of very many rows
    small = compare("clicks", "1", Rate(0.200 * units + noise[0], units),
                    Rate(0.215 * units + noise[1], units), measure="ratio", margin=0.1)  # fmt: skip
    assert small.low > 0.07
    assert small.p_value > 0.99
    large = compare("clicks", "1", Rate(0.200 * units + noise[0], units),
                    Rate(0.230 * units + noise[1], units), measure="ratio", margin=0.1)  # fmt: skip
    assert large.p_value < 1e-9


def test_the_correction_is_that_of_scipy_and_of_hand():
    p = np.random.default_rng(SEED).random(20)
    order = np.argsort(p)
    by_hand, most = np.empty(20), 0.0
    for place, k in enumerate(order):
        most = max(most, (20 - place) * p[k])
        by_hand[k] = min(1.0, most)
    np.testing.assert_allclose(holm(p), by_hand)
    # Bonferroni is never below it, Benjamini and Hochberg never above.
    assert (holm(p) <= np.minimum(1, 20 * p)).all()
    assert (holm(p) >= stats.false_discovery_control(p) - 1e-12).all()


@pytest.fixture(scope="module")
def usual():
    return day(np.random.default_rng(SEED), start=0)


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"first": 0.5}, {"clicks position 1"}),
        ({"policies": (0.4, 0.4, 0.2)}, {"policy a", "policy b", "policy c"}),
    ],
)
def test_real_changes_are_seen(usual, change, seen):
    later = day(np.random.default_rng(SEED + 1), start=10**6, **change)
    found = drift(later, usual, features=features())
    assert found.is_drift
    assert seen <= names(found)
    others = ("feature price", "context", "queries")
    assert not any(name.startswith(others) for name in names(found))
    assert found.level == LEVEL
    assert found.sentence.startswith("Drift: ")


def test_a_feature_in_another_unit_is_seen_and_alone(usual):
    later = day(np.random.default_rng(SEED + 1), start=10**6)
    found = drift(later, usual, features=features(scale=100.0), features_before=features())
    assert names(found) == {"feature price"}
    [change] = found.found
    assert change.distance > 0.25  # PSI, as is usual


def test_new_queries_beyond_those_of_chance_are_seen(usual):
    later = day(np.random.default_rng(SEED + 1), start=10**6)
    query = np.array(later["query_id"])
    other = later.set_column(0, "query_id", pa.array(np.where(query % 3 == 0, query + 1000, query)))
    found = names(drift(other, usual))
    assert {"queries new", "queries gone"} <= found
    # A long tail has new ones every day, which is no drift.
    rng = np.random.default_rng(SEED)
    tails = []
    for k in range(2):
        table = day(rng, start=10**6 * k)
        tail = rng.zipf(1.3, len(table) // N_POSITIONS).clip(max=10**6).repeat(N_POSITIONS)
        tails.append(table.set_column(0, "query_id", pa.array(tail)))
    assert not {name for name in names(drift(*tails)) if name.startswith("queries")}


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


def test_logs_without_users_policies_or_enough_clicks_are_compared_as_far_as_they_go(usual):
    least = usual.select(["query_id", "item_id", "position", "click"])
    found = drift(least, usual)
    assert found.after["clustered_by"] == "query"
    assert any("put together by client before and by query after" in note for note in found.notes)
    assert any("Only one of the logs has a column 'policy'" in note for note in found.notes)
    assert any("New queries were not compared" in note for note in found.notes)
    assert not found.of_kind("queries")
    assert not drift(least, least).is_drift
    bad = usual.set_column(2, "position", pa.array(np.arange(len(usual)) % N_POSITIONS))
    found = drift(bad, usual)
    assert any("rows are impossible" in note for note in found.notes)
    few = drift(usual.slice(0, 8), usual)
    assert few.n_tests == 0 or not few.is_drift
    assert any("too small to test anything" in note for note in few.notes)
    assert any("Examination was not compared" in note for note in few.notes)
    assert json.dumps(few.to_dict(), allow_nan=False)
    with pytest.raises(ParameterError, match="level"):
        drift(usual, usual, level=2)
    other = read_features(pa.table({"query_id": [1], "item_id": [1], "weight": [0.5]}))
    with pytest.raises(DataError, match="different names"):
        drift(usual, usual, features=features(), features_before=other)


def test_the_command_has_an_exit_code_and_a_page(usual, run):
    later = day(np.random.default_rng(SEED + 1), start=10**6, first=0.5)
    parquet.write_table(usual, "yesterday.parquet")
    parquet.write_table(later, "today.parquet")
    line = run("log", "count", "yesterday.parquet", "-o", "counts")
    assert "The aggregated log is in counts" in line
    asked = ("log", "check", "today.parquet", "--against", "counts")
    assert "position 1" in run(*asked, "--report", "drift.html", code=3)
    page = Path("drift.html").read_text(encoding="utf-8")
    [notice] = Page(page).all("div", **{"class": "notice bad"})
    assert notice["text"].startswith("Drift: ")
    assert "● clicks: position 1" in page
    same = run("log", "check", "yesterday.parquet", "--against", "counts", "--json")
    assert json.loads(same)["is_drift"] is False
    assert "--plot is for a log alone" in run(*asked, "--plot", "x.png", fails=True)
    line = run(*asked, "--features-before", "x.parquet", fails=True)
    assert "--features-before is given without --features" in line
    queries, items = usual["query_id"].unique().to_pylist(), usual["item_id"].unique().to_pylist()
    pairs = [(query, item) for query in queries for item in items]
    for name, brands in (("old.parquet", "ab"), ("new.parquet", "abc")):  # one has a new value
        table = dict(zip(("query_id", "item_id"), map(list, zip(*pairs, strict=True)), strict=True))
        brand = [brands[k % len(brands)] for k in range(len(pairs))]
        parquet.write_table(pa.table(table | {"brand": brand}), name)
    both = ("--features", "new.parquet", "--features-before", "old.parquet")
    told = json.loads(run(*asked, *both, "--json", code=3))
    assert {"brand=a", "brand=b"} <= {each["name"] for each in told["changes"]}
    line = run("log", "check", "counts", "--against", "counts", "--columns", "query_id=x",
               fails=True)  # fmt: skip
    assert "no column 'x'" in line
    line = run("log", "check", "today.parquet", "--report", "x.html", fails=True)
    assert "name the other with --against" in line


def test_the_page_of_nothing_is_a_page(usual, tmp_path):
    write_drift_page(tmp_path / "x.html", drift(usual, usual), command="countersample")
    page = Page((tmp_path / "x.html").read_text(encoding="utf-8"))
    [notice] = page.all("div", **{"class": "notice good"})
    assert notice["text"].startswith("No drift")


@pytest.mark.parametrize("at", [slice(None), slice(4, 5)])
def test_clicks_that_vanish_or_appear(at):
    """Logging that broke is the first thing to find: nothing above the line is a change, too."""
    rng = np.random.default_rng(SEED)
    shown = np.full((200, 10), 20.0)
    clicks = rng.binomial(20, 0.1, shown.shape).astype(float)
    gone = clicks.copy()
    gone[:, at] = 0
    for position in range(10):
        was, now = (Rate(each[:, position], shown[:, position]) for each in (clicks, gone))
        found = compare("clicks", "x", was, now, measure="ratio", margin=0.1, least=50)
        back = compare("clicks", "x", now, was, measure="ratio", margin=0.1, least=50)
        if now.value == 0:
            assert found.p_value < 1e-9
            assert found.size == "-100.0 %"
            assert back.p_value < 1e-9
            assert back.size == "from nothing"
        else:
            assert found.p_value == back.p_value == 1


def test_few_clicks_on_one_side_by_chance():
    """As many as are expected, but fewer than is asked for a test: rarely an alarm."""
    rng = np.random.default_rng(SEED)
    alarms = 0
    for _ in range(200):
        many, few = (
            Rate(rng.binomial(20, rate, 400).astype(float), np.full(400, 20.0))
            for rate in (0.0072, 0.006)
        )
        found = compare("clicks", "x", many, few, measure="ratio", margin=0.2, least=50)
        alarms += found.p_value is not None and found.p_value < 0.05
    assert alarms <= 20  # 5 % of 200, and chance
