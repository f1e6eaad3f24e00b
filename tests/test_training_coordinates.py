"""Where training starts, in which coordinates, and by which weights: start, scale, temper."""

import numpy as np
import pytest
from conftest import SEED
from made_training import METHODS, RATES, calm, close, random_problem, small_shop

from countersample import ClickLog
from countersample.errors import ParameterError
from countersample.plans import UNITS
from countersample.training import OPTIMIZERS, train, train_many


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
    with pytest.raises(
        ParameterError, match=r"start has norm .*, expected at most 0\.5, the radius"
    ):
        train(data, log, optimizer="dog", steps=10, start=good, radius=0.5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_batched_starts_equal_single_runs(optimizer):
    data, log = small_shop()
    rng = np.random.default_rng(SEED)
    rates = [RATES[optimizer], RATES[optimizer] / 2]
    starts = [np.zeros(data.n_features), *rng.normal(size=(4, data.n_features))]  # 8 + 2 at a time
    options = {
        "steps": 300, "optimizer": optimizer, "checkpoints": 4, "scale": np.full(5, 1.5),
        "l2": 0.01, "radius": 9.0,
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
