"""Verdicts on claims: right where the answer is known, honest where it is not."""

import itertools

import numpy as np
import pytest
from study_results import make_cell, make_result

from countersample.errors import ParameterError
from countersample.study.design.claims import TESTS
from countersample.study.design.grids import Claim
from countersample.study.findings.claims import judge

NOISE = np.array([0.00, 0.01, -0.01, 0.02, -0.02])  # regret ×100, by run
WOBBLE = np.array([0.01, -0.01, 0.02, -0.02, 0.00])  # with another order: differences vary
THREE = (0.5, 1.0, 1.5)


def made(regrets, claim, values=THREE, *, final=None, noise=1.0, **options):
    """A result with these regrets ×100 by method and value, and the verdict on one claim."""
    cells = {}
    for position, (method, row) in enumerate(regrets.items()):
        for column, (value, regret) in enumerate(zip(values, row, strict=True)):
            wobble = np.roll(WOBBLE if position else NOISE, column)
            end = final[method][column] + noise * wobble / 100 if final else None
            cells["mq2008", method, value] = make_cell(regret + noise * wobble, end, **options)
    (verdict,) = judge(make_result(cells, claims=[claim]))
    return verdict


def claim(test, method="CounterSample", than="IPS-SGD", at=(), source="paper"):
    return Claim("In words.", test, method, than, at, source)


# -- one comparison a setting --------------------------------------------------------------------


def test_a_verdict_carries_its_claim():
    verdict = made({"CounterSample": [1] * 3, "IPS-SGD": [2] * 3}, claim("lower", source="beyond"))
    assert (verdict.study, verdict.dataset, verdict.claim, verdict.source) == (
        "optimizers", "mq2008", "In words.", "beyond",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "outcome"),
    [
        ([1, 1, 1], "confirmed"),
        ([1, 1, 2], "in part"),  # no difference at one
        ([1, 1.99, 2.01], "in part"),
        ([1, 1, 3], "not confirmed"),  # significantly wrong at one
        ([2, 2, 2], "not confirmed"),
        ([3, 3, 3], "not confirmed"),
    ],
)
def test_lower_and_its_mirror_higher(ours, outcome):
    regrets = {"CounterSample": ours, "IPS-SGD": [2, 2, 2]}
    assert made(regrets, claim("lower")).outcome == outcome
    assert made(regrets, claim("higher", "IPS-SGD", "CounterSample")).outcome == outcome


def test_lower_at_some_values_only():
    regrets = {"CounterSample": [3, 1, 1], "IPS-SGD": [2, 2, 2]}
    assert made(regrets, claim("lower", at=(1.0, 1.5))).outcome == "confirmed"
    assert made(regrets, claim("lower", at=(0.5, 1.5))).outcome == "not confirmed"


def test_ends_looks_at_the_last_point_and_not_at_regret():
    regrets = {"CounterSample": [3] * 3, "IPS-SGD": [2] * 3}
    final = {"CounterSample": [0.79] * 3, "IPS-SGD": [0.75] * 3}
    assert made(regrets, claim("ends-higher"), final=final).outcome == "confirmed"
    assert made(regrets, claim("ends-lower"), final=final).outcome == "not confirmed"
    turned = claim("ends-lower", "IPS-SGD", "CounterSample")
    assert made(regrets, turned, final=final).outcome == "confirmed"


def test_p_values_are_corrected_within_the_claim():
    """p = 0.03 is significant alone, and not as one of three with the same p."""
    ours = make_cell([1.0, 1.1, 1.2, 1.3])
    other = make_cell(100 * ours.regrets + [0.05, 0.1, 0.2, 0.25])
    cells = {("a", "CounterSample", v): ours for v in THREE}
    cells |= {("a", "IPS-SGD", v): other for v in THREE}
    claims = [claim("lower", at=(0.5,)), claim("lower")]
    outcomes = [verdict.outcome for verdict in judge(make_result(cells, claims=claims))]
    assert outcomes == ["confirmed", "not confirmed"]


def test_comparable():
    near = {"CounterSample": [2, 2, 2], "IPS-SGD": [2, 2, 2.001]}
    verdict = made(near, claim("comparable"))
    assert verdict.outcome == "confirmed"
    assert "Not significant is not the same as equal" in verdict.evidence
    far = {"CounterSample": [2, 2, 2], "IPS-SGD": [2, 2, 3]}
    assert made(far, claim("comparable")).outcome == "not confirmed"
    assert made(far, claim("comparable", at=(0.5,))).outcome == "confirmed"


def test_comparable_tells_how_far_off_it_may_be():
    """Differences ×100 of −0.01, 0.02, −0.03, 0.04, −0.02: 0 ± 2.776·0.0292/√5 = 0.036."""
    verdict = made({"CounterSample": [2], "IPS-SGD": [2]}, claim("comparable"), values=[1])
    assert "95 % interval −0.036 to 0.036, p = 1." in verdict.evidence
    assert verdict.evidence.endswith("a difference of 0.036 is not ruled out.")


