"""Recent days count more: a day that is `age` days old counts 2^(−age/half-life).

It is decided here alone, for impressions, clicks, their value and sessions alike, so that rates and
what is estimated from them are weighted means over days. What was weighted are no counts any more:
their noise is that of Σ w²·n impressions, not of Σ w·n. Intervals come from drawing queries with
all of their weighted clicks, which takes weights as they are; and judging takes each click as one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks.impressions.counts import first_position, row_keys
from countersample.clicks.impressions.tallying import tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from countersample._arrays import Ints
    from countersample.clicks.impressions.counts import PositionCounts
    from countersample.clicks.impressions.handle import Impressions

_ALL = 2**62  # groups of a day, none of which are put together


def weighted_days(log: Impressions) -> Iterator[tuple[float, Impressions]]:
    """Go through the days of a log, each with its weight; one of 1 where days are not weighted.

    Rows without a timestamp are as old as the first day.
    """
    if log.half_life is None:
        yield 1.0, log
        return
    days, whole = log.days().days, replace(log, half_life=None)
    for day in days:
        since = None if day == days[0] else day
        part = whole.of_days(since=since, until=day + timedelta(days=1))
        yield 0.5 ** ((days[-1] - day).days / log.half_life), part


def weighted(log: Impressions, counts: PositionCounts) -> PositionCounts:
    """Return the counts of a log, which are given, with its days weighted as it says.

    The rows are the same, and so are ids: numbers are floats, and `PositionCounts.logged` has the
    impressions as they were.
    """
    if log.half_life is None:
        return counts
    sums = {name: np.zeros(len(counts)) for name in ("impressions", "clicks", "value")}
    sessions = np.zeros(len(counts.query_ids))
    for weight, part in weighted_days(log):
        found = tally(part, most_groups=_ALL).counts
        if found is None:
            continue
        rows, query = _rows(found, counts)
        for name, total in sums.items():
            np.add.at(total, rows, weight * getattr(found, name))
        np.add.at(sessions, query, weight * found.sessions)
    if counts.sessions_from == "first position":
        n_queries = len(counts.query_ids)
        sessions = first_position(counts.query, counts.position, sums["impressions"], n_queries)
    n_sessions = float(sessions.sum()) if counts.n_sessions is not None else None
    made: dict[str, Any] = {**sums, "sessions": sessions, "n_sessions": n_sessions}
    return replace(counts, logged=counts.impressions, **made)


def effective_impressions(log: Impressions) -> float:
    """Return (Σ w·n)² / Σ w²·n over the days of a log: as many impressions of equal weight."""
    assert log.half_life is not None  # noqa: S101 (else it is their number)
    days = log.days()
    n = np.array(days.rows, np.float64)
    age = np.array([(days.days[-1] - day).days for day in days.days])
    w = 0.5 ** (age / log.half_life)
    return float((w @ n) ** 2 / (w**2 @ n))


def _rows(part: PositionCounts, whole: PositionCounts) -> tuple[Ints, Ints]:
    """Return the row of the whole that each row of a part is in, and the query of each query.

    What is not there by itself is among the items that were never clicked.
    """
    query = _places(part.query_ids, whole.query_ids)
    item = _places(part.item_ids, whole.item_ids)
    context = _places(part.context_ids, whole.context_ids)
    rest = -1 if whole.rest is None else whole.rest
    wanted = [query[part.query], np.where(item[part.item] < 0, rest, item[part.item]),
              part.position, context[part.context]]  # fmt: skip
    there = [whole.query, whole.item, whole.position, whole.context]
    found = _find(wanted, there)
    if whole.rest is not None and (found < 0).any():  # clicked for another query
        wanted[1] = np.where(found < 0, rest, wanted[1])
        found = _find(wanted, there)
    return found, query


def _places(ids: NDArray[Any], known: NDArray[Any]) -> Ints:
    """Return where ids are among the known ones, which are sorted; −1 where they are not."""
    same = ids.astype(np.str_) if known.dtype.kind == "U" and ids.dtype.kind != "U" else ids
    place = np.minimum(np.searchsorted(known, same), len(known) - 1)
    return np.where(known[place] == same, place, -1)


def _find(wanted: list[Ints], there: list[NDArray[Any]]) -> Ints:
    n = len(there[0])
    both = [np.concatenate([own, more]) for own, more in zip(there, wanted, strict=True)]
    keys = row_keys(*both)
    place = np.minimum(np.searchsorted(keys[:n], keys[n:]), n - 1)
    return np.where(keys[place] == keys[n:], place, -1)
