"""Estimate judgements from clicks: the relevance of each item to its query, with intervals.

An item that was shown n times, at positions where users click with probability β + α·r, has an
expected number of clicks B + E·r, with B = Σβ and E = Σα over its impressions. E is its
**exposure**, the number of times that it was examined. So

    r̂ = (clicks − B) / E

estimates its relevance: the probability of a click if it is examined at the first position.

Intervals are exact: Clopper and Pearson's for the mean over n impressions, (B + E·r) / n. Clicks at
several positions vary less than n clicks of equal probability (Hoeffding, 1956), so the interval
covers the truth at least as often as its level. If propensities are estimated, so is E: the ends
are moved outwards by the spread of log E over propensities of resampled logs.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyarrow import csv as arrow_csv
from pyarrow import parquet
from scipy.special import betaincinv
from scipy.stats import t

from countersample._files import atomic_path
from countersample._frames import Tabular, make_frame
from countersample._params import choice, number
from countersample.defaults import CONFIDENCE
from countersample.errors import DataError, ParameterError
from countersample.evaluation.bootstrap import add_up
from countersample.fitting.propensity_draws import draw_thetas
from countersample.fitting.summaries import render_summary
from countersample.fitting.weighted_log import estimate_propensities
from countersample.logs.exposure import examination_of_rows
from countersample.options import PropensityOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample.fitting.propensity_source import PropensitySource
    from countersample.logs import FeatureTable, Impressions, PositionCounts
    from countersample.logs.joins import Examinable

    Row = tuple[str, str, int]  # query, item, grade

MIN_EXPOSURE = 10.0  # the interval of an item without a click then reaches to 0.31
GRADE_ODDS = (0.5, 1.0, 2.0)  # odds at the default cut-offs, as multiples of the odds of the mean
_COLUMNS = ("query_id", "item_id", "relevance", "low", "high", "grade", "clicks", "impressions",
            "exposure")  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class PairRelevance:
    """The relevance of query-item pairs, one row per pair."""

    relevance: Floats
    low: Floats
    high: Floats
    """The probability of a click if the item is examined at the first position, and the ends of its
    interval; all within [0, 1], or NaN without exposure."""
    clicks: NDArray[np.int64]
    impressions: NDArray[np.int64]
    """At positions that have a propensity."""
    exposure: Floats
    """The expected number of impressions that were examined."""


@dataclass(frozen=True, eq=False, repr=False)
class Judgements(PairRelevance, Tabular):
    """The relevance of items to queries, made by `judgements_from_impressions`.

    One row per query and item with enough exposure, by query, the most relevant first.
    """

    query_id: NDArray[Any]
    item_id: NDArray[Any]
    grade: Ints
    """The number of cut-offs that the relevance reaches."""
    cut_offs: tuple[float, ...]
    """The least relevance of grade 1, 2, …."""
    confidence: float
    min_exposure: float
    n_left_out: int
    """Query-item pairs with less exposure."""
    n_together: int
    """Queries whose items without a click are counted together, and have no judgement."""
    source: str
    """Where propensities come from, in words."""
    warnings: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.relevance)

    def __repr__(self) -> str:
        return f"Judgements(n={len(self):_}, n_queries={self.n_queries:_})"

    @property
    def n_queries(self) -> int:
        """The number of queries with a judgement."""
        return len(np.unique(self.query_id))

    @property
    def grade_counts(self) -> list[int]:
        """The number of judgements of grade 0, 1, …."""
        counts: list[int] = np.bincount(self.grade, minlength=len(self.cut_offs) + 1).tolist()
        return counts

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return all columns of the table."""
        return {name: getattr(self, name) for name in _COLUMNS}

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values for JSON, without ids."""
        return {
            "judgements": len(self),
            "queries": self.n_queries,
            "left_out": self.n_left_out,
            "queries_with_items_together": self.n_together,
            "cut_offs": list(self.cut_offs),
            "grade_counts": self.grade_counts,
            "confidence": self.confidence,
            "min_exposure": self.min_exposure,
            "propensities": self.source,
            "warnings": list(self.warnings),
        }

    def summary(self) -> str:
        """Return the numbers of judgements and grades, for a terminal."""
        return render_summary("judgements.txt", judgements=self, warnings=self.warnings)

    def write(self, path: str | PathLike[str], *, to: str = "table") -> None:
        """Write the judgements in the format of another tool.

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
            For an id that the format cannot hold.
        """
        if choice("to", to, ("table", *_TEXT_FORMATS)) == "table":
            check_table_name(path)
            table = make_frame(self.columns_of_frame(), "pyarrow")
            is_parquet = Path(path).suffix == ".parquet"
            with atomic_path(path) as temporary:
                (parquet.write_table if is_parquet else arrow_csv.write_csv)(table, temporary)
            return
        expected_text, format_rows = _TEXT_FORMATS[to]
        text = format_rows(_text_rows(self, to, expected_text), Path(path).stem)
        with atomic_path(path) as temporary:
            temporary.write_text(text, "utf-8", newline="")


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
    """Estimate r̂ = (clicks − Σβ) / Σα over the impressions of each query and item, with intervals.

    Intervals assume independent sessions. They include the uncertainty of estimated propensities,
    except with regression-em and trust bias, whose values are taken as they are.

    Parameters
    ----------
    impressions : Impressions
        See `read_impressions`. Values of clicks are not used.
    features : FeatureTable, optional
        Of items, for regression-em.
    propensities : PropensityOptions or known propensities, optional
        As in `fit_from_impressions`. The propensity column of a log is about clicks alone, and is
        not enough.
    confidence : float
        Of the intervals.
    min_exposure : float
        Pairs with less exposure are left out and counted.
    grades : sequence of float, optional
        The least relevance of grade 1, 2, …, in increasing order; by default those whose odds are
        ½, 1 and 2 times the odds of the mean, so that grades are 0 to 3.
    seed : int

    Examples
    --------
    Item x was shown 400 times at position 1, and y as often at position 2, which half of the users
    examine:

    >>> from countersample import PositionBias
    >>> from countersample.logs import read_impressions
    >>> from countersample.fitting import judgements_from_impressions
    >>> log = {"query_id": ["a", "a"], "item_id": ["x", "y"], "position": [1, 2],
    ...        "click": [100, 100], "impressions": [400, 400]}
    >>> import pyarrow
    >>> judgements = judgements_from_impressions(
    ...     read_impressions(pyarrow.table(log)), propensities=PositionBias(1.0)
    ... )
    >>> judgements.item_id.tolist(), judgements.relevance.tolist(), judgements.exposure.tolist()
    (['y', 'x'], [0.5, 0.25], [200.0, 400.0])
    >>> judgements.low.round(3).tolist(), judgements.high.round(3).tolist()
    ([0.417, 0.208], [0.591, 0.295])
    """
    impressions.check_no_half_life("judgements")
    number("confidence", confidence, above=0, below=1)
    number("min_exposure", min_exposure, least=0)
    cut_offs = None if grades is None else _check_grades(grades)
    propensities = PropensityOptions.from_known(propensities)
    check, source = estimate_propensities(
        impressions, features, propensities, rng=np.random.default_rng(seed)
    )
    counts = check.counts
    pairs, n_lost = estimate_relevance(counts, source, confidence=confidence)
    if n_lost and propensities.missing == "error":
        raise DataError(
            f"{check.source}: {n_lost:,} of {counts.n_clicks:,} clicks are at positions without a "
            "propensity; estimate deeper, or leave those rows out with missing='skip' (--missing "
            "skip)"
        )
    first = counts.pair_starts[:-1]
    is_item = counts.item[first] != (-1 if counts.rest is None else counts.rest)
    is_used = is_item & (pairs.exposure >= min_exposure) & (pairs.exposure > 0)
    if not is_used.any():
        raise DataError(
            f"{check.source}: no item has an exposure of {min_exposure:g}, expected at least "
            "one: take a longer log, or a smaller min_exposure "
            "(--min-exposure)"
        )
    query, item = counts.query[first], counts.item[first]
    order = np.lexsort((item, -pairs.relevance, query))
    rows = order[is_used[order]]
    pairs = PairRelevance(**{name: column[rows] for name, column in vars(pairs).items()})
    cut_offs = _default_grades(pairs) if cut_offs is None else cut_offs
    return Judgements(
        query_id=counts.query_ids[query[rows]],
        item_id=counts.item_ids[item[rows]],
        **vars(pairs),
        grade=np.searchsorted(cut_offs, pairs.relevance, side="right").astype(np.int64),
        cut_offs=cut_offs,
        confidence=confidence,
        min_exposure=min_exposure,
        n_left_out=int((is_item & ~is_used).sum()),
        n_together=int((~is_item).sum()),
        source=source.source,
        warnings=(*check.warnings, *source.warnings, *_list_warnings(counts, source, n_lost)),
    )


def _default_grades(pairs: PairRelevance) -> tuple[float, ...]:
    """Return the default cut-offs, by the odds of the mean, with three digits."""
    mean = float((pairs.relevance * pairs.exposure).sum() / pairs.exposure.sum())
    cut_offs = tuple(float(f"{odds * mean / (1 - mean + odds * mean):.3g}") for odds in GRADE_ODDS)
    if not (0 < cut_offs[0] < cut_offs[1] < cut_offs[2] < 1):
        raise DataError(
            f"the mean relevance is {mean:.3g}, from which no grades can be made: give their "
            "cut-offs (--grades 0.05,0.1,0.3)"
        )
    return cut_offs


def _check_grades(grades: Sequence[float]) -> tuple[float, ...]:
    """Return the cut-offs as numbers; raise an error if they are not increasing within (0, 1]."""
    try:
        cut_offs = tuple(map(float, grades))
    except (TypeError, ValueError):  # such as the text "0.5", a sequence of characters
        cut_offs = ()
    is_valid = all(0 < each <= 1 for each in cut_offs) and (np.diff(cut_offs) > 0).all()
    if not cut_offs or not is_valid:
        raise ParameterError(
            f"grades is {grades!r}, expected the least relevance of grade 1, 2, …: numbers above 0 "
            "and at most 1, each above the one before, such as 0.05,0.1,0.3"
        )
    return cut_offs


def _list_warnings(counts: PositionCounts, source: PropensitySource, n_lost: int) -> list[str]:
    warnings = []
    if n_lost:
        warnings.append(f"{n_lost:,} clicks at positions without a propensity are left out.")
    if (counts.value != counts.clicks).any():
        warnings.append("Values of clicks are not used: judgements count each click as one.")
    if source.draws is None:
        warnings.append(
            f"The intervals take the propensities ({source.source}) as they are, without their "
            "uncertainty."
        )
    if not source.is_identified:
        warnings.append(
            "The log does not identify the propensities: judgements are right only if these are."
        )
    return warnings


# -- relevance of query-item pairs ----------------------------------------------------------------


def estimate_relevance(
    counts: PositionCounts, source: PropensitySource, *, confidence: float
) -> tuple[PairRelevance, int]:
    """Return the relevance of each pair, and the number of clicks without a propensity."""
    examination = examination_of_rows(source.propensities, counts)  # type: ignore[arg-type]
    has_propensity = ~np.isnan(examination.alpha)
    starts = counts.pair_starts[:-1]

    def total(column: NDArray[Any]) -> NDArray[Any]:
        sums: NDArray[Any] = np.add.reduceat(np.where(has_propensity, column, 0), starts)
        return sums

    clicks, shown = total(counts.clicks), total(counts.impressions)
    exposure = total(counts.impressions * examination.alpha)
    by_chance = total(counts.impressions * examination.beta)
    spread = np.zeros(len(starts))
    if source.draws is not None:
        spread = _log_exposure_spread(counts, examination.alpha, source.draws.curves)
    low, divisor, high, factor = _interval_ends(
        clicks, shown, spread, confidence, len(counts.query_ids)
    )

    def relevance(expected_clicks: NDArray[Any]) -> Floats:
        result: Floats = np.full(len(starts), np.nan)
        np.divide(expected_clicks - by_chance, exposure, out=result, where=exposure > 0)
        return result

    pairs = PairRelevance(
        relevance=np.clip(relevance(clicks), 0.0, 1.0),
        low=np.clip(relevance(shown * low) / divisor, 0.0, 1.0),
        high=np.clip(relevance(shown * high) * factor, 0.0, 1.0),
        clicks=clicks,
        impressions=shown,
        exposure=exposure,
    )
    return pairs, int(counts.clicks[~has_propensity].sum())


def _interval_ends(
    clicks: Ints, shown: Ints, spread: Floats, confidence: float, n_queries: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the lower end of Clopper and Pearson's interval, its divisor, the upper one, a factor.

    The uncertainties of the clicks and of the propensities are independent for one pair of many, so
    squares add, relative to the median of each end (Zou and Donner, 2008): with w from the median
    to the end on the log scale and σ the spread of log E, w becomes √(w² + (z·σ)²).
    """
    tail = (1 - confidence) / 2
    z = float(t.isf(tail, max(1, n_queries - 1)))

    def lower(share: float) -> Floats:
        quantile = betaincinv(np.maximum(clicks, 1), shown - clicks + 1, share)
        return np.where(clicks > 0, quantile, 0.0)

    def upper(share: float) -> Floats:
        quantile = betaincinv(clicks + 1, np.maximum(shown - clicks, 1), share)
        return np.where(clicks < shown, quantile, 1.0)

    def widen(end: Floats, median: Floats) -> Floats:
        width = np.abs(np.log(np.divide(end, median, out=np.ones(len(end)), where=end > 0)))
        factor: Floats = np.exp(np.hypot(width, z * spread) - width)
        return factor

    low, high = lower(tail), upper(1 - tail)
    return low, widen(low, lower(0.5)), high, widen(high, upper(0.5))


