"""λ of every kind: precision@k, and functions of one's own."""

import json
from itertools import product
from math import log

import numpy as np
import pytest
from sklearn.base import clone

from countersample import CounterSampleRanker, simulate_clicks, synthetic, train
from countersample.errors import ParameterError
from countersample.export import export
from countersample.gbdt import boosting_objective
from countersample.objectives import (
    additive_objective,
    coefficients,
    score_space,
)
from countersample.rankers import load_ranker

K = 4  # a number that the functions below take from outside of them


def square(x):
    return x * x


def double(x):
    return 2 * x


def own_square(name="my square"):
    return additive_objective(name, value=square, slope=double)


@pytest.fixture(scope="module")
def clicks():
    data = synthetic("tiny", n_queries=60, rng=0).normalized()
    return data, simulate_clicks(data, data.features[:, 0], n_clicks=2000, rng=0)


# -- precision@k


def test_precision_is_bounded_by_enumeration():
    """1[rank > k] ≤ λ(bound) for all scores of four items out of 0, 0.4, …, 2 and every k."""
    for scores in product(np.arange(0, 2.1, 0.4), repeat=4):
        for pair in ("", "smooth-"):
            for k in (1, 2, 3):
                lists = np.array(scores), [0, 4], [0, 4], range(4), np.ones(4)
                result = score_space(*lists, objective=f"{pair}precision@{k}")
                ranks = [1 + sum(other > s for other in scores) for s in scores]
                assert result.values >= sum(rank > k for rank in ranks)


# -- of one's own


def test_one_that_is_built_in_as_one_of_ones_own(clicks, rng):
    data, log = clicks
    own = own_square()
    assert (own.convex, own.steepest) == (True, np.inf)
    for _ in range(30):
        scores = (3 * rng.normal(size=rng.integers(1, 30))).astype(np.float32)
        item = int(rng.integers(len(scores)))
        np.testing.assert_array_equal(
            coefficients(scores, item, objective=own),
            coefficients(scores, item, objective="squared-rank"),
        )
        lists = scores, [0, len(scores)], [0, 1], [item], [0.7]
        for ours, built_in in ((own, "squared-rank"), (own.smooth(), "smooth-squared-rank")):
            result, expected = (score_space(*lists, objective=each) for each in (ours, built_in))
            np.testing.assert_allclose(result.values, expected.values, 1e-12)
            np.testing.assert_allclose(result.gradient, expected.gradient, 1e-12)
            np.testing.assert_allclose(result.curvature, expected.curvature, 1e-6)
    options = {"learning_rate": 1e-4, "steps": 500, "rng": 0, "unit": "query"}
    trained = [train(data, log, objective=each, **options).coef for each in (own, "squared-rank")]
    np.testing.assert_array_equal(*trained)
    boosted = [
        boosting_objective(data, log, objective=each)(np.zeros(data.n_items), None)
        for each in (own.smooth(), "smooth-squared-rank")
    ]
    np.testing.assert_allclose(*boosted, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "slope", "convex", "steepest"),
    [
        (lambda x: min(1.0, max(0.0, x - K)), lambda x: 1.0 if K < x < K + 1 else 0.0, False, 1),
        (log, lambda x: 1 / x, False, 1),
        (lambda x: x**1.5, lambda x: 1.5 * np.sqrt(x), True, np.inf),
    ],
    ids=["ramp", "log", "power"],
)
def test_what_is_found_out_about_a_function(value, slope, convex, steepest):
    result = additive_objective("mine", value=value, slope=slope)
    assert result.convex == convex
    assert result.steepest == pytest.approx(steepest)
    bounds = [1.0, 3.7, 20.0]
    np.testing.assert_allclose(result.values(bounds), [value(x) for x in bounds], 1e-12, 1e-15)
    np.testing.assert_allclose(result.slopes(bounds), [slope(x) for x in bounds], 1e-12, 1e-15)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "slope", "message"),
    [
        (lambda x: 1 / x, lambda x: -1 / x**2, "λ falls from 1 at 1 .* no bound on λ"),
        (lambda x: x > K, lambda _: 0.0, "its slope is given as 0 and 0 .*precision@k"),
        (lambda x: 1 if x > K + 0.52 else 0, lambda _: 0, "λ rises by 20 per rank from 4.5"),
        (lambda x: x**2, lambda x: 2.1 * x, "slope is given as 2.1 and 2.205 there"),
        (lambda x: x, lambda _: -1.0, "slope is given as -1"),
        (np.exp, np.exp, "λ is inf at 7.*every bound from 1 to 1,000,00"),
        (lambda x: x, lambda x: 1 / (x - 1), "its slope is inf at 1,"),
        (lambda _: 1.0, lambda _: 0.0, "λ is flat, expected one that rises"),
        (lambda x, y: x * y, lambda _: 1.0, r"value\(1.5\) fails .TypeError.* of one number"),
        (lambda x: x, None, r"slope\(1.5\) fails .TypeError"),
        (lambda x: x, str, r"slope\(1.5\) is '1.5', expected a number"),
        (lambda x: json.loads(str(x)), lambda _: 1.0, "cannot be compiled .*arithmetic, math"),
    ],
)  # fmt: skip
def test_where_the_bound_does_not_hold_it_is_refused(value, slope, message):
    with pytest.raises(ParameterError, match=f"mine: .*{message}"):
        additive_objective("mine", value=value, slope=slope)


# -- files


def test_a_saved_ranker_scores_without_the_function(clicks, tmp_path):
    data, log = clicks
    ranker = CounterSampleRanker(objective=own_square(), steps=500, random_state=0)
    ranker = clone(ranker).fit_log(data, log)
    path = tmp_path / "ranker.json"
    ranker.save(path)
    identity = own_square().identity
    assert json.loads(path.read_text())["ranker"]["params"]["objective"] == identity
    loaded = load_ranker(path)
    np.testing.assert_array_equal(loaded.predict(data), ranker.predict(data))
    for each in (ranker, loaded):
        assert (
            identity
            in export(
                each, tmp_path / "out", to="solr", feature_names=list("abcde")
            ).card.read_text()
        )
    with pytest.raises(ParameterError, match=r"objective is 'my square:.*additive_objective"):
        loaded.fit_log(data, log)
    loaded.set_params(objective=own_square()).fit_log(data, log)
    np.testing.assert_array_equal(loaded.predict(data), ranker.predict(data))


def test_the_fingerprint_is_of_what_the_function_gives():
    assert own_square().identity == own_square().identity
    again = additive_objective("my square", value=lambda x: x**2, slope=lambda x: x + x)
    assert again.identity == own_square().identity
    other = additive_objective("my square", value=lambda x: 3 * x * x, slope=lambda x: 6 * x)
    assert other.identity != own_square().identity
    assert other.identity.startswith("my square:")
