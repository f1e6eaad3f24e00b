"""Objectives and their derivatives by the scores of many lists at once."""

import re
from math import log, log2

import numpy as np
import pytest
import twins_objectives as twin
from hypothesis import given, settings
from hypothesis import strategies as st

from countersample import objectives
from countersample.errors import ParameterError
from countersample.objectives import LOSSES, OBJECTIVES, coefficients, get_loss, score_space

NAMES = [*sorted(LOSSES), "precision@2", "smooth-precision@2"]
# Their curvature is that of the value itself.
CURVED = ["lambda-dcg", "smooth-rank", "smooth-squared-rank", "softmax"]
SEEDS = st.integers(0, 2**32 - 1)
STEP = 1e-5
FEWER = settings(max_examples=30)  # where each takes a call for every score


def random_lists(seed, *, scale=2.0, apart=False):
    """Scores of some lists, and clicks on some of them; `apart`, no margin is near 0 or 1."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, rng.integers(1, 6))
    clicked = np.minimum(rng.integers(0, 4, len(sizes)), sizes)
    scores = scale * rng.normal(size=sizes.sum())
    if apart:  # margins are multiples of 0.3, give or take 0.01
        steps = np.concatenate([rng.permutation(2 * size)[:size] for size in sizes])
        scores = 0.3 * steps + 0.01 * rng.random(len(steps))
    return {
        "scores": scores,
        "offsets": np.concatenate([[0], np.cumsum(sizes)]),
        "starts": np.concatenate([[0], np.cumsum(clicked)]),
        "item": np.concatenate(
            [rng.permutation(size)[:n] for size, n in zip(sizes, clicked, strict=True)]
        ),
        "weight": rng.exponential(size=clicked.sum()) + 0.1,
    }


def two_items(objective, scores=(0.0, 0.0), item=0):
    return score_space(scores, [0, 2], [0, 1], [item], [1.0], objective=objective)


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS, scale=st.sampled_from([0.0, 2.0, 20.0, 60.0]))
def test_equals_the_twin(name, seed, scale):
    lists = random_lists(seed, scale=scale)
    result = score_space(**lists, objective=name)
    values, gradient, curvature = twin.score_space(**lists, objective=name)
    np.testing.assert_allclose(result.values, values, 1e-12, 1e-12)
    np.testing.assert_allclose(result.gradient, gradient, 1e-11, 1e-12)
    np.testing.assert_allclose(result.curvature, curvature, 1e-11, 1e-12)
    assert (result.curvature >= 0).all()


def nudged(lists, k, step):
    return lists | {"scores": lists["scores"] + step * np.eye(len(lists["scores"]))[k]}


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS)
@FEWER
def test_the_gradient_is_that_of_finite_differences(name, seed):
    """∂f/∂s = (f(s + h) − f(s − h)) / 2h, away from kinks and from where ranks change."""
    lists = random_lists(seed, apart=True)
    slopes = [
        (score_space(**nudged(lists, k, STEP), objective=name).values.sum()
         - score_space(**nudged(lists, k, -STEP), objective=name).values.sum()) / (2 * STEP)
        for k in range(len(lists["scores"]))
    ]  # fmt: skip
    result = score_space(**lists, objective=name)
    np.testing.assert_allclose(result.gradient, slopes, 1e-6, 1e-7)


@pytest.mark.parametrize("name", CURVED)
@given(seed=SEEDS)
@FEWER
def test_the_curvature_is_the_diagonal_of_the_hessian(name, seed):
    lists = random_lists(seed, apart=True)
    curves = [
        (score_space(**nudged(lists, k, STEP), objective=name).gradient[k]
         - score_space(**nudged(lists, k, -STEP), objective=name).gradient[k]) / (2 * STEP)
        for k in range(len(lists["scores"]))
    ]  # fmt: skip
    result = score_space(**lists, objective=name)
    np.testing.assert_allclose(result.curvature, curves, 1e-6, 1e-7)


@pytest.mark.parametrize("name", OBJECTIVES)
@given(seed=SEEDS)
def test_the_hinge_is_that_of_linear_training(name, seed):
    """The kernel that trains linear rankers computes in float32."""
    lists = random_lists(seed, apart=True)
    expected = np.zeros(len(lists["scores"]))
    for k, (first, last) in enumerate(zip(lists["starts"][:-1], lists["starts"][1:], strict=True)):
        rows = slice(lists["offsets"][k], lists["offsets"][k + 1])
        for item, weight in zip(
            lists["item"][first:last], lists["weight"][first:last], strict=True
        ):
            expected[rows] += weight * coefficients(lists["scores"][rows], item, objective=name)
    np.testing.assert_allclose(score_space(**lists, objective=name).gradient, expected, 1e-4, 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_several_threads_give_what_one_gives(name, monkeypatch, rng):
    sizes, clicked = rng.integers(3, 9, 60), rng.integers(0, 4, 60)
    lists = {
        "scores": rng.normal(size=sizes.sum()),
        "offsets": np.concatenate([[0], np.cumsum(sizes)]),
        "starts": np.concatenate([[0], np.cumsum(clicked)]),
        "item": rng.integers(0, 3, clicked.sum()),
        "weight": rng.random(clicked.sum()),
    }
    monkeypatch.setattr(objectives, "available_cores", lambda: 1)
    one = score_space(**lists, objective=name)
    monkeypatch.setattr(objectives, "available_cores", lambda: 3)
    monkeypatch.setattr(objectives, "MIN_CLICKS_PER_THREAD", 2)
    three = score_space(**lists, objective=name)
    for part in ("values", "gradient", "curvature"):
        np.testing.assert_array_equal(getattr(three, part), getattr(one, part))


# -- by hand


OF_EQUAL_SCORES = {
    "rank": 1 + 1,  # the margin is 0: the hinge is 1, and so is log2(1 + e^0)
    "log-rank": log(2),
    "dcg": -1 / log2(3),
    "log-rank-paper": log(3),
    "dcg-paper": -1 / log2(4),
    "squared-rank": 4,
    "precision@2": 0,
    "smooth-rank": 1 + 1,
    "smooth-log-rank": log(2),
    "smooth-dcg": -1 / log2(3),
    "smooth-squared-rank": 4,
    "smooth-precision@2": 0,
    "softmax": log(2),
    "lambda-dcg": 1 - 1 / log2(3),  # the first of two items of the same score ranks first
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("item", [0, 1])
def test_two_items_of_the_same_score(name, item):
    assert two_items(name, item=item).values == pytest.approx([OF_EQUAL_SCORES[name]])


@pytest.mark.parametrize("name", ["smooth-rank", "softmax"])
def test_large_scores_do_not_overflow(name):
    """Far below, both are straight: log2(1 + e^s) → s/ln 2, ln(1 + e^s) → s."""
    scale = log(2) if name == "smooth-rank" else 1
    below, above = two_items(name, (-1e6, 0.0)), two_items(name, (1e6, 0.0))
    start = 1 if name == "smooth-rank" else 0
    assert below.values == pytest.approx([start + 1e6 / scale])
    np.testing.assert_allclose(below.gradient, [-1 / scale, 1 / scale])
    assert above.values == [start]
    np.testing.assert_array_equal(above.gradient, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"item": [3]}, "item is 3 in click 0, expected one of the 3 of its list"),
        ({"item": [-1]}, "item is -1 in click 0"),
        ({"offsets": [0, 2]}, "offsets do not rise from 0 to the number of scores"),
        ({"offsets": [0, 4, 3], "starts": [0, 1, 1]}, "offsets do not rise"),
        ({"starts": [0, 2]}, "starts do not rise from 0 to 1"),
        ({"weight": [1.0, 2.0]}, "weight has shape"),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(ParameterError, match="objective is 'mrr', expected one of rank, log-rank"):
        get_loss("mrr")
    given = {"scores": [1.0, 2.0, 3.0], "offsets": [0, 3], "starts": [0, 1], "item": [0]}
    with pytest.raises(ParameterError, match=re.escape(message)):
        score_space(**(given | {"weight": [1.0]} | change))
