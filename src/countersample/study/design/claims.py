"""What a study may claim, and how each kind of claim is tested."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from countersample._params import choice
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Value = float | int | str
Direction = Literal["lower", "higher", "same"]
SOURCES = ("paper", "beyond")


@dataclass(frozen=True)
class Claim:
    """A statement that the results are held against."""

    text: str
    test: str  # one of `TESTS`
    method: str
    than: str = ""  # another method; empty where the test compares none
    at: tuple[Value, ...] = ()  # the settings it speaks of; empty: all
    source: str = "paper"  # one of `SOURCES`

    def check(self, methods: Sequence[str], values: Sequence[Value]) -> None:
        """Raise a `ParameterError` that says what is wrong with the claim, if anything is.

        Of its study it needs the names of the methods, and what the setting is varied over.
        """
        test = TESTS[choice("test", self.test, TESTS)]
        choice("source", self.source, SOURCES)
        choice("method", self.method, methods)
        if test.than:
            choice("than", self.than, [name for name in methods if name != self.method])
        elif self.than:
            raise ParameterError(f"than is {self.than!r}, but {self.test!r} compares no methods")
        at = list(self.at)
        for value in at:
            if value not in values:
                known = ", ".join(map(repr, values))
                raise ParameterError(f"at has {value!r}, expected values of the study: {known}")
        if len(set(at)) < len(at):
            raise ParameterError(f"at is {at!r}, expected each value once")
        if test.compares == "others" and len(at) != 1:
            raise ParameterError(f"at is {at!r}, but {self.test!r} needs one value")
        if test.compares != "methods" and len(values) < 2:
            raise ParameterError(f"{self.test!r} needs a study of two values or more")
        if test.compares in {"leads", "settings"} and len(at) == 1:
            raise ParameterError(f"at is {at!r}, but {self.test!r} needs a first and a last value")


@dataclass(frozen=True)
class Quantity:
    """What is compared."""

    measure: str  # "regret", ×100, or "ndcg", nDCG@10 at the last point
    words: str  # they begin a sentence
    digits: int  # decimals shown
    relative: bool = False  # whether a difference may be told in per cent


@dataclass(frozen=True)
class ClaimTest:
    """How a kind of claim is tested."""

    # The method with another, at each setting; its lead over another at the last setting with the
    # first; itself at the last setting with the first; itself at one setting with each other.
    compares: Literal["methods", "leads", "settings", "others"]
    direction: Direction  # what the first should be beside the second
    quantity: Quantity

    @property
    def than(self) -> bool:
        """Whether the claim must name a second method."""
        return self.compares in {"methods", "leads"}


_REGRET = Quantity("regret", "Regret ×100", 3, relative=True)
_NDCG = Quantity("ndcg", "nDCG@10 at the end", 4)
_LEAD = Quantity("regret", "The lead in regret ×100", 3)

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
        "best-at": ClaimTest("others", "lower", _REGRET),
    }
)
