"""The sessions of a log one by one: their queries and their clicks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import narwhals as nw
import numpy as np

from countersample.clicks.impressions import aggregation
from countersample.clicks.impressions.assembling import encode, integers, rows_of

if TYPE_CHECKING:
    from countersample._arrays import Floats, Ints
    from countersample.clicks.impressions.counts import PositionCounts
    from countersample.clicks.impressions.handle import Impressions

#: With more visits, sessions are not returned one by one.
MOST_VISITS = 5_000_000


@dataclass(frozen=True, eq=False)
class Visits:
    """Sessions with their queries and clicks: a visit is a session and one of its queries.

    Attributes
    ----------
    n_sessions : int
    session, query : int arrays (n_visits,)
        The session of each visit, and its query, as the counts number it.
    clicking, row : int arrays (n_clicks,)
        The session of each click, and the row of the counts that it is in.
    value : float array (n_clicks,)
        What it is worth.
    """

    n_sessions: int
    session: Ints
    query: Ints
    clicking: Ints
    row: Ints
    value: Floats


def visits_of(log: Impressions, counts: PositionCounts) -> Visits | None:
    """Return the sessions of a log, whose counts these are.

    None if the log is aggregated, if some rows have no session, or if there are more than
    `MOST_VISITS`.
    """
    if "session" not in log.columns or "impressions" in log.columns:
        return None
    visits = aggregation.visits(log.frame)
    is_none = aggregation.mark(nw.col("session").is_null())
    size = log.collect(
        visits.select(none=is_none).select(nw.len().alias("n"), nw.col("none").sum())
    )
    if integers(size["n"])[0] > MOST_VISITS or integers(size["none"])[0]:
        return None
    seen = log.collect(visits)
    clicks = log.collect(aggregation.clicks_of_sessions(log.frame))
    n_seen = len(seen)
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    together = pa.chunked_array([*seen["session"].chunks, *clicks["session"].chunks])
    session, ids = encode(together.cast(pa.large_string()), has_text_ids=False)
    code, query_ids = encode(
        seen["query_id"], has_text_ids=log.has_text_ids and counts.query_ids.dtype.kind == "i"
    )
    return Visits(
        n_sessions=len(ids),
        session=session[:n_seen].astype(np.int64),
        query=np.searchsorted(counts.query_ids, query_ids)[code],
        clicking=session[n_seen:].astype(np.int64),
        row=rows_of(clicks, counts, has_text_ids=log.has_text_ids),
        value=clicks["value"].to_numpy().astype(np.float64),
    )
