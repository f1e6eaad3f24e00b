"""What a verdict rests on, in sentences with numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample.study.findings.statistics import SIGNIFICANT
from countersample.study.findings.tables import show_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from countersample.study.design.claims import ClaimTest, Quantity
    from countersample.study.findings.claims import Finding

    Floats = NDArray[np.float64]

_NOT_EQUAL = "Not significant is not the same as equal: {} is not ruled out."


def evidence(findings: Sequence[Finding], p_values: Floats, test: ClaimTest) -> str:
    """Say what the findings of a claim found.

    Parameters
    ----------
    findings : sequence of Finding
    p_values : float64 (n_comparisons,)
        After correction; not a number where one pair is all there is.
    test : ClaimTest
    """
    tested = not np.isnan(p_values).any()
    significant = p_values < SIGNIFICANT
    if len(findings) == 1:
        sentences = [_one(findings[0], float(p_values[0]), test.quantity)]
    elif test.direction == "same":
        sentences = [_same(findings, significant, test.quantity)]
    else:
        sentences = [_directed(findings, significant, test)]
    if not tested:
        sentences.append("One run is too few for a test.")
    elif test.direction == "same" and not significant.any():
        largest = max(abs(end) for finding in findings for end in _ends(finding))
        sentences.append(
            _NOT_EQUAL.format(f"a difference of {show_number(largest, test.quantity.digits)}")
        )
    return " ".join([*sentences, *_divergence(findings)])


def _one(finding: Finding, p: float, quantity: Quantity) -> str:
    first, second = (
        f"{show_number(mean, quantity.digits)} {name}"
        for mean, name in zip((finding.first, finding.second), finding.names, strict=True)
    )
    shares = _per_cent([finding], quantity)
    sentence = (
        f"{quantity.words} is {first} and {second}: a difference of "
        f"{show_number(finding.test.difference, quantity.digits)}{shares and f' ({shares})'}"
    )
    if np.isnan(p):
        return f"{sentence}."
    low, high = (show_number(end, quantity.digits) for end in _ends(finding))
    return f"{sentence}, 95 % interval {low} to {high}, {_p(p)}."


def _same(findings: Sequence[Finding], significant: NDArray[np.bool_], quantity: Quantity) -> str:
    first, second = findings[0].names
    return (
        f"{quantity.words} {first} and {second} differs significantly at {significant.sum()} of "
        f"{len(findings)} settings; the differences are {_range(findings, quantity)}."
    )


def _directed(findings: Sequence[Finding], significant: NDArray[np.bool_], test: ClaimTest) -> str:
    right = np.array([finding.goes(test.direction) for finding in findings])
    first, second = findings[0].names
    count = f"{right.sum()} of {len(findings)}"
    of_methods = all(finding.names == (first, second) for finding in findings)
    where = f"{second} at {count} settings" if of_methods else f"at {count} other settings"
    opposite = "higher" if test.direction == "lower" else "lower"
    n_wrong = int((~right & significant).sum())
    wrong = f", and significantly {opposite} at {n_wrong}" if n_wrong else ""
    shares = _per_cent(findings, test.quantity)
    return (
        f"{test.quantity.words} is {test.direction} {first} than {where}, significantly at "
        f"{(right & significant).sum()}{wrong}; the differences are "
        f"{_range(findings, test.quantity)}{shares and f' ({shares})'}."
    )


def _ends(finding: Finding) -> tuple[float, float]:
    """Return the ends of the interval of the difference."""
    test = finding.test
    return test.difference - test.half_width, test.difference + test.half_width


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
