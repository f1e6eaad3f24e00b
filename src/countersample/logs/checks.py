"""Check a log: `LogCheck` describes it, `Suspicious` has the sessions that look wrong.

Defects of its pages that withhold a verdict are found in `findings`, impossible rows in
`aggregation`, and changes since an earlier log in `fitting.drift`.

Sessions, clients and rows look wrong in three ways. A session clicked everything on its page, which
had at least `MIN_SHOWN` items, and so many that it would not happen by chance. A client has very
many sessions, compared with others. A row repeats another one. They can be left out.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals as nw
import numpy as np

from countersample import _text
from countersample._frames import Tabular
from countersample.errors import DataError, ParameterError
from countersample.logs.aggregation import (
    KEYS,
    choose,
    group_visits,
    has_possible_click,
    impressions_of,
    is_possible,
    mark,
    sum_columns,
)
from countersample.logs.columns import NONE
from countersample.logs.findings import Finding, find_page_defects
from countersample.logs.tally import MAX_GROUPS, check_sessions, integers, tally

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike

    from countersample.logs.aggregation import Problems
    from countersample.logs.counts import PositionCounts
    from countersample.logs.impressions import Impressions

#: A session that clicks everything has shown at least this many items …
MIN_SHOWN = 5
#: … and so many that the probability of clicking all of them, at the log's click rate, is lower.
MAX_CHANCE = 1e-3
#: A client has very many sessions if it has more than this …
MANY_SESSIONS = 100
#: … and more than this many times the median of all clients.
TIMES_MEDIAN = 20
#: Sessions and clients with at least this share of all clicks raise a warning.
NOTABLE_SHARE = 0.01
_SHOWN_POSITIONS, _SHOWN_CONTEXTS = 20, 6  # in a summary; `to_dict` has all
# Names of policies that suggest shuffled rankings.
_RANDOMIZED = re.compile(r"rand|shuffl|swap|explor|uniform", re.IGNORECASE)


# -- the whole log


@dataclass(frozen=True, eq=False)
class LogCheck(Tabular):
    """Statistics of a raw log, made by `Impressions.check`.

    Attributes
    ----------
    source, engine : str
    columns : tuple of str
        The canonical columns that it has.
    problems : Problems
        The numbers of impossible rows.
    counts : PositionCounts
        The counts of possible rows. In a very large log, items that were never clicked are counted
        together per query (`PositionCounts.rest`).
    n_sessions, n_without_session, n_mixed : int, optional
        Sessions; rows without one; sessions whose rows have several policies, as interleaving
        makes them. None for a log without sessions. An aggregated log counts a session once per
        query and day.
    suspicious : Suspicious, optional
        Sessions, clients and rows that look wrong; None for a log without ids of sessions.
    policies : dict, optional
        Rows per policy, or impressions for an aggregated log.
    n_items, n_pairs, n_moved, n_repeated : int
        Items, query-item pairs, pairs at several positions, and pairs that were shown more often
        than their query has sessions.
    shuffled : tuple of str
        The policies whose rankings were shuffled: as the user named it, or found by their names.
    defects : tuple of Finding
        What breaks the pages of the log: positions that restart, repeated rows, clicks that are
        rows of their own, missing rows.
    has_events : bool
        Whether the values of events define clicks.
    unused : tuple of str
        The columns of a table that are not read.

    Notes
    -----
    `countersample.propensity.supported` returns the propensities that its counts support.
    """

    source: str
    engine: str
    columns: tuple[str, ...]
    problems: Problems
    counts: PositionCounts
    n_sessions: int | None
    n_without_session: int | None
    n_mixed: int | None
    suspicious: Suspicious | None
    policies: dict[str, int] | None
    n_items: int
    n_pairs: int
    n_moved: int
    n_repeated: int
    shuffled: tuple[str, ...]
    defects: tuple[Finding, ...] = ()
    has_events: bool = False
    unused: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The problems that a person should check; some findings withhold the verdict."""
        findings = list(self.defects)
        problem = self.problems.sentence(has_impressions="impressions" in self.columns)
        if problem is not None:
            findings.append(Finding(problem))
        if self.suspicious is not None:
            findings += map(Finding, self.suspicious.problems())
        if self.has_events and "session" not in self.columns:
            findings.append(
                Finding(
                    "the log has events and no sessions, so each row is one impression, also a "
                    "click beside the row of its impression",
                    "name the column that identifies pages of results with "
                    "columns={'session': '…'} (--columns session=…)",
                )
            )
        if self.n_without_session:
            findings.append(Finding(f"{self.n_without_session:,} rows have no session"))
        if self.n_repeated:
            findings.append(
                Finding(
                    f"{self.n_repeated:,} query-item pairs were shown more often than their query "
                    "has sessions",
                    "a session seems to be more than one page of results, or a page to show an "
                    "item twice; give each page its own id",
                )
            )
        if self.counts.rest is not None:
            findings.append(
                Finding(
                    "the log has so many query-item pairs that pairs without a click are counted "
                    "together per query",
                    "estimates from clicks do not change",
                )
            )
        if self.counts.n_clicks == self.counts.n_impressions:
            findings.append(
                Finding(
                    "every impression has a click",
                    "rows of results without a click are missing",
                    withholds=True,
                )
            )
        if not self.counts.n_clicks:
            findings.append(Finding("the log has no click", "there is nothing to learn from"))
        return tuple(findings)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The findings as sentences."""
        return tuple(each.sentence for each in self.findings)

    @property
    def withheld(self) -> str:
        """Why the log gives no verdict; empty if it does."""
        return next((each.reason for each in self.findings if each.withholds), "")

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return impressions, clicks and click rate of each position."""
        positions, impressions, clicks = self.counts.by_position
        return {
            "position": positions,
            "impressions": impressions,
            "clicks": clicks,
            "click_rate": clicks / impressions,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as plain values for JSON, without any id."""
        return {
            "source": self.source,
            "engine": self.engine,
            "columns": list(self.columns),
            "rows": self.problems.n_rows,
            "impressions": self.counts.n_impressions,
            "clicks": self.counts.n_clicks,
            "sessions": self.n_sessions,
            "queries": len(self.counts.query_ids),
            "items": self.n_items,
            "pairs": self.n_pairs,
            "pairs_at_several_positions": self.n_moved,
            "problems": asdict(self.problems),
            "without_session": self.n_without_session,
            "sessions_of_several_policies": self.n_mixed,
            "suspicious": None if self.suspicious is None else asdict(self.suspicious),
            "policies": self.policies,
            "positions": self.to_frame("pyarrow").drop_columns("click_rate").to_pylist(),
            "shuffled": list(self.shuffled),
            "warnings": list(self.warnings),
            "withheld": self.withheld,
        }

    def draw(self, path: str | PathLike[str]) -> None:
        """Draw click rates by position as PNG, SVG or PDF."""
        from countersample.pages.charts import new_axes, save_picture  # noqa: PLC0415 (heavy)
        from countersample.plotting import plot_click_rates  # noqa: PLC0415 (heavy)

        figure, axes = new_axes(8, 4.5)
        plot_click_rates(self.counts, ax=axes)
        save_picture(figure, path)

    def summary(self) -> str:
        """Return the sizes and the click rates by position, for a terminal."""
        counts, problems = self.counts, self.problems
        share = 100 * self.n_moved / self.n_pairs
        n_sessions = "not logged" if self.n_sessions is None else f"{self.n_sessions:,}"
        rows = [
            ("rows", f"{problems.n_rows:,}, of which {problems.n_invalid:,} impossible"),
            ("impressions", f"{counts.n_impressions:,}"),
            ("clicks", f"{counts.n_clicks:,}, {counts.n_clicks / counts.n_impressions:.2%}"),
            ("sessions", n_sessions),
            ("queries", f"{len(counts.query_ids):,}"),
            ("items", f"{self.n_items:,}"),
            ("query-item pairs", f"{self.n_pairs:,}, {share:.1f} % seen at several positions"),
        ]
        if counts.has_contexts:
            shown = np.bincount(counts.context, counts.impressions, len(counts.context_ids))
            most = np.argsort(-shown, kind="stable")[:_SHOWN_CONTEXTS]
            texts = [f"{counts.context_ids[k]} ({shown[k]:,.0f} impressions)" for k in most]
            more = len(counts.context_ids) - len(texts)
            texts += [f"and {more:,} more"] if more else []
            rows.append(("contexts", ", ".join(texts)))
        if (counts.value != counts.clicks).any():
            rows.append(("value of the clicks", f"{counts.value.sum():,.6g}"))
        if self.suspicious is not None:
            rows.append(("duplicates", f"{self.suspicious.duplicates:,}"))
            rows.append(("sessions that clicked all", f"{self.suspicious.sessions:,}"))
        if self.policies is not None:
            unit = "impressions" if "impressions" in self.columns else "rows"
            served = ", ".join(f"{name} ({n:,} {unit})" for name, n in self.policies.items())
            rows.append(("policies", served))
        if self.n_mixed:
            rows.append(
                ("interleaved", f"{self.n_mixed:,} sessions show items of several policies")
            )
        if self.unused:
            rows.append(("columns not used", ", ".join(self.unused)))
        lines = [f"{self.source} ({self.engine})", _text.pairs(rows), "  click rate by position"]
        positions, impressions, clicks = (each[:_SHOWN_POSITIONS] for each in counts.by_position)
        rates = clicks / impressions
        highest = max(rates.max(), 1e-12)
        for position, rate, total in zip(positions, rates, impressions, strict=True):
            bar = _text.bar(rate / highest)
            lines.append(f"    {position:>4}  {bar}  {100 * rate:6.2f} % of {total:,} impressions")
        n_more = len(counts.by_position[0]) - len(positions)
        return "\n".join([*lines, *([f"    and {n_more:,} more positions"] if n_more else [])])


def check(
    log: Impressions, *, randomized: str | None = None, max_groups: int = MAX_GROUPS
) -> LogCheck:
    """Validate and describe a log; see `Impressions.check`."""
    policies = _count_policies(log) if "policy" in log.columns else None
    names = [policy for policy in policies or {} if policy != NONE]
    if randomized is not None and randomized not in names:
        expected = ", ".join(names) if names else "none: the log has no column 'policy'"
        raise ParameterError(
            f"randomized is {randomized!r}, expected a policy of the log: {expected}"
        )
    check_sessions(log)
    sessions = describe_sessions(log)
    n_sessions = sessions.n_sessions
    problems, counts, pairs = tally(
        log,
        n_sessions=None if log.is_aggregated and "sessions" not in log.columns else n_sessions,
        with_pairs=True,
        max_groups=max_groups,
    )
    if counts is None or pairs is None:
        reason = problems.sentence(has_impressions=log.is_aggregated) or "the log has no rows"
        raise DataError(
            f"{log.source}: {reason}, expected at least one impression that is possible"
        )
    return LogCheck(
        source=log.source,
        engine=log.engine,
        columns=log.columns,
        problems=problems,
        counts=counts,
        n_sessions=n_sessions,
        n_without_session=sessions.n_without,
        n_mixed=sessions.n_mixed,
        suspicious=log.left_out or sessions.suspicious,
        policies=policies,
        **pairs,
        defects=tuple(find_page_defects(log, counts)),
        has_events=log.has_events,
        unused=log.unused,
        shuffled=(randomized,) if randomized else tuple(filter(_RANDOMIZED.search, policies or {})),
    )


def _count_policies(log: Impressions) -> dict[str, int]:
    rows = log.frame.select("policy", rows=impressions_of(log.frame)).group_by("policy")
    table = log.collect(rows.agg(nw.col("rows").sum()))
    pairs = zip(table["policy"].to_pylist(), integers(table["rows"]).tolist(), strict=True)
    return dict(sorted((policy or NONE, n_rows) for policy, n_rows in pairs))


# -- sessions


@dataclass(frozen=True)
class Suspicious:
    """Sessions, clients and rows of a log that look wrong.

    Attributes
    ----------
    n_clicks : int
        All clicks of the log.
    sessions, session_clicks : int
        Sessions that clicked everything they showed, and their clicks.
    least_shown : int, optional
        The least number of items that such a session has shown; None if nearly every row is a
        click.
    clients, client_sessions, client_clicks : int, optional
        Clients with very many sessions, their sessions and clicks; None without such a column.
    many_sessions : int, optional
        The number of sessions above which a client has very many.
    duplicates, duplicate_clicks : int
        Rows that repeat the session, query, item, position, context, policy and timestamp of
        another row, and the clicks that they count again.
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

    def problems(self) -> list[str]:
        """Describe what looks wrong and its share of all clicks, if that is notable."""
        sentences = []
        min_clicks = NOTABLE_SHARE * self.n_clicks
        if self.sessions and self.session_clicks >= min_clicks:
            sentences.append(
                f"{_count(self.sessions, 'session')} clicked everything on their page, at least "
                f"{self.least_shown} items: {self._share(self.session_clicks)}"
            )
        if self.clients and (self.client_clicks or 0) >= min_clicks:
            sentences.append(
                f"{_count(self.clients, 'client')} with more than {self.many_sessions:,} sessions "
                f"had {self.client_sessions:,} of them: {self._share(self.client_clicks or 0)}"
            )
        if self.duplicates:
            sentences.append(
                f"{_count(self.duplicates, 'row')} repeated, with the same session, query, item "
                f"and position: {self._share(self.duplicate_clicks)}"
            )
        end = "; left out" if self.is_left_out else (
            "; leave them out with without_suspicious() (--suspicious skip) if they are not people"
        )  # fmt: skip
        return [f"{sentence}{end}" for sentence in sentences]

    def _share(self, clicks: int) -> str:
        return f"{clicks / max(self.n_clicks, 1):.1%} of all clicks"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("s" if n != 1 else "")


class Sessions(NamedTuple):
    """Sessions, rows without one, and sessions with several policies; None if there are no ids."""

    n_sessions: int | None
    n_without: int | None
    n_mixed: int | None
    suspicious: Suspicious | None


def describe_sessions(log: Impressions) -> Sessions:
    """Count sessions, and find what looks wrong about them, in the engine of the log.

    An aggregated log counts a session once per query and day, and has no ids to find more.
    """
    frame = log.frame
    if "sessions" in log.columns:
        visits = log.collect(group_visits(frame))
        sessions, is_mixed = (integers(visits[name]) for name in ("sessions", "is_mixed"))
        nameless = frame.filter(is_possible(frame) & nw.col("sessions").is_null())
        n = log.collect(nameless.select(n=impressions_of(frame)).select(nw.col("n").sum()))["n"]
        n_without = int(integers(n.fill_null(0))[0])
        return Sessions(int(sessions.sum()), n_without, int(sessions[is_mixed == 1].sum()), None)
    if "session" not in log.columns:
        return Sessions(None, None, None, None)
    kinds = log.collect(_group_session_kinds(frame))
    is_none, size, is_mixed, sessions, rows, shown, clicks = (
        integers(kinds[name].fill_null(0))
        for name in ("is_none", "size", "is_mixed", "sessions", "rows", "shown", "clicks")
    )
    is_session, n_clicks = is_none == 0, int(clicks.sum())
    least = _find_least_shown(n_clicks, int(shown.sum()))
    is_whole = is_session & (size >= (np.inf if least is None else least))
    repeats = log.collect(_count_repeats(frame))
    suspicious = Suspicious(
        n_clicks=n_clicks,
        sessions=int(sessions[is_whole].sum()),
        session_clicks=int(clicks[is_whole].sum()),
        least_shown=least,
        **_describe_clients(log),
        duplicates=int(integers(repeats["rows"].fill_null(0))[0]),
        duplicate_clicks=int(integers(repeats["clicks"].fill_null(0))[0]),
    )
    n_mixed = int(sessions[is_session & (is_mixed == 1)].sum())
    n_without = int(rows[~is_session].sum())
    return Sessions(int(sessions[is_session].sum()), n_without, n_mixed, suspicious)


def without_suspicious(
    frame: nw.LazyFrame[Any], suspicious: Suspicious, *, merges_views: bool
) -> nw.LazyFrame[Any]:
    """Return a log without what looks wrong; repeated rows become one, with their click.

    With `merges_views` rows also repeat if their timestamps differ, as with clicks.
    """
    rows = frame
    if suspicious.sessions:
        whole_pages = _group_sessions(frame).filter(
            ~nw.col("session").is_null()
            & (nw.col("shown") == nw.col("clicks"))
            & (nw.col("shown") >= suspicious.least_shown)
        )
        rows = rows.join(whole_pages.select("session"), on="session", how="anti")
    if suspicious.clients:
        many = _group_clients(frame).filter(nw.col("sessions") > suspicious.many_sessions)
        rows = rows.join(many.select("client"), on="client", how="anti")
    if suspicious.duplicates or merges_views:
        columns = frame.collect_schema().names()
        by = _identity(frame, with_time=not merges_views)
        others = {name: nw.col(name).max() for name in columns if name not in by}
        once = rows.filter(~nw.col("session").is_null()).group_by(*by).agg(**others)
        alone = rows.filter(nw.col("session").is_null())
        rows = nw.concat([once.select(*columns), alone.select(*columns)])
    return rows


def _find_least_shown(n_clicks: int, n_shown: int) -> int | None:
    """Return how many items a session must show for clicks on all of them to be no chance.

    >>> _find_least_shown(100, 1000), _find_least_shown(500, 1000), _find_least_shown(1000, 1000)
    (5, 10, None)
    """
    if not n_clicks:
        return MIN_SHOWN
    if n_clicks >= n_shown:
        return None
    return max(MIN_SHOWN, math.ceil(math.log(MAX_CHANCE) / math.log(n_clicks / n_shown)))


def _describe_clients(log: Impressions) -> dict[str, Any]:
    """Return clients with very many sessions, their sessions and clicks, and the threshold."""
    names = ("clients", "client_sessions", "client_clicks", "many_sessions")
    if "client" not in log.columns:
        return dict.fromkeys(names)
    groups = _group_clients(log.frame).group_by("sessions")
    kinds = log.collect(groups.agg(clients=nw.len(), **sum_columns("clicks")))
    sessions, clients, clicks = (integers(kinds[n]) for n in ("sessions", "clients", "clicks"))
    order = np.argsort(sessions)
    until = np.cumsum(clients[order])
    median = sessions[order][np.searchsorted(until, until[-1] / 2)] if len(until) else 0
    many = max(MANY_SESSIONS, TIMES_MEDIAN * int(median))
    is_many = sessions > many
    sums = (int(each[is_many].sum()) for each in (clients, clients * sessions, clicks))
    return dict(zip(names, (*sums, many), strict=True))


# -- groups of rows, computed in the engine


def _count_rows(frame: nw.LazyFrame[Any], *more: str) -> nw.LazyFrame[Any]:
    """Return how often each row was shown and clicked; 0 if that is impossible."""
    is_good = has_possible_click(frame.collect_schema())
    clicks = choose(is_good, nw.col("click")).cast(nw.Int64)
    shown = choose(is_good, impressions_of(frame)).cast(nw.Int64)
    return frame.select(*more, shown=shown, clicks=clicks)


def _group_sessions(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    policies = ["policy"] if "policy" in frame.collect_schema() else []
    numbers = {"rows": nw.len(), **sum_columns("shown", "clicks")}
    for name in policies:
        numbers |= {"first": nw.col(name).min(), "last": nw.col(name).max()}
    return _count_rows(frame, "session", *policies).group_by("session").agg(**numbers)


def _group_session_kinds(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return sessions by kind: few rows, however many sessions."""
    sessions = _group_sessions(frame)
    is_mixed = nw.lit(0)
    if "first" in sessions.collect_schema():
        is_mixed = mark(nw.col("first") != nw.col("last"))
    kinds = sessions.select(
        "rows", "shown", "clicks",
        is_none=mark(nw.col("session").is_null()),
        size=choose(nw.col("shown") == nw.col("clicks"), nw.col("shown")),
        is_mixed=is_mixed,
    )  # fmt: skip
    return kinds.group_by("is_none", "size", "is_mixed").agg(
        sessions=nw.len(), **sum_columns("rows", "shown", "clicks")
    )


def _group_clients(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    rows = _count_rows(frame, "client", "session").filter(~nw.col("client").is_null())
    visits = rows.group_by("client", "session").agg(**sum_columns("clicks"))
    return visits.group_by("client").agg(sessions=nw.len(), **sum_columns("clicks"))


def _identity(frame: nw.LazyFrame[Any], *, with_time: bool = True) -> list[str]:
    """Return the columns that identify a row of a log."""
    others = ("context", "policy", *(["timestamp"] if with_time else []))
    schema = frame.collect_schema()
    return [*KEYS, "session", *(name for name in others if name in schema)]


def _count_repeats(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return the number of repeated rows, and of the clicks that they count again."""
    by = _identity(frame)
    rows = _count_rows(frame, *by).filter(~nw.col("session").is_null())
    alike = rows.group_by(*by).agg(
        rows=nw.len(), clicks=nw.col("clicks").sum(), once=nw.col("clicks").max()
    )
    return alike.select(
        rows=(nw.col("rows") - 1).sum(), clicks=(nw.col("clicks") - nw.col("once")).sum()
    )
