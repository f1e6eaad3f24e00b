"""What a study may claim, and how each kind of claim is tested."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from countersample._params import choice, number
from countersample.errors import ParameterError
from countersample.study.design.published import PAPER_DATASETS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Value = float | int | str
Direction = Literal["lower", "higher", "same"]
SOURCES = ("paper", "beyond")
EVERY = "all"  # the method of a claim about every method


@dataclass(frozen=True)
class Claim:
    """A statement that the results are held against."""

    text: str
    test: str  # one of `TESTS`
    method: str
    than: str = ""  # another method; empty where the test compares none
    at: tuple[Value, ...] = ()  # the settings it speaks of; empty: all
    source: str = "paper"  # one of `SOURCES`
    on: str = ""  # the dataset of the paper that it speaks of, or one of its shape; empty: all
    # The smallest difference that counts, in what is compared; None: that of the quantity.
    margin: float | None = None

    @property
    def smallest(self) -> float:
        """The smallest difference that counts."""
        return TESTS[self.test].quantity.margin if self.margin is None else self.margin

    def check(self, methods: Sequence[str], values: Sequence[Value]) -> None:
        """Raise a `ParameterError` that says what is wrong with the claim, if anything is.

        Of its study it needs the names of the methods, and what the setting is varied over.
        """
        test = TESTS[choice("test", self.test, TESTS)]
        choice("source", self.source, SOURCES)
        choice("method", self.method, [EVERY] if test.compares == "cases" else methods)
        if self.on:
            choice("on", self.on, sorted(set(PAPER_DATASETS.values())))
        if self.margin is not None:
            number("margin", self.margin, above=0)
        if test.than:
            choice("than", self.than, [name for name in methods if name != self.method])
        elif self.than:
            raise ParameterError(f"than is {self.than!r}, but {self.test!r} compares no methods")
        self._check_at(test, values)

    def _check_at(self, test: ClaimTest, values: Sequence[Value]) -> None:
        at = list(self.at)
        for value in at:
            if value not in values:
                known = ", ".join(map(repr, values))
                raise ParameterError(f"at has {value!r}, expected values of the study: {known}")
        if len(set(at)) < len(at):
            raise ParameterError(f"at is {at!r}, expected each value once")
        if test.compares in {"others", "cases"} and len(at) != 1:
            raise ParameterError(f"at is {at!r}, but {self.test!r} needs one value")
        if test.compares != "methods" and len(values) < 2:
            raise ParameterError(f"{self.test!r} needs a study of two values or more")
        if test.compares in {"leads", "settings", "pairs"} and len(at) == 1:
            raise ParameterError(f"at is {at!r}, but {self.test!r} needs two values or more")


@dataclass(frozen=True)
class Quantity:
    """What is compared."""

    measure: str  # "regret", ×100, or "ndcg", nDCG@10 at the last point
    words: str  # they begin a sentence
    digits: int  # decimals shown
    # The smallest difference that counts. The largest that the paper calls comparable is 0.04 of
    # regret ×100, the smallest that it calls significant 0.07.
    margin: float
    relative: bool = False  # whether a difference may be told in per cent


@dataclass(frozen=True)
class ClaimTest:
    """How a kind of claim is tested."""

    # The method with another, at each setting; its lead over another at the last setting with the
    # first; itself at the last setting with the first; itself at every two settings; itself at one
    # setting with each other; the same of every method on every dataset, of which most must hold.
    compares: Literal["methods", "leads", "settings", "pairs", "others", "cases"]
    direction: Direction  # what the first should be beside the second
    quantity: Quantity

    @property
    def than(self) -> bool:
        """Whether the claim must name a second method."""
        return self.compares in {"methods", "leads"}


_REGRET = Quantity("regret", "Regret ×100", 3, 0.05, relative=True)
_NDCG = Quantity("ndcg", "nDCG@10 at the end", 4, 0.0005)
_LEAD = Quantity("regret", "The lead in regret ×100", 3, 0.05)

TESTS: Mapping[str, ClaimTest] = MappingProxyType(
    {
        "lower": ClaimTest("methods", "lower", _REGRET),
        "higher": ClaimTest("methods", "higher", _REGRET),
        "ends-lower": ClaimTest("methods", "lower", _NDCG),
        "ends-higher": ClaimTest("methods", "higher", _NDCG),
        "comparable": ClaimTest("methods", "same", _REGRET),
        "lead-grows": ClaimTest("leads", "higher", _LEAD),
        "lead-shrinks": ClaimTest("leads", "lower", _LEAD),
        "grows": ClaimTest("settings", "higher", _REGRET),
        "shrinks": ClaimTest("settings", "lower", _REGRET),
        "ends-rising": ClaimTest("settings", "higher", _NDCG),
        "steady": ClaimTest("pairs", "same", _REGRET),
        "best-at": ClaimTest("others", "lower", _REGRET),
        "ends-lowest-at": ClaimTest("others", "lower", _NDCG),
        "mostly-best-at": ClaimTest("cases", "lower", _REGRET),
    }
)
