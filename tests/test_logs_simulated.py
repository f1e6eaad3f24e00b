"""Simulated logs of several policies and contexts: columns, seeds, errors, and counted exposure."""

from collections import Counter

import numpy as np
import pytest
from chances import ALPHA, check_cells
from conftest import SEED

from countersample.clicks import (
    PositionBased,
    PositionBias,
    Shuffled,
    Swapped,
    TableBias,
    TeamDraft,
    TrustBias,
    simulate_clicks,
    simulate_impressions,
)
from countersample.clicks.policies import as_policy
from countersample.clicks.simulation import World
from countersample.data import RankingDataset, synthetic
from countersample.errors import DataError, ParameterError
from countersample.logs import join_features, read_impressions

SIZES = [1, 2, 5, 4, 6]
N_ITEMS = sum(SIZES)
OLD = np.random.default_rng([SEED, 1]).permutation(N_ITEMS)
NEW = np.random.default_rng([SEED, 2]).permutation(N_ITEMS)
MIXTURE = as_policy(
    {"old": OLD, "shuffled": Shuffled(NEW), "both": TeamDraft({"old": OLD, "new": NEW})},
    [0.6, 0.3, 0.1],
)
CONTEXTS = {"phone": (3, TableBias([0.9, 0.1, 0.05])), "desktop": (1, PositionBias(0.5))}


@pytest.fixture(scope="module")
def data():
    grades = [(3 * i + q) % 5 for q, size in enumerate(SIZES) for i in range(size)]
    qid = [f"q{q}" for q, size in enumerate(SIZES) for _ in range(size)]
    return RankingDataset.from_arrays(X=np.zeros((N_ITEMS, 1)), y=grades, qid=qid)


class Known:
    """The true α and β of users in `CONTEXTS`, as `join_features` takes them."""

    def __init__(self, model):
        self.users = {name: model(bias=curve) for name, (_, curve) in CONTEXTS.items()}

    def examination_of(self, position, context):
        alpha, beta = np.empty(len(position)), np.zeros(len(position))
        for name, user in self.users.items():
            here = np.asarray(context) == name
            if isinstance(user, TrustBias):
                alpha[here], beta[here] = user.affine(position[here])
            else:
                alpha[here] = user.bias.propensity(position[here])
        return alpha, beta


def joined(data, model, n_sessions):
    """A simulated log, read and weighted as anyone's; and the world it is of."""
    known = Known(model)
    world = World(data, MIXTURE, tuple(known.users.values()), np.array([0.75, 0.25]), top=3)
    table = simulate_impressions(
        data, MIXTURE, n_sessions, contexts=CONTEXTS, click_model=model, top=3, rng=SEED
    )
    items = np.concatenate([np.arange(size) for size in SIZES])
    with read_impressions(table) as impressions:
        return join_features(impressions.counts(), known, data, items)[0], world


def test_what_is_counted_in_a_log_comes_to_what_was_computed(data):
    """Counted ρ is a mean of numbers from 0 to 1, a session each: Hoeffding bounds how far off."""
    log, world = joined(data, PositionBased, 100_000)
    examined, clicked = world.expected()
    rows = data.offsets[log.query] + log.item
    assert set(rows) <= set(np.flatnonzero(clicked))
    bound = np.sqrt(np.log(2 * N_ITEMS / ALPHA) / (2 * log.sessions))
    assert (np.abs(log.propensity - examined[rows]) < bound).all()


def test_known_trust_tells_the_relevance(data):
    """Σ (clicks − β) / Σα of an item is 1 or 0 in the mean, whatever was shown, and to whom."""
    log, world = joined(data, TrustBias, 300_000)
    rows = data.offsets[log.query] + log.item
    told = np.bincount(rows, log.weights / log.sessions, minlength=N_ITEMS)
    truth = world.users[0].relevance(data.labels)
    # A session adds a number in an interval as long as 1/ρ, divided by the sessions.
    bound = np.sqrt(np.log(2 * N_ITEMS / ALPHA) / (2 * log.sessions)) / log.propensity
    assert (np.abs(told - truth)[rows] < bound).all()
    assert bound.min() < 0.5  # so that 0 is not taken for 1


