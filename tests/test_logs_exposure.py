"""Weights by exposure: by enumeration, what is estimated is the truth of all that was shown.

A world is a list of sessions, each a query and the items shown, from position 1. All clicks that
users could make are gone through, each with its probability, so that expectations are sums.
"""

from itertools import product

import numpy as np
import pytest

from countersample import ClickLog, RankingDataset
from countersample.errors import DataError
from countersample.evaluation import estimate, estimate_gain
from countersample.logs import PositionCounts, join_features
from countersample.logs.joins import Matched
from countersample.objectives import score_space
from countersample.plans import PLANS, UNITS, Examples, make_plan

THETA = np.array([1.0, 0.5, 0.2])
N_ITEMS = 4
# The relevance of each item of two queries. The third has one item that everybody clicks, so that
# no log is empty.
RELEVANCE = np.array([0.9, 0.3, 0.6, 0.5, 0.2, 0.8, 0.4, 0.7, 1.0])
DATA = RankingDataset.from_arrays(
    X=np.array([0.3, 0.9, 0.1, 0.6, 0.2, 0.8, 0.5, 0.4, 0.0])[:, None],
    y=np.zeros(9),
    qid=["a"] * N_ITEMS + ["b"] * N_ITEMS + ["c"],
)
ITEM_IDS = [0, 1, 2, 3, 0, 1, 2, 3, 0]
WORLDS = {
    "everything in one place": [("a", (0, 1, 2)), ("a", (0, 1, 2)), ("b", (3, 2, 1))],
    "a cut-off": [("a", (0, 1)), ("a", (0, 1)), ("b", (3, 2))],
    "two policies": [("a", (0, 1)), ("a", (0, 1)), ("a", (2, 0)), ("b", (1, 3))],
    "one session a query": [("a", (3, 1, 0)), ("b", (2, 0, 1))],
    "items that move": [("a", (0, 1, 2)), ("a", (2, 1, 0)), ("b", (1, 0))],
}


class World:
    """Sessions, the probability of each log of them, and what is true."""

    def __init__(self, sessions, alpha=THETA, beta=None, contexts=None):
        self.sessions = [*sessions, ("c", (0,))]
        contexts = contexts or [""] * len(sessions)
        rows = [
            (f"s{n}", query, item, k + 1, context)
            for n, ((query, items), context) in enumerate(
                zip(self.sessions, [*contexts, contexts[0]], strict=True)
            )
            for k, item in enumerate(items)
        ]
        self.session, self.query, self.item, self.position, self.context = zip(*rows, strict=True)
        index = {"a": 0, "b": 1, "c": 2}
        code = np.array([index[q] for q in self.query])
        self.row = DATA.offsets[code] + np.array(self.item)
        place = np.array(self.position) - 1
        if isinstance(alpha, dict):
            self.alpha = np.array([alpha[c][k] for c, k in zip(self.context, place, strict=True)])
        else:
            self.alpha = alpha[place]
        self.beta = np.zeros(len(place)) if beta is None else beta[place]
        self.p_click = self.beta + self.alpha * RELEVANCE[self.row]
        self.is_shown = np.isin(np.arange(DATA.n_items), self.row)
        visits = np.bincount([index[q] for q, _ in self.sessions], minlength=3)
        self.sessions_of_item = np.repeat(visits, DATA.query_sizes)

    def logs(self):
        """Give each log that can be, as counts, with its probability."""
        for clicks in product((0, 1), repeat=len(self.row)):
            clicked = np.array(clicks)
            p = np.where(clicked == 1, self.p_click, 1 - self.p_click).prod()
            if p > 0:
                yield p, PositionCounts.from_columns(
                    self.query, self.item, self.position, clicked, session=self.session,
                    context=self.context,
                )  # fmt: skip

    def expected(self, of_counts):
        return sum(p * np.asarray(of_counts(counts), float) for p, counts in self.logs())


def weights_of(log):
    rows = DATA.offsets[log.query] + log.item
    return np.bincount(rows, log.weights, DATA.n_items)


