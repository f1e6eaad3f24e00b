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
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from countersample.study.design.claims import TESTS
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

    from numpy.typing import ArrayLike, NDArray

    from countersample.study.design.claims import Claim, Direction, Value
    from countersample.study.design.grids import Grid
    from countersample.study.findings.statistics import PairedTest
    from countersample.study.results import Cell, StudyResult

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Source = Literal["paper", "beyond"]
Outcome = Literal["confirmed", "in part", "not confirmed"]


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

    @classmethod
    def of(
        cls, where: tuple[str, str], claim: str, source: Source, holds: ArrayLike, evidence: str
    ) -> Verdict:
        """Return the verdict on a claim from its parts.

        Parameters
        ----------
        where : (study, dataset)
        claim, source, evidence
            As above.
        holds : array-like
            For each part 1 or True where it holds, −1 where the opposite does, else 0.

        Examples
        --------
        >>> Verdict.of(("toy", ""), "It is.", "paper", [True, False], "Half of it is.").outcome
        'in part'
        """
        signs = np.asarray(holds, np.int64)
        outcome: Outcome = "not confirmed"
        if len(signs) and (signs > 0).all():
            outcome = "confirmed"
        elif (signs > 0).any() and not (signs < 0).any():
            outcome = "in part"
        return cls(*where, claim, source, outcome, evidence)


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


def judge(result: StudyResult) -> list[Verdict]:
    """Hold every claim of a study against its results: a verdict a claim and dataset.

    Raises
    ------
    ParameterError
        For a claim with an unknown test, method or setting.
    """
    grid = result.grid
    verdicts = []
    for claim in grid.claims:
        claim.check([method.name for method in grid.methods], grid.values)
        test = TESTS[claim.test]
        for dataset in result.datasets:
            findings = _COMPARE[test.compares](claim, result, dataset)
            p_values = holm([finding.test.p for finding in findings])
            verdicts.append(
                Verdict.of(
                    (grid.name, dataset),
                    claim.text,
                    cast("Source", claim.source),
                    _holds(findings, p_values, test.direction),
                    evidence(findings, p_values, test),
                )
            )
    return verdicts


def _holds(findings: Sequence[Finding], p_values: Floats, direction: Direction) -> Ints:
    """Return which findings are significantly so, 1, or the opposite, −1.

    Where something was not tested nothing holds. That there is no difference holds as a whole.
    """
    if np.isnan(p_values).any():
        return np.zeros(len(findings), np.int64)
    significant = p_values < SIGNIFICANT
    if direction == "same":
        return np.array([not significant.any()], np.int64)
    right = np.array([finding.goes(direction) for finding in findings])
    return np.where(right, 1, -1) * significant


# -- findings ------------------------------------------------------------------------------------


def _methods(claim: Claim, result: StudyResult, dataset: str) -> list[Finding]:
    """Compare the method with the other one, at each setting."""
    of = MEASURES[TESTS[claim.test].quantity.measure]
    names = (f"for {claim.method}", f"for {claim.than}")
    findings = []
    for value in claim.at or result.grid.values:
        first = result.cells[dataset, claim.method, value]
        second = result.cells[dataset, claim.than, value]
        findings.append(_finding((of(first), of(second)), names, (first, second)))
    return findings


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


_COMPARE: Mapping[str, Callable[[Claim, StudyResult, str], list[Finding]]] = {
    "methods": _methods,
    "leads": _leads,
    "settings": _settings,
    "others": _others,
}
