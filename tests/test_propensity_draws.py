"""Draws of queries and sessions, row by row and against the estimators."""

import numpy as np
import pyarrow as pa
import pytest
from conftest import SEED
from shops import known_fit, opened, top_five, usual_fit, usual_shop

from countersample.data.preprocessing import Normalizer
from countersample.evaluation import estimate_gain
from countersample.evaluation.doubly_robust import RelevanceModel
from countersample.fitting.propensity_draws import Units, draw_thetas, draw_values
from countersample.logs import PositionCounts, read_impressions
from countersample.logs.exposure import examination_of_rows
from countersample.logs.joins import Matched
from countersample.logs.tally import find_visits
from countersample.metrics import item_ranks, rank_values
from countersample.propensity import ContextPropensities, Propensities
from countersample.propensity.cells import QueryDraws

slow = pytest.mark.slow


def as_certain(relevance, dataset, variance=0.0):
    """Return a model of this relevance, whose constant alone varies."""
    covariance = np.zeros((dataset.n_features + 2, dataset.n_features + 2))
    covariance[-1, -1] = variance
    scaler = Normalizer.fit(dataset, "standard")
    return RelevanceModel(relevance, dataset, scaler, np.zeros(dataset.n_items), covariance)


class TestQueries:
    """Draws of queries, with propensities estimated again from each draw."""

    @pytest.fixture
    def parts(self, rng):
        data, table, log = top_five()
        counts = read_impressions(log).counts()
        matched = Matched.of(counts, data, table.item_ids)
        value = 1 / np.arange(1, 6)
        curve = Propensities(value, value, value, np.ones(5), "all-pairs")
        return matched, curve, rng.random(data.n_items), rng.random(data.n_items)

    @pytest.mark.parametrize("estimator", ["ips", "dr"])
    def test_a_draw_is_the_estimate_by_its_propensities(self, parts, rng, estimator):
        """Each query once, and other curves: what `estimate_gain` says with these."""
        matched, curve, scores, model = parts
        relevance = model if estimator == "dr" else None
        certain = None if relevance is None else as_certain(model, matched.dataset)
        queries = _EachOnce(np.ones(len(matched.counts.query_ids), bool), 3, 0)
        curves = np.stack([curve.value, curve.value**2, curve.value**0.5])
        result = draw_values(
            scores, matched, curve, {"": curves}, Units.of_queries(matched.counts, queries),
            metric="dcg@5", exposure="policy-aware", relevance=certain, rng=rng,
        )  # fmt: skip
        levels = []
        for theta, values in zip(curves, result, strict=True):
            shown, *_ = matched.shown(theta)
            levels.append(shown.weights.sum())
            gain = estimate_gain(
                scores, shown, matched.dataset, metric="dcg@5", estimator=estimator,
                baseline=None if relevance is None else relevance * levels[-1] / levels[0],
                n_bootstrap=1, rng=0,
            )  # fmt: skip
            assert values == pytest.approx([gain.new.value, gain.logged.value])

    def test_several_rankings_are_each_as_if_alone(self, parts, rng):
        matched, curve, scores, other = parts
        queries = QueryDraws(np.ones(len(matched.counts.query_ids), bool), 4, SEED)
        curves = {"": np.stack([curve.value ** (1 + k / 10) for k in range(4)])}
        units = Units.of_queries(matched.counts, queries)

        def drawn(ranking):
            return draw_values(
                ranking, matched, curve, curves, units, metric="dcg@5", exposure="policy-aware",
                relevance=None, rng=rng,
            )  # fmt: skip

        together = drawn(np.stack([scores, other, -scores]))
        for k, one in enumerate((scores, other, -scores)):
            assert together[:, [k, 3]] == pytest.approx(drawn(one))

    def test_queries_count_as_often_as_they_are_drawn(self, parts, rng):
        """With one curve, the values of logs in which queries are there several times."""
        matched, curve, scores, _ = parts
        data = matched.dataset
        queries = QueryDraws(np.ones(len(matched.counts.query_ids), bool), 4, SEED)
        result = draw_values(
            scores, matched, curve, None, Units.of_queries(matched.counts, queries),
            metric="dcg@5", exposure="policy-aware", relevance=None, rng=rng,
        )  # fmt: skip
        shown, *_ = matched.shown(curve)
        weights = np.concatenate(list(queries.blocks()))
        for w, values in zip(weights, result, strict=True):
            times = w[shown.query].astype(int)  # all queries have features: the same indices
            again = shown.take(np.repeat(np.arange(len(shown)), times))
            rows = data.offsets[again.query] + again.item
            reward = rank_values("dcg@5", item_ranks(scores, data))[rows]
            n_sessions = w @ matched.counts.sessions
            assert values[0] == pytest.approx(reward @ again.weights / n_sessions)

    def test_draws_vary_as_the_relevance_model_does(self, parts, rng):
        """Each query once: all that varies is b, which moves Σ λ·S over items never shown."""
        matched, curve, scores, model = parts
        n, data, n_sessions = 4000, matched.dataset, matched.counts.sessions.sum()
        queries = _EachOnce(np.ones(len(matched.counts.query_ids), bool), n, 0)
        result = draw_values(
            scores, matched, curve, None, Units.of_queries(matched.counts, queries),
            metric="dcg@5", exposure="policy-aware", relevance=as_certain(model, data, 0.01),
            rng=rng,
        )  # fmt: skip
        shown, *_ = matched.shown(curve)
        reward = rank_values("dcg@5", item_ranks(scores, data))
        reward[data.offsets[shown.query] + shown.item] = 0
        sessions = np.zeros(data.n_queries)
        sessions[np.searchsorted(data.query_ids, matched.counts.query_ids)] = (
            matched.counts.sessions
        )
        total = reward @ np.repeat(sessions, data.query_sizes)
        expected = 0.1 * total / n_sessions
        assert result[:, 0].std() == pytest.approx(expected, rel=6 / np.sqrt(2 * n))
        assert result[:, 1].std() < 1e-12

    def test_a_position_that_a_draw_does_not_support_has_the_estimate_of_the_log(self, parts):
        matched, curve, scores, _ = parts
        queries = _EachOnce(np.ones(len(matched.counts.query_ids), bool), 3, 0)
        curves = np.stack([curve.value] * 3)
        curves[1, 3], curves[2, 3] = np.nan, 0.0
        result = draw_values(
            scores, matched, curve, {"": curves}, Units.of_queries(matched.counts, queries),
            metric="dcg@5", exposure="policy-aware", relevance=None, rng=None,
        )  # fmt: skip
        assert result[1] == pytest.approx(result[0])
        assert result[2] == pytest.approx(result[0])

    def test_rows_without_a_propensity_are_not_drawn(self, parts):
        """The log ends at position 3 for them, as it does for the estimate."""
        matched, curve, scores, _ = parts
        value = curve.value[:3]
        short = Propensities(value, value, value, np.ones(3), "all-pairs")
        queries = _EachOnce(np.ones(len(matched.counts.query_ids), bool), 1, 0)
        result = draw_values(
            scores, matched, short, None, Units.of_queries(matched.counts, queries),
            metric="dcg@5", exposure="policy-aware", relevance=None, rng=None,
        )  # fmt: skip
        shown, *_ = matched.shown(short)
        reward = rank_values("dcg@5", item_ranks(scores, matched.dataset))
        rows = matched.dataset.offsets[shown.query] + shown.item
        n_sessions = matched.counts.sessions.sum()
        assert result[0, 0] == pytest.approx(reward[rows] @ shown.weights / n_sessions)

    @slow
    def test_the_interval_of_a_fit_includes_the_propensities(self):
        joint, fixed = usual_fit(), known_fit()
        assert joint.is_joint
        assert joint.gain_at_ends is None
        assert not fixed.is_joint
        width = [(g.logged.high - g.logged.low) / g.logged.value for g in (joint.gain, fixed.gain)]
        assert width[0] > width[1]


