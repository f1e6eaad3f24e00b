"""Defects of a log that can turn the verdict around: they are found, and withhold it."""

from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from shops import KNOWN, make, with_column

from countersample.fitting import compare_from_impressions, fit_from_impressions
from countersample.logs import count_days, read_features, read_impressions
from countersample.logs.findings import PageSums, add_up_pages

RESTART = "positions restart within a session"
CLICK_ROWS = "clicks are rows of their own"
REPEAT = "rows repeat"
PAGES = "pages repeat within a session"
CUT = "rows below the last click are missing"


@cache
def shop():
    """Return a log whose pages have several results, and the features of its items."""
    log, features = make(SEED, sessions=1500)
    stamps = [f"2026-03-{day % 3 + 1:02d}T10:00:00" for day in log["session"].to_pylist()]
    return log.append_column("timestamp", [stamps]), features


def arrays(log):
    return (np.array(log[name]) for name in ("position", "click", "session"))


def clean(log):
    return log


def restart(log, *, share=1.0):
    """Number the second half of the page from 1, in a share of the sessions."""
    position, _, session = arrays(log)
    is_second = (position > 5) & (session % 100 < 100 * share)
    return with_column(log, "position", np.where(is_second, position - 5, position))


def add_click_rows(log, *, later=False):
    """Give each click a row beside that of its impression."""
    _, click, _ = arrays(log)
    impressions = with_column(log, "click", np.zeros(len(log), np.int8))
    clicks = log.filter(click == 1)
    if later:
        stamps = [text.replace("10:00", "10:01") for text in clicks["timestamp"].to_pylist()]
        clicks = with_column(clicks, "timestamp", pa.array(stamps))
    return pa.concat_tables([impressions, clicks.cast(impressions.schema)])


def add_clicks_again(log):
    """Repeat the rows of clicks, whose impressions have them, too."""
    _, click, _ = arrays(log)
    return pa.concat_tables([log, log.filter(click == 1)])


def repeat_unclicked(log, *, share=0.2):
    _, click, _ = arrays(log)
    is_again = (click == 0) & (np.random.default_rng(SEED).random(len(log)) < share)
    return pa.concat_tables([log, log.filter(is_again)])


def cut_pages(log, *, keep_unclicked=False):
    """Drop the rows below the last click, also of sessions without a click unless kept."""
    position, click, session = arrays(log)
    last = np.zeros(session.max() + 1, np.int64)
    np.maximum.at(last, session, position * click)
    is_kept = position <= last[session]
    return log.filter(is_kept | (last[session] == 0) if keep_unclicked else is_kept)


def reload_pages(log, *, every=10):
    """Show whole pages again, in a tenth of the sessions."""
    _, _, session = arrays(log)
    again = log.filter(session % every == 0)
    unclicked = with_column(again, "click", np.zeros(len(again), np.int8))
    return pa.concat_tables([log, unclicked])


def repeat_queries(log):
    """Join pairs of sessions of the same query, which mostly saw other rankings."""
    session = np.array(log["session"])
    numbers, first = np.unique(session, return_index=True)
    queries = np.array(log["query_id"])[first]
    partner = np.arange(session.max() + 1)
    for query in np.unique(queries):
        of_query = numbers[queries == query]
        pairs = len(of_query) // 2
        partner[of_query[pairs : 2 * pairs]] = of_query[:pairs]
    return with_column(log, "session", partner[session])


def show_first_results(log):
    """Log the first three results of each page."""
    position, _, _ = arrays(log)
    return log.filter(position <= 3)


def vary_page_lengths(log):
    """Show six results in half of the sessions, and all of them in the others."""
    position, _, session = arrays(log)
    return log.filter((position <= 6) | (session % 2 == 0))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (restart, RESTART),
        (add_click_rows, CLICK_ROWS),
        (add_clicks_again, CLICK_ROWS),
        (repeat_unclicked, REPEAT),
        (reload_pages, PAGES),
        (repeat_queries, PAGES),
        (lambda log: repeat_queries(reload_pages(log)), PAGES),
        (cut_pages, CUT),
        (lambda log: cut_pages(log, keep_unclicked=True), CUT),
    ],
)
def test_a_defect_withholds_the_verdict(change, problem):
    log = change(shop()[0])
    check = read_impressions(log).check()
    assert check.withheld.startswith(problem)
    assert any(problem in text.lower() for text in check.warnings)
    if change in (add_click_rows, add_clicks_again, cut_pages):  # counts are enough to find it
        without = read_impressions(log.drop_columns(["session"])).check()
        assert without.withheld.startswith(problem)


