"""Judged by later days or by other queries: nothing that judges was learned from."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from time import tzset

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from shops import make, opened

from countersample import CounterSampleRanker, PositionBias
from countersample._progress import Progress
from countersample.clicks.impressions import read_features, read_impressions
from countersample.clicks.impressions.days import Days
from countersample.clicks.impressions.joining import Matched
from countersample.clicks.impressions.visits import visits_of
from countersample.errors import DataError, ParameterError
from countersample.evaluation.ranking import item_ranks, rank_values
from countersample.fitting import fit_from_impressions
from countersample.fitting.intervals import Units, values_of_draws
from countersample.fitting.judging import _of_the_written, judge_by_time
from countersample.options import EvaluationOptions, PropensityOptions
from countersample.propensity import Propensities

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


@pytest.fixture(scope="module")
def by_time(shop):
    log, features = shop
    return fit_from_impressions(*opened(stamped(log), features), seed=SEED)


class TestDays:
    @pytest.mark.parametrize("kind", KINDS)
    def test_days_and_their_rows(self, engine, shop, kind):
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

    @pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
    @pytest.mark.parametrize("here", ["Asia/Tokyo", "America/New_York"])
    def test_days_are_of_utc_whatever_the_zones(self, zone, here, monkeypatch):
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

    def test_rows_without_a_time_are_learned_from(self, shop):
        log = stamped(shop[0].slice(0, 100), days=2)
        some = pa.array([None] * 10 + log["timestamp"].to_pylist()[10:], log["timestamp"].type)
        found = read_impressions(log.set_column(log.num_columns - 1, "timestamp", some))
        cut = found.days().days[-1]
        total = found.of_days(until=cut).counts().n_impressions
        assert total + found.of_days(since=cut).counts().n_impressions == 100
        assert sum(found.days().rows) == 90

    def test_the_usual_cut_leaves_a_fifth(self):
        day = [date(2026, 1, 1) + timedelta(days=k) for k in range(10)]
        assert Days(tuple(day), (10,) * 10).usual_cut() == day[8]
        assert Days(tuple(day[:2]), (50, 50)).usual_cut() == day[1]
        assert Days(tuple(day[:2]), (10, 90)).usual_cut() is None
        assert Days(tuple(day[:1]), (10,)).usual_cut() is None

    def test_a_cut_that_is_asked_for(self):
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
            (None, "900000d", "holdout_last is '900000d', expected less than the log has: it is"),
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
    def test_what_is_no_time(self, stamps, told):
        log = pa.table({"query_id": [1, 1, 2], "item_id": [1, 2, 1], "position": [1, 2, 1],
                        "click": [0, 1, 1], "timestamp": stamps})  # fmt: skip
        with pytest.raises(DataError, match=told):
            read_impressions(log).days()


class TestVisits:
    def test_as_counted_session_by_session(self, shop):
        log = read_impressions(shop[0].slice(0, 2000))
        counts = log.counts()
        found = visits_of(log, counts)
        seen = {(row["session"], row["query_id"]) for row in shop[0].slice(0, 2000).to_pylist()}
        assert len(found.session) == len(seen)
        assert found.n_sessions == len({session for session, _ in seen})
        sessions = np.bincount(found.query, minlength=len(counts.query_ids))
        assert (sessions == counts.sessions).all()
        value = np.bincount(found.row, found.value, len(counts))
        assert (value == counts.value).all()

    def test_rows_that_stand_for_several(self, shop):
        log = shop[0].append_column("impressions", pa.array(np.ones(len(shop[0]), int)))
        found = read_impressions(log)
        assert visits_of(found, found.counts()) is None

    @pytest.mark.parametrize("with_model", [False, True])
    def test_draws_are_the_log_with_sessions_as_often_as_drawn(self, shop, rng, with_model):
        """Row by row: Σ λ·w/ρ over clicks / Σ w over sessions, ρ that of the whole log."""
        log, features = opened(shop[0].slice(0, 3000), shop[1])
        matched = Matched.of(log.counts(), features.dataset, features.item_ids)
        counts, data = matched.counts, features.dataset
        value = 1 / np.arange(1, 11)
        curve = Propensities(value, value, value, np.ones(10), "all-pairs")
        scores, model = rng.random(data.n_items), rng.random(data.n_items)
        visits = visits_of(log, counts)
        units = Units.of_sessions(counts, visits, 5, rng)
        found = values_of_draws(
            scores, matched, curve, None, units, metric="dcg@5", exposure="policy-aware",
            relevance=model if with_model else None,
        )  # fmt: skip
        shown, _, rows = matched.shown(curve)
        assert (rows == np.arange(len(counts))).all()
        reward = rank_values("dcg@5", item_ranks(scores, data))
        of_row = data.offsets[shown.query] + shown.item
        is_seen = np.zeros(data.n_items, bool)
        is_seen[of_row] = True
        unseen = np.add.reduceat(np.where(is_seen, 0, reward * model), data.offsets[:-1])
        weights = np.concatenate(list(units.draws.blocks()))
        assert weights.shape == (5, visits.n_sessions)  # so few that each is drawn by itself
        clicks = units.clicks
        # Each click is in one session: the shares of a row add up to 1.
        assert clicks.sum(axis=1) == pytest.approx(np.where(counts.value > 0, 1.0, 0.0))
        assert (counts.value > 1).any()
        once = (shown.weights.sum()) / counts.sessions.sum()
        for w, values in zip(weights, found, strict=True):
            mine = (clicks @ w) * shown.weights
            below = w @ np.asarray(units.sessions.sum(axis=0))
            level = mine.sum() / below / once
            dataset_query = np.searchsorted(data.query_ids, counts.query_ids)
            more = unseen[dataset_query] @ (units.sessions @ w) * level if with_model else 0.0
            assert values[0] == pytest.approx((mine @ reward[of_row] + more) / below)


class TestFit:
    def test_timestamps_judge_by_the_last_days(self, by_time):
        by = by_time.judged_by
        assert by.way == "time"
        assert by.since == date(2026, 3, 9)
        assert by.population == "sessions like those from 2026-03-09 on"
        assert 0.1 < by.n_clicks / by_time.check.counts.n_clicks < 0.3
        assert by_time.is_joint
        assert by_time.to_dict()["judged_by"]["since"] == "2026-03-09"

    def test_the_ranker_is_that_of_all_days(self, shop, by_time):
        """How it is judged does not change what is written."""
        log, features = shop
        found = fit_from_impressions(
            *opened(stamped(log), features),
            seed=SEED,
            evaluation=EvaluationOptions(holdout_by="queries"),
        )
        assert found.judged_by.way == "queries"
        assert "as asked for" in found.judged_by.reason
        told = [each.ranker.provenance_["log"]["clicks"] for each in (found, by_time)]
        assert told[0] == told[1] == found.check.counts.n_clicks

    def test_without_timestamps_the_reason_says_what_is_not_seen(self, shop):
        found = fit_from_impressions(*opened(*shop), propensities=PositionBias(1.0), seed=SEED)
        assert found.judged_by.way == "queries"
        assert "no timestamps" in found.judged_by.sentence
        assert "how later days differ" in found.judged_by.sentence

    def test_what_is_later_does_not_teach(self, shop):
        """Other clicks on the judged days: the scores that are judged stay as they were."""
        log, features = shop
        late, table = stamped(log), read_features(features)
        since = date(2026, 3, 9)
        is_after = np.array([each.date() >= since for each in late["timestamp"].to_pylist()])
        click = late["click"].to_numpy().copy()
        click[is_after] = np.random.default_rng(SEED).permutation(click[is_after])
        other = late.set_column(late.column_names.index("click"), "click", pa.array(click))
        first, second = (
            judge_by_time(
                CounterSampleRanker(learning_rate=0.01, steps=500, random_state=SEED),
                read_impressions(each), table, since, PropensityOptions(), EvaluationOptions(),
                rng=np.random.default_rng(SEED), progress=Progress(),
            )
            for each in (late, other)
        )  # fmt: skip
        assert (first.scores == second.scores).all()
        assert (first.curves[""] == second.curves[""]).all()
        assert first.shown.clicks.tolist() != second.shown.clicks.tolist()
        assert first.by.n_clicks == late["click"].to_numpy()[is_after].sum()

    def test_propensities_that_only_the_last_days_tell(self, shop):
        """One policy before, several after: what judges is not identified, and said not to be."""
        late, features = stamped(shop[0]), shop[1]
        is_early = np.array([each.day < 9 for each in late["timestamp"].to_pylist()])
        policy = np.array(late["policy"].to_pylist())
        first = np.unique(policy[is_early])[0]
        log = late.filter(pa.array(~is_early | (policy == first)))
        found = fit_from_impressions(
            *opened(log, features),
            seed=SEED,
            evaluation=EvaluationOptions(holdout_from="2026-03-09", metric="dcg@10"),
        )
        assert found.propensity_source.is_identified
        assert not found.is_identified
        assert not found.is_better
        assert not found.is_worse
        assert not found.ranker.provenance_["gain"]["is_identified"]
        assert any(told.startswith("Of the days before 2026-03-09") for told in found.warnings)

    def test_clicks_of_the_last_days_that_cannot_be_used(self, shop):
        """Pages of the first days show five items: deeper clicks of the last ones are told of."""
        late, features = stamped(shop[0]), shop[1]
        is_early = np.array([each.day < 9 for each in late["timestamp"].to_pylist()])
        log = late.filter(pa.array(~is_early | (late["position"].to_numpy() <= 5)))
        with pytest.raises(DataError, match=r"of the days from 2026-03-09 on, .* cannot be used"):
            fit_from_impressions(
                *opened(log, features),
                seed=SEED,
                evaluation=EvaluationOptions(holdout_from="2026-03-09"),
            )
        some = fit_from_impressions(
            *opened(log, features),
            seed=SEED,
            propensities=PropensityOptions(missing="skip"),
            evaluation=EvaluationOptions(holdout_from="2026-03-09"),
        )
        assert any("Of the days from 2026-03-09 on" in told for told in some.warnings)

    def test_one_day_is_judged_by_queries(self, shop):
        log, features = shop
        found = fit_from_impressions(
            *opened(stamped(log, days=1), features), propensities=PositionBias(1.0), seed=SEED
        )
        assert found.judged_by.way == "queries"
        assert "too few days" in found.judged_by.reason

    def test_what_cannot_be_asked_for(self, shop):
        log, features = shop
        with pytest.raises(DataError, match="no column 'timestamp'"):
            fit_from_impressions(
                *opened(log, features), evaluation=EvaluationOptions(holdout_last="7d")
            )
        with pytest.raises(ParameterError, match="for an evaluation by time, not by queries"):
            fit_from_impressions(
                *opened(stamped(log), features),
                evaluation=EvaluationOptions(holdout_by="queries", holdout_last="7d"),
            )
        with pytest.raises(ParameterError, match="holdout_by is 'clicks'"):
            fit_from_impressions(
                *opened(log, features), evaluation=EvaluationOptions(holdout_by="clicks")
            )


def test_the_interval_is_of_the_ranker_that_is_written(shop):
    """√(1 + 1/5) times as wide, by the logarithm, as that of the rankers which are judged."""
    log, features = opened(*shop)
    fit = fit_from_impressions(log, features, propensities=PositionBias(1.0), seed=SEED)
    gain = fit.gain
    ends = np.log1p([gain.relative_low, gain.relative, gain.relative_high])
    assert ends[2] - ends[1] == pytest.approx(ends[1] - ends[0])
    assert gain.low == pytest.approx(gain.relative_low * gain.logged.value)
    narrow = replace(
        gain, relative_low=np.expm1(ends[1] - 0.01), relative_high=np.expm1(ends[1] + 0.01)
    )
    found = _of_the_written(narrow, 0.2)
    assert np.log1p(found.relative_high) - ends[1] == pytest.approx(0.01 * np.sqrt(1.2))
    empty = replace(gain, relative_low=-1.5)
    assert _of_the_written(empty, 0.2) is empty
