"""The regression on click rates, against least squares by the whole matrix, and as a candidate."""

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import SEED

from countersample import ClickLog, CounterSampleRanker, RankingDataset, evaluate
from countersample.clicks.log import only_shown
from countersample.evaluation.doubly_robust import PENALTIES, exposure
from countersample.tuning import choice
from countersample.tuning.click_rates import regress_click_rates
from countersample.tuning.paths import Checkpoint


def make_log(rng, n_queries=60, n_items=8, n_features=5, sessions=30, noise=0.0):
    """Return data and a log of all items; relevance is linear, but for a part of each query."""
    query, item = np.divmod(np.arange(n_queries * n_items), n_items)
    features = rng.normal(size=(len(query), n_features))
    truth = rng.normal(size=n_features)
    signal = features @ truth / np.linalg.norm(truth)
    chance = 1 / (1 + np.exp(-signal - np.repeat(rng.normal(size=n_queries), n_items)))
    chance = (1 - noise) * chance + noise * 0.4
    data = RankingDataset.from_arrays(features, chance, query)
    rank = np.concatenate([rng.permutation(n_items) for _ in range(n_queries)]) + 1
    clicks = rng.binomial(sessions, chance / rank)
    log = ClickLog(
        query, item, 1 / rank, clicks, position=rank, impressions=np.full(len(query), sessions)
    )
    return data, log


def twin(data, log, queries, alpha):
    """w, by least squares over the items of these queries, less the means of each query."""
    seen, clicks = exposure(log, data)
    v, columns = seen / (1 + seen), np.column_stack([data.features, clicks / seen])
    for q in range(data.n_queries):
        rows = slice(data.offsets[q], data.offsets[q + 1])
        columns[rows] -= np.average(columns[rows], axis=0, weights=v[rows])
    of_item = np.repeat(np.arange(data.n_queries), data.query_sizes)
    n = data.n_items - data.n_queries
    scale = np.sqrt(n / (v @ columns[:, :-1] ** 2))
    used = np.isin(of_item, queries)
    x, y = columns[used, :-1] * scale, columns[used, -1]
    gram = x.T @ (x * v[used][:, None])
    return scale * np.linalg.solve(gram + alpha * np.eye(len(gram)), x.T @ (v[used] * y))


def test_it_is_least_squares_within_queries_with_one_of_the_penalties(rng):
    data, log = make_log(rng)
    folds = [np.arange(0, 20), np.arange(20, 25)]
    *without, whole = regress_click_rates(data, log, folds)
    alphas = PENALTIES * data.n_features
    errors = [abs(twin(data, log, np.arange(60), alpha) - whole).max() for alpha in alphas]
    best = int(np.argmin(errors))
    assert errors[best] < 1e-5
    for queries, weights in zip(folds, without, strict=True):
        others = np.setdiff1d(np.arange(60), queries)
        np.testing.assert_allclose(weights, twin(data, log, others, alphas[best]), atol=1e-5)


def test_the_penalty_is_the_one_with_the_highest_evidence(rng):
    """Clicks without information: weights are a small part of those by least squares."""
    data, log = make_log(rng, noise=1.0)
    (weights,) = regress_click_rates(data, log)
    free = twin(data, log, np.arange(60), 0.0)
    assert np.linalg.norm(weights) < 0.7 * np.linalg.norm(free)


def test_items_and_queries_without_impressions_take_no_part(rng):
    data, log = make_log(rng)
    short = log.take((rng.random(len(log)) < 0.5) & (log.query != 3))
    (expected,) = regress_click_rates(*only_shown(data, short))
    (found,) = regress_click_rates(data, short)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_feature_that_does_not_vary_within_queries_has_no_weight(rng):
    data, log = make_log(rng)
    features = np.column_stack([data.features, np.repeat(np.arange(60.0), 8), np.ones(480)])
    wider = RankingDataset.from_arrays(features, data.labels, np.repeat(np.arange(60), 8))
    (weights,) = regress_click_rates(wider, log)
    assert abs(weights[-2:]).max() < 1e-4
    np.testing.assert_allclose(weights[:-2], regress_click_rates(data, log)[0], rtol=0.02)


@pytest.mark.parametrize("normalize", ["minmax", "query-minmax", None])
def test_with_few_clicks_it_makes_the_default_ranker_better(normalize, rng):
    """On average over worlds; features are scaled in training, or folded into the weights."""
    gains = []
    for _ in range(4):
        data, log = make_log(rng, n_queries=80, sessions=8)
        values = [
            evaluate(
                CounterSampleRanker(
                    click_rates=has_rates, safety=0, normalize=normalize, random_state=SEED
                ).fit_log(data, log).predict(data.features, np.repeat(np.arange(80), 8)),
                data, "dcg@3", gain="linear",
            )["dcg@3"]
            for has_rates in (True, False)
        ]  # fmt: skip
        gains.append(values[0] / values[1] - 1)
    assert np.mean(gains) > -0.005


def test_candidates_are_paths_alone_and_combined_and_the_regression(rng):
    data, log = make_log(rng)
    ranker = CounterSampleRanker(random_state=SEED, safety=0).fit_log(data, log)
    shares = np.array([each.rates for each in ranker.path_.candidates])
    assert (shares == 1).sum() == 1
    assert (shares == 0.5).sum() == (shares == 0).sum() > 0
    for other in (
        CounterSampleRanker(click_rates=False),
        CounterSampleRanker(method="naive"),
        CounterSampleRanker(doubly_robust=True),
    ):
        found = other.set_params(random_state=SEED).fit_log(data, log).path_.candidates
        assert {each.rates for each in found} == {0.0}
    clicks_only = ClickLog(log.query, log.item, log.propensity, log.clicks, position=log.position)
    found = CounterSampleRanker(random_state=SEED).fit_log(data, clicks_only).path_.candidates
    assert {each.rates for each in found} == {0.0}


def test_without_positions_the_reference_is_a_path(rng):
    """The best naive candidate uses no propensities, which the regression does."""
    data, log = make_log(rng)
    path = CounterSampleRanker(random_state=SEED).fit_log(data, log.replace(position=None)).path_
    naive = [each.value for each in path.candidates if each.temper == 0 and each.rates == 0]
    assert path.reference == "naive"
    assert path.reference_value == max(naive)


def test_the_best_naive_candidate_is_no_regression():
    """The regression uses propensities at any temper, so a better one is not the reference."""
    path = Checkpoint("zeros", 0.0, 10, np.array([1.0]))
    regression = Checkpoint("zeros", 0.0, 0, np.array([2.0]), rates=1.0)
    held_out = SimpleNamespace(value=np.sum)
    assert choice._best_naive([regression, path], held_out) is path


def test_where_one_item_a_query_was_examined_the_regression_tells_nothing(rng):
    """Where no propensity is known, E is 0: what is left has nothing beside it to compare with."""
    data, log = make_log(rng)
    theta = np.where(log.position == 1, 1.0, 0.0)
    unknown = log.replace(examination=theta)
    weights = regress_click_rates(data, unknown, [np.arange(30), np.arange(30, 60)])
    assert [each.tolist() for each in weights] == [[0.0] * 5] * 3
    ranker = CounterSampleRanker(random_state=SEED).fit_log(data, unknown)
    assert np.isfinite(ranker.weights_).all()
