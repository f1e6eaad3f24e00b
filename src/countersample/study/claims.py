"""Verdicts: whether a claim about the methods holds in these results, and by how much.

A test turns a claim into comparisons, paired over the same runs (`_compare`). A rule turns each
comparison into a state (`states_of`), the states into an outcome (`outcome_of`), and a sentence
with the numbers is the evidence (`describe_evidence`).

Let d be the difference, positive if it has the claimed direction, and m the margin, the smallest
difference that counts. By paired t-tests, at a setting

- the claim holds if d > 0 is shown;
- the opposite holds if d < 0 is shown;
- the difference is absent if d < m is shown, and neither of the above;
- it is open otherwise.

A claim that two are the same (|d| < m) holds if that is shown, by two one-sided tests, and the
opposite if |d| > m is. Each kind of finding is corrected over the settings (Holm), so

- a claim that holds nowhere (d ≤ 0, or |d| ≥ m) is confirmed, wholly or in part, with a chance of
  at most 2.5 % (5 % if it claims equality), and one that fails somewhere is wholly confirmed
  with no larger chance;
- a claim that holds everywhere by the margin or more (d ≥ m, or |d| ≤ m) is not confirmed with a
  chance of at most 2.5 % (5 %).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from itertools import combinations
from math import isnan
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from countersample.defaults import CONFIDENCE
from countersample.evaluation.comparison import holm
from countersample.study.grids import PAPER_DATASETS, TESTS, Claim, ClaimTest, Direction, Value
from countersample.study.settings import PAPER, metric_title
from countersample.study.statistics import (
    MEASURES,
    SIGNIFICANT,
    PairedTest,
    common_runs,
    independent,
    paired_test,
)
from countersample.study.tables import column_title, show_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample.study.grids import Grid
    from countersample.study.results import Cell, StudyResult

Outcome = Literal["confirmed", "in part", "not confirmed", "open"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_PLACES = {"others": "other settings", "pairs": "pairs of settings", "cases": "cases"}


# -- the rule ------------------------------------------------------------------------------------


class State(IntEnum):
    """The result of a claim at one setting."""

    OPPOSITE = -2
    ABSENT = -1
    OPEN = 0
    HOLDS = 1


@dataclass(frozen=True)
class Comparison:
    """One of the comparisons that a claim rests on."""

    means: tuple[float, ...]  # the two means
    names: tuple[str, str]  # of the two: "for CounterSample", or "at 1.5"
    test: PairedTest  # of the first minus the second
    cells: tuple[Cell, ...]  # the cells compared


def states_of(tests: Sequence[PairedTest], direction: Direction, margin: float) -> list[State]:
    """Return the state of each comparison of a claim; with one run, everything is open.

    Differences of −1, 0 and −0.9, each with a standard error of 0.1 over ten runs. With a margin
    of 0.5 the first and the last are lower, and the second is too small to count.

    >>> from countersample.study.statistics import PairedTest
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
    else:
        below = [test if direction == "lower" else test.reversed() for test in tests]
        holds = [2 * test.p_below(0) for test in below]
        opposite = [2 * test.p_above(0) for test in below]
        absent = [2 * test.p_above(-margin) for test in below]
    rejections = [holm(p) < SIGNIFICANT for p in (holds, opposite, absent)]
    states = np.select(rejections, [State.HOLDS, State.OPPOSITE, State.ABSENT], State.OPEN)
    return [State(state) for state in states]


