"""Verdicts on claims: right where the answer is known, honest where it is not."""

import itertools

import numpy as np
import pytest
from study_results import make_cell, make_result

from countersample.errors import ParameterError
from countersample.study.design.grids import TESTS, Claim
from countersample.study.findings.claims import evaluate_claims

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
    (verdict,) = evaluate_claims(make_result(cells, claims=[claim]))
    return verdict


def claim(test, method="CounterSample", than="IPS-SGD", at=(), source="paper", **more):
    return Claim("In words.", test, method, than, at, source, **more)


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
        ([2, 2, 2], "open"),  # 0 ± 0.036 each: 0.05 is ruled out of one, not of three
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
    outcomes = [verdict.outcome for verdict in evaluate_claims(make_result(cells, claims=claims))]
    assert outcomes == ["confirmed", "open"]


def test_too_small_to_count():
    """0 ± 0.036: lower by 0.05 is ruled out, lower by 0.03 is not."""
    same = {"CounterSample": [2], "IPS-SGD": [2]}
    verdict = made(same, claim("lower"), values=[1])
    assert verdict.outcome == "not confirmed"
    assert verdict.evidence.endswith("That it is lower by 0.050 or more is ruled out.")
    verdict = made(same, claim("lower", margin=0.03), values=[1])
    assert verdict.outcome == "open"
    assert verdict.evidence.endswith(
        "Too few runs to tell: neither no difference nor one of 0.030 is ruled out."
    )


def test_comparable():
    near = {"CounterSample": [2, 2, 2], "IPS-SGD": [2, 2, 2.001]}
    assert made(near, claim("comparable", margin=0.1)).outcome == "confirmed"
    far = {"CounterSample": [2, 2, 2], "IPS-SGD": [2, 2, 3]}
    assert made(far, claim("comparable")).outcome == "not confirmed"
    assert made(far, claim("comparable", at=(0.5,))).outcome == "confirmed"


def test_comparable_is_shown_and_not_a_lack_of_power():
    """Differences ×100 of −0.01, 0.02, −0.03, 0.04, −0.02: 0 ± 2.132·0.0292/√5 = 0.028, 90 %."""
    same = {"CounterSample": [2], "IPS-SGD": [2]}
    verdict = made(same, claim("comparable"), values=[1])
    assert verdict.outcome == "confirmed"
    assert verdict.evidence.endswith("a difference of 0.000, 90 % interval −0.028 to 0.028.")
    verdict = made(same, claim("comparable", margin=0.027), values=[1])
    assert verdict.outcome == "open"
    assert verdict.evidence.endswith(
        "Too few runs to tell: neither less nor more than 0.027 is ruled out."
    )


def test_a_small_difference_that_is_certain_is_comparable():
    """0.04 ± 0.001: significantly higher, and well within 0.05."""
    regrets = {"CounterSample": [2.04], "IPS-SGD": [2]}
    for test in ("comparable", "higher"):
        verdict = made(regrets, claim(test), values=[1], noise=1 / 36)
        assert verdict.outcome == "confirmed"


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


@pytest.mark.parametrize(
    ("ours", "outcome"),
    [
        ([1, 1, 1], "confirmed"),
        ([1, 1.04, 1], "in part"),
        ([1, 1, 2], "not confirmed"),  # each with each: 1.5 with 0.5, and with 1.0
    ],
)
def test_steady_compares_every_two_settings(ours, outcome):
    asked = claim("steady", than="", margin=0.06)
    assert made({"CounterSample": ours}, asked).outcome == outcome


def test_evidence_of_pairs():
    evidence = made({"CounterSample": [1, 1, 2]}, claim("steady", than="", margin=0.1)).evidence
    assert evidence == (
        "Regret ×100 is shown to differ by less than 0.100 at 1 of 3 pairs of settings, and by "
        "more at 2; the differences are 0.000 to 1.000."
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "outcome"),
    [
        ([1, 2, 2], [1, 2, 2], "confirmed"),
        ([1, 2, 2], [1, 2, 0.5], "confirmed"),  # 3 of 4 cases
        ([1, 2, 2], [1, 0.5, 0.5], "not confirmed"),  # 2 of 4 are no majority
        ([1, 2, 2], [1, 1.03, 0.97], "open"),
    ],
)
def test_mostly_best_counts_cases(ours, theirs, outcome):
    asked = claim("mostly-best-at", "all", "", at=(0.5,))
    regrets = {"CounterSample": ours, "IPS-SGD": theirs}
    assert made(regrets, asked).outcome == outcome


def test_mostly_best_is_one_verdict_over_all_datasets():
    cells = {
        (dataset, method, value): make_cell(regret + np.roll(NOISE, place))
        for dataset in "ab"
        for method in ("CounterSample", "IPS-SGD")
        for place, (value, regret) in enumerate(zip(THREE, (1, 2, 3), strict=True))
    }
    asked = claim("mostly-best-at", "all", "", at=(0.5,))
    (verdict,) = evaluate_claims(make_result(cells, claims=[asked]))
    assert (verdict.dataset, verdict.outcome) == ("", "confirmed")
    assert "is lower at 0.5 than elsewhere in 8 of 8 cases, significantly at 8" in verdict.evidence


