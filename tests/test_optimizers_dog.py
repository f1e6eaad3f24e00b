"""Distance over gradients: by hand, and its guarantee on convex problems of any scale."""

import numpy as np
import pytest
from conftest import SEED
from twins_plans import risk

from countersample import ClickLog, RankingDataset
from countersample.training import train


def test_dog_by_hand():
    """Two items, one feature each: ∇f = (−1, 1) and ‖∇f‖² = 2, so that a step is r/√(2t) of it.

    Weights are (x, −x): r = max(√2·0.1, √2·x), a step adds r/√(2t) to x, whatever the propensity.
    """
    data = RankingDataset.from_arrays(X=[[1, 0], [0, 1]], y=[1, 0], qid=[7, 7])
    for propensity in (1.0, 0.01):
        log = ClickLog(query=[0], item=[0], propensity=[propensity])
        result = train(
            data, log, optimizer="dog", first_distance=0.1 * 2**0.5, steps=3, checkpoints=3, rng=0
        )
        first = 0.1
        second = first + 0.1 / 2**0.5
        third = second + second / 3**0.5
        np.testing.assert_allclose(result.history.coef[:, 0], [first, second, third])
        np.testing.assert_allclose(
            result.average_coef, [(first + second) / 3, -(first + second) / 3]
        )
        assert result.learning_rate == result.settings["learning_rate"] == 1.0
        assert result.settings["first_distance"] == 0.1 * 2**0.5


# -- the guarantee ----------------------------------------------------------------------------

STEPS = 3000


def one_query(rng):
    """A query and clicks on it: by query, each step has the gradient of the whole risk."""
    data = RankingDataset.from_arrays(rng.normal(size=(12, 3)), np.zeros(12), np.zeros(12, int))
    return data, ClickLog(np.zeros(40, int), rng.integers(0, 12, 40), rng.uniform(0.1, 1, 40))


def steepest(data, log):
    """The largest that a gradient of the risk can be: Σ v/N · Σ_d' ‖x_d − x_d'‖."""
    x = data.features
    apart = np.linalg.norm(x[log.item][:, None] - x, axis=2).sum(axis=1)
    return log.weights @ apart / log.n_clicks


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(SEED)
    data, log = one_query(rng)
    best = train(data, log, optimizer="dog", unit="query", steps=200_000, rng=0).average_coef
    return data, log, best


@pytest.mark.parametrize("first_distance", [1e-6, 1e-3])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("far", [1.0, 1e3])
def test_the_guarantee(problem, scale, far, first_distance):
    """The averaged iterate is within the bound, whatever the scale of features and the start.

    Between two steps in which the reach r at most doubles, DoG has Σ (f(w_t) − f(u)) ≤ 2 (3d + r)
    √Σ‖g‖² for every u, with d the largest distance to it. From first_distance to r it doubles
    log₂ times, and ‖g‖ ≤ G: the mean of all is at most 2 (1 + log₂(r/first)) (3d + r) G/√T.
    """
    data, log, best = problem
    start = (best + far * np.array([0.6, 0.8, 0.0])) / scale
    result = train(
        data, log, optimizer="dog", unit="query", first_distance=first_distance, steps=STEPS,
        start=start, scale=np.full(3, scale), checkpoints=STEPS, rng=0,
    )  # fmt: skip
    path = np.vstack([start, result.history.coef])
    reach = max(first_distance, np.linalg.norm(path - start, axis=1).max())
    distance = np.linalg.norm(path - best / scale, axis=1).max()
    doublings = 1 + np.log2(reach / first_distance)
    gap = risk(data, log, result.average_coef * scale) - risk(data, log, best)
    steep = steepest(data, log) * scale
    assert gap <= 2 * doublings * (3 * distance + reach) * steep / np.sqrt(STEPS)
    at_start = risk(data, log, start * scale) - risk(data, log, best)
    assert gap <= 0.2 * at_start  # the bound is wide: it takes the steepest gradient at each step
