"""`PositionCounts`: impressions and clicks per query, item, position and context, in memory.

`tally` makes them of a log; estimates of position bias and the join to features start from them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from countersample._arrays import as_codes, as_column, as_numbers, check_rows
from countersample._frames import Tabular
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

#: No page of results is longer. Curves have one number per position, so that memory has a limit.
MAX_POSITION = 100_000
#: The impressions of a log: whole numbers beyond it are not exact in a float.
MAX_IMPRESSIONS = 2**53
NO_CONTEXT = ""  # the one context of a log that has no such column

SessionsFrom = Literal["sessions", "first position"]


@dataclass(frozen=True, eq=False, repr=False)
class PositionCounts(Tabular):
    """Impressions and clicks, one row per query, item, position and context that was seen.

    Rows are sorted by query, item, position and context, and none is repeated, so equal logs give
    equal arrays on every engine.

    Parameters
    ----------
    query, item : int32 arrays (n_rows,)
        Positions in `query_ids` and `item_ids`.
    position : int32 array (n_rows,)
        The rank at which the item was shown, counted from 1.
    impressions, clicks : int64 arrays (n_rows,)
        The number of times that it was shown there, and clicked.
    query_ids, item_ids : arrays of int64 or str
        The ids, sorted.
    context, context_ids : int32 array (n_rows,), array of str
        The device or layout in which it was shown; a log without contexts has one, ``""``.
    value : float64 array (n_rows,)
        The value of the clicks of the row: their number unless the log has values.
    sessions : float64 array (n_queries,)
        S_q, the sessions of each query.
    sessions_from : {"sessions", "first position"}
        How they were counted: by ids of sessions, or impressions of the first position.
    n_sessions : int, optional
        The sessions of the log; None if they were not counted by their ids.
    rest : int, optional
        The item that stands for all items of a query that were never clicked, if the log has so
        many rows that these are counted together; None if each item has its own rows.
    logged : int64 array (n_rows,), optional
        The unweighted impressions, if recent days count more: the other numbers are then weighted.

    Examples
    --------
    >>> from countersample.logs import PositionCounts
    >>> counts = PositionCounts.from_columns(
    ...     query_id=["a", "a", "a"], item_id=[7, 7, 9], position=[1, 1, 2], click=[1, 0, 0]
    ... )
    >>> counts
    PositionCounts(n_rows=2, n_impressions=3, n_clicks=1, n_queries=1, n_positions=2)
    >>> counts.item_ids[counts.item], counts.impressions, counts.clicks
    (array([7, 9]), array([2, 1]), array([1, 0]))
    """

    query: NDArray[np.int32]
    item: NDArray[np.int32]
    position: NDArray[np.int32]
    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]
    query_ids: NDArray[Any]
    item_ids: NDArray[Any]
    context: NDArray[np.int32]
    context_ids: NDArray[np.str_]
    value: NDArray[np.float64]
    sessions: NDArray[np.float64]
    sessions_from: SessionsFrom
    n_sessions: int | None = None
    rest: int | None = None
    logged: NDArray[np.int64] | None = None

    @classmethod
    def from_columns(
        cls,
        query_id: ArrayLike,
        item_id: ArrayLike,
        position: ArrayLike,
        click: ArrayLike,
        impressions: ArrayLike | None = None,
        *,
        session: ArrayLike | None = None,
        context: ArrayLike | None = None,
        value: ArrayLike | None = None,
    ) -> PositionCounts:
        """Count rows given as arrays, in any order.

        Parameters
        ----------
        query_id, item_id, position : array-likes (n,)
            As in a log: ids are integers or strings, positions count from 1.
        click : array-like (n,)
            0 or 1; with `impressions`, the number of clicks.
        impressions : array-like (n,), optional
            The impressions that each row stands for; 1 by default.
        session : array-like (n,), optional
            The session of each row. Without it, or with `impressions`, the sessions of a query are
            the impressions of its first position.
        context : array-like (n,), optional
            The device or layout of each row.
        value : array-like (n,), optional
            The value of the clicks of each row; their number by default.
        """
        queries, items = _ids(query_id, "query_id"), _ids(item_id, "item_id")
        n = len(queries)
        rank, clicks = _whole(position, "position"), _whole(click, "click")
        shown = _whole(np.ones(n) if impressions is None else impressions, "impressions")
        values = clicks if value is None else as_numbers(value, "value")
        contexts = as_column(np.full(n, NO_CONTEXT) if context is None else context, "context")
        columns = {"item_id": items, "position": rank, "click": clicks, "impressions": shown,
                   "context": contexts, "value": values}  # fmt: skip
        for name, column in columns.items():
            if len(column) != n:
                raise DataError(f"{name} has {len(column)} values, expected {n} as query_id has")
        check_rows(
            rank, "position", f"from 1 to {MAX_POSITION}", (rank >= 1) & (rank <= MAX_POSITION)
        )
        check_rows(shown, "impressions", "at least 1", shown >= 1)
        limit = "0 or 1" if impressions is None else "from 0 to its impressions"
        check_rows(clicks, "click", limit, (clicks >= 0) & (clicks <= shown))
        is_good = (values >= 0) & np.isfinite(values) & ((values == 0) | (clicks > 0))
        check_rows(values, "value", "0 without a click, else a number of at least 0", is_good)
        query_ids, query = np.unique(queries, return_inverse=True)
        item_ids, item = np.unique(items, return_inverse=True)
        context_ids, coded = np.unique(contexts.astype(np.str_), return_inverse=True)
        sessions = n_sessions = None
        if session is not None and impressions is None:
            codes = np.unique(as_codes(session, "session"), return_inverse=True)[1]
            n_sessions = int(codes.max()) + 1
            visits = np.unique((query.astype(np.int64) << 32) | codes) >> 32
            sessions = np.bincount(visits, minlength=len(query_ids)).astype(np.float64)
        rows = {"query": query, "item": item, "position": rank, "context": coded,
                "impressions": shown, "clicks": clicks, "value": values}  # fmt: skip
        return cls.from_codes(
            rows, query_ids, item_ids, context_ids, sessions=sessions, n_sessions=n_sessions
        )

    @classmethod
    def from_codes(
        cls,
        columns: Mapping[str, NDArray[Any]],
        query_ids: NDArray[Any],
        item_ids: NDArray[Any],
        context_ids: NDArray[np.str_] | None = None,
        *,
        sessions: NDArray[np.float64] | None = None,
        n_sessions: int | None = None,
        rest: int | None = None,
    ) -> PositionCounts:
        """Sort rows whose ids are positions in sorted ids, and add up rows of the same place.

        The columns are query, item, position, impressions, clicks and, if the log has them, context
        and value. Without `sessions`, these are the impressions of the first position; see
        `first_position`.
        """
        query, position = columns["query"], columns["position"]
        if not len(query):
            raise DataError("the log has no impressions, expected at least one")
        n_impressions = int(columns["impressions"].sum(dtype=np.float64))
        if n_impressions <= 2 * MAX_IMPRESSIONS:  # so that the exact sum fits into 64 bits
            n_impressions = int(columns["impressions"].sum(dtype=np.int64))
        if n_impressions > MAX_IMPRESSIONS:
            raise DataError(
                f"the log has {n_impressions:,} impressions, expected at most "
                f"{MAX_IMPRESSIONS:,}: correct the column 'impressions'"
            )
        places = ["query", "item", "position", *(["context"] if "context" in columns else [])]
        keys = row_keys(*(columns[name] for name in places))
        order = np.argsort(keys)
        keys = keys[order]
        is_first = np.concatenate([[True], keys[1:] != keys[:-1]])
        del keys  # logs are large
        first = None if is_first.all() else np.flatnonzero(is_first)
        rows = order if first is None else order[first]

        def add_up(name: str, kind: type) -> NDArray[Any]:
            column: NDArray[Any] = columns[name][order].astype(kind, copy=False)
            return column if first is None else np.add.reduceat(column, first)

        place: dict[str, Any] = {
            name: columns[name][rows].astype(np.int32, copy=False) for name in places
        }
        place.setdefault("context", np.zeros(len(rows), np.int32))
        clicks = add_up("clicks", np.int64)
        has_sessions = sessions is not None
        if sessions is None:
            sessions = first_position(query, position, columns["impressions"], len(query_ids))
        return cls(
            **place,
            impressions=add_up("impressions", np.int64),
            clicks=clicks,
            query_ids=query_ids,
            item_ids=item_ids,
            context_ids=np.array([NO_CONTEXT]) if context_ids is None else context_ids,
            value=add_up("value", np.float64) if "value" in columns else clicks.astype(np.float64),
            sessions=sessions,
            sessions_from="sessions" if has_sessions else "first position",
            n_sessions=n_sessions,
            rest=rest,
        )

    def take(self, rows: NDArray[Any]) -> PositionCounts:
        """Return the counts of some rows (a mask, or sorted indices), with all ids and sessions."""
        columns = ["query", "item", "position", "context", "impressions", "clicks", "value"]
        columns += [] if self.logged is None else ["logged"]
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.query)

    @property
    def n_impressions(self) -> int:
        """The number of impressions."""
        return int(self.impressions.sum())

    @property
    def n_clicks(self) -> int:
        """The number of clicks."""
        return int(self.clicks.sum())

    @property
    def has_contexts(self) -> bool:
        """Whether the log has contexts."""
        return len(self.context_ids) != 1 or self.context_ids[0] != NO_CONTEXT

    @cached_property
    def by_position(self) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """The positions seen, sorted, with their impressions and clicks."""
        positions, member = np.unique(self.position, return_inverse=True)
        impressions = np.zeros(len(positions), self.impressions.dtype)
        clicks = np.zeros(len(positions), self.clicks.dtype)
        np.add.at(impressions, member, self.impressions)  # integers, which bincount would round
        np.add.at(clicks, member, self.clicks)
        return positions, impressions, clicks

    @cached_property
    def pair_starts(self) -> NDArray[np.int64]:
        """The first row of each query-item pair, and the number of rows at the end."""
        changes = (np.diff(self.query) != 0) | (np.diff(self.item) != 0)
        return np.concatenate([[0], np.flatnonzero(changes) + 1, [len(self)]]).astype(np.int64)

    def find_rows(
        self, query: NDArray[Any], item: NDArray[Any], position: NDArray[Any], context: NDArray[Any]
    ) -> NDArray[np.int64]:
        """Return the row of each query, item, position and context, as these counts number them.

        −1 if there is no such row.
        """
        columns = zip(
            (self.query, self.item, self.position, self.context),
            (query, item, position, context),
            strict=True,
        )
        # Absent ids are −1, and keys have numbers from 0.
        keys = row_keys(*(np.concatenate(both).astype(np.int64) + 1 for both in columns))
        return find_ids(keys[len(self) :], keys[: len(self)])

    def summary(self) -> str:
        """Return the size of the log, in words."""
        return (
            f"{self.n_impressions:,} impressions, {self.n_clicks:,} clicks, "
            f"{len(self.query_ids):,} queries"
        )

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return query_id, item_id, position, impressions, clicks, and context and value if any."""
        columns: dict[str, ArrayLike] = {
            "query_id": self.query_ids[self.query],
            "item_id": self.item_ids[self.item],
            "position": self.position,
        }
        if self.has_contexts:
            columns["context"] = self.context_ids[self.context]
        columns |= {"impressions": self.impressions, "clicks": self.clicks}
        if (self.value != self.clicks).any():
            columns["value"] = self.value
        return columns

    def __len__(self) -> int:
        return len(self.query)

    def __repr__(self) -> str:
        return (
            f"PositionCounts(n_rows={len(self):_}, n_impressions={self.n_impressions:_}, "
            f"n_clicks={self.n_clicks:_}, n_queries={len(self.query_ids):_}, "
            f"n_positions={len(self.by_position[0])})"
        )


