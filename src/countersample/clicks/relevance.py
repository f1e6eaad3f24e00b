"""The smallest relevant label for simulated users, and a warning if too few items reach it."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countersample.data import RankingDataset

PAPER_GRADE = 3.0  # the smallest relevant grade of the paper, on grades of 0 to 4
_LOWEST_GRADE = 1.0
MIN_SHARE = 0.03  # of the items that should be relevant
_MAX_GRADES = 20


class FewRelevantWarning(UserWarning):
    """Clicks are mostly noise, because few items are relevant or none."""


@dataclass(frozen=True)
class Relevance:
    """The share of items of a dataset that are relevant, returned by `relevance_of`."""

    relevant: float  # the smallest label that is relevant
    share: float
    grades: dict[float, float]  # the share of the items with each label, in ascending order
    advice: float | None  # a label from which on at least 3 % of the items are relevant

    def warnings(self, option: str = "relevant=") -> list[str]:
        """Return a warning with a remedy if too few items are relevant; else nothing.

        `option` is the name of the option in the remedy.

        Examples
        --------
        >>> from countersample import RankingDataset
        >>> from countersample.clicks.relevance import relevance_of
        >>> data = RankingDataset.from_arrays(X=[[1], [2], [3], [4]], y=[0, 0, 1, 2], qid=[7] * 4)
        >>> (text,) = relevance_of(data, 3).warnings()
        >>> for part in text.split(": "):
        ...     print(part)
        no item is relevant, every click is noise
        relevant=3, and labels are 0 (50 %), 1 (25 %) and 2 (25 %)
        give relevant=1
        """
        if self.share >= MIN_SHARE:
            return []
        problem = "no item is relevant, every click is noise"
        if self.share:
            problem = (
                f"only {_percent(self.share)} of the items are relevant, clicks are mostly noise"
            )
        *some, last = (f"{grade:g} ({_percent(share)})" for grade, share in self.grades.items())
        labels = f"are {', '.join(some)} and {last}" if some else f"are all {last}"
        if len(self.grades) > _MAX_GRADES:
            labels = f"go up to {max(self.grades):g}"
        advice = "" if self.advice is None else f": give {option}{self.advice:g}"
        return [f"{problem}: {option}{self.relevant:g}, and labels {labels}{advice}"]

    def sentence(self) -> str:
        """Return a sentence with the smallest relevant label and the share of relevant items."""
        grade = f"Items count as relevant from label {self.relevant:g} on"
        return f"{grade}: {_percent(self.share)} of them."

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; more than 20 grades are left out."""
        shares = {f"{grade:g}": share for grade, share in self.grades.items()}
        grades = shares if len(shares) <= _MAX_GRADES else None
        return {"relevant": self.relevant, "share": self.share, "grades": grades}


def relevance_of(dataset: RankingDataset, relevant: float) -> Relevance:
    """Return the share of items whose label is at least `relevant`.

    The advice is the label of `smallest_relevant` if at least 3 % of the items reach it, or else
    the largest such label above 0, if any.
    """
    labels, counts = np.unique(dataset.labels, return_counts=True)
    n_items = max(1, dataset.n_items)
    at_least = counts[::-1].cumsum()[::-1] / n_items  # of items with this label or a higher one
    candidates = labels[(labels > 0) & (at_least >= MIN_SHARE)].tolist()
    default = smallest_relevant(dataset)
    if default <= max(candidates, default=0):
        candidates.append(default)
    return Relevance(
        relevant=float(relevant),
        share=int(counts[labels >= np.float32(relevant)].sum()) / n_items,
        grades=dict(zip(labels.tolist(), (counts / n_items).tolist(), strict=True)),
        advice=candidates[-1] if candidates else None,
    )


def smallest_relevant(dataset: RankingDataset, relevant: float | None = None) -> float:
    """Return the smallest relevant label: as given, else 3, or 1 if no label reaches 3.

    Examples
    --------
    >>> from countersample import RankingDataset
    >>> from countersample.clicks.relevance import smallest_relevant
    >>> smallest_relevant(RankingDataset.from_arrays(X=[[1], [2]], y=[0, 2], qid=[7, 7]))
    1.0
    """
    if relevant is not None:
        return relevant
    return PAPER_GRADE if dataset.labels.max(initial=0) >= PAPER_GRADE else _LOWEST_GRADE


def warn_if_few(dataset: RankingDataset, relevant: float, *, stacklevel: int) -> None:
    """Warn if less than 3 % of the items are relevant."""
    for text in relevance_of(dataset, relevant).warnings() if dataset.n_items else ():
        warnings.warn(text, FewRelevantWarning, stacklevel=stacklevel + 1)


@contextmanager
def ignore_few_relevant() -> Iterator[None]:
    """Suppress `FewRelevantWarning`, because the caller reports it in another way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewRelevantWarning)
        yield


def _percent(share: float) -> str:
    """Return "12.3 %", with three significant digits."""
    return f"{100 * share:.3g} %"
