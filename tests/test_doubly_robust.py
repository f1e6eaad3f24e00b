"""Doubly robust training, right where propensities or the model are; the model of relevance."""

from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
from conftest import SEED

from countersample import ClickLog, PositionBias, RankingDataset, synthetic, train
from countersample.clicks import simulate_impressions
from countersample.errors import DataError
from countersample.evaluation import doubly_robust_log, relevance_model
from countersample.evaluation.doubly_robust import (
    PENALTIES,
    _logged_scores,
    exposure,
    fit_relevance,
)
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
    found, truth = (
        train(data, log, learning_rate=0.01, steps=5000, rng=0).average_coef
        for log in (robust, ClickLog.from_labels(data))
    )
    assert np.corrcoef(found, truth)[0, 1] > 0.5


# -- the model of relevance ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    return synthetic("tiny", n_queries=200, rng=SEED)


@pytest.fixture(scope="module")
def log(tiny):
    bias = PositionBias(1.0)
    table = simulate_impressions(tiny, tiny.features[:, 0], 3000, bias=bias, top=6, rng=SEED)
    return ClickLog(
        np.searchsorted(tiny.query_ids, table["query_id"].to_numpy()),
        table["item_id"].to_numpy(),
        bias.propensity(table["position"].to_numpy()),
        table["click"].to_numpy(),
        impressions=np.ones(len(table)),
    )


def test_exposure_adds_up_by_item():
    data = RankingDataset.from_arrays(X=[[0.1], [0.9], [0.5]], y=[0, 0, 0], qid=["a", "a", "b"])
    columns = {"query": [0, 0, 0], "item": [0, 0, 1], "propensity": [1.0, 0.5, 0.5]}
    seen, clicks = exposure(ClickLog(**columns, count=[3, 0, 1], impressions=[4, 2, 4]), data)
    assert (seen.tolist(), clicks.tolist()) == ([5, 2, 0], [3, 1, 0])


def evidence(x, y, precision, alpha):
    """The density of y, up to a factor, and w: by the covariance of y as it is.

    y ~ N(b, φ·(diag(1/v) + x·xᵀ/α)), with b and φ those that make it most likely (b restricted).
    """
    covariance = np.diag(1 / precision) + x @ x.T / alpha
    inverse = np.linalg.inv(covariance)
    ones = np.ones(len(y))
    b = ones @ inverse @ y / inverse.sum()
    spread = (y - b) @ inverse @ (y - b)
    log_density = -np.linalg.slogdet(covariance)[1] - np.log(inverse.sum())
    w = x.T @ inverse @ (y - b) / alpha
    return log_density - (len(y) - 1) * np.log(spread), w, b, spread / (len(y) - 1)


def posterior(x, precision, alpha, noise):
    """The covariance of (w, b), by the inverse of the whole matrix; b has no penalty."""
    columns = np.column_stack([x, np.ones(len(x))])
    penalty = np.diag([alpha] * x.shape[1] + [0.0])
    return noise * np.linalg.inv(columns.T @ (columns * precision[:, None]) + penalty)


def test_it_is_the_ridge_regression_of_highest_evidence_on_the_other_queries(tiny, log):
    """The slow twin: for the queries of each part in turn, with the covariance of all rates."""
    small = log.of_queries(np.arange(40))
    model = fit_relevance(small, tiny, rng=np.random.default_rng(SEED))
    covariances = []
    part = np.random.default_rng(SEED).permutation(tiny.n_queries) % 5
    part = np.repeat(part, tiny.query_sizes)
    scaled = (tiny.features - tiny.features.mean(axis=0)) / tiny.features.std(axis=0)
    seen, clicks = exposure(small, tiny)
    sessions = np.zeros(tiny.n_queries)
    for query in range(40):  # each session shows the item that is shown most often
        of_items = np.bincount(small.item[small.query == query], minlength=1)
        sessions[query] = of_items.max()
    n = np.repeat(sessions, tiny.query_sizes)
    rho = np.divide(seen, n, out=np.zeros(len(n)), where=n > 0)
    z = np.log(np.maximum(rho, rho[rho > 0].min()))
    z = np.where(n > 0, (z - z[n > 0].mean()) / z[n > 0].std(), 0)
    x = np.column_stack([scaled, z * np.sqrt(tiny.n_features)])
    for k in range(5):
        rows = (part != k) & (seen > 0)
        rates, precision = clicks[rows] / seen[rows], seen[rows] / (1 + seen[rows])
        alphas = PENALTIES * x.shape[1]
        tried = [evidence(x[rows], rates, precision, alpha) for alpha in alphas]
        best = int(np.argmax([each[0] for each in tried]))
        _, w, b, noise = tried[best]
        expected = np.clip(x[part == k] @ w + b, 0, 1)
        np.testing.assert_allclose(model.relevance[part == k], expected, rtol=1e-3, atol=1e-4)
        covariances.append(posterior(x[rows], precision, alphas[best], noise))
    expected = np.mean(covariances, axis=0)
    scale = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(model.covariance, expected, atol=1e-3 * np.outer(scale, scale).max())
    shares = np.random.default_rng(SEED).random((2, tiny.n_items))
    totals = shares @ np.column_stack([x, np.ones(len(x))])
    np.testing.assert_allclose(
        model.covariance_of_sums(shares), totals @ model.covariance @ totals.T, rtol=1e-4
    )