@pytest.mark.parametrize(
    "change",
    [
        clean,
        show_first_results,
        vary_page_lengths,
        lambda log: reload_pages(log, every=200),
        lambda log: restart(log, share=0.01),
        lambda log: repeat_unclicked(log, share=0.005),
    ],
)
@pytest.mark.parametrize("without", [(), ("timestamp",), ("session",)])
def test_a_log_without_a_defect_has_a_verdict(change, without):
    log = change(shop()[0]).drop_columns(list(without))
    assert read_impressions(log).check().withheld == ""


def test_clicks_are_rows_of_their_own_if_pages_have_any_length():
    """Items that were shown once have no click, although positions have many."""
    rng = np.random.default_rng(SEED)
    n = 4000
    length = rng.integers(1, 6, n)
    position = np.concatenate([np.arange(1, each + 1) for each in length])
    query = np.repeat(np.arange(n) % 50, length)
    click = rng.random(len(position)) < 0.4
    columns = {"query_id": query, "item_id": rng.integers(0, 10**6, len(query)),
               "position": position, "click": click.astype(np.int8)}  # fmt: skip
    log = pa.table(columns)
    assert read_impressions(log).check().withheld == ""
    assert read_impressions(add_clicks(log, click)).check().withheld.startswith(CLICK_ROWS)


def add_clicks(log, click):
    impressions = with_column(log, "click", np.zeros(len(log), np.int8))
    return pa.concat_tables([impressions, log.filter(click).cast(impressions.schema)])


@pytest.mark.parametrize(
    ("below", "above", "problem"),
    [
        (PageSums(rows=2000, restarted=20), PageSums(rows=2000, restarted=21), RESTART),
        (PageSums(rows=2000, repeated=20), PageSums(rows=2000, repeated=21), REPEAT),
        (PageSums(pages=2000, pages_again=20), PageSums(pages=2000, pages_again=21), PAGES),
        (PageSums(clicks=400, click_rows=20), PageSums(clicks=400, click_rows=21), CLICK_ROWS),
        (PageSums(views=100, endings=65, expected_endings=30),
         PageSums(views=100, endings=66, expected_endings=30), CUT),
        # few views are no evidence
        (PageSums(views=19, endings=19), PageSums(views=20, endings=20), CUT),
        (PageSums(rows=50, restarted=19), PageSums(rows=50, restarted=20), RESTART),
        (PageSums(rows=50, repeated=19), PageSums(rows=50, repeated=20), REPEAT),
        (PageSums(pages=50, pages_again=19), PageSums(pages=50, pages_again=20), PAGES),
        (PageSums(clicks=50, click_rows=19), PageSums(clicks=50, click_rows=20), CLICK_ROWS),
    ],
)  # fmt: skip
def test_a_defect_has_a_limit(below, above, problem):
    assert not list(below.findings())
    (finding,) = above.findings()
    assert finding.withholds
    assert finding.problem.startswith(problem)
    assert finding.remedy


@pytest.mark.parametrize(
    "change",
    [add_click_rows, lambda log: add_click_rows(log, later=True), repeat_unclicked],
)
def test_skipping_what_is_suspicious_corrects_the_log(change):
    expected = read_impressions(shop()[0]).counts()
    check = read_impressions(change(shop()[0]), suspicious="skip").check()
    assert check.withheld == ""
    for name in ("query", "item", "position", "impressions", "clicks"):
        np.testing.assert_array_equal(getattr(check.counts, name), getattr(expected, name))


@pytest.mark.parametrize(
    "change", [restart, repeat_unclicked, reload_pages, cut_pages, add_click_rows]
)
def test_an_aggregated_log_keeps_its_defects(change, tmp_path):
    log = change(shop()[0])
    days = count_days(read_impressions(log), tmp_path / "counts")
    raw = read_impressions(log).check().withheld
    assert read_impressions(tmp_path / "counts").check().withheld == raw != ""
    assert all(any("ithin a session" in text or "ows" in text for text in day.warnings)
               for day in days)  # fmt: skip


@pytest.mark.parametrize("change", [clean, restart, add_click_rows, repeat_unclicked, cut_pages])
def test_every_engine_adds_up_the_same(engine, change):
    log = change(shop()[0].slice(0, 3000))
    sums = add_up_pages(read_impressions(log, engine=engine))
    assert sums == add_up_pages(read_impressions(log))
    assert sums.rows == len(log)


def test_neither_fit_nor_compare_has_a_verdict():
    log, features = shop()
    impressions = read_impressions(restart(log.drop_columns(["timestamp"])))
    table = read_features(features)
    fit = fit_from_impressions(impressions, table, propensities=KNOWN, seed=SEED)
    assert fit.decision.is_withheld
    assert fit.verdict.startswith(f"No verdict: {RESTART}")
    assert "number positions across pages" in fit.verdict
    scores = table.dataset.features[:, 0]
    result = compare_from_impressions(impressions, table, {"new": scores}, propensities=KNOWN)
    assert result.verdicts == {"new": "none"}
    assert RESTART in result.comparison.sentences[0]
