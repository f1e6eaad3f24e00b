"""Plans, by enumeration on small logs: what is drawn has the right mean, and no needless variance.

No test here draws a gradient: a plan's expectations are sums over its examples.
"""

from dataclasses import replace

import numpy as np
import pytest
from conftest import SEED
from hypothesis import given, settings
from hypothesis import strategies as st
from twins_plans import (
    example_gradients,
    mean_gradient,
    objective_gradient,
    objective_value,
    risk_gradient,
    second_moment,
)

from countersample import ClickLog, RankingDataset
from countersample.errors import DataError, ParameterError
from countersample.objectives import OBJECTIVES
from countersample.plans import PLANS, UNITS, Examples, bounded, countersample, ips, make_plan
from countersample.theory import gradient_bounds, worst_case

UNBIASED = [name for name in PLANS if name not in {"naive", "snips"}]


class Problem:
    """A small random dataset, a log of clicks on it, and weights of a linear ranker."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        sizes = np.append(rng.integers(2, 6), rng.integers(1, 6, rng.integers(0, 4)))
        features = rng.standard_normal((sizes.sum(), 3))
        self.dataset = RankingDataset.from_arrays(
            features, np.zeros(len(features)), np.repeat(np.arange(len(sizes)), sizes)
        )
        query = np.append(0, rng.integers(0, len(sizes), rng.integers(1, 12)))
        self.log = ClickLog(
            query=query,
            item=(rng.random(len(query)) * sizes[query]).astype(int),
            propensity=rng.choice([1, 1 / 2, 1 / 3, 0.01], len(query)),
        )
        self.w = rng.standard_normal(3) * rng.choice([0, 1, 5])
        self.rng = rng

    def plan(self, name, examples, objective="rank"):
        options = {}
        if name == "bounded":
            # The slope of squared-rank has no bound; that of rank makes an unbiased plan, too.
            of = "rank" if objective == "squared-rank" else objective
            options["bounds"] = gradient_bounds(self.dataset, examples, objective=of)
        if name == "proposal":
            options["probabilities"] = self.rng.random(len(examples)) + 0.01
        return make_plan(name, examples, **options)

    def gradients(self, examples, plan, objective="rank"):
        return example_gradients(self.dataset, examples, plan.shares, self.w, objective)


def for_random_problems(test):
    return settings(max_examples=30)(given(st.integers(0, 2**32 - 1).map(Problem))(test))


@pytest.fixture
def log():
    """Three clicks on two items of query 0, one on query 2; v = 2 + 2, 1 and 4."""
    return ClickLog(query=[0, 2, 0, 0], item=[2, 1, 2, 0], propensity=[0.5, 0.25, 0.5, 1.0])


# -- the twin ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "slope"),
    [
        ("rank", 2.5, 1),
        ("log-rank", np.log(2.5), 1 / 2.5),
        ("dcg", -1 / np.log2(3.5), np.log(2) / (3.5 * np.log(3.5) ** 2)),
    ],
)
def test_the_twin_by_hand(name, value, slope):
    """Margins 2, 1 (not violated: the kink) and −0.5: the rank is at most 1 + 1.5."""
    scores = [2.0, 0.0, 1.0, 2.5]
    assert objective_value(scores, 0, name) == pytest.approx(value)
    np.testing.assert_allclose(objective_gradient(scores, 0, name), [-slope, 0, 0, slope])


# -- examples ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "query", "starts", "item", "weights", "counts"),
    [
        ("click", [0, 2, 0, 0], [0, 1, 2, 3, 4], [2, 1, 2, 0], [2, 4, 2, 1], [1, 1, 1, 1]),
        ("pair", [0, 0, 2], [0, 1, 2, 3], [0, 2, 1], [1, 2 + 2, 4], [1, 2, 1]),
        ("query", [0, 2], [0, 2, 3], [0, 2, 1], [1 + 2 + 2, 4], [3, 1]),
    ],
)
def test_units(log, unit, query, starts, item, weights, counts):
    examples = Examples.of(log, unit)
    assert len(examples) == len(query)
    for given_values, expected in (
        (examples.query, query),
        (examples.starts, starts),
        (examples.item, item),
        (examples.weights, weights),
        (examples.counts, counts),
    ):
        np.testing.assert_array_equal(given_values, expected)
    assert examples.n_clicks == 4
    assert (examples.query.dtype, examples.starts.dtype) == (np.int32, np.int64)


def test_by_click_signs_are_in_the_shares():
    """Two clicks of which three were expected by chance, and one: v = (2 − 3)/0.5, (1 − 0)/0.25."""
    signed = ClickLog([0, 1], [0, 0], [0.5, 0.25], count=[2, 1], by_chance=[3, 0])
    examples = Examples.of(signed, "click")
    np.testing.assert_array_equal(examples.weight, [-2, 4])
    np.testing.assert_array_equal(examples.weights, [2, 4])
    np.testing.assert_array_equal(examples.weight_shares, [-1, 1])


# -- what every plan is --------------------------------------------------------------------------


@for_random_problems
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", PLANS)
def test_probabilities_and_shares_sum_to_1(name, unit, problem):
    examples = Examples.of(problem.log, unit)
    plan = problem.plan(name, examples)
    assert plan.name == name
    assert plan.probabilities.sum() == pytest.approx(1, rel=1e-12)
    assert plan.probabilities.min() >= 0
    np.testing.assert_allclose(np.add.reduceat(plan.shares, examples.starts[:-1]), 1, rtol=1e-12)
    assert plan.max_multiplier == plan.multipliers[plan.probabilities > 0].max()


@pytest.mark.parametrize("name", PLANS)
def test_draws_follow_the_probabilities(name, rng):
    problem = Problem(SEED)
    plan = problem.plan(name, Examples.of(problem.log, "pair"))
    size = 100_000
    draws = plan.draw(size, rng)
    assert draws.dtype == np.int64
    p = plan.probabilities
    counts = np.bincount(draws, minlength=len(p))
    slack = 7 * np.sqrt(size * p * (1 - p)) + 20 * (p > 0)  # beyond it once in 10⁹, or rarer
    assert (abs(counts - size * p) <= slack).all()
    with pytest.raises(ParameterError, match="size is -1"):
        plan.draw(-1, rng)


# -- unbiasedness (Theorem 2) --------------------------------------------------------------------


@pytest.mark.slow
@for_random_problems
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", UNBIASED)
def test_the_mean_gradient_is_that_of_the_risk(name, unit, objective, problem):
    examples = Examples.of(problem.log, unit)
    plan = problem.plan(name, examples, objective)
    drawn = mean_gradient(plan, problem.gradients(examples, plan, objective))
    expected = risk_gradient(problem.dataset, problem.log, problem.w, objective)
    size = np.linalg.norm(plan.probabilities * plan.multipliers, 1)
    np.testing.assert_allclose(drawn, expected, rtol=1e-10, atol=1e-12 * size)
    if name != "bounded":  # which may leave out examples whose gradient is always 0
        assert plan.is_unbiased(examples)


@for_random_problems
@pytest.mark.parametrize("unit", UNITS)
def test_snips_has_the_mean_gradient_of_the_self_normalised_risk(unit, problem):
    """Σ v ∇f / Σ v is the gradient of the risk divided by M̄, for every unit."""
    examples = Examples.of(problem.log, unit)
    plan = make_plan("snips", examples)
    drawn = mean_gradient(plan, problem.gradients(examples, plan))
    expected = risk_gradient(problem.dataset, problem.log, problem.w) / problem.log.mean_weight
    np.testing.assert_allclose(drawn, expected, rtol=1e-10, atol=1e-12)
    assert (plan.probabilities * plan.multipliers).sum() == pytest.approx(1.0, rel=1e-12)


def directions(lengths=(1.0, 1.0)):
    """Two queries of two items; the gradient of the first item's click is −length·e_q at w = 0."""
    features = np.zeros((4, 2))
    features[0, 0], features[2, 1] = lengths
    return RankingDataset.from_arrays(features, np.zeros(4), [0, 0, 1, 1])


