"""The rule of verdicts: worked by hand, and its error rates by simulation."""

from collections import Counter
from math import log

import numpy as np
import pytest
from chances import ALPHA, surprise

from countersample.study.findings.claims import State, outcome_of, states_of
from countersample.study.findings.statistics import PairedTest, paired_test

MARGIN = 1.0
TRIALS = 4000
RUNS = [("", seed) for seed in range(5)]


def five(difference, error=0.1):
    """A test over five runs: t with 4 degrees of freedom has quantiles 2.776 and 2.132."""
    return PairedTest(difference, error, 0.5, 0.0, 5)


@pytest.mark.parametrize(
    ("difference", "lower", "higher", "same"),
    [
        (-1.50, "HOLDS", "OPPOSITE", "OPPOSITE"),  # −1.50 ± 0.28 is all below −1
        (-0.90, "HOLDS", "OPPOSITE", "OPEN"),  # −0.90 ± 0.21 reaches beyond −1
        (-0.50, "HOLDS", "OPPOSITE", "HOLDS"),  # certain, and small
        (-0.27, "ABSENT", "ABSENT", "HOLDS"),  # ± 0.28: 0 is within, 1 is far
        (0.00, "ABSENT", "ABSENT", "HOLDS"),
        (0.50, "OPPOSITE", "HOLDS", "HOLDS"),
    ],
)
def test_one_setting_by_hand(difference, lower, higher, same):
    for direction, expected in (("lower", lower), ("higher", higher), ("same", same)):
        (state,) = states_of([five(difference)], direction, MARGIN)
        assert state.name == expected, direction


@pytest.mark.parametrize("direction", ["lower", "higher", "same"])
def test_too_noisy_to_tell(direction):
    """0 ± 2.776: neither 0 nor 1 is ruled out."""
    assert states_of([five(0.0, error=1.0)], direction, MARGIN) == [State.OPEN]


def test_holm_counts_the_settings():
    """t = 3 with 4 degrees of freedom has p = 0.040: enough alone, not as the first of three."""
    assert states_of([five(-0.3)], "lower", MARGIN) == [State.HOLDS]
    assert State.HOLDS not in states_of([five(-0.3)] * 3, "lower", MARGIN)
    # p of −2 is far below 0.05/3; 2 · 0.040 of the next is not below 0.05.
    first, second, third = states_of([five(-2.0), five(-0.3), five(0.0)], "lower", MARGIN)
    assert (first, second > 0, third > 0) == (State.HOLDS, False, False)


def test_runs_without_any_spread():
    """Differences that are all −2, 0 or 2 need no test."""
    runs = [paired_test([d] * 5, [0] * 5, RUNS) for d in (-2.0, 0.0, 2.0)]
    states = [states_of([run], "lower", MARGIN)[0] for run in runs]
    assert states == [State.HOLDS, State.ABSENT, State.OPPOSITE]
    same = [states_of([run], "same", MARGIN)[0] for run in runs]
    assert same == [State.OPPOSITE, State.HOLDS, State.OPPOSITE]


def test_one_run_shows_nothing():
    run = paired_test([1.0], [9.0], RUNS[:1])
    for direction in ("lower", "higher", "same"):
        assert states_of([run, run], direction, MARGIN) == [State.OPEN, State.OPEN]


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        ("HH", "confirmed"),
        ("HO", "in part"),
        ("HA", "in part"),
        ("HX", "not confirmed"),
        ("OX", "not confirmed"),
        ("OA", "not confirmed"),
        ("AA", "not confirmed"),
        ("OO", "open"),
        ("", "open"),
    ],
)
def test_what_states_come_to(states, outcome):
    names = {"H": State.HOLDS, "O": State.OPEN, "A": State.ABSENT, "X": State.OPPOSITE}
    assert outcome_of([names[letter] for letter in states]) == outcome


