"""Verdicts: whether a claim about the methods holds in these results, and by how much.

A test turns a claim into comparisons, paired over the same runs; `deciding` has the rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal, cast, get_args

from countersample.study.design.claims import TESTS
from countersample.study.design.published import PAPER_DATASETS
from countersample.study.findings.deciding import Finding, Outcome, outcome_of, states_of
from countersample.study.findings.evidence import evidence_of
from countersample.study.findings.statistics import (
    MEASURES,
    common_runs,
    independent,
    paired_test,
)
from countersample.study.findings.tables import column_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from countersample.study.design.claims import Claim, Value
    from countersample.study.results import StudyResult

Source = Literal["paper", "beyond"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True)
class Verdict:
    """A claim held against the results on one dataset, or on all."""

    study: str
    dataset: str  # empty where it speaks of all, or needs none
    claim: str  # in words
    source: Source  # whether the paper claims it, or this package asks it
    outcome: Outcome
    evidence: str  # by how much: a sentence with the numbers

    @classmethod
    def of(
        cls, where: tuple[str, str], claim: str, source: Source, states: Iterable[int],
        evidence: str,
    ) -> Verdict:  # fmt: skip
        """Return the verdict on a claim in a study on a dataset from its states (see `State`).

        Examples
        --------
        >>> Verdict.of(("toy", ""), "It is.", "paper", [1, 0], "Half of it is.").outcome
        'in part'
        """
        return cls(*where, claim, source, outcome_of(states), evidence)


def judge(result: StudyResult) -> list[Verdict]:
    """Hold every claim of a study against its results: a verdict a claim and dataset.

    A claim about the majority of cases has one verdict, over all datasets.

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
        datasets = [name for name in result.datasets if _speaks_of(claim, name)]
        cases = test.compares == "cases"
        for some in [datasets] if cases and datasets else [[dataset] for dataset in datasets]:
            findings = [
                finding for dataset in some for finding in _findings(claim, result, dataset)
            ]
            states = states_of([each.test for each in findings], test.direction, claim.smallest)
            verdicts.append(
                Verdict(
                    grid.name,
                    "" if cases else some[0],
                    claim.text,
                    cast("Source", claim.source),
                    outcome_of(states, majority=cases),
                    evidence_of(findings, states, test, claim.smallest),
                )
            )
    return verdicts


def _speaks_of(claim: Claim, dataset: str) -> bool:
    return not claim.on or PAPER_DATASETS.get(dataset) == claim.on


def _findings(claim: Claim, result: StudyResult, dataset: str) -> list[Finding]:
    """Make the comparisons of a claim (see `ClaimTest.compares`)."""
    test = TESTS[claim.test]
    of = MEASURES[test.quantity.measure]
    findings = []
    for pair in _pairs(claim, result):
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


def _pairs(claim: Claim, result: StudyResult) -> list[tuple[tuple[str, Value], tuple[str, Value]]]:
    """Return what is compared with what: a method and a value each."""
    compares, method = TESTS[claim.test].compares, claim.method
    values = claim.at or result.grid.values
    if compares == "methods":
        return [((method, value), (claim.than, value)) for value in values]
    if compares in {"others", "cases"}:
        (chosen,) = claim.at
        others = [value for value in result.grid.values if value != chosen]
        methods = [each.name for each in result.grid.methods] if compares == "cases" else [method]
        return [((name, chosen), (name, value)) for name in methods for value in others]
    if compares == "pairs":
        return [((method, b), (method, a)) for a, b in combinations(values, 2)]
    return [((method, values[-1]), (method, values[0]))]


def summarize(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Return a sentence on the paper's claims, and one on the questions beyond it.

    Examples
    --------
    >>> claim = "CounterSample has lower regret than IPS-SGD."
    >>> summarize([
    ...     Verdict("optimizers", "yahoo", claim, "paper", "confirmed", "By 20 %."),
    ...     Verdict("optimizers", "mq2008", claim, "paper", "open", "By 0 %."),
    ... ])  # doctest: +NORMALIZE_WHITESPACE
    ('The paper makes 1 claim that these results can speak to. Held against 2 datasets (yahoo,
    mq2008) that gives 2 verdicts: 1 confirmed, 0 in part, 0 not confirmed, 1 open (too few runs to
    tell).',)
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
            for outcome in OUTCOMES
        )
        gives = on if datasets else "That gives"  # the toy example and the like need no dataset
        told = " (too few runs to tell)" if any(v.outcome == "open" for v in given) else ""
        sentences.append(f"{begin} {gives} {_count(len(given), 'verdict')}: {outcomes}{told}.")
    return tuple(sentences)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