@pytest.mark.parametrize("unit", UNITS)
def test_naive_is_biased_where_propensities_differ(unit):
    data = directions()
    log = ClickLog(query=[0, 1], item=[0, 0], propensity=[1.0, 0.25])
    examples = Examples.of(log, unit)
    plan = make_plan("naive", examples)
    drawn = mean_gradient(plan, example_gradients(data, examples, plan.shares, np.zeros(2)))
    np.testing.assert_allclose(drawn, [-1 / 2, -1 / 2])
    np.testing.assert_allclose(risk_gradient(data, log, np.zeros(2)), [-1 / 2, -4 / 2])
    assert not plan.is_unbiased(examples)


def test_a_relative_error_of_a_millionth_is_a_bias():
    """π·m is exact up to rounding, so a larger tolerance would hide wrong multipliers."""
    log = ClickLog(query=[0, 1], item=[0, 0], propensity=[1.0, 0.25])
    examples = Examples.of(log, "click")
    plan = countersample(examples)
    assert plan.is_unbiased(examples)
    for error in (1e-6, -1e-6):
        multipliers = plan.multipliers * np.array([1.0, 1.0 + error])
        assert not replace(plan, multipliers=multipliers).is_unbiased(examples)


# -- largest multipliers -------------------------------------------------------------------------


@for_random_problems
def test_by_click_the_largest_multipliers_are_those_of_the_theorems(problem):
    clicks = Examples.of(problem.log, "click")
    assert ips(clicks).max_multiplier == pytest.approx(problem.log.max_weight, rel=1e-12)  # M
    assert countersample(clicks).max_multiplier == pytest.approx(
        problem.log.mean_weight, rel=1e-12
    )  # M̄


