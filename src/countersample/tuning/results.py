"""What was tried, and what was chosen."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from countersample._frames import Tabular
from countersample.tuning.safety import FEWEST_QUERIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Candidate:
    """A checkpoint of a path, and how it did on clicks it had not seen.

    Attributes
    ----------
    start : {"zero", "served", "previous"}
        Where the path begins.
    temper : float
        α: clicks weigh 1/p^α.
    steps : int
        How far it was followed.
    value : float
        The estimate by held-out clicks.
    gain, low : float
        How much that is above what it is compared with, and the lower end of it at the confidence
        asked for.
    share : float
        Of the draws of held-out queries that choose it: its weight in the ranker.
    transform : {"log", "root", "quantile"} or None
        What was done to features.
    """

    start: str
    temper: float
    steps: int
    value: float
    gain: float
    low: float
    share: float
    transform: str | None = None


_OTHERS = {
    "logged": "what was logged",
    "previous": "the ranker it goes on from",
    "naive": "naive training",
}


def best_naive(tempers: Sequence[float], values: Sequence[float]) -> int:
    """Return the index of the best candidate of the lowest temper."""
    least = min(tempers)
    return max((n for n, each in enumerate(tempers) if each == least), key=lambda n: values[n])


@dataclass(frozen=True)
class PathChoice(Tabular):
    """How far to follow which paths, as held-out clicks decided it.

    Attributes
    ----------
    candidates : tuple of Candidate
    kept : float
        The share of the draws of held-out queries in which nothing is shown to be better than what
        candidates are compared with; 1 keeps it as it is.
    reference : {"logged", "previous", "naive"}
        What candidates are compared with: what was logged, or, where it is not known where items
        were shown, the ranker that training goes on from, or the best of the candidates that take
        clicks as they are.
    reference_value : float
        Its value, by the same clicks.
    imitation_value : float or None
        That of what is kept: the imitation of what was served, or the ranker that training goes on
        from.
    metric : str
    safety : float
        The confidence with which a candidate has to be better, each by itself.
    is_shown : bool
        Whether some candidate is better with this confidence, by lower ends that hold for all of
        them at once.
    n_queries : int
        The held-out queries with clicks.
    seconds : float
    transform : {"log", "root", "quantile"} or None
        What is done to features; where several were tried, the one that was chosen. Only its
        candidates have a share.
    keeps : {"served", "previous"}
        Which of both it is: by held-out clicks the better.

    Examples
    --------
    >>> from countersample.tuning import Candidate, PathChoice
    >>> found = Candidate("served", 0.5, 1000, value=0.44, gain=0.04, low=0.01, share=0.9)
    >>> PathChoice((found,), 0.1, "logged", 0.4, 0.4, "dcg@10", 0.95, True, 100, 0.5).sentence[:73]
    'Better than what was logged with 95% confidence: the choice of 90% of the'
    """

    candidates: tuple[Candidate, ...]
    kept: float
    reference: str
    reference_value: float
    imitation_value: float | None
    metric: str
    safety: float
    is_shown: bool
    n_queries: int
    seconds: float
    transform: str | None = None
    keeps: str = "served"

    @property
    def keeps_logged(self) -> bool:
        """Whether what was logged is kept as it is."""
        return self.kept == 1 and self.reference == "logged"

    @property
    def best(self) -> Candidate:
        """The candidate whose gain has the highest lower end."""
        return max(self.candidates, key=lambda each: (each.low, -each.steps))

    @property
    def shares(self) -> list[float]:
        """The share of each candidate in the ranker: of naive training, that which is kept, too."""
        found = [each.share for each in self.candidates]
        if self.reference == "naive":
            own = [k for k, c in enumerate(self.candidates) if c.transform == self.transform]
            chosen = [self.candidates[k] for k in own]
            naive = best_naive([c.temper for c in chosen], [c.value for c in chosen])
            found[own[naive]] += self.kept
        return found

    @property
    def transforms(self) -> tuple[str | None, ...]:
        """The transforms that were tried."""
        return tuple(dict.fromkeys(each.transform for each in self.candidates))

    @property
    def value(self) -> float:
        """The mean value of what the draws choose."""
        chosen = sum(each.share * each.value for each in self.candidates)
        return chosen + self.kept * self.reference_value

    @property
    def sentence(self) -> str:
        """What was decided and why, in words."""
        if len(self.transforms) == 1:
            return self._sentence
        *tried, last = (name or "none" for name in self.transforms)
        chosen = self.transform or "none"
        return f"{self._sentence} Transform: {chosen}, chosen among {', '.join(tried)} and {last}."

    @property
    def _sentence(self) -> str:
        other = _OTHERS[self.reference]
        sure = f"with {100 * self.safety:g}% confidence"
        if self.n_queries < FEWEST_QUERIES and self.safety:
            return (
                f"Nothing can be shown to be better than {other}: {self.n_queries} held-out "
                f"queries have clicks, expected {FEWEST_QUERIES} or more."
            )
        of_other = f"where that of {other} is {self.reference_value:.3g}"
        if self.kept == 1:
            best = f"{self.metric} is {self.best.value:.3g} {of_other}"
            return (
                f"Nothing was shown to be better than {other} {sure}: on held-out queries the most "
                f"promising {best}, and may be {self.best.low:+.2g}."
                + (" The ranker stays as it was." if self.keeps == "previous" else "")
            )
        mean = sum(each.share * each.value for each in self.candidates) / (1 - self.kept)
        values = f"{self.metric} is {mean:.3g} {of_other}"
        if not self.safety:
            return f"What looks best on held-out queries, whatever was logged: its {values}."
        of_draws = f"the choice of {1 - self.kept:.0%} of the draws of held-out queries"
        what = "" if any(each.share == 1 for each in self.candidates) else f" {of_draws}:"
        shown = "Better" if self.is_shown else "Not shown to be better"
        return f"{shown} than {other} {sure}:{what} {values}."

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`: a row for each candidate."""
        names = [field.name for field in fields(Candidate)]
        return {name: [getattr(each, name) for each in self.candidates] for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; of the candidates those that have a share."""
        chosen = [asdict(each) for each in self.candidates if each.share]
        return asdict(self) | {"candidates": chosen, "sentence": self.sentence}