# -- settings against each other -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "grows", "shrinks"),
    [
        ([1, 1, 1], [1, 2, 3], "confirmed", "not confirmed"),
        ([1, 1, 1], [3, 2, 1], "not confirmed", "confirmed"),
        ([1, 2, 3], [2, 3, 4], "not confirmed", "not confirmed"),
        ([3, 2, 1], [1, 1, 1], "confirmed", "not confirmed"),  # from behind to level
        ([1, 1, 1], [2, 9, 2], "not confirmed", "not confirmed"),  # only the ends count
    ],
)
def test_leads(ours, theirs, grows, shrinks):
    regrets = {"CounterSample": ours, "IPS-SGD": theirs}
    assert made(regrets, claim("lead-grows")).outcome == grows
    assert made(regrets, claim("lead-shrinks")).outcome == shrinks


def test_lead_between_given_values():
    regrets = {"CounterSample": [1, 1, 1], "IPS-SGD": [1, 5, 2]}
    assert made(regrets, claim("lead-shrinks", at=(1.0, 1.5))).outcome == "confirmed"
    evidence = made(regrets, claim("lead-shrinks", at=(1.0, 1.5))).evidence
    assert (
        "The lead in regret ×100 is 1.000 at 1.5 and 4.000 at 1: a difference of −3.000" in evidence
    )


@pytest.mark.parametrize(
    ("ours", "grows", "shrinks"),
    [
        ([1, 0, 2], "confirmed", "not confirmed"),
        ([2, 3, 1], "not confirmed", "confirmed"),
        ([1, 2, 1], "not confirmed", "not confirmed"),
    ],
)
def test_regret_over_the_settings(ours, grows, shrinks):
    for test, outcome in (("grows", grows), ("shrinks", shrinks)):
        assert made({"Biased-SGD": ours}, claim(test, "Biased-SGD", "")).outcome == outcome


@pytest.mark.parametrize(
    ("ours", "outcome"),
    [
        ([1, 2, 3], "confirmed"),
        ([1, 1, 3], "in part"),
        ([2, 1, 3], "not confirmed"),
        ([1, 1, 1], "not confirmed"),
    ],
)
def test_best_at(ours, outcome):
    asked = claim("best-at", than="", at=(0.5,))
    assert made({"CounterSample": ours}, asked).outcome == outcome


# -- evidence ------------------------------------------------------------------------------------


def test_evidence_of_one_comparison():
    """1 against 2, with differences that deviate by 0.0292 over five runs."""
    verdict = made({"CounterSample": [1], "IPS-SGD": [2]}, claim("lower"), values=[1])
    assert verdict.evidence == (
        "Regret ×100 is 1.000 for CounterSample and 2.000 for IPS-SGD: a difference of −1.000 "
        "(50 % lower), 95 % interval −1.036 to −0.964, p < 0.001."
    )


def test_evidence_of_several_comparisons():
    verdict = made({"CounterSample": [1, 1.5, 1.98], "IPS-SGD": [2] * 3}, claim("lower"))
    assert verdict.outcome == "in part"
    assert verdict.evidence == (
        "Regret ×100 is lower for CounterSample than for IPS-SGD at 3 of 3 settings, significantly "
        "at 2; the differences are −1.000 to −0.020 (1–50 % lower)."
    )


def test_evidence_against_a_claim():
    verdict = made({"CounterSample": [1, 3, 3], "IPS-SGD": [2] * 3}, claim("lower"))
    assert verdict.evidence == (
        "Regret ×100 is lower for CounterSample than for IPS-SGD at 1 of 3 settings, significantly "
        "at 1, and significantly higher at 2; the differences are −1.000 to 1.000."
    )


def test_evidence_between_settings():
    verdict = made({"CounterSample": [1, 2, 4]}, claim("best-at", than="", at=(0.5,)))
    assert verdict.evidence == (
        "Regret ×100 is lower at 0.5 than at 2 of 2 other settings, significantly at 2; the "
        "differences are −3.000 to −1.000 (50–75 % lower)."
    )


def test_evidence_on_what_is_comparable():
    verdict = made({"CounterSample": [2, 2, 2], "IPS-SGD": [2, 2, 3]}, claim("comparable"))
    assert verdict.evidence == (
        "Regret ×100 for CounterSample and for IPS-SGD differs significantly at 1 of 3 settings; "
        "the differences are −1.000 to 0.000."
    )


@pytest.mark.parametrize("regrets", [(-1, 1), (-2, -1)])
def test_no_shares_of_negative_regret(regrets):
    ours, theirs = regrets
    verdict = made({"CounterSample": [ours] * 3, "IPS-SGD": [theirs] * 3}, claim("lower"))
    assert verdict.outcome == "confirmed"
    assert "%" not in verdict.evidence


def test_no_shares_of_what_is_not_regret():
    regrets = {"CounterSample": [1, 1, 1], "IPS-SGD": [1, 1, 1]}
    final = {"CounterSample": [0.6] * 3, "IPS-SGD": [0.7] * 3}
    evidence = made(regrets, claim("ends-lower"), final=final).evidence
    assert "the differences are −0.1000 to −0.1000." in evidence


