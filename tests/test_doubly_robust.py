"""Doubly robust training: weights that are right where propensities or the model are."""

from itertools import product

import numpy as np
import pytest
from conftest import SEED

from countersample import ClickLog, PositionBias, RankingDataset, synthetic, train
from countersample.clicks import simulate_impressions
from countersample.errors import DataError
from countersample.evaluation import doubly_robust_log
from countersample.logs import PositionCounts, join_features
from countersample.objectives import score_space

# Two queries: items 0 to 2 of the first were shown in this order, its item 3 was never shown.
DATA = RankingDataset.from_arrays(
    X=[[0.1, 0.7], [0.9, 0.2], [0.5, 0.5], [0.3, 0.9], [0.2, 0.1], [0.8, 0.6]],
    y=[0] * 6, qid=["a"] * 4 + ["b"] * 2,
)  # fmt: skip
SESSIONS = (2, 1)  # of each query
SHOWN = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 0)]  # query and item
THETA = np.array([1.0, 0.5, 0.2, 1.0, 0.4])
ROWS = np.array([DATA.offsets[query] + item for query, item in SHOWN])
N = np.repeat(SESSIONS, DATA.query_sizes)
RELEVANCE = np.array([0.3, 0.8, 0.6, 0.9, 0.1, 0.7])
WRONG = np.array([0.9, 0.1, 0.2, 0.4, 0.5, 0.3])
SCORES = np.array([0.3, -0.2, 0.8, 0.1, 0.5, -0.4])


def log_of(clicks, theta=THETA):
    query, item = np.array(SHOWN).T
    sessions = np.array(SESSIONS)[query]
    return ClickLog(query, item, theta, clicks, impressions=sessions, sessions=sessions)


def weights_of(log):
    """v of each item, (n_items,)."""
    weights = np.zeros(DATA.n_items)
    np.add.at(weights, DATA.offsets[log.query] + log.item, log.weights)
    return weights


def all_logs():
    """Yield the clicks of every possible log that has some, and its probability."""
    chance = THETA * RELEVANCE[ROWS]
    sessions = np.array(SESSIONS)[[q for q, _ in SHOWN]]
    for clicks in product(*(range(n + 1) for n in sessions)):
        c = np.array(clicks)
        ways = np.where((sessions == 2) & (c == 1), 2, 1)
        yield c, float(np.prod(ways * chance**c * (1 - chance) ** (sessions - c)))


def gradient(weights):
    """Σ v·∂f/∂s over all items, (n_items,): what boosting and, times the features, SGD take."""
    items = np.concatenate([np.arange(size) for size in DATA.query_sizes])
    return score_space(
        SCORES, DATA.offsets, DATA.offsets, items, weights, objective="smooth-log-rank"
    ).gradient


def mean_weights(clip, model, theta=THETA):
    """Return the mean of v over all logs, that without a click included, (n_items,)."""
    total = np.zeros(DATA.n_items)
    for clicks, probability in all_logs():
        if clicks.any():
            log = doubly_robust_log(DATA, log_of(clicks, theta), clip=clip, relevance=model)
            total += probability * weights_of(log)
        else:  # no log has no click: n·r̂·(1 − θ/max(θ, τ))
            left = np.ones(DATA.n_items)
            left[ROWS] = 1 - theta / np.maximum(theta, clip)
            total += probability * N * model * left
    return total


@pytest.mark.parametrize("clip", [0.0, 0.3, 0.7, 1.0])
def test_with_a_right_model_the_gradient_is_that_of_full_information(clip):
    """By enumeration, items never shown included."""
    mean = mean_weights(clip, RELEVANCE)
    np.testing.assert_allclose(mean, N * RELEVANCE, rtol=1e-12)
    np.testing.assert_allclose(gradient(mean), gradient(N * RELEVANCE), rtol=1e-12)


def test_with_right_propensities_it_is_that_for_all_that_was_shown():
    """By enumeration, with a wrong model, which speaks for the item that was never shown."""
    mean, full = mean_weights(0.0, WRONG), N * RELEVANCE
    full[3] = N[3] * WRONG[3]
    np.testing.assert_allclose(mean, full, rtol=1e-12)
    np.testing.assert_allclose(gradient(mean), gradient(full), rtol=1e-12)