def first_position(
    query: NDArray[Any], position: NDArray[Any], impressions: NDArray[Any], n_queries: int
) -> NDArray[np.float64]:
    """Return S_q of a log without ids of sessions: the impressions of the first position.

    If another position of the query has more impressions, these count. (n_queries,)

    >>> first_position(np.array([0, 0, 1]), np.array([1, 2, 3]), np.array([5, 6, 2]), 2)
    array([6., 2.])
    """
    keys, member = np.unique(row_keys(query, position), return_inverse=True)
    shown = np.bincount(member, impressions, len(keys)).astype(np.float64)
    query_of_key = np.zeros(len(keys), np.int64)
    query_of_key[member] = query
    sessions = np.zeros(n_queries)
    np.maximum.at(sessions, query_of_key, shown)
    return sessions


def find_ids(ids: NDArray[Any], known: NDArray[Any]) -> NDArray[np.int64]:
    """Return the position of each id among the known ones, which are sorted; −1 if absent.

    >>> find_ids(np.array([7, 8]), np.array([5, 7]))
    array([ 1, -1])
    """
    if not len(known):
        return np.full(len(ids), -1)
    place = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[place] == ids, place, -1)


def check_id_kinds(name: str, one: tuple[str, bool], other: tuple[str, bool]) -> None:
    """Reject ids that are text in one place and integers in another: (place, is text) each."""
    (place, is_text), (other_place, other_is_text) = one, other
    if is_text != other_is_text:
        kinds = [("integers", "text")[each] for each in (is_text, other_is_text)]
        raise DataError(
            f"{name} is {kinds[0]} in {place} and {kinds[1]} in {other_place}, expected one type: "
            "convert one of them"
        )


