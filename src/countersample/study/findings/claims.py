"""Verdicts: whether a claim about the methods holds in these results, and by how much.

A test turns a claim into comparisons, paired over the same runs (`_findings`). A rule turns each
comparison into a state (`states_of`), the states into an outcome (`outcome_of`), and sentences with
the numbers are the evidence (`evidence_of`).

Let d be the difference as it is claimed, positive where it has the claimed direction, and m the
margin, the smallest difference that counts. By paired t-tests, at a setting

- the claim holds if d > 0 is shown;
- the opposite holds if d < 0 is shown;
- the difference is absent if d < m is shown, and neither of the above;
- it is open otherwise.

A claim that two are the same (|d| < m) holds if that is shown, by two one-sided tests, and the
opposite if |d| > m is. Each kind of finding is corrected over the settings (Holm), so

- a claim that holds nowhere (d ≤ 0, or |d| ≥ m) is confirmed, wholly or in part, with a chance of
  at most 2.5 % (5 % where it claims the same), and one that fails somewhere is wholly confirmed
  with no larger chance;
- a claim that holds everywhere by the margin or more (d ≥ m, or |d| ≤ m) is not confirmed with a
  chance of at most 2.5 % (5 %).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations
from math import isnan
from typing import TYPE_CHECKING, Literal, cast, get_args

from countersample.options import CONFIDENCE
from countersample.study.design.grids import PAPER_DATASETS, TESTS
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
    from collections.abc import Iterable, Sequence

    from countersample.study.design.grids import Claim, ClaimTest, Direction, Quantity, Value
    from countersample.study.findings.statistics import PairedTest
    from countersample.study.results import Cell, StudyResult

Outcome = Literal["confirmed", "in part", "not confirmed", "open"]
Source = Literal["paper", "beyond"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_PLACES = {"others": "other setting", "pairs": "pair of settings", "cases": "case"}


# -- the rule ------------------------------------------------------------------------------------


class State(IntEnum):
    """What the runs show about a claim at one setting."""

    OPPOSITE = -2
    ABSENT = -1
    OPEN = 0
    HOLDS = 1


@dataclass(frozen=True)
class Finding:
    """One of the comparisons that a claim rests on."""

    first: float  # the means that are compared
    second: float
    names: tuple[str, str]  # of the two: "for CounterSample", or "at 1.5"
    test: PairedTest  # of the first minus the second
    cells: tuple[Cell, ...]  # what was compared

    def goes(self, direction: Direction) -> bool:
        """Whether the first is lower, or higher, than the second."""
        return self.test.difference < 0 if direction == "lower" else self.test.difference > 0


def states_of(tests: Sequence[PairedTest], direction: Direction, margin: float) -> list[State]:
    """Return the state of each comparison of a claim; with one run, everything is open.

    Examples
    --------
    Differences of −1, 0 and −0.9, each with a standard error of 0.1 over ten runs. With a margin
    of 0.5 the first and the last are lower, and the second is too small to count.

    >>> from countersample.study.findings.statistics import PairedTest
    >>> tests = [PairedTest(d, 0.1, 1.0, 0.0, 10) for d in (-1.0, 0.0, -0.9)]
    >>> [state.name for state in states_of(tests, "lower", 0.5)]
    ['HOLDS', 'ABSENT', 'HOLDS']
    """
    if any(isnan(test.p) for test in tests):
        return [State.OPEN] * len(tests)
    if direction == "same":
        holds = [test.p_within(margin) for test in tests]
        opposite = [test.p_beyond(margin) for test in tests]
        absent = [1.0] * len(tests)
    elif direction == "lower":
        holds = [2 * test.p_below(0) for test in tests]
        opposite = [2 * test.p_above(0) for test in tests]
        absent = [2 * test.p_above(-margin) for test in tests]
    else:
        holds = [2 * test.p_above(0) for test in tests]
        opposite = [2 * test.p_below(0) for test in tests]
        absent = [2 * test.p_below(margin) for test in tests]
    significant = zip(*(holm(p) < SIGNIFICANT for p in (holds, opposite, absent)), strict=True)
    return [
        State.HOLDS if holds_here
        else State.OPPOSITE if is_opposite
        else State.ABSENT if is_absent
        else State.OPEN
        for holds_here, is_opposite, is_absent in significant
    ]  # fmt: skip


def outcome_of(states: Iterable[int], *, majority: bool = False) -> Outcome:
    """Return the outcome of a claim from its states.

    - confirmed: it holds at every setting;
    - not confirmed: the opposite holds at some, or it holds at none and is absent at some;
    - in part: it holds at some, and the opposite at none;
    - open: otherwise.

    A claim about the majority is confirmed if it holds in more than half of the cases, not
    confirmed if it fails in half of them or more, else open.

    Examples
    --------
    >>> outcome_of([State.HOLDS, State.OPEN]), outcome_of([State.ABSENT, State.OPEN])
    ('in part', 'not confirmed')
    >>> outcome_of([]), outcome_of([1, 1, -2], majority=True)
    ('open', 'confirmed')
    """
    all_states = list(states)
    n, n_hold = len(all_states), sum(state > 0 for state in all_states)
    n_fail = sum(state < 0 for state in all_states)
    if majority:
        if 2 * n_hold > n:
            return "confirmed"
        return "not confirmed" if n and 2 * n_fail >= n else "open"
    if n and n_hold == n:
        return "confirmed"
    if State.OPPOSITE in all_states or (n_fail and not n_hold):
        return "not confirmed"
    return "in part" if n_hold else "open"


# -- claims --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim on one dataset, or on all."""

    study: str
    dataset: str  # empty if the claim is about all, or needs none
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


