"""Which items count as relevant to simulated users, and whether there are enough of them."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from countersample.data import RankingDataset

PAPER_GRADE = 3.0  # the smallest relevant grade of the paper, on grades of 0 to 4
_LOWEST_GRADE = 1.0
FEW = 0.03  # a smaller share of the items is too few
_MOST_GRADES = 20


class FewRelevantWarning(UserWarning):
    """So few items are relevant, or none, that clicks are noise for the most part."""


@dataclass(frozen=True)
class Relevance:
    """How many items of a dataset are relevant, made by `relevance_of`.

    Attributes
    ----------
    relevant : float
        The smallest label that is relevant.
    share : float
        Of the items, those that are relevant.
    grades : dict of float to float, or None
        The share of the items that has each label; None where there are more than 20 labels.
    largest : float
        The largest label.
    advice : float or None
        A label from which on at least 3 % of the items are relevant: what `smallest_relevant`
        says, or else the largest such label above 0. None where there is none.
    """

    relevant: float
    share: float
    grades: Mapping[float, float] | None
    largest: float
    advice: float | None

    def warnings(self, option: str = "relevant=") -> list[str]:
        """Say that too few items are relevant, and what to give; empty where there are enough.

        `option` is what stands before the grade where it is given.

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
        if self.share >= FEW:
            return []
        said = "no item is relevant, every click is noise"
        if self.share:
            said = f"only {_percent(self.share)} of the items are relevant, clicks teach little"
        advice = "" if self.advice is None else f": give {option}{self.advice:g}"
        return [f"{said}: {option}{self.relevant:g}, and labels {self._labels()}{advice}"]

    def sentence(self) -> str:
        """Say from which label on items are relevant, and how many are.

        Examples
        --------
        >>> from countersample import synthetic
        >>> from countersample.clicks.relevance import relevance_of
        >>> relevance_of(synthetic("tiny", rng=0), 3).sentence()
        'Items count as relevant from label 3 on: 14.1 % of them.'
        """
        return (
            f"Items count as relevant from label {self.relevant:g} on: {_percent(self.share)} of "
            "them."
        )

    def _labels(self) -> str:
        if self.grades is None:
            return f"go up to {self.largest:g}"
        *some, last = (f"{grade:g} ({_percent(share)})" for grade, share in self.grades.items())
        return f"are {', '.join(some)} and {last}" if some else f"are all {last}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON; grades have strings as keys there."""
        shares = None if self.grades is None else {f"{g:g}": s for g, s in self.grades.items()}
        return {"relevant": self.relevant, "share": self.share, "grades": shares}


def relevance_of(dataset: RankingDataset, relevant: float) -> Relevance:
    """Return how many items are relevant if those are whose label is at least `relevant`."""
    labels, counts = np.unique(dataset.labels, return_counts=True)
    n_items = max(1, dataset.n_items)
    at_least = counts[::-1].cumsum()[::-1] / n_items  # of items with this label or a higher one
    enough = labels[(labels > 0) & (at_least >= FEW)].tolist()
    by_default = smallest_relevant(dataset)
    if by_default <= max(enough, default=0):
        enough.append(by_default)
    return Relevance(
        relevant=float(relevant),
        share=int(counts[labels >= np.float32(relevant)].sum()) / n_items,
        grades=dict(zip(labels.tolist(), (counts / n_items).tolist(), strict=True))
        if len(labels) <= _MOST_GRADES
        else None,
        largest=float(labels[-1]) if len(labels) else 0.0,
        advice=enough[-1] if enough else None,
    )


def smallest_relevant(dataset: RankingDataset, asked: float | None = None) -> float:
    """Return the smallest relevant label: that asked for, else 3, or 1 where no label reaches 3.

    Examples
    --------
    >>> from countersample import RankingDataset
    >>> from countersample.clicks.relevance import smallest_relevant
    >>> smallest_relevant(RankingDataset.from_arrays(X=[[1], [2]], y=[0, 2], qid=[7, 7]))
    1.0
    """
    if asked is not None:
        return asked
    return PAPER_GRADE if dataset.labels.max(initial=0) >= PAPER_GRADE else _LOWEST_GRADE


def warn_if_few(dataset: RankingDataset, relevant: float, *, stacklevel: int) -> None:
    """Warn where less than 3 % of the items are relevant."""
    for text in relevance_of(dataset, relevant).warnings() if dataset.n_items else ():
        warnings.warn(text, FewRelevantWarning, stacklevel=stacklevel + 1)


@contextmanager
def told_already() -> Iterator[None]:
    """Keep `FewRelevantWarning` quiet within: its text has been told in another way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewRelevantWarning)
        yield


def _percent(share: float) -> str:
    """Return "12.3 %", or with more digits where it is little."""
    return f"{100 * share:.3g} %"
