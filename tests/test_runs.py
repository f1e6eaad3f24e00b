"""A run that was stopped goes on from its last checkpoint and ends with the same bytes."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import SEED

from countersample import simulate_clicks, synthetic
from countersample.errors import CounterSampleError, DataError
from countersample.training import runs, train

OPTIONS = {
    "learning_rate": 1e-4, "steps": 3_000_000, "optimizer": "adam", "unit": "query",
    "checkpoints": 7,
}  # fmt: skip
CHILD = f"""
import sys
from countersample import simulate_clicks, synthetic
from countersample.training import runs, train
runs.SECONDS_BETWEEN_SAVES = 0
data = synthetic("tiny", n_queries=60, rng=0)
log = simulate_clicks(data, data.features[:, 0], 3000, rng=0)
train(data, log, **{OPTIONS}, rng={SEED}, resume=sys.argv[1],
      progress=lambda what, share: print(share, flush=True))
print("over", flush=True)
"""


@pytest.fixture(scope="module")
def shop():
    data = synthetic("tiny", n_queries=60, rng=0)
    return data, simulate_clicks(data, data.features[:, 0], 3000, rng=0)


def everything(result):
    arrays = (result.coef, result.average_coef, result.history.coef, result.history.average_coef)
    return b"".join(array.tobytes() for array in arrays)


@pytest.mark.parametrize(
    ("bits", "optimizer"),
    [("PCG64", {"optimizer": "sgd", "momentum": 0.5}), ("MT19937", {"optimizer": "adam"}),
     ("Philox", {"optimizer": "dog", "start": [1.0, 0, 0, 0, 0], "scale": [3.0] * 5}),
     ("SFC64", {"optimizer": "adagrad"}), ("PCG64", {"optimizer": "amsgrad", "beta2": 0.9}),
     ("PCG64", {"optimizer": "sgd", "variance": 10.0})],
)  # fmt: skip
def test_stopped_after_any_chunk(shop, tmp_path, monkeypatch, bits, optimizer):
    monkeypatch.setattr(runs, "SECONDS_BETWEEN_SAVES", 0)
    monkeypatch.setattr("countersample.training.runs.CHUNK", 100)
    data, log = shop
    options = OPTIONS | {"steps": 1050, "batch_size": 3, **optimizer}

    def generator():
        return np.random.Generator(getattr(np.random, bits)(SEED))

    whole = everything(train(data, log, **options, rng=generator()))
    for stop in (33, 495, 1023):
        state = tmp_path / f"{stop}.npz"

        def progress(_, share, stop=stop):
            if share * options["steps"] >= stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(data, log, **options, rng=generator(), resume=state, progress=progress)
        resumed = train(data, log, **options, rng=generator(), resume=state)
        assert everything(resumed) == whole


@pytest.mark.slow
def test_killed_at_random_moments(shop, tmp_path, rng):
    state = tmp_path / "state.npz"
    n_kills, output = 0, ""
    while "over" not in output:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, state], stdout=subprocess.PIPE, text=True
        )
        output = child.stdout.readline()  # it is under way
        time.sleep(rng.uniform(0, 0.15))
        if n_kills < 6:
            child.send_signal(signal.SIGKILL)
            n_kills += 1
        output += child.communicate()[0]
        assert child.returncode in {0, -signal.SIGKILL}
    assert n_kills >= 3
    whole = train(*shop, **OPTIONS, rng=SEED)
    resumed = train(*shop, **OPTIONS, rng=SEED, resume=state)  # nothing is left to do
    assert everything(resumed) == everything(whole)


@pytest.mark.parametrize(
    "change",
    [{"rng": 1}, {"learning_rate": 2e-4}, {"steps": 99}, {"unit": "click"}, {"checkpoints": 6},
     {"method": "ips"}, {"beta1": 0.5}, {"l2": 0.1}, {"clip": 0.5}, {"objective": "dcg"},
     {"temper": 0.5}, {"variance": 1.0}, {"start": [0.0, 0.0, 1e-9, 0.0, 0.0]},
     {"scale": [1.0] * 5}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_other_settings_are_refused(shop, tmp_path, change):
    options = OPTIONS | {"steps": 100, "rng": 0, "resume": tmp_path / "state.npz"}
    train(*shop, **options)
    with pytest.raises(DataError, match="other data or settings: name another file"):
        train(*shop, **options | change)


def flipped(whole, share):
    at = int(len(whole) * share)
    return whole[:at] + bytes(255 - byte for byte in whole[at : at + 16]) + whole[at + 16 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda _: b"not a state\n",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-1],
        lambda whole: flipped(whole, 0.02),
        lambda whole: flipped(whole, 0.6),
    ],
    ids=["empty", "text", "half", "cut short", "flipped at the start", "flipped in the middle"],
)
def test_damage_is_refused_with_a_sentence(shop, tmp_path, damage):
    state = tmp_path / "state.npz"
    options = OPTIONS | {"steps": 100, "rng": 0, "resume": state}
    train(*shop, **options)
    state.write_bytes(damage(state.read_bytes()))
    with pytest.raises(DataError, match=r"state\.npz: (not the state|the state of a run)"):
        train(*shop, **options)


@pytest.mark.parametrize(
    "change",
    [
        {"w": np.zeros((1, 2))},
        {"weights_at": np.zeros((1, 0, 5))},
        {"stopped": np.zeros(1)},
        {"step": -1},
        {"step": 2**40},
        {"step": "3"},
        {"rng": {"bit_generator": "PCG64"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_state_of_another_shape_never_reaches_compiled_code(shop, tmp_path, change):
    state = tmp_path / "state.npz"
    options = OPTIONS | {"steps": 10, "rng": 0, "resume": state}
    train(*shop, **options)
    with np.load(state) as archive:
        arrays = dict(archive)
    note = json.loads(arrays.pop("note").tobytes())
    note |= {name: value for name, value in change.items() if name in note}
    arrays |= {name: value for name, value in change.items() if name in arrays}
    np.savez(state, note=np.frombuffer(json.dumps(note).encode(), np.uint8), **arrays)
    with pytest.raises(DataError, match="not the state of a training run, or damaged"):
        train(*shop, **options)


def test_a_path_that_cannot_be_written_is_found_out_at_once(shop, tmp_path):
    calls = []
    with pytest.raises(CounterSampleError, match="cannot be written"):
        train(*shop, **OPTIONS, rng=0, resume=tmp_path / "no" / "x.npz", progress=calls.append)
    assert not calls
