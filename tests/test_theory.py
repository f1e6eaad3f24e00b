"""The theorems: their formulas, bounds on gradients, and that descent keeps what they promise."""

import numpy as np
import pytest
from conftest import SEED
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from twins_plans import click_gradient, example_gradients, features_of, risk

from countersample import ClickLog, RankingDataset
from countersample.errors import DataError, ParameterError
from countersample.objectives import OBJECTIVES
from countersample.plans import UNITS, Examples, bounded, countersample, ips, make_plan
from countersample.theory import (
    gradient_bounds,
    step_size,
    steps_needed,
    suboptimality_bound,
    worst_case,
)

BOUNDED = [name for name in OBJECTIVES if name != "squared-rank"] + ["precision@2"]


def make_problem(seed, n_queries=5, n_clicks=30):
    """Queries of 3 items; clicks prefer a direction, more often on top, and are sometimes wrong."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n_queries, 3, 2)).astype(np.float32)
    data = RankingDataset.from_arrays(
        features.reshape(-1, 2), np.zeros(3 * n_queries), np.repeat(np.arange(n_queries), 3)
    )
    query = rng.integers(0, n_queries, n_clicks)
    wanted = (features @ [1, 0.5] + 0.5 * rng.standard_normal((n_queries, 3)))[query].argmax(axis=1)
    item = np.where(rng.random(n_clicks) < 0.8, wanted, rng.integers(0, 3, n_clicks))
    return data, ClickLog(query, item, propensity=rng.choice([1, 0.5, 0.1], n_clicks))


# -- bounds on gradients -------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("objective", BOUNDED)
@pytest.mark.parametrize("unit", UNITS)
def test_no_gradient_is_longer_than_its_bound(unit, objective, seed):
    data, log = make_problem(seed)
    examples = Examples.of(log, unit)
    bounds = gradient_bounds(data, examples, objective=objective)
    w = np.random.default_rng(seed).standard_normal(2)
    for scale in (0, 0.1, 1, 10):
        gradients = example_gradients(data, examples, examples.weight_shares, scale * w, objective)
        assert (np.linalg.norm(gradients, axis=1) <= bounds * (1 + 1e-9)).all()


@pytest.mark.parametrize("unit", UNITS)
def test_bounds_are_sums_of_distances(unit, rng):
    data = RankingDataset.from_arrays(
        rng.standard_normal((9, 40)), np.zeros(9), [0, 0, 0, 0, 1, 2, 2, 2, 2]
    )
    log = ClickLog(query=[0, 2, 0, 0, 1], item=[1, 3, 1, 2, 0], propensity=[1, 0.5, 0.25, 0.5, 0.1])
    examples = Examples.of(log, unit)
    for objective, slope in (("rank", 1), ("log-rank", 1), ("dcg", 1 / (2 * np.log(2)))):
        expected = np.zeros(len(examples))
        for i, query in enumerate(examples.query):
            x = features_of(data, query)
            for j in range(examples.starts[i], examples.starts[i + 1]):
                distances = np.linalg.norm(x - x[examples.item[j]], axis=1)
                expected[i] += examples.weight_shares[j] * slope * distances.sum()
        bounds = gradient_bounds(data, examples, objective=objective)
        np.testing.assert_allclose(bounds, expected, rtol=1e-12)


def test_bounds_are_accurate_far_from_zero():
    """Items that are 2⁻¹⁰ apart at 2¹⁰: the squares differ by 2⁻⁴⁰ of what they are."""
    data = RankingDataset.from_arrays(
        [[2**10, 2**10], [2**10 + 2**-10, 2**10], [2**10, 2**10]], np.zeros(3), [0, 0, 0]
    )
    log = ClickLog(query=[0, 0], item=[0, 1], propensity=[1, 1])
    bounds = gradient_bounds(data, Examples.of(log, "click"))
    np.testing.assert_allclose(bounds, [2**-10, 2 * 2**-10], rtol=1e-12)


@pytest.mark.parametrize(("query", "item"), [(5, 0), (0, 3)])
def test_examples_of_another_dataset(query, item):
    data, _ = make_problem(SEED)
    examples = Examples.of(ClickLog([0, query], [0, item], [1.0, 1.0]), "click")
    with pytest.raises(DataError, match="queries or items that are not in the dataset"):
        gradient_bounds(data, examples)


# -- the formulas --------------------------------------------------------------------------------

KNOWN = {"max_multiplier": 4.0, "gradient_bound": 3.0, "radius": 0.5}  # m, G, B


def test_formulas():
    assert suboptimality_bound(**KNOWN, steps=100) == pytest.approx(0.5 * 4 * 3 / 10)
    assert step_size(**KNOWN, steps=100) == pytest.approx(0.5 / (4 * 3 * 10))
    assert steps_needed(**KNOWN, epsilon=0.5) == (0.5 * 4 * 3 / 0.5) ** 2
    assert steps_needed(**KNOWN, epsilon=1e9) == 1


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(0.01, 100), st.floats(0.001, 1))
def test_steps_needed_are_enough_and_not_more(max_multiplier, gradient_bound, radius, epsilon):
    known = {"max_multiplier": max_multiplier, "gradient_bound": gradient_bound, "radius": radius}
    steps = steps_needed(**known, epsilon=epsilon)
    assert suboptimality_bound(**known, steps=steps) <= epsilon * (1 + 1e-12)
    if steps > 1:
        assert suboptimality_bound(**known, steps=steps - 1) >= epsilon * (1 - 1e-12)


@pytest.mark.parametrize("bad", [0, -1, np.nan, np.inf])
@pytest.mark.parametrize("name", ["max_multiplier", "gradient_bound", "radius", "steps", "epsilon"])
def test_arguments_that_are_refused(name, bad):
    functions = {"steps": [suboptimality_bound, step_size], "epsilon": [steps_needed]}
    for last, group in functions.items():
        for function in group if name in {*KNOWN, last} else []:
            with pytest.raises(ParameterError, match=f"{name} is {bad}, expected a number above 0"):
                function(**KNOWN | {last: 1} | {name: bad})


# -- descent keeps what the theorems promise -----------------------------------------------------


def descend(plan, gradient, n_weights, *, eta, steps, rng):
    """Algorithms 1 and 2: w_1 = 0, w_{t+1} = w_t − η m_i ∇f_i(w_t); return the mean of w_1..w_T."""
    w, total = np.zeros(n_weights), np.zeros(n_weights)
    for i in plan.draw(steps, rng):
        total += w
        w = w - eta * plan.multipliers[i] * gradient(i, w)
    return total / steps


def rank_minimiser(data, log):
    """Return w* of the risk with λ(x) = x, exactly: a linear programme, one slack a hinge."""
    pairs = log.merge()
    rows, cost = [], []
    for query, item, weight in zip(pairs.query, pairs.item, pairs.weights, strict=True):
        x = features_of(data, query)
        for other in set(range(len(x))) - {item}:
            rows.append(x[item] - x[other])
            cost.append(weight / log.n_clicks)
    differences, n = np.array(rows), len(rows)
    solved = linprog(
        c=np.append(np.zeros(data.n_features), cost),
        A_ub=-np.hstack([differences, np.eye(n)]),  # slack ≥ 1 − difference · w
        b_ub=-np.ones(n),
        bounds=[(None, None)] * data.n_features + [(0, None)] * n,
    )
    w = solved.x[: data.n_features]
    assert risk(data, log, w) == pytest.approx(log.mean_weight + solved.fun)
    return w


@pytest.mark.parametrize("unit", ["click", "query"])
@pytest.mark.parametrize("name", ["ips", "countersample", "bounded"])
def test_rank_objective(name, unit, rng):
    """The mean of 20 runs is below the bound; `bounded` has max m_i·L_i for m·G."""
    data, log = make_problem(SEED)
    examples = Examples.of(log, unit)
    bounds = gradient_bounds(data, examples)
    options = {"bounds": bounds} if name == "bounded" else {}
    plan = make_plan(name, examples, **options)
    largest, longest = plan.max_multiplier, bounds.max()
    if name == "bounded":
        largest, longest = 1, worst_case(plan, bounds)
    best = rank_minimiser(data, log)
    radius = np.linalg.norm(best)
    known = {"max_multiplier": largest, "gradient_bound": longest, "radius": radius, "steps": 400}

    def gradient(i, w):
        clicked = range(examples.starts[i], examples.starts[i + 1])
        return sum(
            plan.shares[j] * click_gradient(data, examples.query[i], examples.item[j], w)
            for j in clicked
        )

    eta = step_size(**known)
    averages = [descend(plan, gradient, 2, eta=eta, steps=400, rng=rng) for _ in range(20)]
    excess = np.mean([risk(data, log, w) for w in averages]) - risk(data, log, best)
    assert -1e-6 <= excess <= suboptimality_bound(**known)


@pytest.mark.parametrize("make", [ips, countersample])
def test_regression_of_the_paper(make, rng):
    """The example of Section 5.5: two weights, 50 samples, f_i = (x_i·w − y_i)², T = 50 steps.

    No step leads away from w*, as η·m_i·2‖x_i‖² ≤ 1/√T: ‖w_t − w*‖ ≤ B, so G = 2·max ‖x_i‖²·B.
    """
    best = np.array([0.973, 1.144])
    x = rng.standard_normal((50, 2))
    y = x @ best
    log = ClickLog(np.arange(50), np.zeros(50, int), propensity=rng.uniform(0.05, 1, 50))
    plan = make(Examples.of(log, "click"))
    radius = np.linalg.norm(best)
    longest = 2 * (x**2).sum(axis=1).max() * radius
    known = {
        "max_multiplier": plan.max_multiplier,
        "gradient_bound": longest,
        "radius": radius,
        "steps": 50,
    }

    def gradient(i, w):
        result = 2 * (x[i] @ w - y[i]) * x[i]
        assert np.linalg.norm(result) <= longest
        return result

    eta = step_size(**known)
    averages = [descend(plan, gradient, 2, eta=eta, steps=50, rng=rng) for _ in range(200)]
    risks = [np.mean(log.weights * (x @ w - y) ** 2) for w in averages]
    assert np.mean(risks) <= suboptimality_bound(**known)


def test_the_worst_case_is_at_most_the_largest_multiplier_times_the_largest_bound():
    data, log = make_problem(SEED)
    for unit in UNITS:
        examples = Examples.of(log, unit)
        bounds = gradient_bounds(data, examples)
        for plan in (ips(examples), countersample(examples), bounded(examples, bounds=bounds)):
            assert worst_case(plan, bounds) <= plan.max_multiplier * bounds.max() * (1 + 1e-12)