def outcome_of(states: Iterable[int], *, majority: bool = False) -> Outcome:
    """Return the outcome of a claim from its states.

    - confirmed: it holds at every setting;
    - not confirmed: the opposite holds at some, or it holds at none and is absent at some;
    - in part: it holds at some, and the opposite at none;
    - open: otherwise.

    A claim about the majority is confirmed if it holds in more than half of the cases, not
    confirmed if it fails in half of them or more, else open.

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
    dataset: str  # empty if the claim is about all datasets, or needs none
    claim: str  # in words
    source: str  # one of `grids.SOURCES`: the paper's claim, or a question beyond it
    outcome: Outcome
    evidence: str  # the numbers, in a sentence


#: The states of a claim and its evidence, by the name of its test.
Findings = Mapping[str, tuple[Iterable[int], str]]


def verdicts_of(grid: Grid, dataset: str, findings: Findings) -> list[Verdict]:
    """Return the verdict on each claim of a grid on a dataset, from the findings of its kind.

    >>> from countersample.study.experiment import load_grid
    >>> from countersample.study.grids import path_of
    >>> findings = dict.fromkeys(["bounded", "lower-bound", "nearer"], ([1, 0], "Half of it is."))
    >>> verdicts_of(load_grid(path_of("bounds")), "tiny", findings)[0].outcome
    'in part'
    """
    verdicts = []
    for claim in grid.claims:
        states, evidence = findings[claim.test]
        outcome = outcome_of(states)
        verdicts.append(Verdict(grid.name, dataset, claim.text, claim.source, outcome, evidence))
    return verdicts


def evaluate_claims(result: StudyResult) -> list[Verdict]:
    """Test every claim of a study on its results: one verdict per claim and dataset.

    A claim about the majority of cases has one verdict, over all datasets. A claim with an unknown
    test, method or setting raises a `ParameterError`.
    """
    grid = result.grid
    verdicts = []
    for claim in grid.claims:
        claim.check([method.name for method in grid.methods], grid.values)
        test = TESTS[claim.test]
        on = [d for d in result.datasets if not claim.on or PAPER_DATASETS.get(d) == claim.on]
        is_majority = test.compares == "cases"
        groups = [on] if is_majority and on else [[dataset] for dataset in on]
        for group in groups:
            comparisons = [each for dataset in group for each in _compare(claim, result, dataset)]
            states = states_of([each.test for each in comparisons], test.direction, claim.smallest)
            evidence = describe_evidence(comparisons, states, test, claim.smallest)
            verdicts.append(
                Verdict(
                    grid.name, "" if is_majority else group[0], claim.text,
                    claim.source, outcome_of(states, majority=is_majority),
                    evidence.replace(metric_title(PAPER.metric), result.metric),
                )
            )  # fmt: skip
    return verdicts


def _compare(claim: Claim, result: StudyResult, dataset: str) -> list[Comparison]:
    """Return the comparisons of a claim (see `ClaimTest.compares`)."""
    test = TESTS[claim.test]
    measure = MEASURES[test.quantity.measure]
    comparisons = []
    for pair in _pairs(claim, result):
        cells = [result.cells[dataset, name, value] for name, value in pair]
        samples = [measure(cell) for cell in cells]
        if test.compares == "leads":  # regret(than) − regret(method)
            than = [result.cells[dataset, claim.than, value] for _, value in pair]
            samples = [measure(cell) - sample for cell, sample in zip(than, samples, strict=True)]
            cells += than
        by_method = test.compares == "methods"
        first, second = (f"for {n}" if by_method else f"at {column_title(v)}" for n, v in pair)
        runs = common_runs(*cells)
        means = tuple(float(independent(sample, runs).mean()) for sample in samples)
        paired = paired_test(samples[0], samples[1], runs)
        comparisons.append(Comparison(means, (first, second), paired, tuple(cells)))
    return comparisons


def _pairs(claim: Claim, result: StudyResult) -> list[tuple[tuple[str, Value], tuple[str, Value]]]:
    """Return the pairs to compare: a method and a value each."""
    compares, method = TESTS[claim.test].compares, claim.method
    values = claim.at or result.grid.values
    if compares == "methods":
        return [((method, value), (claim.than, value)) for value in values]
    if compares in {"others", "cases"}:
        (setting,) = claim.at
        others = [value for value in result.grid.values if value != setting]
        methods = [each.name for each in result.grid.methods] if compares == "cases" else [method]
        return [((name, setting), (name, value)) for name in methods for value in others]
    if compares == "pairs":
        return [((method, b), (method, a)) for a, b in combinations(values, 2)]
    return [((method, values[-1]), (method, values[0]))]


def summarize(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Return a sentence on the paper's claims, and one on the questions beyond it.

    >>> claim = "CounterSample has lower regret than IPS-SGD."
    >>> summarize([
    ...     Verdict("optimizers", "yahoo", claim, "paper", "confirmed", "By 20 %."),
    ...     Verdict("optimizers", "mq2008", claim, "paper", "open", "By 0 %."),
    ... ])  # doctest: +NORMALIZE_WHITESPACE
    ('The paper makes 1 claim that these results can test. On 2 datasets (yahoo, mq2008) that
    gives 2 verdicts: 1 confirmed, 0 in part, 0 not confirmed, 1 open (too few runs).',)
    """
    openings = {
        "paper": ("claim", "The paper makes {} that these results can test."),
        "beyond": ("question", "Beyond the paper, {} {} asked."),
    }
    sentences = []
    for source, (noun, opening) in openings.items():
        some = [verdict for verdict in verdicts if verdict.source == source]
        if not some:
            continue
        n_claims = len({(verdict.study, verdict.claim) for verdict in some})
        sentence = opening.format(_count(n_claims, noun), "was" if n_claims == 1 else "were")
        datasets = list(dict.fromkeys(verdict.dataset for verdict in some if verdict.dataset))
        on = f"On {_count(len(datasets), 'dataset')} ({', '.join(datasets)}) that gives"
        outcomes = ", ".join(
            f"{sum(verdict.outcome == outcome for verdict in some)} {outcome}"
            for outcome in OUTCOMES
        )
        gives = on if datasets else "That gives"  # the two-weight example needs no dataset
        too_few = " (too few runs)" if any(v.outcome == "open" for v in some) else ""
        sentences.append(f"{sentence} {gives} {_count(len(some), 'verdict')}: {outcomes}{too_few}.")
    return tuple(sentences)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# -- evidence ------------------------------------------------------------------------------------


