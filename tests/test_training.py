"""Training takes the steps of Algorithms 1 and 2, whatever the unit, plan, objective, optimizer."""

import pickle

import numpy as np
import pytest
import twins_training
from conftest import SEED
from hypothesis import given, settings
from hypothesis import strategies as st
from made_training import METHODS, RATES, calm, close, plan_settings, random_problem, small_shop

from countersample import ClickLog, RankingDataset
from countersample.errors import CounterSampleError, ParameterError
from countersample.objectives import OBJECTIVES
from countersample.plans import PLANS, UNITS
from countersample.training import OPTIMIZERS, DivergedError, train, train_many

# -- the algorithms ---------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@settings(max_examples=40)
@given(
    unit=st.sampled_from(sorted(UNITS)),
    method=st.sampled_from(sorted(PLANS)),
    seed=st.integers(0, 2**32 - 1),
    objective=st.sampled_from(sorted(OBJECTIVES)),
    batch_size=st.sampled_from([1, 7, 17]),  # in 1, 2 and 8 parts
    limits=st.sampled_from([{}, {"l2": 0.1}, {"radius": 0.05}, {"l2": 0.1, "radius": 0.2}]),
    has_start=st.booleans(),
    momentum=st.sampled_from([0.0, 0.9]),
)
def test_equals_the_twin(
    unit, method, optimizer, seed, objective, batch_size, limits, has_start, momentum
):
    rng = np.random.default_rng(seed)
    data, log = random_problem(rng)
    if has_start:
        start = rng.normal(size=data.n_features)
        limits = limits | {"start": start / np.linalg.norm(start) * rng.uniform(0, 0.05)}
    if optimizer == "sgd":
        limits = limits | {"momentum": momentum}
    options = {
        **limits,
        "unit": unit, "method": method, "optimizer": optimizer, "objective": objective,
        "batch_size": batch_size, "learning_rate": RATES[optimizer], "steps": 40,
        **calm(optimizer), **plan_settings(method, log, unit, rng),
    }  # fmt: skip
    ours = train(data, log, **options, checkpoints=40, rng=seed)
    weights, averages = twins_training.train(data, log, **options, seed=seed)
    n = len(weights)  # fewer than 40 where a margin came so close to 1 that rounding decides
    close(ours.history.coef[:n], weights)
    close(ours.history.average_coef[:n], averages)
    np.testing.assert_array_equal(ours.coef, ours.history.coef[-1])
    np.testing.assert_array_equal(ours.average_coef, ours.history.average_coef[-1])


def test_algorithm_1_and_2_by_hand():
    """Two items, one feature each, one click: f = 1 + max(0, 1 − (w₁ − w₂)), ∇f = (−1, 1)."""
    data = RankingDataset.from_arrays(X=[[1, 0], [0, 1]], y=[1, 0], qid=[7, 7])
    log = ClickLog(query=[0], item=[0], propensity=[0.5])  # a weight of 2: steps of 2 · 0.125
    for method in ("ips", "countersample"):
        result = train(data, log, learning_rate=0.125, steps=4, method=method, checkpoints=4, rng=0)
        rising = [[0.25, -0.25], [0.5, -0.5], [0.5, -0.5], [0.5, -0.5]]  # a margin of 1: no step
        np.testing.assert_array_equal(result.history.coef, rising)
        of_w1 = [0, 0.25 / 2, (0.25 + 0.5) / 3, (0.25 + 0.5 + 0.5) / 4]  # w₁ = 0 counts
        np.testing.assert_allclose(result.history.average_coef[:, 0], of_w1)
        np.testing.assert_array_equal(result.history.steps, [1, 2, 3, 4])


def test_chunks_do_not_show(rng, monkeypatch):
    """Checkpoints and sums go on across chunks of draws; the twin draws by the same chunks."""
    monkeypatch.setattr("countersample.training.runs.CHUNK", 10)
    monkeypatch.setattr("twins_training.CHUNK", 10)
    data, log = random_problem(rng)
    options = {
        "unit": "click", "method": "ips", "optimizer": "adam", "objective": "rank",
        "batch_size": 3, "learning_rate": 0.02, "steps": 25, **calm("adam"),
    }  # fmt: skip
    checkpoints = [1, 3, 4, 7, 10, 25]
    ours = train(data, log, **options, checkpoints=checkpoints, rng=1)
    weights, averages = twins_training.train(data, log, **options, seed=1)
    steps = [step - 1 for step in checkpoints if step <= len(weights)]
    close(ours.history.coef[: len(steps)], weights[steps])
    close(ours.history.average_coef[: len(steps)], averages[steps])


