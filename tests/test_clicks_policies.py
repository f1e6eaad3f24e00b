"""Logging policies: what they draw and go through against their definitions, and propensities."""

from collections import Counter

import numpy as np
import pytest
import twins_clicks as twins
from chances import check_cells
from conftest import SEED

from countersample.clicks import (
    CLICK_MODELS,
    PositionBias,
    Ranked,
    Shuffled,
    Swapped,
    TableBias,
    TeamDraft,
    TrustBias,
    simulate_clicks,
)
from countersample.clicks.policies import as_policy
from countersample.clicks.simulation import World
from countersample.data import RankingDataset

SIZES = [1, 2, 5, 4, 6]
N_ITEMS = sum(SIZES)
OLD = np.random.default_rng([SEED, 1]).permutation(N_ITEMS)
NEW = np.random.default_rng([SEED, 2]).permutation(N_ITEMS)
SETTING = {"relevant": 3, "noise": 0.2}
TABLE = [0.9, 0.8, 0.5, 0.3, 0.2, 0.1]

# Each policy with its twin: a function of the two rankings of one list, and the cut-off.
POLICIES = {
    "ranked": (Ranked(OLD), lambda a, _b, top: twins.ranked(a, top)),
    "shuffled": (Shuffled(OLD), lambda a, _b, top: twins.shuffled(a, top, top)),
    "shuffled-3": (Shuffled(OLD, depth=3), lambda a, _b, top: twins.shuffled(a, top, 3)),
    "drawn": (Shuffled(OLD, depth=99), lambda a, _b, top: twins.shuffled(a, top, 99)),
    "swapped": (
        Swapped(OLD, rate=0.3),
        lambda a, _b, top: twins.swapped(a, top, 0.3, "adjacent"),
    ),
    "swapped-first": (
        Swapped(OLD, rate=0.8, pairs="first"),
        lambda a, _b, top: twins.swapped(a, top, 0.8, "first"),
    ),
    "team-draft": (TeamDraft({"old": OLD, "new": NEW}), twins.team_draft),
    "mixture": (
        as_policy(
            {"old": OLD, "new": NEW, "both": TeamDraft({"old": OLD, "new": NEW})}, [0.6, 0.3, 0.1]
        ),
        lambda a, b, top: twins.mixture(
            (0.6, twins.ranked(a, top)),
            (0.3, twins.ranked(b, top)),
            (0.1, twins.team_draft(a, b, top)),
        ),
    ),
}
TOPS = [1, 2, 3, 4, None]


@pytest.fixture(scope="module")
def data():
    grades = [(3 * i + q) % 5 for q, size in enumerate(SIZES) for i in range(size)]
    qid = [f"q{q}" for q, size in enumerate(SIZES) for _ in range(size)]
    return RankingDataset.from_arrays(X=np.zeros((N_ITEMS, 1)), y=grades, qid=qid)


@pytest.fixture
def rng():
    return np.random.default_rng([SEED, 3])


def lists(scores):
    """The rows of each query, largest score first."""
    ends = np.cumsum(SIZES)
    return [
        sorted(range(end - size, end), key=lambda row: -scores[row])
        for end, size in zip(ends, SIZES, strict=True)
    ]


def matrix(scores):
    rows = np.full((len(SIZES), max(SIZES)), -1)
    for query, ranked in enumerate(lists(scores)):
        rows[query, : len(ranked)] = ranked
    return rows


def twin_orders(name, top):
    """For each query, the probability of each order by the twin."""
    old, new = lists(OLD), lists(NEW)
    twin = POLICIES[name][1]
    return [twin(a, b, top or len(a)) for a, b in zip(old, new, strict=True)]


def collect_orders(policy, top, *, joint):
    """For each query, the probability of each order that the policy enumerates."""
    result = [{} for _ in SIZES]
    for chances, rows in policy.orders(
        list(map(matrix, policy.rankers)), top or max(SIZES), joint=joint
    ):
        for orders, chance, row in zip(result, chances, rows.tolist(), strict=True):
            order = tuple(item for item in row if item >= 0)
            orders[order] = orders.get(order, 0) + chance
    return [{order: chance for order, chance in orders.items() if chance} for orders in result]


def marginals(orders):
    """The probability of each (position, item)."""
    chances = {}
    for order, chance in orders.items():
        for cell in enumerate(order):
            chances[cell] = chances.get(cell, 0) + chance
    return chances


# -- what a policy shows ---------------------------------------------------------------------------


@pytest.mark.parametrize("top", TOPS)
@pytest.mark.parametrize("name", POLICIES)
def test_all_orders_are_enumerated(name, top):
    """With `joint` every order; without it, every item at every position."""
    policy, twin = POLICIES[name][0], twin_orders(name, top)
    for orders, expected in zip(collect_orders(policy, top, joint=True), twin, strict=True):
        assert orders == pytest.approx(expected)
        assert sum(orders.values()) == pytest.approx(1)
    for orders, expected in zip(collect_orders(policy, top, joint=False), twin, strict=True):
        assert marginals(orders) == pytest.approx(marginals(expected))