@pytest.fixture(params=WORLDS, ids=lambda name: name.replace(" ", "-"))
def world(request):
    return World(WORLDS[request.param])


def test_the_mean_weight_of_an_item_is_its_relevance_in_all_sessions(world):
    found = world.expected(lambda c: weights_of(join_features(c, THETA, DATA, ITEM_IDS)[0]))
    true = np.where(world.is_shown, world.sessions_of_item * RELEVANCE, 0)
    np.testing.assert_allclose(found, true, rtol=1e-12)


def test_position_only_weights_are_right_only_where_nothing_moves():
    for name, sessions in WORLDS.items():
        world = World(sessions)
        found = world.expected(
            lambda c: weights_of(
                join_features(c, THETA, DATA, ITEM_IDS, exposure="position-only")[0]
            )
        )
        true = np.where(world.is_shown, world.sessions_of_item * RELEVANCE, 0)
        is_fixed = name in {"everything in one place", "a cut-off", "one session a query"}
        # Where an item moves, each place is counted, as if every session showed it there.
        assert np.allclose(found, true) == (is_fixed or name == "items that move")


SCORES = np.array([0.1, 0.4, 0.3, 0.2, 0.8, 0.5, 0.6, 0.7, 0.0])


def true_value(world, rewards, is_known):
    by_item = world.sessions_of_item * rewards * RELEVANCE
    return (by_item * is_known).sum() / len(world.sessions)


def rewards_of(scores, k=2):
    """1/log2(1 + rank) down to rank k, in plain loops."""
    rewards = np.zeros(DATA.n_items)
    for start, end in zip(DATA.offsets[:-1], DATA.offsets[1:], strict=True):
        for rank, place in enumerate(np.argsort(-scores[start:end], kind="stable")[:k], 1):
            rewards[start + place] = 1 / np.log2(1 + rank)
    return rewards


def shown_log(counts, theta=THETA):
    return Matched.of(counts, DATA, ITEM_IDS).shown(theta)[0]


def test_the_value_of_a_ranker_is_the_true_one_of_what_was_shown(world):
    def value(counts):
        found = estimate(SCORES, shown_log(counts), DATA, metric="dcg@2", n_bootstrap=1, rng=0)
        assert found.never_shown == pytest.approx(unseen)
        return found.value

    rewards = rewards_of(SCORES)
    total = world.sessions_of_item * rewards
    unseen = total[~world.is_shown].sum() / total.sum()
    true = true_value(world, rewards, world.is_shown)
    assert world.expected(value) == pytest.approx(true)


@pytest.mark.slow
@pytest.mark.parametrize("is_right", [True, False])
def test_doubly_robust_adds_what_its_model_says_of_the_rest(world, is_right):
    """Where everything that counts was shown the model is not asked; else it should be right."""
    model = RELEVANCE if is_right else np.full(DATA.n_items, 0.25)

    def value(counts):
        return estimate(
            SCORES, shown_log(counts), DATA, metric="dcg@2", estimator="dr", baseline=model,
            n_bootstrap=1, rng=0,
        ).value  # fmt: skip

    rewards = rewards_of(SCORES)
    by_model = (world.sessions_of_item * rewards * model)[~world.is_shown].sum()
    true = true_value(world, rewards, world.is_shown) + by_model / len(world.sessions)
    assert world.expected(value) == pytest.approx(true)


@pytest.mark.slow
def test_what_was_logged_has_its_true_value(world):
    """The mean over sessions of Σ λ(position)·r, known without any estimate."""
    expected = 0.0
    for k, row in zip(world.position, world.row, strict=True):
        expected += (k <= 2) / np.log2(1 + k) * RELEVANCE[row] / len(world.sessions)

    def value(counts):
        log = shown_log(counts)
        found = estimate_gain(SCORES, log, DATA, metric="dcg@2", n_bootstrap=1, rng=0)
        # From clicks alone, without what else was shown, it is the same.
        clicks, _ = join_features(counts, THETA, DATA, ITEM_IDS)
        alone = estimate_gain(SCORES, clicks, DATA, metric="dcg@2", n_bootstrap=1, rng=0)
        return found.logged.value, alone.logged.value

    both = world.expected(value)
    assert both == pytest.approx([expected, expected])


