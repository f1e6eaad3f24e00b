"""Verdicts on claims: the rule by hand and its error rates, every test of claims, the evidence."""

import itertools
from collections import Counter
from math import log

import numpy as np
import pytest
from chances import ALPHA, surprise
from study_results import make_cell, make_result

from countersample.errors import ParameterError
from countersample.study.claims import (
    State,
    evaluate_claims,
    outcome_of,
    states_of,
)
from countersample.study.grids import TESTS, Claim
from countersample.study.statistics import PairedTest, paired_test

NOISE = np.array([0.00, 0.01, -0.01, 0.02, -0.02])  # regret ×100, by run
WOBBLE = np.array([0.01, -0.01, 0.02, -0.02, 0.00])  # with another order: differences vary
THREE = (0.5, 1.0, 1.5)
MARGIN = 1.0
TRIALS = 2000
RUNS = [("", seed) for seed in range(5)]


# -- the rule ------------------------------------------------------------------------------------


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
        (0.50, "OPPOSITE", "HOLDS", "HOLDS"),
    ],
)
def test_one_setting_by_hand(difference, lower, higher, same):
    for direction, expected in (("lower", lower), ("higher", higher), ("same", same)):
        (state,) = states_of([five(difference)], direction, MARGIN)
        assert state.name == expected, direction
        # 0 ± 2.776: neither 0 nor 1 is ruled out.
        assert states_of([five(0.0, error=1.0)], direction, MARGIN) == [State.OPEN]


def test_holm_counts_the_settings():
    """t = 3 with 4 degrees of freedom has p = 0.040: enough alone, not as the first of three."""
    assert states_of([five(-0.3)], "lower", MARGIN) == [State.HOLDS]
    assert State.HOLDS not in states_of([five(-0.3)] * 3, "lower", MARGIN)
    # p of −2 is far below 0.05/3; 2 · 0.040 of the next is not below 0.05.
    first, second, third = states_of([five(-2.0), five(-0.3), five(0.0)], "lower", MARGIN)
    assert (first, second > 0, third > 0) == (State.HOLDS, False, False)


@pytest.mark.parametrize(
    ("states", "outcome", "majority_outcome"),
    [
        ("HH", "confirmed", "confirmed"),
        ("HO", "in part", "open"),
        ("HA", "in part", "not confirmed"),
        ("HX", "not confirmed", "not confirmed"),
        ("OOA", "not confirmed", "open"),
        ("HHHAX", "not confirmed", "confirmed"),
        ("OO", "open", "open"),
        ("", "open", "open"),
    ],
)
def test_outcome_of_states(states, outcome, majority_outcome):
    names = {"H": State.HOLDS, "O": State.OPEN, "A": State.ABSENT, "X": State.OPPOSITE}
    values = [names[letter] for letter in states]
    assert outcome_of(values) == outcome
    assert outcome_of(values, majority=True) == majority_outcome


@pytest.mark.slow
@pytest.mark.parametrize(
    ("differences", "direction", "outcomes", "rate", "majority"),
    [
        ([0.0] * 3, "lower", ("confirmed", "in part"), 0.025, False),  # holds nowhere
        ([0.0] * 3, "higher", ("confirmed", "in part"), 0.025, False),
        ([-3.0, -3.0, 0.0], "lower", ("confirmed",), 0.025, False),  # fails somewhere
        ([-MARGIN] * 3, "lower", ("not confirmed",), 0.025, False),  # holds: the hardest case
        ([0.0, 0.0, -MARGIN], "same", ("confirmed",), 0.05, False),  # not comparable
        ([MARGIN, -MARGIN, 0.0], "same", ("not confirmed",), 0.05, False),  # comparable
        ([-9.0] * 3 + [0.0] * 3, "lower", ("confirmed",), 0.025, True),  # no majority
    ],
)
def test_wrong_outcomes_are_rare(rng, differences, direction, outcomes, rate, majority):
    for spread in (0.3, 1.0):
        counts = simulate(rng, differences, direction, spread, majority=majority)
        count = sum(counts[outcome] for outcome in outcomes)
        # Whether the count may have this rate or a lower one; wrong with chance 1e-9.
        assert count <= rate * TRIALS or surprise(count, TRIALS, rate) <= log(1 / ALPHA)


def simulate(rng, differences, direction, spread, *, majority=False):
    """Outcomes of trials: five runs per setting, differences normal around the true ones."""
    noise = rng.normal(0, spread, (TRIALS, len(differences), len(RUNS)))
    samples = np.array(differences)[:, np.newaxis] + noise
    means = samples.mean(axis=2)
    errors = samples.std(axis=2, ddof=1) / np.sqrt(len(RUNS))
    return Counter(
        outcome_of(states_of(list(map(five, *trial)), direction, MARGIN), majority=majority)
        for trial in zip(means, errors, strict=True)
    )


# -- claims --------------------------------------------------------------------------------------