@pytest.mark.parametrize(
    ("checkpoints", "steps", "expected"),
    [(0, 9, []), (1, 9, [9]), (3, 9, [3, 6, 9]), (2, 9, [5, 9]), (50, 3, [1, 2, 3]),
     ([7, 2, 2], 9, [2, 7])],
)  # fmt: skip
def test_checkpoints(checkpoints, steps, expected, rng):
    data, log = random_problem(rng)
    result = train(data, log, learning_rate=0.1, steps=steps, checkpoints=checkpoints, rng=0)
    assert result.history.steps.tolist() == expected
    assert result.history.coef.shape == (len(expected), data.n_features)
    if expected and expected[-1] == steps:
        np.testing.assert_array_equal(result.history.coef[-1], result.coef)
        np.testing.assert_array_equal(result.history.average_coef[-1], result.average_coef)


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": None}, "either steps or epochs"),
        ({"epochs": 1}, "either steps or epochs"),
        ({"steps": 0}, "steps is 0, expected a whole number of at least 1"),
        ({"steps": 1e5}, "steps is 100000.0, expected a whole number"),
        ({"steps": None, "epochs": np.nan}, "epochs is nan"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"batch_size": True}, "batch_size is True"),
        ({"checkpoints": -1}, "checkpoints is -1"),
        ({"checkpoints": [0, 5]}, "steps from 1 to 10"),
        ({"checkpoints": [5, 11]}, "steps from 1 to 10"),
        ({"checkpoints": [2.5]}, "steps from 1 to 10"),
        ({"learning_rate": 0}, "learning_rate is 0"),
        ({"learning_rate": np.nan}, "learning_rate is nan"),
        ({"method": "magic"}, "expected one of naive"),
        ({"unit": "session"}, "expected one of click, pair, query"),
        ({"objective": "mrr"}, "expected one of rank"),
        ({"optimizer": "lbfgs"}, "expected one of sgd"),
        ({"momentun": 0.9}, "no option 'momentun', did you mean 'momentum'"),
        ({"clip": 0.0}, "clip is 0.0, expected a number above 0 and at most 1"),
        ({"resume": "x"}, "resume needs rng"),
        ({"learning_rate": None}, "sgd needs a learning rate, got none: .* optimizer='dog'"),
        ({"temper": 1.5}, "temper is 1.5, expected a number of at least 0 and at most 1"),
        ({"start": [0.0] * 99}, r"start has shape \(99,\), expected \(\d+,\): one for each"),
        ({"start": ["a"]}, "start must be a number for each feature"),
        ({"scale": 2.0}, r"scale has shape \(\), expected \(\d+,\)"),
    ],
)
def test_refusals(options, message, rng):
    data, log = random_problem(rng)
    with pytest.raises(ParameterError, match=message):
        train(data, log, **{"learning_rate": 0.1, "steps": 10} | options)


# -- divergence -------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_divergence(optimizer, rng):
    data, log = random_problem(rng)
    with pytest.raises(DivergedError, match=r"at step [\d,]+ with learning rate 1e\+30") as caught:
        train(data, log, learning_rate=1e30, steps=1000, optimizer=optimizer, rng=0)
    assert isinstance(caught.value, CounterSampleError)
    assert 1 <= caught.value.step <= 1000
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 (it comes back from a process)
    assert (again.step, again.learning_rate) == (caught.value.step, 1e30)


def test_divergence_of_one_run_leaves_the_others_alone(rng):
    data, log = random_problem(rng)
    options = {"steps": 300, "checkpoints": 10, "seeds": [SEED]}
    sound, broken, other = train_many(data, log, learning_rates=[0.01, 1e30, 0.003], **options)
    assert (sound.diverged_at, other.diverged_at) == (None, None)
    assert broken.diverged_at == broken.n_steps <= 300
    assert np.isnan([broken.coef, broken.average_coef]).all()  # never a model
    late = broken.history.steps >= broken.diverged_at
    assert np.isnan(broken.history.coef[late]).all()
    assert np.isfinite(broken.history.coef[~late]).all()
    for result, rate in ((sound, 0.01), (other, 0.003)):
        single = train(data, log, learning_rate=rate, steps=300, rng=SEED)
        np.testing.assert_array_equal(result.coef, single.coef)


# -- many at once -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop():
    return small_shop()


def test_order_and_workers(shop):
    data, log = shop
    options = {
        "learning_rates": [0.001, 0.01], "methods": ["naive", "ips"], "seeds": [3, 4], "steps": 200,
    }  # fmt: skip
    calls = []
    alone = train_many(data, log, workers=1, **options, progress=lambda *at: calls.append(at))
    assert calls[-1] == ("training", 1.0)
    order = [tuple(r.settings[k] for k in ("method", "seed", "learning_rate")) for r in alone]
    assert order == [(m, s, r) for m in ("naive", "ips") for s in (3, 4) for r in (0.001, 0.01)]
    for workers in (2, 5):
        for one, other in zip(
            alone, train_many(data, log, workers=workers, **options), strict=True
        ):
            assert one.coef.tobytes() == other.coef.tobytes()
            assert one.average_coef.tobytes() == other.average_coef.tobytes()