@pytest.mark.parametrize("clip", [0.0, 0.6, 1.0])
def test_how_far_it_is_off_where_both_are_wrong(clip):
    """n·(r̂ + (θ·r − θ̂·r̂) / max(θ̂, τ)), by enumeration."""
    wrong = np.minimum(1.0, THETA * 1.5)
    off = (THETA * RELEVANCE[ROWS] - wrong * WRONG[ROWS]) / np.maximum(wrong, clip)
    mean = mean_weights(clip, WRONG, wrong)[ROWS]
    np.testing.assert_allclose(mean, N[ROWS] * (WRONG[ROWS] + off), rtol=1e-12)


def test_weights_are_clicks_by_propensity_or_what_the_model_fills_in():
    """Visible arithmetic: C/ρ at or above τ, C/τ + n·r̂·(1 − ρ/τ) below, n·r̂ where never shown."""
    log = log_of([1, 0, 1, 0, 1])
    found = weights_of(doubly_robust_log(DATA, log, clip=0.45, relevance=WRONG))
    by_hand = [1 / 1.0, 0 / 0.5, 1 / 0.45 + 2 * 0.2 * (1 - 0.2 / 0.45), 2 * 0.4,
               1 / 0.45 + 0.5 * (1 - 0.4 / 0.45), 0.0]  # fmt: skip
    np.testing.assert_allclose(found, by_hand, rtol=1e-12, atol=1e-15)


def test_without_clip_and_with_everything_shown_it_is_ips():
    data = DATA.subset([1])
    log = ClickLog([0, 0], [1, 0], [1.0, 0.25], [3, 2], impressions=[8, 8])
    robust = doubly_robust_log(data, log, clip=0, relevance=[0.3, 0.9])
    assert dict(zip(robust.item.tolist(), robust.weights.tolist(), strict=True)) == pytest.approx(
        {1: 3.0, 0: 8.0}
    )
    assert robust.n_clicks == pytest.approx(5)
    assert robust.mean_weight == pytest.approx(log.mean_weight)


def test_fewer_clicks_than_by_chance_weigh_below_0():
    columns = {"query": [0, 0], "item": [0, 1], "propensity": [1.0, 0.5], "impressions": [4, 4]}
    log = ClickLog(**columns, count=[3, 1], by_chance=[0.5, 2])
    robust = doubly_robust_log(DATA.subset([1]), log, clip=0, relevance=[0.5, 0.5])
    assert robust.weights.tolist() == pytest.approx([2.5, -2.0])
    assert robust.n_clicks == pytest.approx(4)
    nothing = ClickLog(**columns, count=[1, 0], by_chance=[1, 2])
    with pytest.raises(DataError, match="no item has a weight above 0"):
        doubly_robust_log(DATA.subset([1]), nothing, clip=0, relevance=[0.5, 0.5])


def test_a_ranker_learns_from_it_and_the_same_seed_gives_the_same_log():
    data = synthetic("tiny", n_queries=200, rng=SEED)
    table = simulate_impressions(data, data.features[:, 0], 3000, bias=PositionBias(1.5),
                                 relevant=1, top=6, rng=SEED)  # fmt: skip
    counts = PositionCounts.from_columns(
        table["query_id"].to_numpy(), table["item_id"].to_numpy(), table["position"].to_numpy(),
        table["click"].to_numpy(),
    )  # fmt: skip
    log, _ = join_features(counts, PositionBias(1.5), data, keep="shown")
    robust, again = (doubly_robust_log(data, log, rng=3) for _ in range(2))
    assert robust.weights.tolist() == again.weights.tolist()
    assert len(robust) > len(log.weighted())
    assert robust.n_clicks == pytest.approx(log.n_clicks)
    found = train(data, robust, learning_rate=0.01, steps=1000, rng=0).weights
    truth = train(data, ClickLog.from_labels(data), learning_rate=0.01, steps=1000, rng=0).weights
    assert np.corrcoef(found, truth)[0, 1] > 0.5
