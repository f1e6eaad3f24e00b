"""Every optimizer takes the steps of its NumPy twin, and of torch.optim; what DoG guarantees."""

from functools import cache

import numpy as np
import pytest
import twins_training
from conftest import SEED
from hypothesis import given, settings
from hypothesis import strategies as st
from requirements import need
from twins_plans import risk

from countersample import ClickLog, RankingDataset
from countersample.errors import ParameterError
from countersample.training import OPTIMIZERS, TrainingOptions, train

WIDTH, STEPS = 7, 500
OTHER = {  # than the defaults
    "momentum": 0.9, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3, "first_distance": 0.5,
}  # fmt: skip
CASES = [
    *((name, {}) for name in OPTIMIZERS),
    *((o.name, {setting: OTHER[setting] for setting in o.defaults}) for o in OPTIMIZERS.values()),
]


def gradients(seed):
    """Gradients of many steps, of some size between 0.01 and 100."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(STEPS, WIDTH)) * 10.0 ** rng.integers(-2, 3)).astype(np.float32)


@cache
def compiled_update():
    """A part of kernels, here as a kernel of its own."""
    from numba import njit

    from countersample._kernels.updates import update

    return njit(error_model="numpy")(update)


def by_kernel(name, given, rate, l2, seed):
    """The weights after each step."""
    w, total, first = np.zeros((3, 1, WIDTH))
    second = np.zeros((1, OPTIMIZERS[name].n_squares * WIDTH))
    numbers, scale = np.zeros((1, 2)), np.zeros(0)
    small = np.zeros((1, WIDTH), np.float32)
    array = TrainingOptions(optimizer=name, l2=l2, **given).kernel_settings(rate)[None]
    path = []
    for step, g in enumerate(gradients(seed)[:, None], 1):
        assert compiled_update()(
            w, total, small, g, first, second, numbers, scale, array, 0, step, OPTIMIZERS[name].code
        )
        path.append(w[0].copy())
    np.testing.assert_array_equal(small, w.astype(np.float32))
    np.testing.assert_allclose(total[0], np.sum(path[:-1], axis=0), rtol=1e-9)
    return np.array(path)


def by_twin(name, given, rate, l2, seed):
    w, path = np.zeros(WIDTH), []
    points = ((w.copy(), g + l2 * w) for g in gradients(seed).astype(np.float64))  # w by then
    for change in twins_training.OPTIMIZERS[name](points, rate, **given):
        w -= change
        path.append(w.copy())
    return np.array(path)


def by_torch(name, given, rate, l2, seed):
    need("torch")
    import torch

    w = torch.nn.Parameter(torch.zeros(WIDTH, dtype=torch.float64))
    settings = OPTIMIZERS[name].defaults | given
    theirs = {"momentum": settings.get("momentum"), "eps": settings.get("epsilon")}
    theirs["betas"] = (settings["beta1"], settings["beta2"]) if "beta1" in settings else None
    theirs = {name: value for name, value in theirs.items() if value is not None}
    if name == "amsgrad":
        name, theirs["amsgrad"] = "adam", True
    kinds = [kind for kind in dir(torch.optim) if kind.lower() == name and kind != name]
    if not kinds:
        pytest.skip(f"PyTorch has no {name}")
    (kind,) = kinds
    optimizer = getattr(torch.optim, kind)([w], lr=rate, weight_decay=l2, **theirs)
    path = []
    for g in gradients(seed):
        w.grad = torch.from_numpy(g.astype(np.float64))
        optimizer.step()
        path.append(w.detach().numpy().copy())
    return np.array(path)


@pytest.mark.parametrize("peer", [by_twin, by_torch])
@pytest.mark.parametrize("l2", [0.0, 0.01])
@pytest.mark.parametrize(("name", "given_settings"), CASES)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), rate=st.sampled_from([1e-3, 0.1, 1.0]))
def test_the_steps_are_those_of_the_twin_and_of_torch(name, given_settings, l2, peer, seed, rate):
    ours = by_kernel(name, given_settings, rate, l2, seed)
    theirs = peer(name, given_settings, rate, l2, seed)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * np.abs(theirs).max())


def test_the_norm_ball():
    """One item to push up along (1, −1)/√2: the weights end where the ball does."""
    data = RankingDataset.from_arrays(X=[[3, 0], [0, 3]], y=[1, 0], qid=[7, 7])
    log = ClickLog(query=[0], item=[0], propensity=[1.0])
    result = train(data, log, learning_rate=1.0, steps=9, radius=0.1, checkpoints=9, rng=0)
    np.testing.assert_allclose(result.coef, [0.1 / np.sqrt(2), -0.1 / np.sqrt(2)])
    assert np.linalg.norm(result.history.coef, axis=1).max() <= 0.1 * (1 + 1e-12)
    np.testing.assert_allclose(result.average_coef, result.coef * 8 / 9)  # the first of nine is 0


@pytest.mark.parametrize(
    ("optimizer", "given", "message"),
    [
        ("adam", {"momentum": 0.9}, "adam takes no setting 'momentum', its settings: beta1, beta2"),
        ("sgd", {"momentum": 1.0}, "momentum is 1.0, expected a number of at least 0 and below 1"),
        ("adam", {"beta2": np.nan}, "beta2 is nan"),
        ("adam", {"epsilon": 0}, "epsilon is 0, expected a number above 0"),
        ("dog", {"first_distance": 0}, "first_distance is 0, expected a number above 0"),
        ("sgd", {"first_distance": 1}, "sgd takes no setting 'first_distance'"),
        ("adam", {"learning_rate": None}, "adam needs a learning rate, got none: give"),
        ("sgd", {"l2": -1.0}, "l2 is -1.0"),
        ("sgd", {"radius": 0.0}, "radius is 0.0"),
        ("sgd", {"learning_rate": "fast"}, "learning_rate is 'fast', expected a number above 0"),
        ("sgd", {"learning_rate": np.inf}, "learning_rate is inf"),
    ],
)
def test_refusals(optimizer, given, message):
    given = dict(given)
    rate = given.pop("learning_rate", 0.1)
    with pytest.raises(ParameterError, match=message):
        TrainingOptions(optimizer=optimizer, **given).kernel_settings(rate)


# -- distance over gradients ---------------------------------------------------------------------


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
        data, log, optimizer="dog", unit="query", first_distance=first_distance, steps=3000,
        start=start, scale=np.full(3, scale), checkpoints=3000, rng=0,
    )  # fmt: skip
    path = np.vstack([start, result.history.coef])
    reach = max(first_distance, np.linalg.norm(path - start, axis=1).max())
    distance = np.linalg.norm(path - best / scale, axis=1).max()
    doublings = 1 + np.log2(reach / first_distance)
    gap = risk(data, log, result.average_coef * scale) - risk(data, log, best)
    steep = steepest(data, log) * scale
    assert gap <= 2 * doublings * (3 * distance + reach) * steep / np.sqrt(3000)
    at_start = risk(data, log, start * scale) - risk(data, log, best)
    assert gap <= 0.2 * at_start  # the bound is wide: it takes the steepest gradient at each step
