"""Measured suboptimality and the theorems' bounds."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
from conftest import SEED
from twins_plans import risk

from countersample import ClickLog, RankingDataset, simulate_clicks, synthetic, train
from countersample.errors import DataError
from countersample.plans import Examples
from countersample.study.bounds import (
    bounds_findings,
    hinges,
    measure_bounds,
    minimiser,
    small_problem,
)
from countersample.study.claims import verdicts_of
from countersample.study.experiment import load_grid
from countersample.study.grids import path_of
from countersample.theory import gradient_bounds


@pytest.fixture(scope="module")
def problem():
    """Queries of the tiny set and clicks of users who follow its labels, with some noise."""
    data = synthetic("tiny", n_queries=60, rng=SEED).normalized()
    scores = data.labels + 2 * np.random.default_rng(SEED).standard_normal(data.n_items)
    return data, simulate_clicks(data, scores, 2000, rng=SEED)


@pytest.fixture(scope="module")
def measured(problem):
    bounds = measure_bounds(*problem, steps=(100, 1000, 10_000), seeds=range(5))
    excess = {name: np.array(runs) for name, runs in bounds.excess.items()}
    return replace(bounds, excess=excess)


# -- the problem ---------------------------------------------------------------------------------


def test_risk_is_that_of_the_log(problem, rng):
    data, log = small_problem(*problem, n_queries=8, n_features=4)
    log = log.take(slice(40))
    for scale in (0, 0.3, 3):
        w = scale * rng.standard_normal(4)
        assert hinges(data, log).risk(w) == pytest.approx(risk(data, log, w))


def test_the_minimiser_solves_the_primal_too(problem):
    """min Σ cost·slack with slack ≥ 1 − difference·w, slack ≥ 0: one variable a hinge."""
    part = hinges(*small_problem(*problem, n_queries=10, n_features=3))
    n, n_weights = part.differences.shape
    primal = scipy.optimize.linprog(
        c=np.append(np.zeros(n_weights), part.cost),
        A_ub=-np.hstack([part.differences, np.eye(n)]),
        b_ub=-np.ones(n),
        bounds=[(None, None)] * n_weights + [(0, None)] * n,
    )
    assert part.risk(minimiser(part)) == pytest.approx(part.constant + primal.fun)


def test_the_small_problem_has_the_clicks_of_its_queries(problem):
    data, log = problem
    part, clicks = small_problem(data, log, n_queries=7, n_features=3)
    clicked = sorted(set(log.query.tolist()))[:7]
    assert part.query_ids.tolist() == data.query_ids[clicked].tolist()
    assert clicks.n_clicks == np.isin(log.query, clicked).sum()
    for row, query in enumerate(clicked):
        items = log.item[log.query == query]
        assert clicks.item[clicks.query == row].tolist() == items.tolist()
    clicks.check(part)


def test_features_that_vary_within_queries_are_kept():
    """The third varies most, but between queries only; the first within them; the second little."""
    data = RankingDataset.from_arrays(
        X=[[0, 0.0, 9], [1, 0.1, 9], [1, 0.0, -9], [0, 0.1, -9]], y=[1, 0, 1, 0], qid=[0, 0, 1, 1]
    )
    log = ClickLog([0, 1], [0, 0], [1.0, 1.0])
    part, _ = small_problem(data, log, n_features=1)
    assert part.features[:, 0].tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("solution", ["none", "wrong"])
def test_a_solver_that_fails(problem, monkeypatch, solution):
    part = hinges(*small_problem(*problem, n_queries=3, n_features=2))
    prices = SimpleNamespace(marginals=np.array([5.0, 5.0]))
    answer = SimpleNamespace(status=solution == "none", eqlin=prices, fun=0.0, message="no luck")
    monkeypatch.setattr(scipy.optimize, "linprog", lambda *_, **__: answer)
    with pytest.raises(DataError, match=r"best weights .* cannot be found \(no luck\)"):
        minimiser(part)


# -- what is measured ----------------------------------------------------------------------------


def test_the_theorems_hold(measured):
    for name in ("IPS-SGD", "CounterSample"):
        assert measured.excess[name].shape == (3, 5)
        assert (measured.excess[name] >= -1e-9 * measured.best).all()
        assert (measured.excess[name].mean(axis=1) <= measured.bound[name]).all()


def test_bounds_are_their_formula(problem, measured):
    part, clicks = small_problem(*problem)
    longest = gradient_bounds(part, Examples.of(clicks, "click")).max()
    radius = np.linalg.norm(minimiser(hinges(part, clicks)))
    for name, scale in (("IPS-SGD", clicks.max_weight), ("CounterSample", clicks.mean_weight)):
        expected = radius * scale * longest / np.sqrt([100, 1000, 10_000])
        assert measured.bound[name] == pytest.approx(expected)
        assert measured.max_multiplier[name] == pytest.approx(scale)
    assert measured.n_clicks == clicks.n_clicks


@pytest.mark.parametrize(
    ("name", "method"), [("IPS-SGD", "ips"), ("CounterSample", "countersample")]
)
def test_steps_are_of_the_size_that_the_theorems_ask(problem, measured, name, method):
    """η = B / (m·G·√T)."""
    part, clicks = small_problem(*problem)
    eta = measured.radius / (
        measured.max_multiplier[name] * measured.gradient_bound * np.sqrt(1000)
    )
    run = train(part, clicks, method=method, learning_rate=eta, steps=1000, rng=3)
    excess = hinges(part, clicks).risk(run.average_coef) - measured.best
    assert measured.excess[name][1, 3] == pytest.approx(excess, rel=1e-6)


# -- verdicts -------------------------------------------------------------------------------------


def outcomes(measured):
    verdicts = verdicts_of(load_grid(path_of("bounds")), "tiny", bounds_findings(measured))
    return [verdict.outcome for verdict in verdicts]


def test_verdicts_that_are_not_confirmed(measured):
    """A bound that is broken, or is the very mean; equal weights; a method that lags behind."""
    assert outcomes(measured)[:2] == ["confirmed", "confirmed"]
    ips, sampled = measured.excess["IPS-SGD"], measured.excess["CounterSample"]
    means = {name: excess.mean(axis=1) for name, excess in measured.excess.items()}
    broken = replace(measured, bound=measured.bound | {"IPS-SGD": ips.mean(axis=1) / 2})
    level = replace(measured, max_multiplier=dict.fromkeys(measured.max_multiplier, 2.0))
    behind = replace(measured, excess={"IPS-SGD": sampled, "CounterSample": sampled * 2})
    for index, changed in enumerate((broken, level, behind)):
        assert outcomes(changed)[index] == "not confirmed"
    assert outcomes(replace(measured, bound=means))[0] == "open"