def _log_exposure_spread(
    counts: PositionCounts, point: Floats, curves: dict[str, Floats]
) -> Floats:
    """Return the standard deviation of log E of each pair over draws of propensities."""
    starts = counts.pair_starts
    pair, n_pairs = np.repeat(np.arange(len(starts) - 1), np.diff(starts)), len(starts) - 1
    rows = np.flatnonzero(~np.isnan(point))
    part, pair, point = counts.take(rows), pair[rows], point[rows]

    def log_exposure(theta: Floats) -> Floats:
        exposure = add_up(pair, part.impressions * theta, n_pairs)
        return np.log(np.maximum(exposure, 1e-300))

    centre = log_exposure(point)
    total, squares, n = np.zeros(n_pairs), np.zeros(n_pairs), 0
    for theta in draw_thetas(part, point, curves):
        offset = log_exposure(theta) - centre
        total, squares, n = total + offset, squares + offset**2, n + 1
    spread: Floats = np.sqrt(np.maximum(squares / n - (total / n) ** 2, 0.0))
    return spread


# -- files of judgements --------------------------------------------------------------------------


def check_table_name(path: str | PathLike[str]) -> None:
    """Raise an error if the name of a file does not end as a table's."""
    if Path(path).suffix not in {".parquet", ".csv"}:
        raise ParameterError(
            f"{path}: expected a name that ends in .parquet or .csv for a table, or another "
            "format (--to quepid, opensearch or qrels)"
        )


