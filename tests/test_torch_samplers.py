"""The sampler draws what its plan says, on every rank, and goes on exactly where it stopped."""

import json
from itertools import chain, cycle, islice

import numpy as np
import pytest
import torch
from conftest import SEED
from made_plans import plan_of
from scipy.stats import chisquare
from torch.utils.data import DataLoader, TensorDataset

from countersample import ClickLog
from countersample.errors import DataError, ParameterError
from countersample.plans import PLANS, UNITS
from countersample.torch import CounterSampler, samplers

# So rarely would correct draws fail one check: it is safe to try any seed.
ALPHA = 1e-9
N_DRAWS = 40_000


@pytest.fixture
def log(rng):
    """Sixty clicks on four queries of three items; weights from 1 to 20."""
    query = np.r_[0:4, rng.integers(0, 4, 56)]
    return ClickLog(
        query=query, item=rng.integers(0, 3, 60), propensity=rng.choice([1, 0.5, 0.2, 0.05], 60)
    )


@pytest.fixture
def make(log, monkeypatch):
    """Make samplers of 30 draws an epoch, in blocks so small that it has several."""
    monkeypatch.setattr(samplers, "BLOCK", 8)
    return lambda **options: CounterSampler(log, **{"n_draws": 30, "seed": SEED} | options)


def p_value(draws, probabilities):
    counts = np.bincount(draws, minlength=len(probabilities))
    return chisquare(counts, len(draws) * probabilities).pvalue


# -- what is drawn -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "unit"), list(zip(PLANS, cycle(UNITS), strict=False)))
def test_draws_follow_the_plan(name, unit, log, rng):
    plan = plan_of(name, log, unit, rng)
    sampler = CounterSampler(log, unit=unit, plan=plan, n_draws=N_DRAWS, seed=SEED)
    assert p_value(list(sampler), plan.probabilities) > ALPHA
    assert p_value(list(sampler), plan.probabilities) > ALPHA  # in the next epoch too


def test_draws_one_after_the_other_are_independent(log):
    """Within a block and from one block to the next."""
    sampler = CounterSampler(log, unit="query", n_draws=100_000, seed=SEED)
    draws, p = np.array(list(sampler)), sampler.plan.probabilities
    pairs = len(p) * draws[:-1:2] + draws[1::2]
    assert p_value(pairs, np.outer(p, p).ravel()) > ALPHA
    block = samplers.BLOCK
    assert (
        p_value(len(p) * draws[:block] + draws[block : 2 * block], np.outer(p, p).ravel()) > ALPHA
    )


