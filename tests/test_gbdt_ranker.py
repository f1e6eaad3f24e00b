"""`GBDTRanker`: what it learns, how many trees, errors of its own."""
# ruff: noqa: N806 (X is the field's name for it)

import lightgbm as lgb
import numpy as np
import pytest
from conftest import SEED
from lightgbm.basic import _ConfigAliases

from countersample import (
    PositionBias,
    RankingDataset,
    estimate,
    evaluate,
    simulate_clicks,
)  # fmt: skip
from countersample.errors import ParameterError
from countersample.gbdt import GBDTRanker
from countersample.gbdt import gbdt_ranker as module
from countersample.rankers import CounterSampleRanker, task

LIBRARIES = {"lightgbm": "num_threads", "xgboost": "nthread"}
SMALL = {
    "n_trees": 30, "patience": 5, "min_items_in_leaf": 10, "num_leaves": 7, "start": "zero",
    "safety": 0,
}  # fmt: skip


def made_up(n_queries, rng):
    """Items are good where two features agree in sign, which no linear ranker can tell."""
    sizes = rng.integers(5, 15, n_queries)
    features = rng.normal(size=(sizes.sum(), 4)).astype(np.float32)
    good = features[:, 0] * features[:, 1] + 0.3 * features[:, 2]
    labels = np.digitize(good, [0.5, 1.5]).astype(np.float32)
    return RankingDataset.from_arrays(features, labels, np.repeat(np.arange(n_queries), sizes))


def clicks_on(dataset, n_clicks=20_000, seed=SEED):
    """Clicks on rankings by the one feature that a linear ranker can use."""
    return simulate_clicks(
        dataset, dataset.features[:, 2], n_clicks, bias=PositionBias(gamma=1.0), relevant=1,
        rng=seed,
    )  # fmt: skip


@pytest.fixture(scope="module")
def data():
    dataset = made_up(150, np.random.default_rng(SEED))
    return dataset, clicks_on(dataset)


def one_core(backend, **params):
    threads = {LIBRARIES[backend]: 1} | params.pop("backend_params", {})
    return GBDTRanker(
        backend=backend, **SMALL | {"random_state": SEED, "backend_params": threads} | params
    )


@pytest.fixture(scope="module", params=LIBRARIES)
def fitted(request, data):
    return one_core(request.param).fit_log(*data)


def ndcg(ranker_or_scores, dataset):
    return evaluate(ranker_or_scores, dataset, "ndcg@10", no_relevant="skip")["ndcg@10"]


def test_every_backend_is_tested():
    assert set(LIBRARIES) == set(module.BACKENDS)


# -- what it learns


def test_it_learns_what_a_linear_ranker_cannot(fitted, data):
    dataset, log = data
    unseen = made_up(150, np.random.default_rng([SEED, 1]))
    linear = CounterSampleRanker(steps=5000, random_state=SEED).fit_log(dataset, log)
    assert ndcg(fitted, unseen) > ndcg(linear, unseen) + 0.05


@pytest.mark.parametrize("backend", LIBRARIES)
def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads(backend, data):
    dataset, log = data
    scores = [
        one_core(backend, n_trees=3, patience=None, backend_params={LIBRARIES[backend]: n})
        .fit_log(dataset, log).predict(dataset)
        for n in (1, 2)  # few trees: threads wait for each other where cores are busy
    ]  # fmt: skip
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize(
    ("backend", "name", "alias", "value"),
    [
        ("lightgbm", "num_leaves", "max_leaves", 3),
        ("xgboost", "l2", "reg_lambda", 50.0),
    ],
)
def test_backend_params_win_under_an_alias(backend, name, alias, value, data):
    dataset, _ = data
    plain, named, aliased = (
        one_core(backend, patience=None, **params).fit_log(*data).predict(dataset)
        for params in ({}, {name: value}, {"backend_params": {alias: value}})
    )
    np.testing.assert_array_equal(aliased, named)
    assert not np.array_equal(aliased, plain)


def test_the_aliases_are_all_that_lightgbm_has(data, monkeypatch):
    seen = []
    booster = lgb.Booster
    monkeypatch.setattr(
        lgb, "Booster", lambda params, table: seen.append(params) or booster(params, table)
    )
    one_core("lightgbm", patience=None, n_trees=1).fit_log(*data)
    for name in seen[0]:
        if name != LIBRARIES["lightgbm"]:
            known = {name, *module.ALIASES["lightgbm"].get(name, ())}
            assert _ConfigAliases.get(name) <= known


# -- the number of trees


@pytest.mark.parametrize("metric", ["dcg@10", "arp"])
def test_the_number_of_trees_is_the_best_of_its_history(data, metric):
    ranker = one_core("lightgbm", n_trees=200, metric=metric).fit_log(*data)
    history = ranker.history_
    best = np.argmin(history.value) if metric == "arp" else np.argmax(history.value)
    assert ranker.n_trees_ == ranker.scorer_.n_trees == history.steps[best]
    assert len(history.value) == ranker.n_trees_ + SMALL["patience"] < 200