def verdict_on(regrets, claim, values=THREE, *, final=None, **options):
    """The verdict on a claim, with these regrets ×100 by method and value."""
    cells = {}
    for position, (method, row) in enumerate(regrets.items()):
        for column, (value, regret) in enumerate(zip(values, row, strict=True)):
            wobble = np.roll(WOBBLE if position else NOISE, column)
            end = final[method][column] + wobble / 100 if final else None
            cells["mq2008", method, value] = make_cell(regret + wobble, end, **options)
    (verdict,) = evaluate_claims(make_result(cells, claims=[claim]))
    return verdict


def claim(test, method="CounterSample", than="IPS-SGD", at=(), source="paper", **more):
    return Claim("In words.", test, method, than, at, source, **more)


def alone(test, **more):
    """A claim about one method."""
    return claim(test, than="", **more)


def example_of(test, **changes):
    compares = TESTS[test].compares
    at = (0.5,) if compares in {"others", "cases"} else ()
    method = "all" if compares == "cases" else "CounterSample"
    than = "IPS-SGD" if compares in {"methods", "leads"} else ""
    return claim(test, **{"method": method, "than": than, "at": at, **changes})


MIRROR = claim("higher", "IPS-SGD", "CounterSample")
MOSTLY = claim("mostly-best-at", "all", "", at=(0.5,))


@pytest.mark.parametrize(
    ("statement", "ours", "theirs", "outcome"),
    [
        (claim("lower"), [1, 1, 1], [2, 2, 2], "confirmed"),
        (MIRROR, [1, 1, 1], [2, 2, 2], "confirmed"),
        (claim("lower"), [1, 1.99, 2.01], [2, 2, 2], "in part"),  # no difference at two
        (claim("lower"), [1, 1, 3], [2, 2, 2], "not confirmed"),  # significantly wrong at one
        (claim("lower"), [2, 2, 2], [2, 2, 2], "open"),  # 0 ± 0.036: 0.05 is ruled out of one only
        (claim("lower", at=(1.0, 1.5)), [3, 1, 1], [2, 2, 2], "confirmed"),
        (claim("comparable", margin=0.1), [2, 2, 2], [2, 2, 2.001], "confirmed"),
        (claim("comparable"), [2, 2, 2], [2, 2, 3], "not confirmed"),
        (claim("lead-grows"), [1, 1, 1], [1, 2, 3], "confirmed"),
        (claim("lead-shrinks"), [1, 1, 1], [1, 2, 3], "not confirmed"),
        (claim("lead-grows"), [1, 1, 1], [2, 9, 2], "not confirmed"),  # only the ends count
        (claim("lead-shrinks", at=(1.0, 1.5)), [1, 1, 1], [1, 5, 2], "confirmed"),
        (alone("grows"), [1, 0, 2], [], "confirmed"),
        (alone("shrinks"), [2, 3, 1], [], "confirmed"),
        (alone("best-at", at=(0.5,)), [1, 2, 3], [], "confirmed"),
        (alone("best-at", at=(0.5,)), [1, 1, 3], [], "in part"),
        (alone("steady", margin=0.06), [1, 1, 1], [], "confirmed"),
        (alone("steady", margin=0.06), [1, 1, 2], [], "not confirmed"),  # 1.5 with 0.5 and 1.0
        (MOSTLY, [1, 2, 2], [1, 2, 0.5], "confirmed"),  # 3 of 4 cases
        (MOSTLY, [1, 2, 2], [1, 0.5, 0.5], "not confirmed"),  # 2 of 4 are no majority
        (MOSTLY, [1, 2, 2], [1, 1.03, 0.97], "open"),
    ],
)
def test_claims_about_regret(statement, ours, theirs, outcome):
    regrets = {"CounterSample": ours} | ({"IPS-SGD": theirs} if theirs else {})
    assert verdict_on(regrets, statement).outcome == outcome


@pytest.mark.parametrize(
    ("statement", "outcome"),
    [
        (claim("ends-higher"), "confirmed"),
        (claim("ends-lower", "IPS-SGD", "CounterSample"), "confirmed"),
        (claim("ends-lowest-at", "IPS-SGD", "", at=(0.5,)), "confirmed"),
        (claim("ends-lowest-at", "IPS-SGD", "", at=(1.0,)), "not confirmed"),
        (claim("ends-rising", "IPS-SGD", "", at=(0.5, 1.0)), "confirmed"),
        (claim("ends-rising", "IPS-SGD", "", at=(1.0, 0.5)), "not confirmed"),  # in this order
    ],
)
def test_claims_about_the_end_ignore_regret(statement, outcome):
    regrets = {"CounterSample": [3] * 3, "IPS-SGD": [2] * 3}
    final = {"CounterSample": [0.79] * 3, "IPS-SGD": [0.7, 0.75, 0.75]}
    assert verdict_on(regrets, statement, final=final).outcome == outcome


def test_evidence_counts_the_diverged_runs_of_a_cell_once():
    """In best-at the chosen setting is compared twice."""
    regrets = {"CounterSample": [1, 2, 3]}
    verdict = verdict_on(regrets, alone("best-at", at=(0.5,)), n_diverged=1)
    assert "3 of 15 runs diverged" in verdict.evidence