# -- over ranks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", [3, 20])
def test_the_ranks_share_one_stream(world_size, make):
    parts = [make(rank=rank, world_size=world_size) for rank in range(world_size)]
    drawn = np.array([list(part) for part in parts])
    assert drawn.shape == (world_size, -(-30 // world_size)) == (world_size, len(parts[0]))
    assert drawn.T.ravel().tolist() == list(make(n_draws=drawn.size))


# -- epochs --------------------------------------------------------------------------------------


def test_every_iteration_is_a_new_epoch(make):
    sampler = make()
    epochs = []
    for epoch in range(3):
        assert sampler.epoch == epoch
        epochs.append(list(sampler))
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert [list(again) for again in [make()] * 3] == epochs
    assert list(make(seed=SEED + 1)) != epochs[0]


# -- going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("world_size", "batch_size"), [(1, None), (3, 5)])
def test_going_on_at_every_point(batch_size, world_size, make):
    options = {"batch_size": batch_size, "rank": world_size - 1, "world_size": world_size}
    whole = make(**options)
    epochs = [list(whole) for _ in range(3)]
    for first in (0, 1):
        for n_done in range(len(whole) + 1):
            stopped = make(**options)
            stopped.set_epoch(first)
            list(islice(stopped, n_done))
            going_on = make(**options)
            going_on.load_state_dict(stopped.state_dict())
            if n_done < len(whole):
                assert going_on.epoch == first
                assert list(going_on) == epochs[first][n_done:]
            assert going_on.epoch == first + 1
            assert list(going_on) == epochs[first + 1]


@pytest.mark.parametrize("world_size", [1, 4])
def test_going_on_with_another_number_of_ranks(world_size, make):
    """Three ranks stop after 5 indices each; others take the 30 - 15 draws that are left."""
    stream = list(make())
    before = [make(rank=rank, world_size=3) for rank in range(3)]
    for sampler in before:
        list(islice(sampler, 5))
    states = [sampler.state_dict() for sampler in before]
    assert states[0] == states[1] == states[2]
    after = [make(rank=rank, world_size=world_size, batch_size=2) for rank in range(world_size)]
    drawn = []
    for sampler in after:
        sampler.load_state_dict(states[0])
        drawn.append(list(chain.from_iterable(sampler)))
    assert np.array(drawn).T.ravel().tolist()[:15] == stream[15:]
    assert {sampler.epoch for sampler in after} == {1}


def test_a_state_is_plain(make):
    sampler = make(batch_size=4)
    list(islice(sampler, 3))
    state = sampler.state_dict()
    assert json.loads(json.dumps(state)) == state
    with pytest.raises(ParameterError, match="used is 4, expected at most 3, as many were yielded"):
        sampler.state_dict(used=4)


# -- in a DataLoader -----------------------------------------------------------------------------

# Workers are forked while the threads of other tests may live, which later Pythons warn of.
forks = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@forks
@pytest.mark.parametrize(("as_batches", "workers"), [(False, 0), (True, 0), (True, 2)])
def test_in_a_data_loader(as_batches, workers, make):
    data = TensorDataset(torch.arange(100))
    expected = make()
    batches, singles = {"batch_sampler": make(batch_size=4)}, {"sampler": make(), "batch_size": 4}
    loader = DataLoader(data, num_workers=workers, **(batches if as_batches else singles))
    assert len(loader) == 8
    for _ in range(2):  # epochs
        assert torch.cat([batch for (batch,) in loader]).tolist() == list(expected)


@forks
@pytest.mark.parametrize("n_used", [5, 8])
def test_going_on_with_workers_that_ask_ahead(n_used, make):
    data = TensorDataset(torch.arange(100))
    sampler = make(batch_size=4)
    loader = DataLoader(data, num_workers=2, batch_sampler=sampler)
    batches = iter(loader)
    used = [next(batches)[0].tolist() for _ in range(n_used)]
    state = sampler.state_dict(used=n_used)
    if n_used < 8:
        assert state != sampler.state_dict()  # which is ahead
    del batches
    going_on = make(batch_size=4)
    going_on.load_state_dict(state)
    if n_used < 8:
        used += going_on
    assert used == list(make(batch_size=4))
    assert going_on.epoch == 1


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"plan": "best"}, "plan is 'best', expected a Plan or one of naive, ips, countersample"),
        ({"plan": "bounded"}, "plan 'bounded': missing a required argument: 'bounds'"),
        ({"n_draws": 10.5}, "n_draws is 10.5, expected a whole number"),
        ({"rank": 2, "world_size": 2}, "rank is 2, expected below 2, the world_size"),
    ],
)
def test_arguments_that_are_refused(options, message, make):
    with pytest.raises(ParameterError, match=message):
        make(**options)


def test_the_state_of_another_sampler_is_refused(make):
    sampler = make()
    with pytest.raises(DataError, match="another sampler, with plan 'ips': this one has 'counte"):
        sampler.load_state_dict(make(plan="ips").state_dict())
    columns = {"query": [0, 1, 2], "item": [0, 1, 1], "propensity": [1.0, 0.5, 0.5]}
    state = CounterSampler(ClickLog(**columns)).state_dict()
    columns["item"] = [0, 1, 2]
    with pytest.raises(DataError, match="another sampler, with fingerprint"):
        CounterSampler(ClickLog(**columns)).load_state_dict(state)


@pytest.mark.parametrize("change", [{"epoch": -1}, {"drawn": 1.5}, "seed"])
def test_a_damaged_state_is_refused(change, make):
    sampler = make()
    state = sampler.state_dict()
    if isinstance(change, str):
        del state[change]
    else:
        state |= change
    for wrong in (state, None, [], {}):
        with pytest.raises(DataError, match="the state is not one of a CounterSampler: expected"):
            sampler.load_state_dict(wrong)
    assert (sampler.epoch, len(list(sampler))) == (0, 30)