@pytest.mark.slow
@pytest.mark.parametrize("top", [3, None])
@pytest.mark.parametrize("name", POLICIES)
def test_orders_are_drawn_with_their_probabilities(name, top, rng):
    policy, n = POLICIES[name][0], 20_000
    for query, expected in enumerate(twin_orders(name, top)):
        repeated = [
            np.repeat(rows[query : query + 1], n, axis=0) for rows in map(matrix, policy.rankers)
        ]
        rows = policy.draw(rng, repeated, top or max(SIZES)).rows
        counts = Counter(tuple(item for item in row if item >= 0) for row in rows.tolist())
        assert set(counts) <= set(expected)
        check_cells({order: (counts[order], n, chance) for order, chance in expected.items()})


# -- propensities, and clicks that follow them -----------------------------------------------------


def examined(data, orders, click_model, bias):
    """P(examined) of each row: over all orders, by the twins of the models."""
    total = np.zeros(data.n_items)
    for query in orders:
        for order, chance in query.items():
            labels = data.labels[list(order)]
            now = twins.propensities(click_model, labels, bias=bias, **SETTING)
            np.add.at(total, list(order), chance * np.array(now))
    return total


# Each policy with one of the click models, not each pair of them.
MODELS = ["position-based", "dependent-click", "trust-bias", "cascade"]
CONTEXTS = {"phone": (3, TableBias([0.9, 0.1])), "desktop": (1, PositionBias(0.5))}


@pytest.mark.parametrize(("name", "click_model"), [*zip(POLICIES, MODELS * 2, strict=True)])
def test_contexts_have_their_own_curves(data, name, click_model):
    """The propensity is the mean of both contexts by their shares."""
    orders = twin_orders(name, 3)
    phone = examined(data, orders, click_model, lambda rank: [0.9, 0.1, 0, 0, 0, 0][rank - 1])
    desktop = examined(data, orders, click_model, lambda rank: rank**-0.5)
    log = simulate_clicks(data, POLICIES[name][0], 3000, contexts=CONTEXTS, **SETTING,
                          click_model=click_model, top=3, rng=SEED)  # fmt: skip
    rows = data.offsets[log.query] + log.item
    expected = 0.75 * phone[rows] + 0.25 * desktop[rows]
    np.testing.assert_allclose(log.propensity, expected, rtol=1e-12)


@pytest.mark.parametrize("name", POLICIES)
def test_weighted_clicks_tell_the_relevance(data, name):
    """E[clicks per session] / ρ is P(click | examined), wherever an item may be shown; exact."""
    user = CLICK_MODELS["position-based"](bias=TableBias(TABLE), **SETTING)
    looks, clicked = World(data, POLICIES[name][0], (user,), np.ones(1), top=3).expected()
    shown = looks > 0
    assert {row for orders in twin_orders(name, 3) for order in orders for row in order} == set(
        np.flatnonzero(shown).tolist()
    )
    truth = user.relevance(data.labels)[shown]
    np.testing.assert_allclose(clicked[shown] / looks[shown], truth, rtol=1e-12)


def test_a_click_says_how_likely_it_was_examined_where_it_was_shown(data):
    """Where the first item alone is shown, ρ/θ is the share of sessions that show it: 1/2 or 1."""
    log = simulate_clicks(
        data, {"old": OLD, "new": NEW}, 3000, bias=TableBias(TABLE), top=1, rng=SEED
    )
    assert set(log.examination.tolist()) == {TABLE[0]}
    shown = {rows[0] for scores in (OLD, NEW) for rows in lists(scores)}
    rows = data.offsets[log.query] + log.item
    assert set(rows.tolist()) <= shown
    assert set((log.propensity / log.examination).tolist()) <= {0.5, 1.0}
    assert simulate_clicks(data, OLD, 10, rng=SEED).examination is None


@pytest.mark.parametrize("click_model", CLICK_MODELS)
def test_relevance_is_what_a_user_does_who_examines(click_model):
    model = CLICK_MODELS[click_model](bias=TableBias(TABLE), **SETTING)
    yes, no = {
        "near-random": (0.6, 0.4), "perfect": (1, 0), "trust-bias": (1, 0)
    }.get(click_model, (1, 0.2))  # fmt: skip
    assert model.relevance([4, 2, 3]).tolist() == [yes, no, yes]


def test_trust_bias_is_affine_in_the_relevance():
    model = TrustBias(bias=TableBias(TABLE), relevant=3)
    labels = np.array([4, 0, 3, 1, 4, 0])
    alpha, beta = model.affine(np.arange(1, 7))
    np.testing.assert_allclose(
        beta + alpha * model.relevance(labels), model.click_probabilities(labels), rtol=1e-12
    )
