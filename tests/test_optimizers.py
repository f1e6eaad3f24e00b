"""Every optimizer takes the steps of its NumPy twin, and of torch.optim."""

from functools import cache

import numpy as np
import pytest
import twins_training
from hypothesis import given, settings
from hypothesis import strategies as st
from requirements import need

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
