"""Judgements from clicks: how relevant each item is to its query, with intervals and grades."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._frames import Tabular
from countersample._params import choice, number
from countersample.errors import DataError, ParameterError
from countersample.fitting.judgement_files import JUDGEMENT_FORMATS
from countersample.fitting.relevance import Estimated, relevance_of_pairs
from countersample.fitting.setting_up import propensities_of
from countersample.options import CONFIDENCE, PropensityOptions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample.clicks.impressions import FeatureTable, Impressions, PositionCounts
    from countersample.clicks.impressions.joining import Examinable
    from countersample.fitting.propensity_source import PropensitySource

MIN_EXPOSURE = 10.0  # of an item that was never clicked, the interval then goes up to 0.31
_OF_ODDS = (0.5, 1.0, 2.0)  # odds at the cut-offs of grades, as multiples of those of the mean
_MOST_GRADES = 100


@dataclass(frozen=True, eq=False, repr=False)
class Judgements(Tabular):
    """How relevant items are to queries, made by `judgements_from_impressions`.

    A row for each query and item with enough exposure, by query, the most relevant first.

    Attributes
    ----------
    query_id, item_id : arrays of int64 or str (n,)
    relevance, low, high : float64 (n,)
        The probability of a click where the item is examined at the first position, and the ends
        of its interval; all within [0, 1].
    grade : int64 (n,)
        How many of the cut-offs the relevance reaches.
    clicks, impressions : int64 (n,)
        Those at positions that have a propensity.
    exposure : float64 (n,)
        How many of the impressions were examined, as expected from their positions.
    cut_offs : tuple of float
        The least relevance of grade 1, 2, ….
    confidence, min_exposure : float
        As asked for.
    n_left_out : int
        Query-item pairs with less exposure.
    n_together : int
        Queries whose items without a click the log is too large to tell apart: not judged.
    source : str
        Where propensities are from, in words.
    warnings : tuple of str
        What a person should know, a sentence each.
    """

    query_id: NDArray[Any]
    item_id: NDArray[Any]
    relevance: Floats
    low: Floats
    high: Floats
    grade: Ints
    clicks: NDArray[np.int64]
    impressions: NDArray[np.int64]
    exposure: Floats
    cut_offs: tuple[float, ...]
    confidence: float
    min_exposure: float
    n_left_out: int
    n_together: int
    source: str
    warnings: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.relevance)

    def __repr__(self) -> str:
        return f"Judgements(n={len(self):_}, n_queries={self.n_queries:_})"

    @property
    def n_queries(self) -> int:
        """The queries that have a judgement."""
        return len(np.unique(self.query_id))

    @property
    def of_grade(self) -> list[int]:
        """How many judgements have grade 0, 1, …."""
        counted: list[int] = np.bincount(self.grade, minlength=len(self.cut_offs) + 1).tolist()
        return counted

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return all columns, as a table is written."""
        names = ("query_id", "item_id", "relevance", "low", "high", "grade", "clicks",
                 "impressions", "exposure")  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values for JSON; no id is among them."""
        return {
            "judgements": len(self),
            "queries": self.n_queries,
            "left_out": self.n_left_out,
            "queries_with_items_together": self.n_together,
            "cut_offs": list(self.cut_offs),
            "of_grade": self.of_grade,
            "confidence": self.confidence,
            "min_exposure": self.min_exposure,
            "propensities": self.source,
            "warnings": list(self.warnings),
        }

    def write(self, path: str | PathLike[str], *, to: str = "table") -> None:
        """Write them as others read them.

        Parameters
        ----------
        path : path
        to : {"table", "quepid", "opensearch", "qrels"}
            All columns, as Parquet or CSV by the ending of the name; ``query,docid,rating`` for
            Quepid; the request that imports judgements into OpenSearch; TREC's qrels. The last
            three have the grade.

        Raises
        ------
        DataError
            For an id that the format cannot hold, naming it.
        """
        JUDGEMENT_FORMATS[choice("to", to, JUDGEMENT_FORMATS)](path, self.columns_of_frame())


def judgements_from_impressions(
    impressions: Impressions,
    *,
    features: FeatureTable | None = None,
    propensities: PropensityOptions | Examinable | None = None,
    confidence: float = CONFIDENCE,
    min_exposure: float = MIN_EXPOSURE,
    grades: Sequence[float] | None = None,
    seed: int = 0,
) -> Judgements:
    """r̂ = (clicks − Σβ) / Σα over the impressions of each query and item, with intervals.

    Intervals take it that sessions are independent and that propensities are as they are given;
    where they are estimated (by a method but regression-em and trust, whose values are taken as
    they are), the intervals have their uncertainty, too.

    Parameters
    ----------
    impressions : Impressions
        See `read_impressions`. What clicks are worth is not counted.
    features : FeatureTable, optional
        Of items, for regression-em.
    propensities : PropensityOptions or known propensities, optional
        As in `fit_from_impressions`. The propensity column of a log is about clicks alone, and is
        not enough.
    confidence : float
        Of the intervals.
    min_exposure : float
        Pairs that were examined less often, as expected, are left out and counted.
    grades : sequence of float, optional
        The least relevance of grade 1, 2, …, each above the one before; by default
        those whose odds are ½, 1 and 2 times the odds of the mean, so that grades are 0 to 3.
    seed : int

    Examples
    --------
    Item x was shown 400 times at position 1, and y as often at position 2, where half look:

    >>> from countersample import PositionBias
    >>> from countersample.clicks.impressions import read_impressions
    >>> from countersample.fitting import judgements_from_impressions
    >>> log = {"query_id": ["a", "a"], "item_id": ["x", "y"], "position": [1, 2],
    ...        "click": [100, 100], "impressions": [400, 400]}
    >>> import pyarrow
    >>> found = judgements_from_impressions(
    ...     read_impressions(pyarrow.table(log)), propensities=PositionBias(1.0)
    ... )
    >>> found.item_id.tolist(), found.relevance.tolist(), found.exposure.tolist()
    (['y', 'x'], [0.5, 0.25], [200.0, 400.0])
    >>> found.low.round(3).tolist(), found.high.round(3).tolist()
    ([0.417, 0.208], [0.591, 0.295])
    """
    impressions.check_no_half_life("judgements")
    number("confidence", confidence, above=0, below=1)
    number("min_exposure", min_exposure, least=0)
    asked = None if grades is None else _checked(grades)
    propensities = PropensityOptions.from_known(propensities)
    check, source = propensities_of(
        impressions, features, propensities, rng=np.random.default_rng(seed)
    )
    counts = check.counts
    found, n_lost = relevance_of_pairs(counts, source, confidence=confidence)
    if n_lost and propensities.missing == "error":
        raise DataError(
            f"{check.source}: {n_lost:,} of {counts.n_clicks:,} clicks are where there is no "
            "propensity; estimate deeper, or leave those rows out with missing='skip' (--missing "
            "skip)"
        )
    first = counts.pair_starts[:-1]
    is_item = counts.item[first] != (-1 if counts.rest is None else counts.rest)
    is_kept = is_item & (found.exposure >= min_exposure) & (found.exposure > 0)
    if not is_kept.any():
        raise DataError(
            f"{check.source}: no item has an exposure of {min_exposure:g}, expected one that "
            "was examined so often: take a longer log, or a smaller min_exposure "
            "(--min-exposure)"
        )
    kept = Estimated(*(column[is_kept] for column in found))
    cut_offs = _by_mean(kept) if asked is None else asked
    query, item = (column[first[is_kept]] for column in (counts.query, counts.item))
    order = np.lexsort((item, -kept.relevance, query))
    return Judgements(
        query_id=counts.query_ids[query[order]],
        item_id=counts.item_ids[item[order]],
        **{name: column[order] for name, column in kept._asdict().items()},
        grade=np.searchsorted(cut_offs, kept.relevance[order], side="right").astype(np.int64),
        cut_offs=cut_offs,
        confidence=confidence,
        min_exposure=min_exposure,
        n_left_out=int((is_item & ~is_kept).sum()),
        n_together=int((~is_item).sum()),
        source=source.source,
        warnings=(*check.warnings, *source.warnings, *_doubts(counts, source, n_lost)),
    )


def _by_mean(kept: Estimated) -> tuple[float, ...]:
    """Return the default cut-offs, by the odds of the mean, with three digits."""
    mean = float((kept.relevance * kept.exposure).sum() / kept.exposure.sum())
    cut_offs = tuple(float(f"{each * mean / (1 - mean + each * mean):.3g}") for each in _OF_ODDS)
    if not (0 < cut_offs[0] < cut_offs[1] < cut_offs[2] < 1):
        raise DataError(
            f"the mean relevance is {mean:.3g}, which no grades can be made of: give their "
            "cut-offs (--grades 0.05,0.1,0.3)"
        )
    return cut_offs


def _checked(grades: Sequence[float]) -> tuple[float, ...]:
    """Return cut-offs that were given; refuse what are none."""
    try:
        cut_offs = tuple(map(float, grades))
    except (TypeError, ValueError):  # "0.5" has letters, of which "." is no number
        cut_offs = ()
    is_good = all(0 < each <= 1 for each in cut_offs) and (np.diff(cut_offs) > 0).all()
    if not cut_offs or not is_good or len(cut_offs) > _MOST_GRADES:
        raise ParameterError(
            f"grades is {grades!r}, expected the least relevance of grade 1, 2, …: numbers above 0 "
            "and at most 1, each above the one before, such as 0.05,0.1,0.3"
        )
    return cut_offs


def _doubts(counts: PositionCounts, source: PropensitySource, n_lost: int) -> list[str]:
    told = []
    if n_lost:
        told.append(f"{n_lost:,} clicks where there is no propensity are left out.")
    if (counts.value != counts.clicks).any():
        told.append("What clicks are worth is not in judgements: they count each click as one.")
    if source.draws is None:
        told.append(
            f"The intervals take the propensities ({source.source}) as they are: how sure these "
            "are is not in them."
        )
    if not source.is_identified:
        told.append("The log does not identify the propensities: judgements are as right as these.")
    return told