def describe_evidence(
    comparisons: Sequence[Comparison], states: Sequence[State], test: ClaimTest, margin: float
) -> str:
    """Return the differences of a claim, and at how many settings they show what."""
    number = partial(show_number, digits=test.quantity.digits)
    first, second = comparisons[0].names
    is_one, is_same = len(comparisons) == 1, test.direction == "same"
    if is_one:
        (one,) = comparisons
        numbers = f"{number(one.means[0])} − {number(one.means[1])} = {number(one.test.difference)}"
        if not isnan(one.test.p):
            confidence = 0.9 if is_same else CONFIDENCE
            half = one.test.half(confidence)
            low, high = number(one.test.difference - half), number(one.test.difference + half)
            numbers += f", {100 * confidence:.0f} % interval {low} to {high}"
            p = "p < 0.001" if one.test.p < 0.001 else f"p = {one.test.p:.2g}"
            numbers += "" if is_same else f", {p}"
    else:
        differences = [each.test.difference for each in comparisons]
        numbers = f"{number(min(differences))} to {number(max(differences))} at "
        numbers += f"{len(comparisons)} {_PLACES.get(test.compares, 'settings')}"
        second = second if test.compares == "methods" else "elsewhere"
    names = f"{first} minus {second}"
    if not is_one and test.compares == "pairs":
        names = "at one setting minus another"
    text = f"{test.quantity.title} {names} is {numbers}"
    cells = {id(cell): cell for each in comparisons for cell in each.cells}.values()
    n_diverged, n_runs = sum(c.n_diverged for c in cells), sum(len(c.runs) for c in cells)
    end = (
        f" {n_diverged} of {n_runs} runs diverged; they count, with nDCG@10 of 0 from there on."
        if n_diverged
        else ""
    )
    if any(isnan(each.test.p) for each in comparisons):
        return f"{text}. One run is too few for a test.{end}"
    opposite = {"lower": "higher", "higher": "lower", "same": f"beyond ±{number(margin)}"}
    words = {
        State.HOLDS: f"within ±{number(margin)}" if is_same else test.direction,
        State.OPPOSITE: opposite[test.direction],
        State.ABSENT: f"not {test.direction} by {number(margin)} or more",
        State.OPEN: "open",
    }
    counts = Counter(states)
    shares = [
        title if is_one else f"{title} at {counts[state]}"
        for state, title in words.items()
        if counts[state]
    ]
    return f"{text}: {', '.join(shares)}.{end}"
