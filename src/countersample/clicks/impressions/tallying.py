"""Count a log in its engine: group its rows once, and describe the groups."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals as nw

from countersample.clicks.impressions import aggregation
from countersample.clicks.impressions.aggregation import Problems
from countersample.clicks.impressions.assembling import assemble, integers
from countersample.clicks.impressions.engines import find_engine
from countersample.errors import DataError

if TYPE_CHECKING:
    from countersample.clicks.impressions.counts import PositionCounts
    from countersample.clicks.impressions.handle import Impressions

#: Beyond so many groups, items that were never clicked are counted together by query.
MOST_GROUPS = 5_000_000


class Pairs(NamedTuple):
    """Query-item pairs of a log, in numbers.

    Attributes
    ----------
    n_items, n_pairs : int
        Items, and query-item pairs.
    n_moved : int
        Pairs seen at several positions.
    n_repeated : int
        Pairs shown more often than their query has sessions.
    """

    n_items: int
    n_pairs: int
    n_moved: int
    n_repeated: int


class Tally(NamedTuple):
    """The counts of a log."""

    problems: Problems
    counts: PositionCounts | None  # of possible rows; None if there are none
    pairs: Pairs | None  # None unless requested


def tally(
    log: Impressions,
    *,
    n_sessions: int | None = None,
    with_pairs: bool = False,
    most_groups: int = MOST_GROUPS,
) -> Tally:
    """Count the rows of a log that are possible, and say how many are not.

    The sessions of each query come from ids of sessions, or from the column ``sessions`` of an
    aggregated log; without either they are the impressions of the first position.
    """
    check_total(log)
    engine = find_engine(log.engine)
    with ExitStack() as stored:
        groups = stored.enter_context(engine.store(aggregation.group(log.frame), log.source))
        problems = problems_of_rows(log, groups)
        if problems.n_rows == problems.n_invalid:
            return Tally(problems, None, None)
        sessions = log.sessions_of_queries()
        if sessions is not None:
            sessions = stored.enter_context(engine.store(sessions, log.source))
        pairs = _pairs(log, groups, sessions) if with_pairs else None
        parts: tuple[nw.LazyFrame[Any], ...] = (groups,)
        has_text_items = log.has_text_ids
        if _size(log, groups) > most_groups:
            pairs_clicked = engine.store(aggregation.clicked_pairs(groups), log.source)
            parts = aggregation.split_unclicked(groups, stored.enter_context(pairs_clicked))
            has_text_items = has_text_items and not _size(log, aggregation.named_items(groups))
        counts = assemble(
            chain.from_iterable(engine.batches(part, log.source) for part in parts),
            has_text_ids=log.has_text_ids,
            has_text_items=has_text_items,
            sessions=None if sessions is None else log.collect(sessions),
            n_sessions=n_sessions,
        )
        return Tally(problems, counts, pairs)


def check_total(log: Impressions) -> None:
    """Reject an aggregated log with impossible sessions, or more impressions than sums can hold."""
    if "impressions" not in log.columns:
        return
    totals = log.collect(aggregation.describe_totals(log.frame))
    total, n_bad = (totals[name][0].as_py() for name in ("shown", "bad_sessions"))
    if n_bad:
        raise DataError(
            f"{log.source}: sessions is not a whole number from 1 in {n_bad:,} rows, expected the "
            "sessions of the query on that day, or nothing"
        )
    if total is not None and total > aggregation.MOST:
        raise DataError(
            f"{log.source}: its impressions add up to {total:.3g}, expected at most 2^53 "
            f"({aggregation.MOST:.3g}), as far as sums are exact"
        )


def problems_of_rows(log: Impressions, groups: nw.LazyFrame[Any]) -> Problems:
    """Count impossible rows, and describe them if there are any."""
    if "impressions" not in log.columns:  # a row is an impression, which the groups count
        n_rows = _size(log, log.frame)
        counted = log.collect(groups.select(nw.col("impressions").cast(nw.Int64).sum()))
        if n_rows == int(integers(counted["impressions"].fill_null(0))[0]):
            return Problems(n_rows, 0, 0, 0, 0, 0)
    return aggregation.problems_of(log.collect(aggregation.describe_rows(log.frame)))


def _pairs(
    log: Impressions, groups: nw.LazyFrame[Any], sessions: nw.LazyFrame[Any] | None
) -> Pairs:
    n_items = _size(log, groups.select("item_id").unique())
    totals = log.collect(aggregation.describe_pairs(groups, sessions))
    return Pairs(n_items, *(int(integers(totals[n])[0]) for n in ("pairs", "moved", "repeated")))


def _size(log: Impressions, frame: nw.LazyFrame[Any]) -> int:
    return int(integers(log.collect(frame.select(nw.len().alias("rows")))["rows"])[0])
