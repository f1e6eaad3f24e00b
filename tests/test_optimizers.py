"""SGD, Adam and Adagrad take the steps of torch.optim."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countersample import ClickLog, RankingDataset
from countersample.errors import ParameterError
from countersample.training import OPTIMIZERS, TrainingOptions, train

WIDTH, STEPS = 7, 500
SETTINGS = {
    "sgd": ("SGD", {}, {}),
    "momentum": ("SGD", {"momentum": 0.9}, {"momentum": 0.9}),
    "adam": ("Adam", {}, {}),
    "adam, other betas": (
        "Adam",
        {"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3},
        {"betas": (0.5, 0.9), "eps": 1e-3},
    ),
    "adagrad": ("Adagrad", {}, {}),
    "adagrad, other epsilon": ("Adagrad", {"epsilon": 0.01}, {"eps": 0.01}),
}


def both(name, rate, seed, l2=0.0):
    """The weights after each of many steps: by the kernel's update, and by torch."""
    torch = pytest.importorskip("torch")
    from countersample._kernels.updates import update

    rng = np.random.default_rng(seed)
    gradients = (rng.normal(size=(STEPS, WIDTH)) * 10.0 ** rng.integers(-2, 3)).astype(np.float32)
    kind, ours, theirs = SETTINGS[name]
    w, total, first, second = np.zeros((4, WIDTH))
    small = np.zeros(WIDTH, np.float32)
    optimizer = OPTIMIZERS[kind.lower()]
    array = TrainingOptions(optimizer=optimizer.name, l2=l2, **ours).kernel_settings(rate)
    weights = torch.nn.Parameter(torch.zeros(WIDTH, dtype=torch.float64))
    peer = getattr(torch.optim, kind)([weights], lr=rate, weight_decay=l2, **theirs)
    of_ours, of_peer = [], []
    for step, g in enumerate(gradients, 1):
        assert update(w, total, small, g, first, second, step, optimizer.code, array)
        weights.grad = torch.from_numpy(g.astype(np.float64))
        peer.step()
        of_ours.append(w.copy())
        of_peer.append(weights.detach().numpy().copy())
    np.testing.assert_array_equal(small, w.astype(np.float32))
    np.testing.assert_allclose(total, np.sum(of_ours[:-1], axis=0), rtol=1e-9)
    return np.array(of_ours), np.array(of_peer)


@pytest.mark.parametrize("l2", [0.0, 0.01])
@pytest.mark.parametrize("name", SETTINGS)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), rate=st.sampled_from([1e-3, 0.1, 1.0]))
def test_equals_torch(name, l2, seed, rate):
    ours, torchs = both(name, rate, seed, l2=l2)
    np.testing.assert_allclose(ours, torchs, rtol=1e-5, atol=1e-5 * np.abs(torchs).max())


def test_the_norm_ball():
    """One item to push up along (1, −1)/√2: the weights end where the ball does."""
    data = RankingDataset.from_arrays(X=[[3, 0], [0, 3]], y=[1, 0], qid=[7, 7])
    log = ClickLog(query=[0], item=[0], propensity=[1.0])
    result = train(data, log, learning_rate=1.0, steps=9, radius=0.1, checkpoints=9, rng=0)
    np.testing.assert_allclose(result.coef, [0.1 / np.sqrt(2), -0.1 / np.sqrt(2)])
    assert np.linalg.norm(result.history.coef, axis=1).max() <= 0.1 * (1 + 1e-12)
    np.testing.assert_allclose(result.average_coef, result.coef * 8 / 9)  # the first of nine is 0


def test_a_step_that_is_huge_but_projected_is_no_divergence():
    data = RankingDataset.from_arrays(X=[[3, 0], [0, 3]], y=[1, 0], qid=[7, 7])
    log = ClickLog(query=[0], item=[0], propensity=[1.0])
    result = train(data, log, learning_rate=1e30, steps=9, radius=0.1, rng=0)
    np.testing.assert_allclose(np.linalg.norm(result.coef), 0.1)


@pytest.mark.parametrize(
    ("optimizer", "given", "message"),
    [
        ("adam", {"momentum": 0.9}, "adam takes no setting 'momentum', its settings: beta1, beta2"),
        ("sgd", {"momentum": 1.0}, "momentum is 1.0, expected a number of at least 0 and below 1"),
        ("adam", {"beta2": np.nan}, "beta2 is nan"),
        ("adam", {"epsilon": 0}, "epsilon is 0, expected a number above 0"),
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


def test_unknown():
    with pytest.raises(ParameterError, match="expected one of sgd, adam, adagrad"):
        TrainingOptions(optimizer="lbfgs")
