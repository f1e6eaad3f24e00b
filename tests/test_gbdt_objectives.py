"""Objectives and metrics for LightGBM and XGBoost: gradients, what is safe, what stops early."""

import lightgbm as lgb
import numpy as np
import pytest
import twins_objectives as twin
from conftest import SEED

from countersample import ClickLog, RankingDataset, estimate, simulate_clicks, synthetic
from countersample.errors import DataError, ParameterError
from countersample.gbdt import boosting_objective, lightgbm_metric, xgboost_metric
from countersample.objectives import LOSSES

QUIET = {"verbosity": -1, "num_threads": 1, "deterministic": True, "force_row_wise": True}


@pytest.fixture(scope="module")
def tiny():
    dataset = synthetic("tiny", n_queries=60, rng=SEED)
    log = simulate_clicks(dataset, policy=dataset.features[:, 0], n_clicks=1000, rng=SEED)
    return dataset, log


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_that_of_the_risk(name, rng):
    dataset = synthetic("tiny", n_queries=6, rng=SEED)
    query = rng.integers(0, 5, 12)  # the last query has no clicks
    item = rng.integers(0, dataset.query_sizes[query])
    log = ClickLog(query, item, rng.uniform(0.1, 1, 12))
    objective = boosting_objective(dataset, log, objective=name)
    factors = []
    for _ in range(2):
        scores = rng.normal(size=dataset.n_items)
        slopes = np.zeros(dataset.n_items)
        for q, i, weight in zip(log.query, log.item, log.weights, strict=True):
            rows = slice(*dataset.offsets[q : q + 2])
            slopes[rows] += weight * twin.of_click(scores[rows], i, name)[1]
        gradient, second = objective(scores, None)
        assert gradient.dtype == second.dtype == np.float32
        factors.append(gradient @ slopes / (slopes @ slopes))
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(gradient, factors[-1] * slopes, rtol=1e-4, atol=1e-6 * scale)
    assert factors[0] > 0
    assert factors[0] == pytest.approx(factors[1], rel=1e-5)  # κ is one number


@pytest.mark.parametrize("name", LOSSES)
def test_no_leaf_takes_a_step_above_1(tiny, name, rng):
    dataset, log = tiny
    objective = boosting_objective(dataset, log, objective=name)
    for scale in (1.0, 1e4):
        gradient, second = objective(scale * rng.normal(size=dataset.n_items), None)
        assert (second > 0).all()
        assert (np.abs(gradient) <= second).all()  # so |Σ gradient| / Σ second ≤ 1 in any leaf


def test_a_weight_a_row_is_not_a_weight_a_click():
    """One query, items 0, 1 and 2 with equal scores; 0 and 1 were clicked, 1 where few look."""
    dataset = RankingDataset.from_arrays(X=[[0.0], [1.0], [2.0]], y=[0, 0, 0], qid=[7, 7, 7])
    log = ClickLog(query=[0, 0], item=[0, 1], propensity=[1.0, 0.25])
    per_click, _ = boosting_objective(dataset, log, objective="rank")(np.zeros(3), None)
    unweighted, _ = boosting_objective(dataset, log, objective="rank", method="naive")(
        np.zeros(3), None
    )
    # A click on item 0 gives (-2, 1, 1), and one on item 1 (1, -2, 1).
    by_hand = np.array([1 * -2 + 4 * 1, 1 * 1 + 4 * -2, 1 * 1 + 4 * 1])
    np.testing.assert_allclose(per_click / per_click[0], by_hand / by_hand[0], rtol=1e-6)
    per_row = unweighted * [1, 4, 1]
    np.testing.assert_allclose(per_row / per_row[0], np.array([-1, -4, 2]) / -1, rtol=1e-6)
    assert np.sign(per_click[0]) != np.sign(per_row[0])  # not even the direction is the same
    assert per_click.sum() == pytest.approx(0, abs=1e-6)
    assert per_row.sum() != pytest.approx(0, abs=0.1)


# -- inside the libraries


@pytest.mark.parametrize("metric", ["dcg@3", "arp"])
def test_the_metric_is_the_snips_estimate(tiny, metric, rng):
    dataset, log = tiny
    scores = rng.normal(size=dataset.n_items)
    expected = estimate(scores, log, dataset, metric=metric, estimator="snips", n_bootstrap=2).value
    name, value, is_higher_better = lightgbm_metric(dataset, log, metric=metric)(scores, None)
    assert (name, is_higher_better) == (metric, metric != "arp")
    assert value == pytest.approx(expected, rel=1e-12)
    name, value = xgboost_metric(dataset, log, metric=metric)(scores, None)
    assert name == metric
    assert value == pytest.approx(expected, rel=1e-12)


# -- errors


def test_other_rows_are_rejected(tiny):
    dataset, log = tiny
    half = dataset.subset(np.arange(30))
    params = QUIET | {"objective": boosting_objective(dataset, log)}
    with pytest.raises(DataError, match=rf"expected \({dataset.n_items},\)"):
        lgb.train(params, lgb.Dataset(half.features, label=half.labels), 1)
    with pytest.raises(DataError, match="all of them, in its order"):
        lightgbm_metric(dataset, log)(np.zeros(half.n_items), None)


@pytest.mark.parametrize(
    ("make", "params", "message"),
    [
        (boosting_objective, {"objective": "ndcg"}, "objective is 'ndcg', expected one of rank"),
        (boosting_objective, {"method": "countersample"}, "expected one of ips"),
        (lightgbm_metric, {"metric": "ndcg@10"}, "cannot be estimated from clicks"),
        (xgboost_metric, {"metric": "ndcg@10"}, "cannot be estimated from clicks"),
    ],
)
def test_bad_arguments(make, params, message, tiny):
    dataset, log = tiny
    with pytest.raises(ParameterError, match=message):
        make(dataset, log, **params)
    with pytest.raises(DataError, match="of another dataset"):
        make(dataset.subset(np.arange(30)), log)
