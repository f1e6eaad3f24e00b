"""Queries held out: how they are cut, and what their clicks say of any scorer."""

import numpy as np
import pytest
from conftest import SEED

from countersample import ClickLog, PositionBias, estimate, simulate_clicks, synthetic, train
from countersample.evaluation import HeldOut
from countersample.evaluation.estimators import logged_values
from countersample.metrics import ranks_of

pytestmark = pytest.mark.rounding  # nothing here may hang on the last bits


@pytest.fixture(scope="module")
def data():
    return synthetic("tiny", rng=SEED)


@pytest.fixture(scope="module")
def log(data):
    return simulate_clicks(data, data.features[:, 0], 5000, bias=PositionBias(1.0), rng=SEED)


def test_queries_are_held_out_whole(data, log, rng):
    clicked = set(log.query)
    held_out = HeldOut(data, log, "dcg", rng=rng)
    assert len(held_out.folds) == 5
    seen = []
    for fold in held_out.folds:
        validation = set(np.searchsorted(data.query_ids, fold.validation.query_ids))
        assert not set(fold.train.query) & validation
        assert set(fold.train.query) | validation == clicked
        assert len(fold.train) + np.isin(log.query, list(validation)).sum() == len(log)
        held = log.of_queries(fold.queries)
        assert len(fold.rows) == len(set(zip(held.query, held.item, strict=True)))
        assert fold.weights.sum() == pytest.approx(held.weights.sum())
        seen += validation
    assert sorted(seen) == sorted(clicked)


@pytest.mark.parametrize(
    ("n", "holdout", "folds"),
    [(1, 0.2, 1), (3, 0.2, 3), (400, 0.5, 2), (2400, 0.2, 3), (10_000, 0.2, 1)],
)
def test_as_many_parts_as_needed_are_held_out(n, holdout, folds, rng):
    many = synthetic("tiny", n_queries=n, rng=0)
    log = ClickLog(np.arange(n), np.zeros(n, int), np.ones(n))
    held_out = HeldOut(many, log, "dcg", holdout=holdout, rng=rng)
    assert len(held_out.folds) == folds
    if n == 1:  # of which none can be left out
        assert held_out.folds[0].train is log
        assert held_out.n_queries == n


def test_the_first_and_largest_folds_are_held_out(rng):
    """10 queries make folds of 4, 3 and 3: the first has 4 queries, which are enough for 4."""
    few = synthetic("tiny", n_queries=10, rng=0)
    log = ClickLog(np.arange(10), np.zeros(10, int), np.ones(10))
    for least, sizes in ((4, [4]), (5, [4, 3])):
        held_out = HeldOut(few, log, "dcg", holdout=1 / 3, least_queries=least, rng=rng)
        assert [len(fold.queries) for fold in held_out.folds] == sizes


def test_its_value_is_the_snips_estimate(data, log, rng):
    held_out = HeldOut(data, log, "dcg@10", rng=rng)
    trained = [
        train(data, fold.train, learning_rate=0.01, steps=200, rng=1) for fold in held_out.folds
    ]
    query = np.repeat(np.arange(data.n_queries), data.query_sizes)
    scores = np.zeros(data.n_items)
    for fold, result in zip(held_out.folds, trained, strict=True):
        rows = np.isin(query, fold.queries)
        scores[rows] = result.predict(data.features[rows])
    np.testing.assert_allclose(held_out.scores(trained), scores, rtol=1e-12)
    scores += 1e-9 * rng.random(data.n_items)  # no ties, which are broken in other ways
    sums = held_out.sums([scores[np.isin(query, fold.queries)] for fold in held_out.folds])
    expected = estimate(scores, log, data, estimator="snips", n_bootstrap=2000, rng=rng)
    assert held_out.value(sums) == pytest.approx(expected.value, rel=1e-9)
    low, high = held_out.intervals(sums[None], rng)[0]
    width = expected.high - expected.low
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.2 * width)


def test_queries_that_were_shown_and_not_clicked_are_scored_and_do_not_count(data, rng):
    log = ClickLog(
        np.arange(20), np.zeros(20, int), np.ones(20), np.arange(20) < 12, impressions=np.ones(20)
    )
    held_out = HeldOut(data, log, "dcg", least_queries=None, rng=rng)
    assert held_out.n_queries == 12
    assert sorted(query for fold in held_out.folds for query in fold.queries) == list(range(20))
    assert {int(q) for fold in held_out.folds for q in fold.train.query} == set(range(20))
    scores = held_out.scores([np.ones(fold.validation.n_items) for fold in held_out.folds])
    end = data.offsets[20]
    assert (scores[:end] == 1).all()
    assert (scores[end:] == 0).all()  # never shown
    assert held_out.weight_sums.sum() == 12


def test_what_was_logged_is_a_candidate(data, log, rng):
    """Its sums are those of the scores that ranked, by the positions of the clicks alone."""
    logged = logged_values(log, data, "dcg@10")
    held_out = HeldOut(data, log, "dcg@10", logged=logged, rng=rng)
    ranked = -ranks_of(data.features[:, 0].astype(float), data.offsets)  # no ties
    query = np.repeat(np.arange(data.n_queries), data.query_sizes)
    by_scores = held_out.sums([ranked[np.isin(query, fold.queries)] for fold in held_out.folds])
    np.testing.assert_allclose(held_out.logged_sums(), by_scores, rtol=1e-12)


def test_a_difference_adds_up(data, log, rng):
    """The error of a difference is that of a ratio: (y − R·x) / Σx of each group."""
    held_out = HeldOut(data, log, "dcg@10", rng=rng)
    a, b = rng.random((2, len(held_out.weight_sums)))
    value, adds = held_out.difference(a, b)
    x = held_out.weight_sums
    assert value == pytest.approx((a - b).sum() / x.sum())
    np.testing.assert_allclose(adds, (a - b - value * x) / x.sum(), atol=1e-12)
    assert held_out.z_score(a, b) == pytest.approx(value / np.sqrt(adds @ adds))