def test_an_item_that_was_never_shown_is_less_relevant_than_its_features_say(rng):
    """The policy knows the relevance and shows the best three of six; features know nothing."""
    n, items = 300, 6
    query, item = np.divmod(np.arange(n * items), items)
    chance = rng.uniform(0.05, 0.95, (n, items))
    rank = (-chance).argsort(axis=1).argsort(axis=1).ravel()
    data = RankingDataset.from_arrays(rng.normal(size=(n * items, 5)), np.zeros(n * items), query)
    shown = rank < 3
    theta = 1 / (1 + rank[shown])
    clicks = rng.binomial(50, chance.ravel()[shown] * theta)
    log = ClickLog(
        query[shown], item[shown], theta, clicks, position=1 + rank[shown],
        impressions=np.full(shown.sum(), 50),
    )  # fmt: skip
    result = relevance_model(log, data, rng=rng)[~shown].mean()
    truth, of_shown = chance.ravel()[~shown].mean(), chance.ravel()[shown].mean()
    assert abs(result - truth) < 0.3 * abs(of_shown - truth)


def test_where_clicks_do_not_tell_it_is_a_constant(rng):
    """Clicks that know nothing of features: no more than a hundredth of them is explained."""
    n, items = 300, 8
    query, item = np.divmod(np.arange(n * items), items)
    data = RankingDataset.from_arrays(rng.normal(size=(n * items, 20)), np.zeros(n * items), query)
    clicks = rng.binomial(10, 0.3, n * items)
    log = ClickLog(query, item, np.ones(n * items), clicks, impressions=np.full(n * items, 10))
    result = relevance_model(log, data, rng=rng)
    assert result.mean() == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / (n * items * 10)))
    assert result.var() < 0.01


def test_no_item_is_judged_by_its_own_clicks(tiny, log):
    query = int(log.query[0])
    changed = log.clicks.copy()
    changed[log.query == query] = 1
    other = ClickLog(log.query, log.item, log.propensity, changed, impressions=log.impressions)
    a, b = (relevance_model(each, tiny, rng=np.random.default_rng(SEED)) for each in (log, other))
    rows = slice(tiny.offsets[query], tiny.offsets[query + 1])
    np.testing.assert_allclose(a[rows], b[rows], rtol=1e-9)
    assert abs(a - b).max() > 1e-4


def test_an_item_has_the_mean_score_of_its_ranks_by_a_loop_over_sessions(rng):
    """A session shows three of the items of a query; the others share what is left of the sum."""
    sizes, n_sessions = [4, 6], 5
    data = RankingDataset.from_arrays(rng.normal(size=(10, 2)), np.zeros(10), [0] * 4 + [1] * 6)
    scores, rows = np.zeros(10), []
    for query, size in enumerate(sizes):
        normal = [-NormalDist().inv_cdf((k - 0.5) / size) for k in range(1, size + 1)]
        for _ in range(n_sessions):
            shown = rng.permutation(size)[:3].tolist()
            for item in range(size):
                below = -sum(normal[:3]) / (size - 3)
                score = normal[shown.index(item)] if item in shown else below
                scores[data.offsets[query] + item] += score / n_sessions
            rows += [(query, item, k + 1) for k, item in enumerate(shown)]
    query, item, position = np.array(rows).T
    ones = np.ones(len(rows))
    log = ClickLog(query, item, 1 / position, ones, position=position, impressions=ones)
    found = _logged_scores(log, data, exposure(log, data)[0])
    expected = (scores - scores.mean()) / scores.std()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
