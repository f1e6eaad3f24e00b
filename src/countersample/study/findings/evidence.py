"""The evidence for a verdict, in sentences with the numbers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from countersample.options import CONFIDENCE
from countersample.study.findings.deciding import State
from countersample.study.findings.tables import show_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample.study.design.claims import ClaimTest, Quantity
    from countersample.study.findings.deciding import Finding

_OTHERS = {"others": "other setting", "pairs": "pair of settings", "cases": "case"}


def evidence_of(
    findings: Sequence[Finding], states: Sequence[State], test: ClaimTest, margin: float
) -> str:
    """Say what the findings of a claim found; p is not a number where there is one pair."""
    tested = not any(np.isnan(finding.test.p) for finding in findings)
    shown = show_number(margin, test.quantity.digits)
    several = len(findings) > 1
    if not several:
        sentences = [_one(findings[0], test)]
    elif test.direction == "same":
        sentences = [_same(findings, states, test, shown)]
    else:
        sentences = [_directed(findings, states, test)]
    if not tested:
        sentences.append("One run is too few for a test.")
    else:
        sentences += _what_is_left(states, test, shown)
    return " ".join([*sentences, *_divergence(findings)])


def _one(finding: Finding, test: ClaimTest) -> str:
    quantity, tested = test.quantity, finding.test
    first, second = (
        f"{show_number(mean, quantity.digits)} {name}"
        for mean, name in zip((finding.first, finding.second), finding.names, strict=True)
    )
    shares = _per_cent([finding], quantity)
    sentence = (
        f"{quantity.words} is {first} and {second}: a difference of "
        f"{show_number(tested.difference, quantity.digits)}{shares and f' ({shares})'}"
    )
    if np.isnan(tested.p):
        return f"{sentence}."
    confidence = 0.9 if test.direction == "same" else CONFIDENCE
    half = tested.half(confidence)
    low, high = (
        show_number(end, quantity.digits)
        for end in (tested.difference - half, tested.difference + half)
    )
    p = "" if test.direction == "same" else f", {_p(tested.p)}"
    return f"{sentence}, {100 * confidence:.0f} % interval {low} to {high}{p}."


def _same(
    findings: Sequence[Finding], states: Sequence[State], test: ClaimTest, margin: str
) -> str:
    first, second = findings[0].names
    who = f" {first} and {second}" if test.compares == "methods" else ""
    counts = Counter(states)
    beyond = counts[State.OPPOSITE]
    return (
        f"{test.quantity.words}{who} is shown to differ by less than {margin} at "
        f"{counts[State.HOLDS]} of {_places(len(findings), test)}"
        f"{f', and by more at {beyond}' if beyond else ''}; the differences are "
        f"{_range(findings, test.quantity)}."
    )


def _directed(findings: Sequence[Finding], states: Sequence[State], test: ClaimTest) -> str:
    right = sum(finding.goes(test.direction) for finding in findings)
    first, second = findings[0].names
    where = f"{second} at" if test.compares == "methods" else "at"
    where = "elsewhere in" if test.compares == "cases" else where
    opposite = "higher" if test.direction == "lower" else "lower"
    counts = Counter(states)
    wrong = counts[State.OPPOSITE]
    shares = _per_cent(findings, test.quantity)
    return (
        f"{test.quantity.words} is {test.direction} {first} than {where} {right} of "
        f"{_places(len(findings), test)}, significantly at {counts[State.HOLDS]}"
        f"{f', and significantly {opposite} at {wrong}' if wrong else ''}; the differences are "
        f"{_range(findings, test.quantity)}{shares and f' ({shares})'}."
    )


def _what_is_left(states: Sequence[State], test: ClaimTest, margin: str) -> list[str]:
    """Say where a difference that counts is ruled out, and where there are too few runs to tell."""
    counts = Counter(states)
    absent, undecided = counts[State.ABSENT], counts[State.OPEN]
    at = {n: "" if len(states) == 1 else f" at {n}" for n in (absent, undecided)}
    sentences = []
    if absent:
        sentences.append(
            f"That it is {test.direction} by {margin} or more is ruled out{at[absent]}."
        )
    if undecided:
        left = f"less nor more than {margin}"
        if test.direction != "same":
            left = f"no difference nor one of {margin}"
        sentences.append(f"Too few runs to tell{at[undecided]}: neither {left} is ruled out.")
    return sentences


def _places(number: int, test: ClaimTest) -> str:
    noun = _OTHERS.get(test.compares, "setting")
    plural = noun.replace("pair", "pairs") if "pair" in noun else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _range(findings: Sequence[Finding], quantity: Quantity) -> str:
    differences = [finding.test.difference for finding in findings]
    low, high = (show_number(end, quantity.digits) for end in (min(differences), max(differences)))
    return f"{low} to {high}"


def _per_cent(findings: Sequence[Finding], quantity: Quantity) -> str:
    """Return how much lower the first are; empty where that has no meaning.

    Regret may be negative, and a share of a negative number says nothing.
    """
    if not quantity.relative or any(
        finding.first < 0 or not finding.goes("lower") for finding in findings
    ):
        return ""
    shares = [
        f"{100 * (1 - finding.first / finding.second):.0f}"
        for finding in sorted(findings, key=lambda one: 1 - one.first / one.second)
    ]
    low_high = shares[0] if shares[0] == shares[-1] else f"{shares[0]}–{shares[-1]}"
    return f"{low_high} % lower"


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _divergence(findings: Sequence[Finding]) -> list[str]:
    cells = {id(cell): cell for finding in findings for cell in finding.cells}.values()
    n_diverged = sum(cell.n_diverged for cell in cells)
    if not n_diverged:
        return []
    n_runs = sum(len(cell.runs) for cell in cells)
    return [f"{n_diverged} of {n_runs} runs diverged; they count, with nDCG@10 of 0 from there on."]