def list_names(names: Sequence[str], most: int = 3) -> str:
    """Write names, or the first few of many.

    >>> list_names(["a", "b", "c", "d"], most=2)
    'a, b and 2 more'
    """
    text = ", ".join(repr(name) if name == NO_CONTEXT else name for name in names[:most])
    return text if len(names) <= most else f"{text} and {len(names) - most:,} more"


def row_keys(*columns: NDArray[Any]) -> NDArray[np.int64]:
    """Return one number per row that sorts as its columns, which have numbers from 0.

    >>> row_keys(np.array([0, 1]), np.array([4, 0]), np.array([1, 3])).tolist()
    [17, 23]
    """
    keys: NDArray[np.int64] = columns[0].astype(np.int64)
    for column in columns[1:]:
        n = int(column.max()) + 1
        if (int(keys.max()) + 1) * n >= 2**63:
            keys = np.unique(keys, return_inverse=True)[1]  # fewer than 2³¹, in the same order
        keys = keys * n + column.astype(np.int64)
    return keys


def ranges(positions: ArrayLike) -> str:
    """Write sorted positions with runs as ranges.

    >>> ranges([1, 2, 3, 7, 9])
    '1–3, 7, 9'
    """
    array = np.asarray(positions)
    runs = np.split(array, np.flatnonzero(np.diff(array) > 1) + 1)
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _ids(values: ArrayLike, name: str) -> NDArray[Any]:
    array = as_column(values, name)
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
        array = np.asarray(values, object)  # NumPy turns [1, "a"] into text
    if not array.size:
        raise DataError("the log has no impressions, expected at least one")
    kinds: set[str] = {array.dtype.kind}
    if array.dtype.kind == "O":
        kinds = {type(value).__name__ for value in array}
    if kinds in ({"str"}, {"U"}):
        return array.astype(np.str_)
    if not kinds <= {"int"} and not kinds <= {"i", "u"}:
        names = " and ".join(sorted(kinds)) if array.dtype.kind == "O" else array.dtype
        raise DataError(
            f"{name} has values of type {names}, expected all integers or all text: convert them"
        )
    check_rows(array, name, "an integer of 64 bits, with a sign", array < 2**63)
    return array.astype(np.int64)


def _whole(values: ArrayLike, name: str) -> NDArray[np.int64]:
    array = as_column(values, name)
    if array.size and array.dtype.kind not in "fiub":
        raise DataError(f"{name} is of type {array.dtype}, expected whole numbers")
    if array.dtype.kind == "f":
        check_rows(array, name, "a whole number", np.isfinite(array) & (array == np.floor(array)))
    return array.astype(np.int64)
