"""Verdicts: whether a claim about the methods holds in these results, and by how much.

A test turns a claim into comparisons, paired over the same runs. Their p-values are corrected
together (Holm). A claim with a direction is

- confirmed where all differences have that direction and all are significant, p < 0.05;
- confirmed in part where some are, and none is significantly the other way;
- not confirmed elsewhere.

A claim that methods are comparable is confirmed where no difference is significant. That is weak
evidence, so the interval is told: it says how large a difference may still be.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from countersample.errors import ParameterError
from countersample.study.findings.evidence import evidence
from countersample.study.findings.statistics import (
    MEASURES,
    SIGNIFICANT,
    common_runs,
    holm,
    independent,
    paired_test,
)
from countersample.study.findings.tables import column_title

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from countersample.study.design.grids import Claim, Grid, Value
    from countersample.study.findings.statistics import PairedTest
    from countersample.study.results import Cell, StudyResult

    Floats = NDArray[np.float64]

Source = Literal["paper", "beyond"]
Outcome = Literal["confirmed", "in part", "not confirmed"]
Direction = Literal["lower", "higher", "same"]

_SOURCES = ("paper", "beyond")


@dataclass(frozen=True)
class Verdict:
    """A claim held against the results on one dataset.

    Attributes
    ----------
    study : str
    dataset : str
    claim : str
        In words.
    source : {"paper", "beyond"}
        Whether the paper claims it, or this package asks it.
    outcome : {"confirmed", "in part", "not confirmed"}
    evidence : str
        By how much: a sentence with the numbers.
    """

    study: str
    dataset: str
    claim: str
    source: Source
    outcome: Outcome
    evidence: str


@dataclass(frozen=True)
class Finding:
    """One of the comparisons that a claim rests on.

    Attributes
    ----------
    first, second : float
        The means that are compared.
    names : (str, str)
        Whose they are: "for CounterSample", or "at 1.5".
    test : PairedTest
        Of the first minus the second.
    cells : tuple of Cell
        What was compared.
    """

    first: float
    second: float
    names: tuple[str, str]
    test: PairedTest
    cells: tuple[Cell, ...]

    def goes(self, direction: Direction) -> bool:
        """Whether the first is lower, or higher, than the second."""
        return self.test.difference < 0 if direction == "lower" else self.test.difference > 0


@dataclass(frozen=True)
class Quantity:
    """What is compared.

    Attributes
    ----------
    words : str
        They begin a sentence.
    digits : int
        Decimals shown.
    relative : bool
        Whether a difference may be told in per cent.
    """

    words: str
    digits: int
    relative: bool = False


@dataclass(frozen=True)
class ClaimTest:
    """How a kind of claim is tested.

    Attributes
    ----------
    compare : function of (claim, result, dataset) to a list of Finding
    direction : {"lower", "higher", "same"}
        What the first should be beside the second.
    quantity : Quantity
    than : bool
        Whether the claim must name a second method.
    values : {"any", "one", "ends"}
        What the claim's `at` may be: any settings, exactly one, or none or two and more.
    """

    compare: Callable[[Claim, StudyResult, str], list[Finding]]
    direction: Direction
    quantity: Quantity
    than: bool = True
    values: Literal["any", "one", "ends"] = "any"


def judge(result: StudyResult) -> list[Verdict]:
    """Hold every claim of a study against its results: a verdict a claim and dataset.

    Raises
    ------
    ParameterError
        For a claim with an unknown test, method or setting.
    """
    verdicts = []
    for claim in result.grid.claims:
        check_claim(claim, result.grid)
        test = TESTS[claim.test]
        for dataset in result.datasets:
            findings = test.compare(claim, result, dataset)
            p_values = holm([finding.test.p for finding in findings])
            verdicts.append(
                Verdict(
                    result.grid.name,
                    dataset,
                    claim.text,
                    cast("Source", claim.source),
                    _outcome(findings, p_values, test.direction),
                    evidence(findings, p_values, test),
                )
            )
    return verdicts


def _outcome(findings: Sequence[Finding], p_values: Floats, direction: Direction) -> Outcome:
    """Weigh the findings of a claim. Where nothing was tested nothing is confirmed."""
    if np.isnan(p_values).any():
        return "not confirmed"
    significant = p_values < SIGNIFICANT
    if direction == "same":
        return "not confirmed" if significant.any() else "confirmed"
    right = np.array([finding.goes(direction) for finding in findings])
    if (right & significant).all():
        return "confirmed"
    if (right & significant).any() and not (~right & significant).any():
        return "in part"
    return "not confirmed"


def check_claim(claim: Claim, grid: Grid) -> None:
    """Raise a `ParameterError` that says what is wrong with a claim, if anything is."""
    if claim.test not in TESTS:
        raise ParameterError(f"test is {claim.test!r}, expected one of {', '.join(TESTS)}")
    if claim.source not in _SOURCES:
        raise ParameterError(f"source is {claim.source!r}, expected {' or '.join(_SOURCES)}")
    _check_methods(claim, [method.name for method in grid.methods])
    _check_values(claim, grid.values)


def _check_methods(claim: Claim, methods: Sequence[str]) -> None:
    if claim.method not in methods:
        raise ParameterError(f"method is {claim.method!r}, expected one of {', '.join(methods)}")
    if not TESTS[claim.test].than:
        if claim.than:
            raise ParameterError(f"than is {claim.than!r}, but {claim.test!r} compares no methods")
        return
    others = [method for method in methods if method != claim.method]
    if claim.than not in others:
        raise ParameterError(f"than is {claim.than!r}, expected one of {', '.join(others)}")


def _check_values(claim: Claim, values: Sequence[Value]) -> None:
    for value in claim.at:
        if value not in values:
            known = ", ".join(map(repr, values))
            raise ParameterError(f"at has {value!r}, expected values of the study: {known}")
    if len(set(claim.at)) < len(claim.at):
        raise ParameterError(f"at is {list(claim.at)!r}, expected each value once")
    takes = TESTS[claim.test].values
    if takes == "one" and len(claim.at) != 1:
        raise ParameterError(f"at is {list(claim.at)!r}, but {claim.test!r} needs one value")
    if takes != "any" and len(values) < 2:
        raise ParameterError(f"{claim.test!r} needs a study of two values or more")
    if takes == "ends" and len(claim.at) == 1:
        raise ParameterError(
            f"at is {list(claim.at)!r}, but {claim.test!r} needs a first and a last value"
        )


# -- findings ------------------------------------------------------------------------------------


def _methods(measure: str) -> Callable[[Claim, StudyResult, str], list[Finding]]:
    """Compare the method with the other one, at each setting."""
    of = MEASURES[measure]

    def compare(claim: Claim, result: StudyResult, dataset: str) -> list[Finding]:
        findings = []
        for value in claim.at or result.grid.values:
            first = result.cells[dataset, claim.method, value]
            second = result.cells[dataset, claim.than, value]
            findings.append(
                _finding(
                    (of(first), of(second)),
                    (f"for {claim.method}", f"for {claim.than}"),
                    (first, second),
                )
            )
        return findings

    return compare


def _leads(claim: Claim, result: StudyResult, dataset: str) -> list[Finding]:
    """Compare the lead, regret(than) − regret(method), at the last setting with the first."""
    of = MEASURES["regret"]
    last, first = _ends(claim, result.grid)
    cells = [
        result.cells[dataset, method, value]
        for value in (last, first)
        for method in (claim.than, claim.method)
    ]
    leads = of(cells[0]) - of(cells[1]), of(cells[2]) - of(cells[3])
    return [_finding(leads, _at(last, first), tuple(cells))]


def _settings(claim: Claim, result: StudyResult, dataset: str) -> list[Finding]:
    """Compare the regret of the method at the last setting with the first."""
    last, first = _ends(claim, result.grid)
    return [_between_settings(claim, result, dataset, last, first)]


def _others(claim: Claim, result: StudyResult, dataset: str) -> list[Finding]:
    """Compare the regret of the method at one setting with that at each other."""
    (chosen,) = claim.at
    return [
        _between_settings(claim, result, dataset, chosen, other)
        for other in result.grid.values
        if other != chosen
    ]


def _between_settings(
    claim: Claim, result: StudyResult, dataset: str, value: Value, other: Value
) -> Finding:
    of = MEASURES["regret"]
    first = result.cells[dataset, claim.method, value]
    second = result.cells[dataset, claim.method, other]
    return _finding((of(first), of(second)), _at(value, other), (first, second))


def _ends(claim: Claim, grid: Grid) -> tuple[Value, Value]:
    values = claim.at or grid.values
    return values[-1], values[0]


def _at(first: Value, second: Value) -> tuple[str, str]:
    return f"at {column_title(first)}", f"at {column_title(second)}"


def _finding(
    samples: tuple[Floats, Floats], names: tuple[str, str], cells: tuple[Cell, ...]
) -> Finding:
    runs = common_runs(*cells)
    first, second = (float(independent(sample, runs).mean()) for sample in samples)
    return Finding(first, second, names, paired_test(*samples, runs), cells)


_REGRET = Quantity("Regret ×100", 3, relative=True)
_NDCG = Quantity("nDCG@10 at the end", 4)
_LEAD = Quantity("The lead in regret ×100", 3)

TESTS: Mapping[str, ClaimTest] = MappingProxyType(
    {
        "lower": ClaimTest(_methods("regret"), "lower", _REGRET),
        "higher": ClaimTest(_methods("regret"), "higher", _REGRET),
        "ends-lower": ClaimTest(_methods("ndcg"), "lower", _NDCG),
        "ends-higher": ClaimTest(_methods("ndcg"), "higher", _NDCG),
        "comparable": ClaimTest(_methods("regret"), "same", _REGRET),
        "lead-grows": ClaimTest(_leads, "higher", _LEAD, values="ends"),
        "lead-shrinks": ClaimTest(_leads, "lower", _LEAD, values="ends"),
        "grows": ClaimTest(_settings, "higher", _REGRET, than=False, values="ends"),
        "shrinks": ClaimTest(_settings, "lower", _REGRET, than=False, values="ends"),
        "best-at": ClaimTest(_others, "lower", _REGRET, than=False, values="one"),
    }
)