def test_runs_without_spread_need_no_test_and_one_run_shows_nothing():
    runs = [paired_test([d] * 5, [0] * 5, RUNS) for d in (-2.0, 0.0, 2.0)]
    states = [states_of([run], "lower", MARGIN)[0] for run in runs]
    assert states == [State.HOLDS, State.ABSENT, State.OPPOSITE]
    one = paired_test([1.0], [9.0], RUNS[:1])
    assert states_of([one, one], "lower", MARGIN) == [State.OPEN, State.OPEN]


def test_folds_are_compared_not_seeds():
    """Ten seeds of two folds that disagree are no evidence, however sure each fold is."""
    folds = ("Fold1", "Fold2")
    ours = make_cell([*(1 + NOISE), *(2.5 + NOISE)], folds=folds)
    other = make_cell([*(2 + WOBBLE), *(2 + WOBBLE)], folds=folds)
    cells = {("a", "CounterSample", 1): ours, ("a", "IPS-SGD", 1): other}
    claims = [claim(test) for test in ("lower", "higher", "comparable")]
    verdicts = evaluate_claims(make_result(cells, claims=claims))
    assert {verdict.outcome for verdict in verdicts} == {"open"}


@pytest.mark.parametrize(
    ("statement", "ours", "theirs", "evidence"),
    [
        (  # differences deviate by 0.0292 over five runs
            claim("lower"), [1], [2],
            ("Regret ×100 for CounterSample minus for IPS-SGD is 1.000 − 2.000 = −1.000, 95 % "
            "interval −1.036 to −0.964, p < 0.001: lower."),
        ),
        (claim("lower"), [2], [2], "…, p = 1: not lower by 0.050 or more."),
        (claim("lower", margin=0.03), [2], [2], "…: open."),
        # 0 ± 2.132·0.0292/√5
        (claim("comparable"), [2], [2], "…90 % interval −0.028 to 0.028: within ±0.050."),
        (
            claim("lower"), [1, 1.5, 1.98], [2, 2, 2],
            ("Regret ×100 for CounterSample minus for IPS-SGD is −1.000 to −0.020 at 3 settings: "
            "lower at 2, open at 1."),
        ),
        (
            alone("best-at", at=(0.5,)), [1, 2, 4], [],
            "…at 0.5 minus elsewhere is −3.000 to −1.000 at 2 other settings: lower at 2.",
        ),
        (
            alone("steady", margin=0.1), [1, 1, 2], [],
            "…at 3 pairs of settings: within ±0.100 at 1, beyond ±0.100 at 2.",
        ),
    ],
)  # fmt: skip
def test_evidence(statement, ours, theirs, evidence):
    regrets = {"CounterSample": ours} | ({"IPS-SGD": theirs} if theirs else {})
    text = verdict_on(regrets, statement, values=THREE[: len(ours)]).evidence
    assert text.endswith(evidence[1:]) if evidence.startswith("…") else text == evidence


@pytest.mark.parametrize("test", TESTS)
def test_every_test_of_claims(test):
    """One run decides nothing; if nothing differs, only claims of equality hold."""
    is_pooled = TESTS[test].compares == "cases"  # one verdict over all datasets
    same = "confirmed" if TESTS[test].direction == "same" else "not confirmed"
    for runs, outcome in ((1 + NOISE, same), ([1.0], "open")):
        places = itertools.product("ab", ("CounterSample", "IPS-SGD"), THREE)
        cells = {place: make_cell(runs) for place in places}
        verdicts = evaluate_claims(make_result(cells, claims=[example_of(test)]))
        assert [verdict.dataset for verdict in verdicts] == ([""] if is_pooled else [*"ab"])
        for verdict in verdicts:
            assert verdict.outcome == outcome
            assert ("One run is too few" in verdict.evidence) == (outcome == "open")
            assert "nan" not in verdict.evidence


@pytest.mark.parametrize(
    ("misfit", "message"),
    [
        (claim("faster"), "test is 'faster'"),
        (claim("lower", method="SGDD"), "method is 'SGDD'"),
        (example_of("mostly-best-at", method="IPS-SGD"), "method is 'IPS-SGD'"),
        (example_of("steady", margin=0.0), "margin is 0.0"),
        (example_of("best-at", on="mq2008"), "on is 'mq2008'"),
        (example_of("lead-grows", at=(0.7,)), "at has 0.7"),
        (example_of("ends-rising", at=(0.5, 0.5)), "each value once"),
        (example_of("shrinks", source="me"), "source is 'me'"),
        (claim("lower", than="CounterSample"), "than is 'CounterSample'"),
        (claim("grows"), "than is 'IPS-SGD'"),
        (alone("best-at", at=(0.5, 1.0)), "needs one value"),
        (claim("lead-grows", at=(0.5,)), "needs two values or more"),
    ],
)
def test_a_claim_that_does_not_fit_is_rejected(misfit, message):
    with pytest.raises(ParameterError, match=message):
        misfit.check(["IPS-SGD", "CounterSample"], THREE)