def test_impressions_name_policies_and_contexts(data):
    policies = {"old": OLD, "new": NEW, "test": TeamDraft({"new": NEW, "third": -OLD})}
    table = simulate_impressions(
        data, policies, 20_000, shares=[6, 3, 1], contexts=CONTEXTS, top=2, rng=SEED
    )
    assert table.column_names == [
        "session", "query_id", "item_id", "position", "click", "policy", "context"
    ]  # fmt: skip
    first = table.filter(np.asarray(table["position"]) == 1)
    policy = Counter(first["policy"].to_pylist())
    context = Counter(first["context"].to_pylist())
    chances = {"old": 0.6, "new": 0.35, "third": 0.05}
    cells = {name: (policy[name], 20_000, chance) for name, chance in chances.items()}
    check_cells(cells | {"phone": (context["phone"], 20_000, 0.75)})
    assert set(policy) == set(chances)
    assert first["session"].to_pylist() == list(range(20_000))
    one = table.group_by("session").aggregate([("context", "count_distinct")])
    assert set(one["context_count_distinct"].to_pylist()) == {1}


def test_logs_longer_than_a_block():
    data = synthetic("tiny", rng=0)
    scores = data.features[:, 0]
    n = 2 * ((1 << 18) // int(data.query_sizes.max())) + 7
    table = simulate_impressions(data, {"a": scores, "b": -scores}, n, top=1, rng=SEED)
    assert table["session"].to_pylist() == list(range(n))
    assert len(simulate_clicks(data, Shuffled(scores), n, top=2, relevant=0, rng=SEED)) == n


@pytest.mark.parametrize("simulate", [simulate_clicks, simulate_impressions])
@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (OLD, {"shares": [1]}, "shares are given for one policy, expected a mapping"),
        ({}, {}, "the mapping of policies is empty"),
        ({"a": OLD, "b": NEW}, {"shares": [1]}, "shares has 1 numbers, expected 2"),
        ({"a": OLD, "b": NEW}, {"shares": [1, 0]}, "shares is 0, expected a number above 0"),
        ({"a": OLD, "b": NEW}, {"shares": {"a": 1, "c": 1}}, "of a, c, expected of a, b"),
        (OLD, {"contexts": {}}, "contexts is {}, expected a mapping of names to"),
        (OLD, {"contexts": {"phone": 1}}, "expected a mapping of names to"),
        (OLD, {"contexts": {"phone": (-1, PositionBias())}}, "share of a context is -1"),
        (OLD, {"top": 0}, "top is 0, expected None or a whole number of at least 1"),
    ],
)
def test_an_option_that_is_none_is_refused(data, simulate, policy, options, message):
    with pytest.raises(ParameterError, match=message):
        simulate(data, policy, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shuffled(OLD, depth=0), "depth is 0, expected None or a whole number"),
        (lambda: Swapped(OLD, rate=2), "rate is 2, expected a number of at least 0 and at most 1"),
        (lambda: Swapped(OLD, pairs="all"), "pairs is 'all', expected one of adjacent, first"),
        (lambda: TeamDraft({"a": OLD}), "teams has 1 names, expected a mapping of two names"),
        (lambda: TeamDraft([OLD, NEW]), "teams has no mapping, expected a mapping of two names"),
    ],
)
def test_a_policy_that_is_none_is_refused(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


def test_too_many_orders_are_refused_where_all_count():
    data = synthetic("tiny", rng=0)
    policy = Shuffled(data.features[:, 0], depth=8)
    assert len(simulate_clicks(data, policy, 100, rng=SEED)) == 100  # positions are enough
    with pytest.raises(DataError, match=r"has 40,320 orders .*expected at most 5,040"):
        simulate_clicks(data, policy, 100, click_model="cascade", rng=SEED)
    assert simulate_impressions(data, policy, 9, click_model="cascade", rng=SEED).num_rows > 9


def test_where_no_click_can_happen_it_says_so(data):
    with pytest.raises(DataError, match=r"clicks 0 times per session on average"):
        simulate_clicks(data, Shuffled(OLD), noise=0, relevant=5)


def test_scores_that_do_not_fit_are_refused(data):
    with pytest.raises(DataError, match=r"the policy's scores have shape \(3,\)"):
        simulate_clicks(data, {"a": OLD, "b": [1, 2, 3]})