@for_random_problems
@pytest.mark.parametrize("unit", UNITS)
def test_no_unbiased_plan_has_a_smaller_largest_multiplier_than_countersample(unit, problem):
    examples = Examples.of(problem.log, unit)
    least = countersample(examples).max_multiplier
    assert least == pytest.approx(problem.log.mean_weight, rel=1e-12)
    for name in ("ips", "proposal"):
        assert problem.plan(name, examples).max_multiplier >= least * (1 - 1e-12)


@for_random_problems
@pytest.mark.parametrize("unit", UNITS)
def test_bounded_has_the_smallest_worst_case(unit, problem):
    examples = Examples.of(problem.log, unit)
    bounds = gradient_bounds(problem.dataset, examples)
    least = worst_case(bounded(examples, bounds=bounds), bounds)
    assert least == pytest.approx(examples.weights @ bounds / examples.n_clicks, rel=1e-12)
    for name in ("ips", "countersample", *["proposal"] * 10):
        assert worst_case(problem.plan(name, examples), bounds) >= least * (1 - 1e-12)


# -- second moments ------------------------------------------------------------------------------


@for_random_problems
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_by_query_countersample_has_the_smallest_second_moment(objective, problem):
    """Its gradient is the conditional expectation, given the query, of that by click or pair."""
    moments = {}
    for unit in UNITS:
        examples = Examples.of(problem.log, unit)
        plan = countersample(examples)
        moments[unit] = second_moment(plan, problem.gradients(examples, plan, objective))
    assert moments["pair"] == pytest.approx(moments["click"], rel=1e-10)
    assert moments["query"] <= moments["pair"] * (1 + 1e-12)


@for_random_problems
def test_countersample_has_the_smaller_second_moment_where_norms_are_equal(problem):
    """IPS multiplies gradients of norm 1 by their weights, CounterSample each by the mean one."""
    data = directions()
    log = ClickLog([0, 1], [0, 0], problem.rng.uniform(0.05, 1, 2))
    examples = Examples.of(log, "click")
    moments = [
        second_moment(plan, example_gradients(data, examples, plan.shares, np.zeros(2)))
        for plan in (countersample(examples), ips(examples))
    ]
    assert moments[0] == pytest.approx(log.mean_weight**2)
    assert moments[0] <= moments[1] * (1 + 1e-9)


def test_counter_example_where_norms_fall_with_the_weight():
    """Weights 1 and 4, gradients of norm 1 and 1/4: the theorems bound the worst case only.

    IPS multiplies each gradient by its weight, which makes them equal; CounterSample multiplies
    both by M̄ = 2.5 and draws the short one more often.
    """
    data = directions(lengths=(1, 1 / 4))
    clicks = Examples.of(ClickLog(query=[0, 1], item=[0, 0], propensity=[1, 1 / 4]), "click")
    bounds = gradient_bounds(data, clicks)
    np.testing.assert_array_equal(bounds, [1, 1 / 4])
    moments = {}
    for plan in (ips(clicks), countersample(clicks), bounded(clicks, bounds=bounds)):
        gradients = example_gradients(data, clicks, plan.shares, np.zeros(2))
        moments[plan.name] = second_moment(plan, gradients)
    assert moments == pytest.approx(
        {
            "ips": 1 / 2 * (1 * 1) ** 2 + 1 / 2 * (4 * 1 / 4) ** 2,  # 1
            "countersample": 1 / 5 * (2.5 * 1) ** 2 + 4 / 5 * (2.5 * 1 / 4) ** 2,  # 1.5625
            "bounded": 1 / 2 * (1 * 1) ** 2 + 1 / 2 * (4 * 1 / 4) ** 2,
        }
    )


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("best", {}, ParameterError, "method is 'best', expected one of naive, ips"),
        ("bounded", {}, ParameterError, "plan 'bounded': missing a required .*argument: 'bounds'"),
        ("ips", {"bounds": [1]}, ParameterError, "plan 'ips': got an unexpected .* 'bounds'"),
        ("bounded", {"bounds": [1.0]}, DataError, "bounds have length 1, expected 4: one for each"),
        ("bounded", {"bounds": 1.0}, DataError, r"bounds have shape \(\)"),
        ("bounded", {"bounds": [1, 1, -1, 1]}, DataError, r"bounds\[2\] is -1.0"),
        ("proposal", {"probabilities": [1, np.nan, 1, 1]}, DataError, r"probabilities\[1\] is nan"),
        ("proposal", {"probabilities": np.zeros(4)}, DataError, "probabilities are all 0"),
        ("proposal", {"probabilities": [1.0] * 5}, DataError, "probabilities have length 5, exp"),
    ],
)
def test_plans_that_are_refused(log, name, options, error, message):
    with pytest.raises(error, match=message):
        make_plan(name, Examples.of(log, "click"), **options)