def evaluate_claims(result: StudyResult) -> list[Verdict]:
    """Test every claim of a study on its results: one verdict per claim and dataset.

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
        datasets = [name for name in result.datasets if _is_about(claim, name)]
        cases = test.compares == "cases"
        groups = [datasets] if cases and datasets else [[dataset] for dataset in datasets]
        for group in groups:
            findings = [
                finding for dataset in group for finding in _findings(claim, result, dataset)
            ]
            states = states_of([each.test for each in findings], test.direction, claim.smallest)
            verdicts.append(
                Verdict(
                    grid.name,
                    "" if cases else group[0],
                    claim.text,
                    cast("Source", claim.source),
                    outcome_of(states, majority=cases),
                    evidence_of(findings, states, test, claim.smallest),
                )
            )
    return verdicts


def _is_about(claim: Claim, dataset: str) -> bool:
    return not claim.on or PAPER_DATASETS.get(dataset) == claim.on


def _findings(claim: Claim, result: StudyResult, dataset: str) -> list[Finding]:
    """Make the comparisons of a claim (see `ClaimTest.compares`)."""
    test = TESTS[claim.test]
    measure = MEASURES[test.quantity.measure]
    findings = []
    for pair in _pairs(claim, result):
        cells = [result.cells[dataset, name, value] for name, value in pair]
        samples = [measure(cell) for cell in cells]
        if test.compares == "leads":  # regret(than) − regret(method)
            than = [result.cells[dataset, claim.than, value] for _, value in pair]
            samples = [measure(cell) - sample for cell, sample in zip(than, samples, strict=True)]
            cells += than
        of_methods = test.compares == "methods"
        first, second = (f"for {n}" if of_methods else f"at {column_title(v)}" for n, v in pair)
        runs = common_runs(*cells)
        means = [float(independent(sample, runs).mean()) for sample in samples]
        paired = paired_test(samples[0], samples[1], runs)
        findings.append(Finding(means[0], means[1], (first, second), paired, tuple(cells)))
    return findings


def _pairs(claim: Claim, result: StudyResult) -> list[tuple[tuple[str, Value], tuple[str, Value]]]:
    """Return the pairs that are compared: a method and a value each."""
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
        some = [verdict for verdict in verdicts if verdict.source == source]
        if not some:
            continue
        n_claims = len({(verdict.study, verdict.claim) for verdict in some})
        begin = opening.format(_count(n_claims, noun), "was" if n_claims == 1 else "were")
        datasets = list(dict.fromkeys(verdict.dataset for verdict in some if verdict.dataset))
        on = f"Held against {_count(len(datasets), 'dataset')} ({', '.join(datasets)}) that gives"
        outcomes = ", ".join(
            f"{sum(verdict.outcome == outcome for verdict in some)} {outcome}"
            for outcome in OUTCOMES
        )
        gives = on if datasets else "That gives"  # the toy example and the like need no dataset
        too_few = " (too few runs to tell)" if any(v.outcome == "open" for v in some) else ""
        sentences.append(f"{begin} {gives} {_count(len(some), 'verdict')}: {outcomes}{too_few}.")
    return tuple(sentences)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# -- evidence ------------------------------------------------------------------------------------


def evidence_of(
    findings: Sequence[Finding], states: Sequence[State], test: ClaimTest, margin: float
) -> str:
    """Return the evidence of a claim in sentences; p is not a number if there is one pair."""
    is_tested = not any(isnan(finding.test.p) for finding in findings)
    margin_text = show_number(margin, test.quantity.digits)
    if len(findings) == 1:
        sentences = [_one(findings[0], test)]
    elif test.direction == "same":
        sentences = [_same(findings, states, test, margin_text)]
    else:
        sentences = [_directed(findings, states, test)]
    if not is_tested:
        sentences.append("One run is too few for a test.")
    else:
        sentences += _what_is_left(states, test, margin_text)
    return " ".join([*sentences, *_divergence(findings)])


def _one(finding: Finding, test: ClaimTest) -> str:
    quantity, paired = test.quantity, finding.test
    first, second = (
        f"{show_number(mean, quantity.digits)} {name}"
        for mean, name in zip((finding.first, finding.second), finding.names, strict=True)
    )
    shares = _per_cent([finding], quantity)
    sentence = (
        f"{quantity.words} is {first} and {second}: a difference of "
        f"{show_number(paired.difference, quantity.digits)}{shares and f' ({shares})'}"
    )
    if isnan(paired.p):
        return f"{sentence}."
    confidence = 0.9 if test.direction == "same" else CONFIDENCE
    half = paired.half(confidence)
    low, high = (
        show_number(end, quantity.digits)
        for end in (paired.difference - half, paired.difference + half)
    )
    p = "" if test.direction == "same" else f", {_p(paired.p)}"
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
    """Say at how many settings a relevant difference is ruled out, or runs are too few."""
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
    noun = _PLACES.get(test.compares, "setting")
    plural = noun.replace("pair", "pairs") if "pair" in noun else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _range(findings: Sequence[Finding], quantity: Quantity) -> str:
    differences = [finding.test.difference for finding in findings]
    low, high = (show_number(end, quantity.digits) for end in (min(differences), max(differences)))
    return f"{low} to {high}"


def _per_cent(findings: Sequence[Finding], quantity: Quantity) -> str:
    """Return how much lower the first are; empty if that has no meaning.

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