# -- where training starts, in which coordinates, and by which weights ------------------------


def test_temper(rng):
    """1/p^α: as a log of such propensities, after clipping; 0 is naive, 1 the log as it is."""
    data, log = random_problem(rng)
    options = {"optimizer": "dog", "steps": 100, "rng": 0}

    def trained(log, **settings):
        return train(data, log, **options | settings).coef

    for method in METHODS:
        np.testing.assert_array_equal(
            trained(log, method=method, temper=0.5, clip=0.3),
            trained(log.clip(0.3).temper(0.5), method=method),
        )
        for unit in UNITS:
            one = {"method": method, "unit": unit}
            np.testing.assert_array_equal(trained(log, temper=1, **one), trained(log, **one))
    naive = ClickLog(log.query, log.item, np.ones(len(log)))
    for method in METHODS:
        np.testing.assert_array_equal(
            trained(log, method=method, temper=0), trained(naive, method=method)
        )
    np.testing.assert_array_equal(
        trained(log, method="countersample", temper=0), trained(log, method="naive")
    )


def scaled(data, scale):
    """The dataset with features that are multiplied, as float32."""
    return data.with_features((data.features * scale).astype(np.float32))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("unit", UNITS)
def test_a_scale_is_a_dataset_multiplied_by_it(unit, optimizer, rng):
    """To the byte by powers of two, which round nothing; else as near as float32 is."""
    data, log = random_problem(rng)
    start = rng.normal(size=data.n_features) * 0.01
    options = {
        "optimizer": optimizer, "learning_rate": RATES[optimizer], "unit": unit, "steps": 40,
        "l2": 0.01, "radius": 0.5, "start": start, "checkpoints": 4, "rng": 0, **calm(optimizer),
    }  # fmt: skip
    twos = 2.0 ** rng.integers(-3, 4, data.n_features)
    ours = train(data, log, scale=twos, **options)
    copied = train(scaled(data, twos), log, **options)
    np.testing.assert_array_equal(ours.history.coef, copied.history.coef)
    np.testing.assert_array_equal(ours.average_coef, copied.average_coef)
    np.testing.assert_allclose(ours.predict(data.features), data.features @ (twos * ours.weights))
    others = rng.uniform(0.5, 2, data.n_features)
    others[0] = 0
    ours = train(data, log, scale=others, **options)
    close(ours.coef, train(scaled(data, others), log, **options).coef, 1e-3)


def test_vectors_that_are_not_sound_are_refused(rng):
    data, log = random_problem(rng)
    good = np.ones(data.n_features)
    bad = good.copy()
    bad[-1] = np.inf
    n = len(bad) - 1
    for name in ("start", "scale"):
        with pytest.raises(ParameterError, match=rf"{name}\[{n}\] is inf, expected a finite"):
            train(data, log, optimizer="dog", steps=10, **{name: bad})
    with pytest.raises(ParameterError, match=r"start has norm .*, expected at most 0\.5"):
        train(data, log, optimizer="dog", steps=10, start=good, radius=0.5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_batched_runs_equal_single_runs(shop, optimizer):
    data, log = shop
    rng = np.random.default_rng(SEED)
    rates = [RATES[optimizer], RATES[optimizer] / 2]
    starts = [np.zeros(data.n_features), *rng.normal(size=(4, data.n_features))]  # 8 + 2 at a time
    options = {
        "steps": 300, "optimizer": optimizer, "checkpoints": 4, "scale": np.full(5, 1.5),
        "l2": 0.01, "radius": 9.0, "unit": "query",
    }  # fmt: skip
    many = train_many(data, log, learning_rates=rates, starts=starts, seeds=[SEED, 1], **options)
    assert [run.seed for run in many] == [SEED] * 10 + [1] * 10
    expected = [(start, rate) for start in starts for rate in rates]
    for (start, rate), run in zip(expected, many, strict=False):
        single = train(data, log, learning_rate=rate, start=start, rng=SEED, **options)
        assert run.history.coef.tobytes() == single.history.coef.tobytes()
        assert run.average_coef.tobytes() == single.average_coef.tobytes()
        assert run.settings == single.settings
        np.testing.assert_array_equal(run.options.start, start)
    with pytest.raises(ParameterError, match="start and starts are both given"):
        train_many(data, log, learning_rates=rates, starts=starts, start=starts[1], **options)
