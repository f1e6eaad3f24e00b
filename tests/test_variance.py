"""Variance-regularised training: R(w) + λ·√(S/n), bounded from above anew in every round."""

import numpy as np
import pytest
import twins_training
from conftest import SEED
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from made_training import RATES, calm, close, plan_settings, random_problem, small_shop
from twins_plans import example_gradients
from twins_plans import risk as twin_risk
from twins_training import contributions, tilt_of

from countersample.objectives import OBJECTIVES, additive_objective
from countersample.plans import PLANS, UNITS, Examples, make_plan
from countersample.training import OPTIMIZERS, TrainingOptions, risk, train, train_many

SEEDS = st.integers(0, 2**32 - 1)
UNIT = st.sampled_from(sorted(UNITS))


class Problem:
    """A random dataset with a log of it, the examples of a unit and a plan for them."""

    def __init__(self, seed, unit="click", method="countersample", objective="rank"):
        self.rng = np.random.default_rng(seed)
        while True:
            self.data, self.log = random_problem(self.rng)
            self.examples = Examples.of(self.log, unit)
            if len(self.examples) > 1:
                break
        self.plan = make_plan(
            method, self.examples, **plan_settings(method, self.log, unit, self.rng)
        )
        self.objective = objective

    def weights(self):
        return self.rng.normal(size=self.data.n_features)

    def u(self, w):
        return contributions(self.data, self.examples, self.plan, w, self.objective)

    def regularised(self, w, variance):
        """J(w) = ū + λ·√(S/n)."""
        u = self.u(w)
        return u.mean() + variance * np.sqrt(u.var(ddof=1) / len(u))

    def bound(self, w, at, variance):
        """Q(w) of the round that begins at `at`, its constant such that it is J there."""
        kappa, mean = tilt_of(self.u(at), variance)

        def changing(u):
            return np.mean((1 - kappa * mean) * u + kappa * u**2 / 2)

        return changing(self.u(w)) - changing(self.u(at)) + self.regularised(at, variance)

    def bound_gradient(self, w, at, variance):
        """The mean of (1 + κ·(u_i − ū))·∇u_i, with u_i at w, by enumeration of what is drawn."""
        kappa, mean = tilt_of(self.u(at), variance)
        gradients = example_gradients(self.data, self.examples, self.plan.shares, w, self.objective)
        factors = 1 + kappa * (self.u(w) - mean)
        return (self.plan.probabilities * self.plan.multipliers * factors) @ gradients


# -- the mathematics, on the twin ----------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS)
@settings(max_examples=20)
@given(seed=SEEDS, objective=st.sampled_from(sorted(OBJECTIVES)), variance=st.floats(0.1, 30))
def test_the_bound_is_above_and_touches(unit, seed, objective, variance):
    problem = Problem(seed, unit, objective=objective)
    at = problem.weights()
    assume(problem.u(at).std() > 1e-6)
    assert problem.bound(at, at, variance) == pytest.approx(problem.regularised(at, variance))
    for _ in range(5):
        w = problem.weights() * problem.rng.choice([0.1, 1, 10])
        value = problem.regularised(w, variance)
        assert problem.bound(w, at, variance) >= value - 1e-9 * max(1, abs(value))


@pytest.mark.parametrize("unit", UNITS)
@settings(max_examples=20)
@given(seed=SEEDS, objective=st.sampled_from(sorted(OBJECTIVES)))
def test_drawn_gradients_have_the_mean_of_the_objective_where_a_round_begins(unit, seed, objective):
    """∇J by finite differences; of the bound also elsewhere."""
    problem = Problem(seed, unit, objective=objective)
    at, w = problem.weights(), problem.weights()
    assume(problem.u(at).std() > 1e-3)
    everything = range(len(problem.examples))
    for point in (at, w):
        assume(
            twins_training.nearest_kink(problem.data, problem.examples, everything, point) > 1e-4
        )
    direction = problem.weights()
    direction *= 1e-6 / np.linalg.norm(direction)

    def slope(function, point):
        return (function(point + direction) - function(point - direction)) / 2e-6

    for point, function in (
        (at, lambda x: problem.regularised(x, 2.0)),
        (w, lambda x: problem.bound(x, at, 2.0)),
    ):
        gradient = problem.bound_gradient(point, at, 2.0)
        size = np.linalg.norm(gradient)
        expected = slope(function, point)
        assert gradient @ direction * 1e6 == pytest.approx(
            expected, rel=1e-4, abs=1e-4 * size + 1e-6
        )


# -- training is the twin ------------------------------------------------------------------------