def test_diverged_runs_are_told():
    verdict = made({"CounterSample": [1], "IPS-SGD": [2]}, claim("lower"), [1], n_diverged=2)
    assert "4 of 10 runs diverged; they count" in verdict.evidence


def test_cells_are_counted_once():
    """In best-at the chosen setting is compared twice."""
    verdict = made({"CounterSample": [1, 2, 3]}, claim("best-at", than="", at=(0.5,)), n_diverged=1)
    assert "3 of 15 runs diverged" in verdict.evidence


def test_folds_are_what_is_compared():
    """Ten seeds of two folds that disagree are no evidence, however sure each fold is."""
    folds = ("Fold1", "Fold2")
    ours = make_cell([*(1 + NOISE), *(2.5 + NOISE)], folds=folds)
    other = make_cell([*(2 + WOBBLE), *(2 + WOBBLE)], folds=folds)
    cells = {("a", "CounterSample", 1): ours, ("a", "IPS-SGD", 1): other}
    for test in ("lower", "higher"):
        (verdict,) = judge(make_result(cells, claims=[claim(test)]))
        assert verdict.outcome == "not confirmed"
    (verdict,) = judge(make_result(cells, claims=[claim("comparable")]))
    assert verdict.outcome == "confirmed"


# -- all tests -----------------------------------------------------------------------------------


def check(claim, grid):
    claim.check([method.name for method in grid.methods], grid.values)


def example_of(test, **changes):
    asks = TESTS[test]
    at = (0.5,) if asks.compares == "others" else ()
    options = {"than": "IPS-SGD" if asks.than else "", "at": at, **changes}
    return claim(test, **options)


@pytest.mark.parametrize("test", TESTS)
def test_one_run_confirms_nothing(test):
    cells = {
        ("a", method, value): make_cell([regret])
        for (method, regret), value in itertools.product(
            {"CounterSample": 1, "IPS-SGD": 2}.items(), THREE
        )
    }
    (verdict,) = judge(make_result(cells, claims=[example_of(test)]))
    assert verdict.outcome == "not confirmed"
    assert "One run is too few for a test." in verdict.evidence
    assert "nan" not in verdict.evidence
    assert "interval" not in verdict.evidence


@pytest.mark.parametrize("test", TESTS)
def test_a_verdict_for_every_dataset_and_claim(test):
    cells = {
        (dataset, method, value): make_cell(1 + NOISE)
        for dataset, method, value in itertools.product("ab", ("CounterSample", "IPS-SGD"), THREE)
    }
    verdicts = judge(make_result(cells, claims=[example_of(test)] * 2))
    assert [verdict.dataset for verdict in verdicts] == [*"abab"]
    # Nothing differs anywhere, so only one kind of claim holds.
    assert {verdict.outcome for verdict in verdicts} == {
        "confirmed" if test == "comparable" else "not confirmed"
    }


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "SGDD"}, "method is 'SGDD', expected one of IPS-SGD, CounterSample"),
        ({"at": (0.7,)}, "at has 0.7, expected values of the study: 0.5, 1.0, 1.5"),
        ({"at": (0.5, 0.5)}, "at is .*expected each value once"),
        ({"source": "me"}, "source is 'me', expected one of paper, beyond"),
        ({"than": "SGDD"}, "than is 'SGDD'"),
    ],
)
def test_what_is_wrong_with_a_claim_is_named(test, changes, message):
    grid = make_grid()
    check(example_of(test), grid)
    with pytest.raises(ParameterError, match=message):
        check(example_of(test, **changes), grid)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (claim("faster"), "test is 'faster', expected one of lower, higher"),
        (claim("lower", than=""), "than is '', expected one of IPS-SGD"),
        (claim("lower", than="CounterSample"), "than is 'CounterSample', expected one of IPS-SGD"),
        (claim("grows"), "than is 'IPS-SGD', but 'grows' compares no methods"),
        (claim("best-at", than=""), r"at is \[\], but 'best-at' needs one value"),
        (claim("best-at", than="", at=(0.5, 1.0)), "but 'best-at' needs one value"),
        (claim("lead-grows", at=(0.5,)), "but 'lead-grows' needs a first and a last value"),
    ],
)
def test_what_a_test_needs(wrong, message):
    with pytest.raises(ParameterError, match=message):
        check(wrong, make_grid())
    with pytest.raises(ParameterError, match=message):
        judge(make_result(make_cells(THREE), claims=[wrong]))


@pytest.mark.parametrize("test", ["grows", "lead-shrinks", "best-at"])
def test_a_study_of_one_value_has_no_ends(test):
    with pytest.raises(ParameterError, match="two values or more"):
        check(example_of(test), make_grid((0.5,)))


def test_whole_numbers_are_found_among_decimals():
    check(claim("lower", at=(1,)), make_grid())


def make_cells(values):
    return {("a", m, v): make_cell(NOISE) for m in ("IPS-SGD", "CounterSample") for v in values}


def make_grid(values=THREE):
    return make_result(make_cells(values)).grid
