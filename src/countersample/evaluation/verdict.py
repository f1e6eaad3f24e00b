"""The verdict: whether a ranker is better than your current one.

One rule for `fit`, `train` and `compare`:

===========  =====================================================================================
better       the whole interval of the gain is above 0
worse        the whole interval is below 0
not shown    the interval includes 0, or the log does not identify the propensities, so that the
             interval depends on a model, or the ranker ranks like your current one
none         these clicks cannot evaluate the ranker: it was trained on them, or one of its
             features was computed from them
===========  =====================================================================================

For ``arp``, for which smaller is better, above and below change places.
"""

from __future__ import annotations

from dataclasses import dataclass

LOGGED = "logged"  # the name of the logging policy among candidates
ROUNDING = 1e-9  # of a value: two sums of the same rewards differ by less
NEW = "the ranker"  # the name of a single candidate
_CURRENT = "your current ranker"


@dataclass(frozen=True)
class Difference:
    """How much better a candidate is than the reference, by the same clicks."""

    candidate: str  # "logged" is the logging policy, "the ranker" a single candidate
    reference: str
    metric: str
    value: float  # V(candidate) − V(reference), with its interval
    low: float
    high: float
    relative: float  # the same as a share of V(reference)
    relative_low: float
    relative_high: float
    confidence: float  # of both intervals

    @property
    def figures(self) -> str:
        """The relative difference and its interval."""
        return (
            f"{self.relative:+z.1%} {self.metric} ({self.confidence:.0%} interval "
            f"{self.relative_low:+z.1%} to {self.relative_high:+z.1%})"
        )


@dataclass(frozen=True)
class Verdict:
    """Whether a ranker is better than the reference, and why."""

    outcome: str  # "better", "worse", "not shown" or "none"
    sentence: str  # the same in words, with the figures or the reason

    @property
    def is_better(self) -> bool:
        """Whether the ranker is shown to be better."""
        return self.outcome == "better"

    @property
    def is_worse(self) -> bool:
        """Whether the ranker is shown to be worse."""
        return self.outcome == "worse"

    @property
    def is_withheld(self) -> bool:
        """Whether there is no verdict."""
        return self.outcome == "none"

    def __str__(self) -> str:
        return self.sentence


def decide(
    difference: Difference, *, withheld: str = "", unidentified: str = "", kept: str = ""
) -> Verdict:
    """Return the verdict on a candidate.

    `withheld` is the reason why these clicks cannot evaluate it, `unidentified` the method whose
    propensities the log does not identify, and `kept` the reason why the ranker ranks like your
    current one; each is empty if it does not apply.

    Examples
    --------
    >>> from countersample.evaluation.verdict import Difference, decide
    >>> gain = Difference("the ranker", "logged", "dcg@10", 0.1, 0.05, 0.2, 0.2, 0.1, 0.4, 0.95)
    >>> decide(gain).sentence
    'The ranker is better than your current ranker: +20.0% dcg@10 (95% interval +10.0% to +40.0%).'
    >>> decide(gain, unidentified="regression-em").outcome
    'not shown'
    """
    candidate, reference = (
        _CURRENT if name == LOGGED else name
        for name in (difference.candidate, difference.reference)
    )
    if withheld:
        about = "" if candidate == NEW else f" on {candidate} over {reference}"
        return Verdict("none", f"No verdict{about}: {withheld}.")
    if kept:
        return Verdict("not shown", f"No change: {kept}")
    outcome = interval_outcome(difference)
    text = f"{candidate} is {outcome} than {reference}: {difference.figures}."
    if outcome == "not shown":
        text = (
            f"{candidate} is not shown to differ from {reference}: {difference.figures}, and the "
            "interval includes 0."
        )
    elif unidentified:
        text = (
            f"{candidate} is not shown to be {outcome}: the log does not identify the "
            f"propensities. If the estimates of {unidentified} are right, {text}"
        )
        outcome = "not shown"
    # Other names are a user's own: they stay as they are.
    if text.startswith((NEW, _CURRENT)):
        text = text[0].upper() + text[1:]
    return Verdict(outcome, text)


def interval_outcome(difference: Difference) -> str:
    """Return better, worse or not shown, by the interval alone."""
    low, high = difference.relative_low, difference.relative_high
    if difference.metric == "arp":
        low, high = -high, -low
    return "better" if low > ROUNDING else "worse" if high < -ROUNDING else "not shown"