def gradient(log, unit, plan):
    """N times the expectation of a step's gradient in score space over what may be drawn."""
    examples = Examples.of(log, unit)
    made = make_plan(plan, examples)
    total = np.zeros(DATA.n_items)
    for i, query in enumerate(examples.query):
        start, end = DATA.offsets[query], DATA.offsets[query + 1]
        own = slice(*examples.starts[i : i + 2])
        found = score_space(
            SCORES[start:end], [0, end - start], [0, own.stop - own.start], examples.item[own],
            made.shares[own],
        )  # fmt: skip
        total[start:end] += made.probabilities[i] * made.multipliers[i] * found.gradient
    return total * examples.n_clicks


def true_gradient(world):
    total = np.zeros(DATA.n_items)
    weight = world.sessions_of_item * RELEVANCE * world.is_shown
    for start, end in zip(DATA.offsets[:-1], DATA.offsets[1:], strict=True):
        items = np.arange(end - start)
        found = score_space(
            SCORES[start:end], [0, len(items)], [0, len(items)], items, weight[start:end]
        )
        total[start:end] = found.gradient
    return total


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan in {"ips", "countersample"}])
def test_the_expected_gradient_is_the_true_one(world, unit, plan):
    found = world.expected(
        lambda c: gradient(join_features(c, THETA, DATA, ITEM_IDS)[0], unit, plan)
    )
    np.testing.assert_allclose(found, true_gradient(world), atol=1e-6)


class Known:
    """Known α and β by position, or a curve for each context."""

    def __init__(self, alpha, beta=None):
        self.alpha, self.beta = alpha, beta

    def examination_of(self, position, context):
        if isinstance(self.alpha, dict):
            curves = np.stack([self.alpha[name] for name in context])
            alpha = curves[np.arange(len(position)), np.asarray(position) - 1]
            return alpha, np.zeros(len(position))
        return self.alpha[np.asarray(position) - 1], self.beta[np.asarray(position) - 1]


class TestContexts:
    CURVES = {"phone": np.array([1.0, 0.2, 0.1]), "desk": np.array([1.0, 0.8, 0.6])}  # noqa: RUF012

    def test_each_session_is_examined_by_its_own_curve(self):
        sessions = WORLDS["two policies"]
        world = World(sessions, self.CURVES, contexts=["phone", "desk", "phone", "desk"])
        known = Known(self.CURVES)
        found = world.expected(lambda c: weights_of(join_features(c, known, DATA, ITEM_IDS)[0]))
        true = np.where(world.is_shown, world.sessions_of_item * RELEVANCE, 0)
        np.testing.assert_allclose(found, true, rtol=1e-12)