@pytest.mark.parametrize("backend", LIBRARIES)
def test_the_history_is_the_snips_estimate_on_held_out_clicks(backend, data, monkeypatch):
    dataset, log = data
    seen = []

    class Spied(task.HeldOut):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            seen.append(self)

    monkeypatch.setattr(task, "HeldOut", Spied)
    whole = {"feature_fraction": 1.0, "bagging_fraction": 1.0}  # nothing is drawn
    ranker = one_core(backend, n_trees=5, holdout=0.5, **whole).fit_log(dataset, log)
    n_trees, total, weight = 4, 0.0, 0.0
    for fold in seen[0].folds:
        learner = one_core(backend, n_trees=n_trees, patience=None, **whole)
        scores = learner.fit_log(dataset, fold.train).predict(dataset)
        left_out = np.setdiff1d(log.query, fold.train.query)
        validation = log.of_queries(left_out)
        assert len(left_out) == fold.validation.n_queries
        is_held_out = np.isin(np.arange(dataset.n_queries), left_out)
        rows = np.flatnonzero(np.repeat(is_held_out, dataset.query_sizes))
        scores[rows[fold.order]] -= 1e-12 * np.arange(len(rows))  # ties as the fold breaks them
        result = estimate(
            scores, validation, dataset, metric="dcg@10", estimator="snips", n_bootstrap=2
        )
        total += result.value * validation.weights.sum()
        weight += validation.weights.sum()
    assert ranker.history_.value[n_trees - 1] == pytest.approx(total / weight, rel=1e-6)


# -- bad input


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"method": "countersample"}, "expected one of ips, naive: boosting draws nothing"),
        ({"num_leaves": 1}, "num_leaves is 1, expected a whole number of at least 2"),
        ({"feature_fraction": np.ones(2)}, "feature_fraction is array"),
        ({"min_items_in_leaf": "few"}, "min_items_in_leaf is 'few', expected 'auto' or a whole"),
        ({"backend_params": {"application": "l2"}}, "backend_params has 'application'"),
        ({"backend_params": ["eta"]}, r"backend_params is \['eta'\], expected a dict"),
        (
            {"backend_params": {"max_leaves": 1}},
            r"^lightgbm rejects these settings: Check failed: \(num_leaves\) > \(1\)",
        ),
        (
            {"backend": "xgboost", "backend_params": {"learning_rate": -1}},
            "^xgboost rejects these settings: value -1 for .* equal to 0",
        ),
    ],
)
def test_bad_parameters(params, match, data):
    with pytest.raises(ParameterError, match=match):
        GBDTRanker(**params).fit_log(*data)


def test_few_items():
    X, clicks, qid = np.arange(8.0)[:, None], [0, 0, 0, 2, 0, 0, 1, 3], [1, 1, 1, 1, 2, 2, 2, 2]
    with pytest.raises(ParameterError, match="min_items_in_leaf is 10, expected at most 1, half"):
        one_core("lightgbm").fit(X, clicks, qid=qid)
    whole = {"feature_fraction": 1.0, "bagging_fraction": 1.0}
    ranker = one_core("lightgbm", min_items_in_leaf=1, **whole).fit(X, clicks, qid=qid)
    assert ranker.rank([[6.5], [0.0]], [1, 1]).tolist() == [1, 2]


def test_no_split():
    """One item of 20 differs from the others and the clicked one, and no leaf may be so small."""
    X = np.zeros((20, 1))
    X[3] = 1
    ranker = one_core("lightgbm", bagging_fraction=1.0, min_items_in_leaf=8)
    with pytest.raises(ParameterError, match="no tree has a split: min_items_in_leaf is 8 and"):
        ranker.fit(X, np.arange(20) == 5, qid=np.zeros(20, int))
    ranker.set_params(min_items_in_leaf=1).fit(X, np.arange(20) == 5, qid=np.zeros(20, int))
    assert ranker.predict([[1]]) < ranker.predict([[0]])


@pytest.mark.slow
def test_ips_is_better_than_naive_if_the_ranking_was_bad():
    rng = np.random.default_rng(SEED)
    dataset, unseen = made_up(300, rng), made_up(300, rng)
    wrong = -dataset.features[:, 0] * dataset.features[:, 1]
    log = simulate_clicks(
        dataset, wrong, 30_000, bias=PositionBias(gamma=1.0), relevant=1, rng=SEED
    )
    ips, naive = (
        one_core("lightgbm", method=method).fit_log(dataset, log) for method in ("ips", "naive")
    )
    assert ndcg(ips, unseen) > ndcg(naive, unseen) + 0.02