@pytest.mark.parametrize("method", PLANS)
@settings(max_examples=15)
@given(unit=UNIT, seed=SEEDS, objective=st.sampled_from(sorted(OBJECTIVES)))
def test_the_risk_equals_the_twin(method, unit, seed, objective):
    problem = Problem(seed, unit, method, objective)
    w = problem.weights()
    given = {"bounded": "bounds", "proposal": "probabilities"}.get(method)
    levels = len(problem.examples) * problem.plan.probabilities * problem.plan.multipliers
    # A proposal is handed over as such; bounds are what its probabilities are over the weights.
    of_plan = {}
    if given == "probabilities":
        of_plan[given] = problem.plan.unnormalized
    elif given == "bounds":
        of_plan[given] = problem.plan.unnormalized / problem.examples.weights
    result = risk(
        problem.data, problem.log, w, unit=unit, method=method, objective=objective, **of_plan
    )
    u = problem.u(w)
    tolerance = 1e-4 * np.abs(u).max()
    assert result.n == len(levels)
    assert result.mean == pytest.approx(u.mean(), abs=tolerance)
    assert result.deviation == pytest.approx(u.std(ddof=1), abs=tolerance)
    assert result.standard_error == pytest.approx(result.deviation / len(u) ** 0.5, rel=1e-12)
    assert result.regularised(2) == result.mean + 2 * result.standard_error
    if method not in {"naive", "snips"}:
        expected = twin_risk(problem.data, problem.log, w, objective)
        assert result.mean == pytest.approx(expected, abs=tolerance)


def n_stable_steps(problem, weights, seed, options):
    """The steps of a run of the twin until a change of its start by 1e-6 is 100 times as large.

    Some runs overshoot more in every step: from there on, rounding decides.
    """
    options = {**options, "start": options["start"] * (1 + 1e-6)}
    nearby, _ = twins_training.train(problem.data, problem.log, **options, seed=seed)
    n = min(len(weights), len(nearby))
    distances = np.abs(weights[:n] - nearby[:n]).max(axis=1)
    far = distances > 1e-4 * np.abs(weights[:n]).max(axis=1)
    return int(far.argmax()) if far.any() else n


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", ["naive", "ips", "countersample", "snips"])
@pytest.mark.parametrize("unit", UNITS)
@settings(max_examples=5)
@given(
    seed=SEEDS,
    objective=st.sampled_from(sorted(OBJECTIVES)),
    batch_size=st.sampled_from([1, 2, 7]),
    variance=st.sampled_from([0.5, 5.0]),
)
def test_training_equals_the_twin(unit, method, optimizer, seed, objective, batch_size, variance):
    problem = Problem(seed, unit, method, objective)
    start = 0.05 * problem.weights()
    assume(problem.u(start).std() > 0.1 * np.abs(problem.u(start)).mean())
    options = {
        "unit": unit, "method": method, "optimizer": optimizer, "objective": objective,
        "batch_size": batch_size, "learning_rate": RATES[optimizer] / 3, "steps": 20,
        "variance": variance, "start": start, **calm(optimizer),
    }  # fmt: skip
    ours = train(problem.data, problem.log, **options, checkpoints=20, rng=seed)
    weights, averages = twins_training.train(problem.data, problem.log, **options, seed=seed)
    n = n_stable_steps(problem, weights, seed, options)
    assume(n > 0)
    close(ours.history.coef[:n], weights, 1e-3)
    close(ours.history.average_coef[:n], averages, 1e-3)


# -- what goes with it ---------------------------------------------------------------------------


def test_runs_end_the_same_beside_others():
    data, log = small_shop()
    options = {"variance": 10.0, "steps": 400, "batch_size": 20, "unit": "query"}
    rates = [1e-4 * 2**k for k in range(6)]
    beside = train_many(data, log, learning_rates=rates, seeds=[3], **options)
    for rate, one in zip(rates, beside, strict=True):
        alone = train(data, log, learning_rate=rate, rng=3, **options)
        assert alone.coef.tobytes() == one.coef.tobytes()


@pytest.mark.slow
def test_compact_features_scales_and_objectives_of_ones_own():
    data, log = small_shop()
    w = np.random.default_rng(SEED).normal(size=data.n_features)
    compact = data.compact(16)
    own = additive_objective("rank^1.5", value=lambda x: x**1.5, slope=lambda x: 1.5 * x**0.5)
    scale = np.array([0.5, 2.0, 1.0, 3.0, 0.1])
    plain, coded = risk(data, log, w * scale), risk(compact, log, w, scale=scale)
    assert coded.mean == pytest.approx(plain.mean, rel=1e-3)
    assert coded.deviation == pytest.approx(plain.deviation, rel=1e-3)
    twin = twins_training.contributions(
        data, Examples.of(log, "query"), make_plan("ips", Examples.of(log, "query")), w, "rank"
    )
    assert risk(data, log, w, unit="query").deviation == pytest.approx(twin.std(ddof=1), rel=1e-4)
    assert risk(data, log, w, objective=own).mean > risk(data, log, w).mean
    for each, of in ((compact, "rank"), (data, own)):
        train(each, log, learning_rate=1e-6, steps=200, variance=3.0, objective=of, rng=0)
    options = TrainingOptions(epochs=2, checkpoints=[3, 700], unit="query", variance=2.0)
    assert risk(data, log, w, options=options) == risk(data, log, w, unit="query")
