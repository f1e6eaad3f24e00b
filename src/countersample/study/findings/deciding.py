"""The rule of verdicts: what runs show of a claim at each setting, and what follows from that.

Let d be the difference as it is claimed, positive where it has the claimed direction, and m the
margin, the smallest difference that counts. By paired t-tests, at a setting

- the claim holds where d > 0 is shown;
- the opposite holds where d < 0 is shown;
- the difference is absent where d < m is shown, and neither of the above;
- it is open elsewhere.

Of a claim that two are the same (|d| < m) it holds where that is shown, by two one-sided tests,
and the opposite where |d| > m is. Each kind of finding is corrected over the settings (Holm), so

- a claim that holds nowhere (d ≤ 0, or |d| ≥ m) is confirmed, wholly or in part, with a chance of
  at most 2.5 % (5 % where it claims the same), and one that fails somewhere is wholly confirmed
  with no larger chance;
- a claim that holds everywhere by the margin or more (d ≥ m, or |d| ≤ m) is not confirmed with a
  chance of at most 2.5 % (5 %).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import isnan
from typing import TYPE_CHECKING, Literal

from countersample.study.findings.statistics import SIGNIFICANT, holm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from countersample.study.design.claims import Direction
    from countersample.study.findings.statistics import PairedTest
    from countersample.study.results import Cell

Outcome = Literal["confirmed", "in part", "not confirmed", "open"]


class State(IntEnum):
    """What the runs show of a claim at one setting."""

    OPPOSITE = -2
    ABSENT = -1
    OPEN = 0
    HOLDS = 1


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


def states_of(tests: Sequence[PairedTest], direction: Direction, margin: float) -> list[State]:
    """Return what each comparison of a claim shows; where one run is all, everything is open.

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
    shown = zip(*(holm(p) < SIGNIFICANT for p in (holds, opposite, absent)), strict=True)
    return [
        State.HOLDS if is_so
        else State.OPPOSITE if is_opposite
        else State.ABSENT if is_absent
        else State.OPEN
        for is_so, is_opposite, is_absent in shown
    ]  # fmt: skip


def outcome_of(states: Iterable[int], *, majority: bool = False) -> Outcome:
    """Return what the states of a claim come to.

    - confirmed: it holds at every setting;
    - not confirmed: the opposite holds at some, or it holds at none and is absent at some;
    - in part: it holds at some, and the opposite at none;
    - open: elsewhere.

    A claim about the majority is confirmed where it holds in more than half of the cases, not
    confirmed where it fails in half of them or more, else open.

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