class TestTrust:
    ALPHA, BETA = np.array([0.55, 0.4, 0.3]), np.array([0.4, 0.15, 0.05])

    @pytest.fixture(params=["two policies", "items that move"])
    def world(self, request):
        world = World(WORLDS[request.param], self.ALPHA, self.BETA)
        world.p_click[-1] = 1.0  # that of query c
        return world

    def true(self, world):
        """Of the certain click: (1 − β)/α."""
        true = np.where(world.is_shown, world.sessions_of_item * RELEVANCE, 0)
        true[-1] = (1 - self.BETA[0]) / self.ALPHA[0]
        return true

    def test_what_is_clicked_by_chance_is_taken_off(self, world):
        known = Known(self.ALPHA, self.BETA)
        found = world.expected(lambda c: weights_of(join_features(c, known, DATA, ITEM_IDS)[0]))
        np.testing.assert_allclose(found, self.true(world), rtol=1e-12, atol=1e-12)

    @pytest.mark.slow
    @pytest.mark.parametrize("unit", UNITS)
    @pytest.mark.parametrize("plan", ["ips", "countersample"])
    def test_the_gradient(self, world, unit, plan):
        known = Known(self.ALPHA, self.BETA)
        found = world.expected(
            lambda c: gradient(join_features(c, known, DATA, ITEM_IDS)[0], unit, plan)
        )
        rows = slice(0, 2 * N_ITEMS)  # the last query has one item, and no gradient
        np.testing.assert_allclose(found[rows], true_gradient(world)[rows], atol=1e-6)

    @pytest.mark.parametrize("estimator", ["ips", "dr"])
    def test_the_value(self, world, estimator):
        known, rewards = Known(self.ALPHA, self.BETA), rewards_of(SCORES)
        more = {"baseline": RELEVANCE} if estimator == "dr" else {}

        def value(counts):
            return estimate(
                SCORES, shown_log(counts, known), DATA, metric="dcg@2", estimator=estimator,
                n_bootstrap=1, rng=0, **more,
            ).value  # fmt: skip

        true = self.true(world)
        if estimator == "dr":
            true = np.where(world.is_shown, true, world.sessions_of_item * RELEVANCE)
        assert world.expected(value) == pytest.approx((true * rewards).sum() / len(world.sessions))


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["ips", "dr"])
def test_what_was_logged_keeps_the_places_whose_examination_is_not_known(estimator):
    """Items 0 and 2 are told by other places; item 1 of b was only where nothing is known."""
    world = World([("a", (0, 1, 2)), ("a", (2, 1, 0)), ("b", (0, 2, 1)), ("b", (2, 0, 1))])
    more = {"baseline": RELEVANCE} if estimator == "dr" else {}

    def value(counts):
        found = estimate_gain(
            SCORES, shown_log(counts, THETA[:2]), DATA, metric="dcg@3", estimator=estimator,
            n_bootstrap=1, rng=0, **more,
        )  # fmt: skip
        return found.logged.value

    untold = 5  # item 1 of b
    true = sum(
        RELEVANCE[row] / np.log2(1 + k) / len(world.sessions)
        for k, row in zip(world.position, world.row, strict=True)
        if row != untold or estimator == "dr"
    )
    assert world.expected(value) == pytest.approx(true)


def test_positions_beyond_what_is_known_count_neither_as_clicks_nor_as_exposure():
    world = World(WORLDS["items that move"])
    found = world.expected(
        lambda c: weights_of(join_features(c, THETA[:2], DATA, ITEM_IDS, missing="skip")[0])
    )
    is_shown = np.zeros(DATA.n_items, bool)
    is_shown[world.row[np.array(world.position) <= 2]] = True
    true = np.where(is_shown, world.sessions_of_item * RELEVANCE, 0)
    np.testing.assert_allclose(found, true, rtol=1e-12)


def test_clicks_in_contexts_without_a_curve_are_told_apart():
    class Phones:
        def examination_of(self, position, context):
            alpha = np.where(np.asarray(context) == "phone", 1.0, np.nan)
            return alpha, np.zeros(len(position))

    counts = PositionCounts.from_columns(
        ["a"] * 3, [0, 1, 2], [1, 2, 3], [1, 1, 1], context=["phone", "desk", "tv"]
    )
    with pytest.raises(DataError, match=r"2 in contexts without propensities \(desk, tv\)"):
        join_features(counts, Phones(), DATA, ITEM_IDS)
    log, report = join_features(counts, Phones(), DATA, ITEM_IDS, missing="skip")
    assert (log.n_clicks, report.no_context, report.no_propensity) == (1, 2, 0)


def test_what_clicks_are_worth_counts():
    counts = PositionCounts.from_columns(
        ["a", "a"], [0, 1], [1, 2], [1, 1], session=[1, 1], value=[10, 0.5]
    )
    log, _ = join_features(counts, [1.0, 0.5], DATA, ITEM_IDS)
    assert log.weights.tolist() == [10.0, 1.0]