def _format_quepid(rows: list[Row], _: str) -> str:
    """Return ``query,docid,rating``, which Quepid imports as ratings of a case."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([("query", "docid", "rating"), *rows])
    return file.getvalue()


def _format_opensearch(rows: list[Row], name: str) -> str:
    """Return the body of ``PUT _plugins/_search_relevance/judgments``.

    Ratings are text, as in its documentation: releases before 3.3 reject numbers.
    """
    ratings = [
        {
            "query": query,
            "ratings": [{"docId": item, "rating": str(grade)} for _, item, grade in group],
        }
        for query, group in groupby(rows, itemgetter(0))
    ]
    body = {
        "name": name,
        "description": "Relevance estimated from clicks, corrected for position bias",
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": ratings,
    }
    return json.dumps(body, ensure_ascii=False) + "\n"


def _format_qrels(rows: list[Row], _: str) -> str:
    """Return ``query 0 item grade``, as trec_eval reads it."""
    return "".join(f"{query} 0 {item} {grade}\n" for query, item, grade in rows)


_WORD = (re.compile(r"[^\s\x00-\x1f\x7f]+"), "words without blanks")
_LINE = (
    re.compile(r"(?!\s)[^\x00-\x1f\x7f\x85\u2028\u2029]+(?<!\s)"),
    "text in one line, without control characters and without blanks at its ends",
)
#: By name: the ids that the format can hold, and the text of its rows with the name of the file.
_TEXT_FORMATS: dict[str, tuple[tuple[re.Pattern[str], str], Callable[[list[Row], str], str]]] = {
    "quepid": (_LINE, _format_quepid),
    "opensearch": (_LINE, _format_opensearch),
    "qrels": (_WORD, _format_qrels),
}


def _text_rows(
    judgements: Judgements, to: str, expected_text: tuple[re.Pattern[str], str]
) -> list[Row]:
    """Return query, item and grade; raise an error for an id that the format cannot hold."""
    pattern, expectation = expected_text
    for name in ("query_id", "item_id"):
        for text in map(str, np.unique(getattr(judgements, name)).tolist()):
            if not pattern.fullmatch(text):
                raise DataError(
                    f"the {name.removesuffix('_id')} id {text!r} cannot be written to {to}, which "
                    f"holds {expectation}: give another column of the log as {name} (--columns "
                    f"{name}=…), or write a table (--to table)"
                )
    columns = (judgements.query_id, judgements.item_id, judgements.grade)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(str(query), str(item), grade) for query, item, grade in rows]
