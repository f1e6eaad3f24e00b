"""Describe a log and what is wrong with it: `check`."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import narwhals as nw

from countersample._frames import Tabular
from countersample.clicks.impressions.aggregation import impressions_of
from countersample.clicks.impressions.assembling import integers
from countersample.clicks.impressions.columns import NONE
from countersample.clicks.impressions.tallying import MOST_GROUPS, check_total, tally
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample.clicks.impressions.aggregation import Problems
    from countersample.clicks.impressions.counts import PositionCounts
    from countersample.clicks.impressions.handle import Impressions
    from countersample.clicks.impressions.suspicion import Suspicious

# Policies whose names say that rankings were shuffled.
_RANDOMIZED = re.compile(r"rand|shuffl|swap|explor|uniform", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class LogCheck(Tabular):
    """Statistics of a raw log, made by `Impressions.check`.

    Attributes
    ----------
    source, engine : str
    columns : tuple of str
        The canonical columns that it has.
    problems : Problems
        How many rows are impossible, and how.
    counts : PositionCounts
        Of the rows that are possible. In a log with very many, items that were never clicked are
        counted together by query (`PositionCounts.rest`).
    n_sessions, n_without_session, n_mixed : int, optional
        Sessions; rows without one; sessions whose rows are of several policies, as interleaving
        makes them. None for a log without sessions. An aggregated log counts a session once per
        query and day.
    suspicious : Suspicious, optional
        Sessions, clients and rows that look wrong; None for a log without ids of sessions.
    policies : dict, optional
        Rows by policy; of an aggregated log, impressions.
    n_items, n_pairs, n_moved, n_repeated : int
        Items, query-item pairs, those seen at several positions, and those shown more often than
        their query has sessions.
    shuffled : tuple of str
        The policies whose rankings were shuffled: the one that was named as such, or those whose
        names say so.
    has_events : bool
        Whether what is a click was told by events.

    Notes
    -----
    Which propensities the log can give, `countersample.propensity.supported` says of its counts.
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
    has_events: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what a person should look at."""
        sentences = []
        wrong = self.problems.sentence(has_impressions="impressions" in self.columns)
        if wrong is not None:
            sentences.append(f"{wrong}.")
        sentences += [] if self.suspicious is None else self.suspicious.sentences()
        if self.has_events and "session" not in self.columns:
            sentences.append(
                "The log has events and no sessions, so that each row is an impression of its own, "
                "a click beside the row of what was shown, too: name the column that tells pages "
                "of results apart with columns={'session': '…'} (--columns session=…)."
            )
        if self.n_without_session:
            sentences.append(f"{self.n_without_session:,} rows have no session.")
        if self.n_repeated:
            sentences.append(
                f"{self.n_repeated:,} query-item pairs were shown more often than their query has "
                "sessions: a session seems to be more than one page of results, or a page to show "
                "an item twice; give each page its own id."
            )
        if self.counts.rest is not None:
            sentences.append(
                "The log has so many query-item pairs that those without a click are counted "
                "together by query: what clicks tell is the same."
            )
        if self.counts.n_clicks == self.counts.n_impressions:
            sentences.append(
                "Every impression has a click: rows for what was shown and not clicked are missing."
            )
        if not self.counts.n_clicks:
            sentences.append("The log has no click: there is nothing to learn from.")
        return tuple(sentences)

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
        """Return the statistics as plain values for JSON; no id is among them."""
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
        }


def check(
    log: Impressions, *, randomized: str | None = None, most_groups: int = MOST_GROUPS
) -> LogCheck:
    """Validate and describe a log; see `Impressions.check`."""
    columns = log.columns
    policies = _policies(log) if "policy" in columns else None
    names = [policy for policy in policies or {} if policy != NONE]
    if randomized is not None and randomized not in names:
        served = ", ".join(names) if names else "none: the log has no column 'policy'"
        raise ParameterError(
            f"randomized is {randomized!r}, expected a policy of the log: {served}"
        )
    check_total(log)
    sessions = log.describe_sessions()
    n_sessions = None if sessions is None else sessions.n_sessions
    problems, counts, pairs = tally(
        log,
        n_sessions=None if "impressions" in columns and "sessions" not in columns else n_sessions,
        with_pairs=True,
        most_groups=most_groups,
    )
    if counts is None or pairs is None:
        reason = (
            problems.sentence(has_impressions="impressions" in columns) or "the log has no rows"
        )
        raise DataError(
            f"{log.source}: {reason}, expected at least one impression that is possible"
        )
    return LogCheck(
        source=log.source,
        engine=log.engine,
        columns=columns,
        problems=problems,
        counts=counts,
        n_sessions=n_sessions,
        n_without_session=None if sessions is None else sessions.n_without,
        n_mixed=None if sessions is None else sessions.n_mixed,
        suspicious=log.left_out if sessions is None else log.left_out or sessions.suspicious,
        policies=policies,
        n_items=pairs.n_items,
        n_pairs=pairs.n_pairs,
        n_moved=pairs.n_moved,
        n_repeated=pairs.n_repeated,
        has_events=log.has_events,
        shuffled=(randomized,) if randomized else tuple(filter(_RANDOMIZED.search, policies or {})),
    )


def _policies(log: Impressions) -> dict[str, int]:
    rows = log.frame.select("policy", rows=impressions_of(log.frame)).group_by("policy")
    table = log.collect(rows.agg(nw.col("rows").sum()))
    pairs = zip(table["policy"].to_pylist(), integers(table["rows"]).tolist(), strict=True)
    return dict(sorted((policy or NONE, n_rows) for policy, n_rows in pairs))
