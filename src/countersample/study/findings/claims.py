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
from countersample.study.findings.statistics import (
    MEASURES,
    SIGNIFICANT,
    common_runs,
    holm,
    independent,
    paired_test,
)
from countersample.study.findings.tables import column_title, show_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from countersample._arrays import Bools, Floats, Ints
    from countersample.study.design.claims import Claim, ClaimTest, Direction, Quantity
    from countersample.study.findings.statistics import PairedTest
    from countersample.study.results import Cell, StudyResult

Source = Literal["paper", "beyond"]
Outcome = Literal["confirmed", "in part", "not confirmed"]
_NOT_EQUAL = "Not significant is not the same as equal: {} is not ruled out."


@dataclass(frozen=True)
class Verdict:
    """A claim held against the results on one dataset."""

    study: str
    dataset: str
    claim: str  # in words
    source: Source  # whether the paper claims it, or this package asks it
    outcome: Outcome
    evidence: str  # by how much: a sentence with the numbers

    @classmethod
    def of(
        cls, where: tuple[str, str], claim: str, source: Source, holds: ArrayLike, evidence: str
    ) -> Verdict:
        """Return the verdict on a claim in a study on a dataset from its parts.

        For each part `holds` is 1 or True where it does, −1 where the opposite does, else 0.

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
    """One of the comparisons that a claim rests on."""

    first: float  # the means that are compared
    second: float
    names: tuple[str, str]  # whose they are: "for CounterSample", or "at 1.5"
    test: PairedTest  # of the first minus the second
    cells: tuple[Cell, ...]  # what was compared

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
            findings = _findings(claim, result, dataset)
            p_values = holm([finding.test.p for finding in findings])
            verdicts.append(
                Verdict.of(
                    (grid.name, dataset),
                    claim.text,
                    cast("Source", claim.source),
                    _holds(findings, p_values, test.direction),
                    _evidence(findings, p_values, test),
                )
            )
    return verdicts


def _findings(claim: Claim, result: StudyResult, dataset: str) -> list[Finding]:
    """Make the comparisons of a claim (see `ClaimTest.compares`)."""
    test = TESTS[claim.test]
    of = MEASURES[test.quantity.measure]
    method, values = claim.method, claim.at or result.grid.values
    if test.compares == "methods":
        pairs = [((method, value), (claim.than, value)) for value in values]
    elif test.compares == "others":
        (chosen,) = claim.at
        others = [value for value in result.grid.values if value != chosen]
        pairs = [((method, chosen), (method, value)) for value in others]
    else:
        pairs = [((method, values[-1]), (method, values[0]))]
    findings = []
    for pair in pairs:
        cells = [result.cells[dataset, name, value] for name, value in pair]
        samples = [of(cell) for cell in cells]
        if test.compares == "leads":  # regret(than) − regret(method)
            than = [result.cells[dataset, claim.than, value] for _, value in pair]
            samples = [of(cell) - sample for cell, sample in zip(than, samples, strict=True)]
            cells += than
        of_methods = test.compares == "methods"
        first, second = (f"for {n}" if of_methods else f"at {column_title(v)}" for n, v in pair)
        runs = common_runs(*cells)
        means = [float(independent(sample, runs).mean()) for sample in samples]
        tested = paired_test(samples[0], samples[1], runs)
        findings.append(Finding(means[0], means[1], (first, second), tested, tuple(cells)))
    return findings


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


def summarize(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Return a sentence on the paper's claims, and one on the questions beyond it.

    Examples
    --------
    >>> claim = "CounterSample has lower regret than IPS-SGD."
    >>> summarize([
    ...     Verdict("optimizers", "yahoo", claim, "paper", "confirmed", "By 20 %."),
    ...     Verdict("optimizers", "mq2008", claim, "paper", "not confirmed", "By 0 %."),
    ... ])  # doctest: +NORMALIZE_WHITESPACE
    ('The paper makes 1 claim that these results can speak to. Held against 2 datasets (yahoo,
    mq2008) that gives 2 verdicts: 1 confirmed, 0 in part, 1 not confirmed.',)
    """
    openings = {
        "paper": ("claim", "The paper makes {} that these results can speak to."),
        "beyond": ("question", "Beyond the paper, {} {} asked."),
    }
    sentences = []
    for source, (noun, opening) in openings.items():
        given = [verdict for verdict in verdicts if verdict.source == source]
        if not given:
            continue
        n_claims = len({(verdict.study, verdict.claim) for verdict in given})
        begin = opening.format(_count(n_claims, noun), "was" if n_claims == 1 else "were")
        datasets = list(dict.fromkeys(verdict.dataset for verdict in given if verdict.dataset))
        on = f"Held against {_count(len(datasets), 'dataset')} ({', '.join(datasets)}) that gives"
        outcomes = ", ".join(
            f"{sum(verdict.outcome == outcome for verdict in given)} {outcome}"
            for outcome in ("confirmed", "in part", "not confirmed")
        )
        gives = on if datasets else "That gives"  # the toy example and the like need no dataset
        sentences.append(f"{begin} {gives} {_count(len(given), 'verdict')}: {outcomes}.")
    return tuple(sentences)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# -- the evidence in sentences ---------------------------------------------------------------


def _evidence(findings: Sequence[Finding], p_values: Floats, test: ClaimTest) -> str:
    """Say what the findings of a claim found; p is not a number where there is one pair."""
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


def _same(findings: Sequence[Finding], significant: Bools, quantity: Quantity) -> str:
    first, second = findings[0].names
    return (
        f"{quantity.words} {first} and {second} differs significantly at {significant.sum()} of "
        f"{len(findings)} settings; the differences are {_range(findings, quantity)}."
    )


def _directed(findings: Sequence[Finding], significant: Bools, test: ClaimTest) -> str:
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
