"""Click logs put together, and rows on the same query and item merged into one."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats
    from countersample.clicks.log import ClickLog


def merged_pairs(log: ClickLog) -> dict[str, ArrayLike | None]:
    """Return the columns of a log with a row a pair, whose weight is the sum of those merged.

    The propensity is the (harmonic) mean over what was counted, by chance or not.
    """
    pairs = (log.query.astype(np.int64) << 32) | log.item
    keys, member = np.unique(pairs, return_inverse=True)

    def total(column: Floats) -> Floats:
        return np.bincount(member, column).astype(np.float64)

    counted = log.clicks if log.by_chance is None else log.clicks + log.by_chance
    kept = total(counted) > 0
    count = total(log.clicks)[kept]
    propensity = np.minimum(total(counted)[kept] / total(counted / log.propensity)[kept], 1.0)
    by_chance = None
    if log.by_chance is not None:
        weight = total(log.weights)[kept]
        # Where propensities differ, too much of the count may seem to be by chance.
        too_heavy = weight * propensity > count
        propensity = np.where(too_heavy, count / np.where(too_heavy, weight, 1.0), propensity)
        by_chance = np.maximum(count - weight * propensity, 0.0)
    return {
        "query": keys[kept] >> 32,
        "item": keys[kept] & 0xFFFFFFFF,
        "propensity": propensity,
        "count": count,
        "by_chance": by_chance,
    }


def concatenated(logs: list[ClickLog], names: Sequence[str]) -> dict[str, Any]:
    """Return the columns and the facts of all rows of several logs; see `ClickLog.concat`."""
    if not logs:
        raise DataError("there is no click log to put together, expected at least one")
    fingerprints = [log.fingerprint for log in logs]
    known = sorted({name for name in fingerprints if name is not None})
    if len(known) > 1:
        raise DataError(
            f"the click logs are of different datasets (fingerprints {', '.join(known)}), "
            "expected one"
        )
    columns: dict[str, Any] = {name: _filled(logs, name, default) for name, default in _DEFAULTS}
    columns["sessions"] = _sessions_of_all(logs)
    columns |= {name: _in_all(logs, name) for name in names if name not in columns}
    if columns["session"] is not None:
        codes = [np.unique(session, return_inverse=True)[1] for session in columns["session"]]
        starts = np.cumsum([0] + [int(code.max()) + 1 for code in codes[:-1]])
        columns["session"] = [code + start for code, start in zip(codes, starts, strict=True)]
    n_sessions = [log.n_sessions for log in logs]
    facts = {
        "n_sessions": None if None in n_sessions else sum(n_sessions),  # type: ignore[arg-type]
        "fingerprint": None if None in fingerprints else fingerprints[0],
    }
    return facts | {name: np.concatenate(c) for name, c in columns.items() if c is not None}


# What a column is where a log has none.
_DEFAULTS: tuple[tuple[str, Callable[[ClickLog], Floats]], ...] = (
    ("count", lambda log: np.ones(len(log))),
    ("by_chance", lambda log: np.zeros(len(log))),
    ("events", lambda log: log.clicks),
    ("examination", attrgetter("propensity")),
)


def _filled(
    logs: list[ClickLog], name: str, default: Callable[[ClickLog], Floats]
) -> list[Floats] | None:
    """Return a column of all logs, filled where a log has none; None where none has it."""
    columns = [getattr(log, name) for log in logs]
    if all(column is None for column in columns):
        return None
    filled = zip(logs, columns, strict=True)
    return [default(log) if column is None else column for log, column in filled]


def _sessions_of_all(logs: list[ClickLog]) -> list[Floats] | None:
    """Return the sessions of each row's query in all logs together; None where one has no such."""
    total: dict[int, float] = {}
    for log in logs:
        if log.sessions is None:
            return None
        query, first = np.unique(log.query, return_index=True)
        for each, sessions in zip(query.tolist(), log.sessions[first].tolist(), strict=True):
            total[each] = total.get(each, 0.0) + sessions
    return [np.array([total[query] for query in log.query.tolist()]) for log in logs]


def _in_all(logs: list[ClickLog], name: str) -> list[NDArray[Any]] | None:
    """Return a column of all logs, or None where none has it."""
    columns = [getattr(log, name) for log in logs]
    absent = [index for index, column in enumerate(columns) if column is None]
    if len(absent) == len(logs):
        return None
    if absent:
        raise DataError(
            f"click log {absent[0]} of {len(logs)} (counted from 0) has no column {name!r} and "
            "others have it, expected it in all or in none"
        )
    return columns