@pytest.mark.parametrize(
    ("holds", "fails", "undecided", "outcome"),
    [
        (3, 2, 0, "confirmed"),
        (3, 3, 0, "not confirmed"),
        (3, 0, 3, "open"),  # half is no majority, and the rest may hold
        (0, 3, 3, "not confirmed"),
        (0, 2, 3, "open"),
        (0, 0, 0, "open"),
    ],
)
def test_a_majority(holds, fails, undecided, outcome):
    states = [State.HOLDS] * holds + [State.ABSENT] * fails + [State.OPEN] * undecided
    assert outcome_of(states, majority=True) == outcome


# -- error rates -----------------------------------------------------------------------------------


def simulated(rng, differences, direction, spread, *, majority=False):
    """Outcomes of trials: five runs a setting, differences normal around the true ones."""
    noise = rng.normal(0, spread, (TRIALS, len(differences), len(RUNS)))
    samples = np.array(differences)[:, np.newaxis] + noise
    means = samples.mean(axis=2)
    errors = samples.std(axis=2, ddof=1) / np.sqrt(len(RUNS))
    return Counter(
        outcome_of(states_of(list(map(five, *trial)), direction, MARGIN), majority=majority)
        for trial in zip(means, errors, strict=True)
    )


def at_most(count, rate):
    """Whether a count of TRIALS may have this rate or a lower one; wrong with chance 1e-9."""
    return count <= rate * TRIALS or surprise(count, TRIALS, rate) <= log(1 / ALPHA)


@pytest.mark.parametrize("spread", [0.3, 1.0])
@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_a_claim_that_holds_nowhere_is_seldom_confirmed(rng, direction, spread):
    """Even in part: at most 2.5 %, with no difference at any of three settings."""
    found = simulated(rng, [0.0] * 3, direction, spread)
    assert at_most(found["confirmed"] + found["in part"], 0.025)


@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_a_claim_that_fails_somewhere_is_seldom_wholly_confirmed(rng, spread):
    found = simulated(rng, [-3.0, -3.0, 0.0], "lower", spread)
    assert at_most(found["confirmed"], 0.025)


@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_a_claim_that_holds_is_seldom_called_not_confirmed(rng, spread):
    """With differences of the margin exactly, the hardest case."""
    found = simulated(rng, [-MARGIN] * 3, "lower", spread)
    assert at_most(found["not confirmed"], 0.025)


@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
def test_what_is_not_comparable_is_seldom_called_so(rng, spread):
    """At most 5 %, with a difference of the margin; where power is small it is open instead."""
    found = simulated(rng, [MARGIN], "same", spread)
    assert at_most(found["confirmed"], 0.05)
    found = simulated(rng, [0.0, 0.0, -MARGIN], "same", spread)
    assert at_most(found["confirmed"], 0.05)


@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_what_is_comparable_is_seldom_denied(rng, spread):
    found = simulated(rng, [MARGIN, -MARGIN, 0.0], "same", spread)
    assert at_most(found["not confirmed"], 0.05)


def test_noise_makes_claims_open_and_not_comparable(rng):
    """With a spread of five margins nearly nothing is decided, and least of all equality."""
    for direction in ("lower", "same"):
        found = simulated(rng, [0.0], direction, 5.0)
        assert found["open"] > 0.9 * TRIALS


def test_a_majority_that_does_not_exist_is_seldom_confirmed(rng):
    """Three of six cases hold: a fourth is found with a chance of at most 2.5 %."""
    found = simulated(rng, [-9.0] * 3 + [0.0] * 3, "lower", 1.0, majority=True)
    assert at_most(found["confirmed"], 0.025)


def test_enough_runs_decide(rng):
    """Where the noise is a tenth of the margin, all three decisions are made nearly always."""
    for differences, direction, outcome in (
        ([-1.0] * 3, "lower", "confirmed"),
        ([0.0] * 3, "lower", "not confirmed"),
        ([0.0] * 3, "same", "confirmed"),
        ([2.0, 0.0, 0.0], "same", "not confirmed"),
    ):
        assert simulated(rng, differences, direction, 0.1)[outcome] > 0.9 * TRIALS