def test_a_draw_keeps_the_first_positions_of_contexts_equal():
    """A value above 1 in one context divides the curves of all, as in the estimate itself."""
    counts = PositionCounts.from_columns(
        query_id=["q"] * 4, item_id=[1, 2, 3, 4], position=[1, 2, 1, 2], click=[1] * 4,
        impressions=[9] * 4, context=["desktop", "desktop", "phone", "phone"],
    )  # fmt: skip
    values = {"desktop": np.array([1.0, 1.25]), "phone": np.array([1.0, 0.5])}
    one = {"low": [0.1, 0.1], "high": [2, 2], "n_impressions": [9, 9], "method": "em"}
    curves = {name: Propensities(value, **one) for name, value in values.items()}
    point = examination_of_rows(ContextPropensities(curves), counts).alpha
    draws = {name: value[None] for name, value in values.items()}
    (theta,) = draw_thetas(counts, point, draws)
    assert theta.tolist() == point.tolist() == [0.8, 1.0, 0.8, 0.4]


class _EachOnce(QueryDraws):
    def blocks(self, width=1):  # noqa: ARG002 (as in QueryDraws)
        yield np.ones((self.n, len(self.is_drawn)))


@pytest.fixture
def shop():
    return usual_shop()


class TestSessions:
    def test_as_counted_session_by_session(self, shop):
        log = read_impressions(shop[0].slice(0, 2000))
        counts = log.counts()
        result = find_visits(log, counts)
        seen = {(row["session"], row["query_id"]) for row in shop[0].slice(0, 2000).to_pylist()}
        assert len(result.session) == len(seen)
        assert result.n_sessions == len({session for session, _ in seen})
        sessions = np.bincount(result.query, minlength=len(counts.query_ids))
        assert (sessions == counts.sessions).all()
        value = np.bincount(result.row, result.value, len(counts))
        assert (value == counts.value).all()

    def test_rows_that_stand_for_several(self, shop):
        log = shop[0].append_column("impressions", pa.array(np.ones(len(shop[0]), int)))
        result = read_impressions(log)
        assert find_visits(result, result.counts()) is None

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
        result = draw_values(
            scores, matched, curve, None, units, metric="dcg@5", exposure="policy-aware",
            relevance=as_certain(model, data) if with_model else None, rng=rng,
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
        for w, values in zip(weights, result, strict=True):
            mine = (clicks @ w) * shown.weights
            below = w @ np.asarray(units.sessions.sum(axis=0))
            level = mine.sum() / below / once
            dataset_query = np.searchsorted(data.query_ids, counts.query_ids)
            more = unseen[dataset_query] @ (units.sessions @ w) * level if with_model else 0.0
            assert values[0] == pytest.approx((mine @ reward[of_row] + more) / below)
