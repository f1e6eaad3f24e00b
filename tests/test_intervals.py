"""Draws of queries and sessions, row by row and against the estimators."""

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from shops import make, opened

from countersample import PositionBias, synthetic
from countersample.clicks import simulate_impressions
from countersample.evaluation import estimate_gain
from countersample.fitting import fit_from_impressions
from countersample.fitting.intervals import Units, draw_values
from countersample.logs import FeatureTable, read_impressions
from countersample.logs.joins import Matched
from countersample.logs.tally import find_visits
from countersample.metrics import item_ranks, rank_values
from countersample.options import EvaluationOptions, PropensityOptions
from countersample.propensity import Propensities
from countersample.propensity.cells import QueryDraws

KNOWN = PositionBias(1.0)
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def data():
    return synthetic("tiny", n_queries=300, rng=SEED)


@pytest.fixture(scope="module")
def table(data):
    items = np.arange(data.n_items) - np.repeat(data.offsets[:-1], data.query_sizes)
    return FeatureTable(data, items, has_labels=True)


@pytest.fixture(scope="module")
def policies(data):
    return {"old": data.features[:, 0], "new": data.features[:, 1] + data.features[:, 0] / 2}


@pytest.fixture(scope="module")
def log(data, policies):
    return simulate_impressions(
        data, policies, 30_000, shares=[0.9, 0.1], top=5, bias=KNOWN, rng=SEED
    )


class TestQueries:
    """Draws of queries, with propensities estimated again from each draw."""

    @pytest.fixture
    def parts(self, data, table, log, rng):
        counts = read_impressions(log).counts()
        matched = Matched.of(counts, data, table.item_ids)
        value = 1 / np.arange(1, 6)
        curve = Propensities(value, value, value, np.ones(5), "all-pairs")
        return matched, curve, rng.random(data.n_items), rng.random(data.n_items)

    @pytest.mark.parametrize("estimator", ["ips", "dr"])
    def test_a_draw_is_the_estimate_by_its_propensities(self, parts, data, estimator):
        """Each query once, and other curves: what `estimate_gain` says with these."""
        matched, curve, scores, model = parts
        relevance = model if estimator == "dr" else None
        queries = _EachOnce(np.ones(len(matched.counts.query_ids), bool), 3, 0)
        curves = np.stack([curve.value, curve.value**2, curve.value**0.5])
        found = draw_values(
            scores, matched, curve, {"": curves}, Units.of_queries(matched.counts, queries),
            metric="dcg@5", exposure="policy-aware", relevance=relevance,
        )  # fmt: skip
        levels = []
        for theta, values in zip(curves, found, strict=True):
            shown, *_ = matched.shown(theta)
            levels.append(shown.weights.sum())
            gain = estimate_gain(
                scores, shown, data, metric="dcg@5", estimator=estimator,
                baseline=None if relevance is None else relevance * levels[-1] / levels[0],
                n_bootstrap=1, rng=0,
            )  # fmt: skip
            assert values == pytest.approx([gain.new.value, gain.logged.value])

    @pytest.mark.parametrize("estimator", ["ips", "dr"])
    def test_several_rankings_are_each_as_if_alone(self, parts, estimator):
        matched, curve, scores, model = parts
        queries = QueryDraws(np.ones(len(matched.counts.query_ids), bool), 4, SEED)
        curves = {"": np.stack([curve.value ** (1 + k / 10) for k in range(4)])}
        units = Units.of_queries(matched.counts, queries)

        def drawn(of):
            return draw_values(
                of, matched, curve, curves, units, metric="dcg@5", exposure="policy-aware",
                relevance=model if estimator == "dr" else None,
            )  # fmt: skip

        together = drawn(np.stack([scores, model, -scores]))
        for k, one in enumerate((scores, model, -scores)):
            assert together[:, [k, 3]] == pytest.approx(drawn(one))

    def test_queries_count_as_often_as_they_are_drawn(self, parts, data):
        """With one curve, the values of logs in which queries are there several times."""
        matched, curve, scores, _ = parts
        queries = QueryDraws(np.ones(len(matched.counts.query_ids), bool), 4, SEED)
        found = draw_values(
            scores, matched, curve, None, Units.of_queries(matched.counts, queries),
            metric="dcg@5", exposure="policy-aware", relevance=None,
        )  # fmt: skip
        shown, *_ = matched.shown(curve)
        weights = np.concatenate(list(queries.blocks()))
        for w, values in zip(weights, found, strict=True):
            times = w[shown.query].astype(int)  # all queries have features: the same indices
            again = shown.take(np.repeat(np.arange(len(shown)), times))
            rows = data.offsets[again.query] + again.item
            reward = rank_values("dcg@5", item_ranks(scores, data))[rows]
            n_sessions = w @ matched.counts.sessions
            assert values[0] == pytest.approx(reward @ again.weights / n_sessions)

    @slow
    def test_the_interval_of_a_fit_includes_the_propensities(self, log, table):
        joint = fit_from_impressions(read_impressions(log), table)
        fixed = fit_from_impressions(read_impressions(log), table, propensities=KNOWN)
        assert joint.is_joint
        assert joint.gain_at_ends is None
        assert not fixed.is_joint
        width = [(g.logged.high - g.logged.low) / g.logged.value for g in (joint.gain, fixed.gain)]
        assert width[0] > width[1]

    @slow
    def test_doubly_robust_intervals_contain_their_estimate(self, log, table):
        fit = fit_from_impressions(
            read_impressions(log), table, propensities=PropensityOptions(exposure="position-only"),
            evaluation=EvaluationOptions(estimator="dr"),
        )  # fmt: skip
        assert fit.is_joint
        assert fit.gain.new.low < fit.gain.new.value < fit.gain.new.high
        assert fit.gain.low < fit.gain.value < fit.gain.high


class _EachOnce(QueryDraws):
    def blocks(self, width=1):  # noqa: ARG002 (as in QueryDraws)
        yield np.ones((self.n, len(self.is_drawn)))


@pytest.fixture(scope="module")
def shop():
    return make(SEED)


class TestSessions:
    def test_as_counted_session_by_session(self, shop):
        log = read_impressions(shop[0].slice(0, 2000))
        counts = log.counts()
        found = find_visits(log, counts)
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
        assert find_visits(found, found.counts()) is None

    @pytest.mark.parametrize("with_model", [False, True])
    def test_draws_are_the_log_with_sessions_as_often_as_drawn(self, shop, rng, with_model):
        """Row by row: Σ λ·w/ρ over clicks / Σ w over sessions, ρ that of the whole log."""
        log, features = opened(shop[0].slice(0, 3000), shop[1])
        matched = Matched.of(log.counts(), features.dataset, features.item_ids)
        counts, data = matched.counts, features.dataset
        value = 1 / np.arange(1, 11)
        curve = Propensities(value, value, value, np.ones(10), "all-pairs")
        scores, model = rng.random(data.n_items), rng.random(data.n_items)
        visits = find_visits(log, counts)
        units = Units.of_sessions(counts, visits, 5, rng)
        found = draw_values(
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