def test_ends_lowest_at():
    final = {"IPS-SGD": [0.7, 0.75, 0.75]}
    asked = claim("ends-lowest-at", "IPS-SGD", "", at=(0.5,))
    assert made({"IPS-SGD": [2, 1, 1]}, asked, final=final).outcome == "confirmed"
    asked = claim("ends-lowest-at", "IPS-SGD", "", at=(1.0,))
    assert made({"IPS-SGD": [2, 1, 1]}, asked, final=final).outcome == "not confirmed"


@pytest.mark.parametrize(
    ("at", "outcome"),
    [
        ((0.5, 1.0), "confirmed"),
        ((1.0, 0.5), "not confirmed"),  # in the order that the claim names them
        ((1.0, 1.5), "not confirmed"),
    ],
)
def test_ends_rising(at, outcome):
    asked = claim("ends-rising", "IPS-SGD", "", at=at)
    final = {"IPS-SGD": [0.7, 0.75, 0.75]}
    assert made({"IPS-SGD": [1, 1, 1]}, asked, final=final).outcome == outcome


def test_a_claim_on_a_dataset_of_the_paper():
    cells = {
        (dataset, method, 1): make_cell(regret + noise)
        for dataset in ("yahoo-like", "istella-like", "mq2008")
        for method, regret, noise in (("CounterSample", 1, NOISE), ("IPS-SGD", 2, WOBBLE))
    }
    (verdict,) = evaluate_claims(make_result(cells, claims=[claim("lower", on="istella-s")]))
    assert (verdict.dataset, verdict.outcome) == ("istella-like", "confirmed")


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
        "at 2; the differences are −1.000 to −0.020 (1–50 % lower). Too few runs to tell at 1: "
        "neither no difference nor one of 0.050 is ruled out."
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
        "Regret ×100 for CounterSample and for IPS-SGD is shown to differ by less than 0.050 at 2 "
        "of 3 settings, and by more at 1; the differences are −1.000 to 0.000."
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
        (verdict,) = evaluate_claims(make_result(cells, claims=[claim(test)]))
        assert verdict.outcome == "open"
    (verdict,) = evaluate_claims(make_result(cells, claims=[claim("comparable")]))
    assert verdict.outcome == "open"


# -- all tests -----------------------------------------------------------------------------------


def check(claim, grid):
    claim.check([method.name for method in grid.methods], grid.values)


def example_of(test, **changes):
    asks = TESTS[test]
    at = (0.5,) if asks.compares in {"others", "cases"} else ()
    method = "all" if asks.compares == "cases" else "CounterSample"
    than = "IPS-SGD" if asks.than else ""
    options = {"method": method, "than": than, "at": at, **changes}
    return claim(test, **options)


@pytest.mark.parametrize("test", TESTS)
def test_one_run_confirms_nothing(test):
    cells = {
        ("a", method, value): make_cell([regret])
        for (method, regret), value in itertools.product(
            {"CounterSample": 1, "IPS-SGD": 2}.items(), THREE
        )
    }
    (verdict,) = evaluate_claims(make_result(cells, claims=[example_of(test)]))
    assert verdict.outcome == "open"
    assert "One run is too few for a test." in verdict.evidence
    assert "nan" not in verdict.evidence
    assert "interval" not in verdict.evidence


@pytest.mark.parametrize("test", TESTS)
def test_a_verdict_for_every_dataset_and_claim(test):
    cells = {
        (dataset, method, value): make_cell(1 + NOISE)
        for dataset, method, value in itertools.product("ab", ("CounterSample", "IPS-SGD"), THREE)
    }
    verdicts = evaluate_claims(make_result(cells, claims=[example_of(test)] * 2))
    pooled = TESTS[test].compares == "cases"  # one verdict over all datasets
    assert [verdict.dataset for verdict in verdicts] == (["", ""] if pooled else [*"abab"])
    # Nothing differs anywhere, so only one kind of claim holds.
    assert {verdict.outcome for verdict in verdicts} == {
        "confirmed" if TESTS[test].direction == "same" else "not confirmed"
    }


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "SGDD"}, "method is 'SGDD', expected (one of IPS-SGD, CounterS|.*all)"),
        ({"margin": 0.0}, "margin is 0.0, expected"),
        ({"margin": "half"}, "margin is 'half', expected"),
        ({"on": "mq2008"}, "on is 'mq2008', expected one of istella-s, yahoo"),
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
        (claim("lead-grows", at=(0.5,)), "but 'lead-grows' needs two values or more"),
    ],
)
def test_what_a_test_needs(wrong, message):
    with pytest.raises(ParameterError, match=message):
        check(wrong, make_grid())
    with pytest.raises(ParameterError, match=message):
        evaluate_claims(make_result(make_cells(THREE), claims=[wrong]))


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