def test_the_model_of_relevance_knows_what_clicks_are_worth():
    """All items alike, each click worth 10; half of the items were never shown."""
    n = 40
    data = RankingDataset.from_arrays(
        X=np.zeros((2 * n, 1)), y=np.zeros(2 * n), qid=np.repeat(np.arange(n), 2)
    )
    log = ClickLog(
        np.arange(n), np.zeros(n, int), np.ones(n), np.full(n, 50.0), events=np.full(n, 5.0),
        position=np.ones(n, int), impressions=np.full(n, 10.0),
    )  # fmt: skip
    unseen_first = np.tile([0.0, 1.0], n)
    found = estimate(unseen_first, log, data, metric="precision@1", estimator="dr", rng=0)
    assert found.value == pytest.approx(5.0)
    seen_first = estimate(-unseen_first, log, data, metric="precision@1", rng=0)
    assert seen_first.value == pytest.approx(5.0)
    assert (seen_first.n_clicks, seen_first.effective_clicks) == (5 * n, pytest.approx(5 * n))


def test_sessions_are_counted_by_ids_or_by_the_first_position():
    rows = {"query_id": ["a"] * 4, "item_id": [0, 1, 1, 2], "position": [1, 2, 1, 2],
            "click": [0, 0, 1, 0]}  # fmt: skip
    by_id = PositionCounts.from_columns(**rows, session=[1, 1, 2, 3])
    by_position = PositionCounts.from_columns(**rows)
    assert (by_id.sessions.tolist(), by_id.sessions_from) == ([3], "sessions")
    assert (by_position.sessions.tolist(), by_position.sessions_from) == ([2], "first position")
    weights = [
        join_features(counts, [1.0, 0.5], DATA, ITEM_IDS)[0].weights
        for counts in (by_id, by_position)
    ]
    assert [w.tolist() for w in weights] == [[2.0], [4 / 3]]  # 1.5/3 and 1.5/2 examined


def test_an_item_that_a_page_shows_twice_counts_once():
    """Three clicks of four that were examined, in two sessions: a relevance of 3/4."""
    counts = PositionCounts.from_columns(
        ["a"] * 4, [0] * 4, [1, 2, 1, 2], [1, 1, 1, 0], session=[1, 1, 2, 2]
    )
    theta = [1.0, 1.0]
    log, _ = join_features(counts, theta, DATA, ITEM_IDS)
    assert weights_of(log)[0] / 2 == pytest.approx(3 / 4)
    first = np.where(np.arange(DATA.n_items) == 0, 1.0, 0.0)
    for estimator in ("ips", "dr"):
        found = estimate(
            first, shown_log(counts, theta), DATA, metric="precision@1", estimator=estimator,
            n_bootstrap=1, rng=0,
        )  # fmt: skip
        assert found.value == pytest.approx(3 / 4)


def test_logs_put_together_have_the_sessions_of_both():
    one = ClickLog([0], [1], [0.15], count=[3], position=[2], impressions=[3], examination=[0.5],
                   sessions=[10])  # fmt: skip
    two = ClickLog([0], [1], [0.5], count=[1], position=[1], impressions=[10], examination=[0.5],
                   sessions=[30])  # fmt: skip
    scores = np.arange(DATA.n_items)[::-1] + np.where(np.arange(DATA.n_items) == 1, 99, 0)
    alone, again = (
        estimate(scores, log, DATA, metric="precision@1", rng=0).value
        for log in (one, ClickLog.concat([one]))
    )
    assert alone == again == pytest.approx(3 / 0.15 / 10)
    both = ClickLog.concat([one, two])
    assert both.sessions.tolist() == [40, 40]
    assert both.examination.tolist() == [0.5, 0.5]
    value = estimate(scores, both, DATA, metric="precision@1", rng=0).value
    assert value == pytest.approx((3 / 0.15 + 1 / 0.5) / 40)


def test_merging_keeps_signed_weights(rng):
    n = 300
    log = ClickLog(
        rng.integers(0, 2, n), rng.integers(0, 4, n), rng.choice([0.1, 0.5, 1.0], n),
        rng.integers(0, 3, n), by_chance=rng.random(n) * (rng.random(n) < 0.8),
    )  # fmt: skip
    merged = log.merge()
    assert len(merged) == 8
    np.testing.assert_allclose(weights_of(merged), weights_of(log), rtol=1e-9)
