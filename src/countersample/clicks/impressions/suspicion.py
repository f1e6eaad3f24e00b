"""Find sessions, clients and rows that look wrong, and leave them out on request."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from countersample.clicks.impressions.aggregation import (
    KEYS,
    group_visits,
    has_possible_click,
    impressions_of,
    is_possible,
    mark,
    whole,
)
from countersample.clicks.impressions.assembling import integers

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    Collect = Callable[[nw.LazyFrame[Any]], pa.Table]

#: A session that clicks everything has shown at least so many items …
LEAST_SHOWN = 5
#: … and so many that clicks at the log's rate would hit all of them in fewer sessions than this.
BY_CHANCE = 1e-3
#: A client has very many sessions if it has more than this …
MANY_SESSIONS = 100
#: … and more than so many times the median of all clients.
TIMES_MEDIAN = 20
#: Sessions and clients are warned about from this share of all clicks on.
NOTABLE = 0.01


@dataclass(frozen=True)
class Suspicious:
    """Sessions, clients and rows of a log that look wrong.

    Attributes
    ----------
    n_clicks : int
        All clicks of the log, of which the others are shares.
    sessions, session_clicks : int
        Sessions that clicked everything they showed, and their clicks.
    least_shown : int, optional
        How many items such a session has shown at least; None where nearly every row is a click.
    clients, client_sessions, client_clicks : int, optional
        Clients with very many sessions, their sessions and clicks; None without such a column.
    many_sessions : int, optional
        Clients with more sessions than this are meant.
    duplicates, duplicate_clicks : int
        Rows that are there before, with the same session, query, item, position and timestamp; and
        the clicks that are counted again by them.
    is_left_out : bool
        Whether they are left out of the log.
    """

    n_clicks: int
    sessions: int
    session_clicks: int
    least_shown: int | None
    clients: int | None
    client_sessions: int | None
    client_clicks: int | None
    many_sessions: int | None
    duplicates: int
    duplicate_clicks: int
    is_left_out: bool = False

    def sentences(self) -> list[str]:
        """Describe what looks wrong and its share of all clicks, if that is notable."""
        sentences = []
        notable = NOTABLE * self.n_clicks
        if self.sessions and self.session_clicks >= notable:
            sentences.append(
                f"{_number(self.sessions, 'session')} clicked everything on their page, at least "
                f"{self.least_shown} items: {self._share(self.session_clicks)}"
            )
        if self.clients and (self.client_clicks or 0) >= notable:
            sentences.append(
                f"{_number(self.clients, 'client')} with more than {self.many_sessions:,} sessions "
                f"asked {self.client_sessions:,} of them: {self._share(self.client_clicks or 0)}"
            )
        if self.duplicates:
            sentences.append(
                f"{_number(self.duplicates, 'row')} repeated, with the same session, query, item "
                f"and position: {self._share(self.duplicate_clicks)}"
            )
        end = "; left out." if self.is_left_out else (
            "; leave them out with without_suspicious() (--suspicious skip) if they are not people."
        )  # fmt: skip
        return [f"{sentence}{end}" for sentence in sentences]

    def _share(self, clicks: int) -> str:
        return f"{clicks / max(self.n_clicks, 1):.1%} of all clicks"


@dataclass(frozen=True)
class Sessions:
    """Statistics of the sessions of a log.

    Attributes
    ----------
    n_sessions, n_without : int
        Sessions, and rows without one.
    n_mixed : int
        Sessions whose rows are of several policies, as interleaving makes them.
    suspicious : Suspicious
        None for an aggregated log, which has no ids.
    """

    n_sessions: int
    n_without: int
    n_mixed: int
    suspicious: Suspicious | None


def describe_sessions(frame: nw.LazyFrame[Any], collect: Collect) -> Sessions:
    """Count sessions, and what looks wrong about them, in the engine of the log."""
    kinds = collect(_kinds_of_sessions(frame))
    names = ("is_none", "size", "is_mixed", "sessions", "rows", "shown", "clicks")
    none, size, mixed, sessions, rows, shown, clicks = (
        integers(kinds[name].fill_null(0)) for name in names
    )
    is_session = none == 0
    n_clicks = int(clicks.sum())
    least = _least_shown(n_clicks, int(shown.sum()))
    clicks_all = is_session & (size >= least) if least is not None else np.zeros(len(size), bool)
    clients = None
    if "client" in frame.collect_schema():
        clients = _clients(collect(_kinds_of_clients(frame)))
    repeats = collect(_repeats(frame))
    return Sessions(
        n_sessions=int(sessions[is_session].sum()),
        n_without=int(rows[~is_session].sum()),
        n_mixed=int(sessions[is_session & (mixed == 1)].sum()),
        suspicious=Suspicious(
            n_clicks=n_clicks,
            sessions=int(sessions[clicks_all].sum()),
            session_clicks=int(clicks[clicks_all].sum()),
            least_shown=least,
            clients=clients and clients[0],
            client_sessions=clients and clients[1],
            client_clicks=clients and clients[2],
            many_sessions=clients and clients[3],
            duplicates=int(integers(repeats["rows"].fill_null(0))[0]),
            duplicate_clicks=int(integers(repeats["clicks"].fill_null(0))[0]),
        ),
    )


def describe_session_counts(frame: nw.LazyFrame[Any], collect: Collect) -> Sessions:
    """Add up the ``sessions`` of an aggregated log: a session counts once per query and day."""
    visits = collect(group_visits(frame))
    sessions, is_mixed = (integers(visits[name]) for name in ("sessions", "is_mixed"))
    nameless = frame.filter(is_possible(frame) & nw.col("sessions").is_null())
    n = collect(nameless.select(n=impressions_of(frame)).select(nw.col("n").sum()))["n"]
    return Sessions(
        n_sessions=int(sessions.sum()),
        n_without=int(integers(n.fill_null(0))[0]),
        n_mixed=int(sessions[is_mixed == 1].sum()),
        suspicious=None,
    )


def find_suspicious(frame: nw.LazyFrame[Any], collect: Collect) -> Suspicious:
    """Return what looks wrong about the sessions of a log."""
    suspicious = describe_sessions(frame, collect).suspicious
    assert suspicious is not None  # noqa: S101 (of a raw log)
    return suspicious


def without(frame: nw.LazyFrame[Any], suspicious: Suspicious) -> nw.LazyFrame[Any]:
    """Return a log without what looks wrong; rows that repeat become one, with their click."""
    rows = frame
    if suspicious.sessions:
        whole = _by_session(frame).filter(
            ~nw.col("session").is_null()
            & (nw.col("shown") == nw.col("clicks"))
            & (nw.col("shown") >= suspicious.least_shown)
        )
        rows = rows.join(whole.select("session"), on="session", how="anti")
    if suspicious.clients:
        many = _by_client(frame).filter(nw.col("sessions") > suspicious.many_sessions)
        rows = rows.join(many.select("client"), on="client", how="anti")
    if suspicious.duplicates:
        columns = frame.collect_schema().names()
        by = _identity(frame)
        others = {name: nw.col(name).max() for name in columns if name not in by}
        once = rows.filter(~nw.col("session").is_null()).group_by(*by).agg(**others)
        alone = rows.filter(nw.col("session").is_null())
        rows = nw.concat([once.select(*columns), alone.select(*columns)])
    return rows


def _number(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("s" if n != 1 else "")


def left_out(suspicious: Suspicious) -> Suspicious:
    """Return the same statistics, marked as left out of the log."""
    return replace(suspicious, is_left_out=True)


def _least_shown(n_clicks: int, n_shown: int) -> int | None:
    """Return how many items a session must show for clicks on all of them to be no chance.

    >>> _least_shown(100, 1000), _least_shown(500, 1000), _least_shown(1000, 1000)
    (5, 10, None)
    """
    if not n_clicks:
        return LEAST_SHOWN
    if n_clicks >= n_shown:
        return None
    by_rate = math.ceil(math.log(BY_CHANCE) / math.log(n_clicks / n_shown))
    return max(LEAST_SHOWN, by_rate)


def _clients(kinds: pa.Table) -> tuple[int, int, int, int]:
    """Return clients with very many sessions, their sessions and clicks, and how many are many."""
    sessions, clients, clicks = (integers(kinds[n]) for n in ("sessions", "clients", "clicks"))
    order = np.argsort(sessions)
    until = np.cumsum(clients[order])
    median = sessions[order][np.searchsorted(until, until[-1] / 2)] if len(until) else 0
    many = max(MANY_SESSIONS, TIMES_MEDIAN * int(median))
    is_many = sessions > many
    return (
        int(clients[is_many].sum()),
        int((clients * sessions)[is_many].sum()),
        int(clicks[is_many].sum()),
        many,
    )


def _rows(frame: nw.LazyFrame[Any], *more: str) -> nw.LazyFrame[Any]:
    """Return how often each row was shown and clicked; nothing where that cannot be."""
    schema = frame.collect_schema()
    is_possible = has_possible_click(schema)
    shown = nw.col("impressions") if "impressions" in schema else nw.lit(1)
    return frame.select(
        *more,
        shown=whole(is_possible, shown),
        clicks=whole(is_possible, nw.col("click")),
    )


def _by_session(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    has_policy = "policy" in frame.collect_schema()
    rows = _rows(frame, "session", *(["policy"] if has_policy else []))
    policies = (
        {"first": nw.col("policy").min(), "last": nw.col("policy").max()} if has_policy else {}
    )
    return rows.group_by("session").agg(
        nw.len().alias("rows"), shown=nw.col("shown").sum(), clicks=nw.col("clicks").sum(),
        **policies,
    )  # fmt: skip


def _kinds_of_sessions(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return sessions by kind: few rows, however many sessions."""
    sessions = _by_session(frame)
    is_whole = nw.col("shown") == nw.col("clicks")
    is_mixed = nw.lit(0)
    if "first" in sessions.collect_schema():
        is_mixed = mark(nw.col("first") != nw.col("last"))
    kinds = sessions.select(
        "rows", "shown", "clicks",
        is_none=mark(nw.col("session").is_null()),
        size=nw.when(is_whole).then(nw.col("shown")).otherwise(nw.lit(0)),
        is_mixed=is_mixed,
    )  # fmt: skip
    return kinds.group_by("is_none", "size", "is_mixed").agg(
        nw.len().alias("sessions"),
        **{name: nw.col(name).sum() for name in ("rows", "shown", "clicks")},
    )


def _by_client(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    rows = _rows(frame, "client", "session").filter(~nw.col("client").is_null())
    visits = rows.group_by("client", "session").agg(clicks=nw.col("clicks").sum())
    return visits.group_by("client").agg(nw.len().alias("sessions"), clicks=nw.col("clicks").sum())


def _kinds_of_clients(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    return (
        _by_client(frame)
        .group_by("sessions")
        .agg(nw.len().alias("clients"), clicks=nw.col("clicks").sum())
    )


def _identity(frame: nw.LazyFrame[Any]) -> list[str]:
    """Return the columns in which a row differs from all others of its log."""
    has_time = "timestamp" in frame.collect_schema()
    return [*KEYS, "session", *(["timestamp"] if has_time else [])]


def _repeats(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return the rows that are there before, and the clicks that they count again."""
    by = _identity(frame)
    rows = _rows(frame, *by).filter(~nw.col("session").is_null())
    alike = rows.group_by(*by).agg(
        nw.len().alias("rows"),
        clicks=nw.col("clicks").sum(),
        once=nw.col("clicks").max(),
    )
    return alike.select(
        rows=(nw.col("rows") - 1).sum(), clicks=(nw.col("clicks") - nw.col("once")).sum()
    )
