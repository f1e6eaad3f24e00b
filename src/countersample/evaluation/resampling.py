"""The bootstrap: how far an estimate would move if other sessions had been logged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from countersample._params import number, whole_number

if TYPE_CHECKING:
    from countersample._arrays import Floats, Ints
    from countersample.clicks import ClickLog

MOST_GROUPS = 4_000
_DRAWN_AT_ONCE = 1 << 22


@dataclass(frozen=True, eq=False)
class Clusters:
    """What is resampled as a whole: sessions, or queries where a log has no sessions."""

    of_row: Ints  # the cluster of each row of the log, from 0
    sessions: Floats  # of each cluster; by query and without impressions, an even share of all
    # Clusters, queries and numbers of sessions; None for a log that does not say what was shown.
    visits: tuple[Ints, Ints, Floats] | None
    n_empty: float  # the sessions that have no row
    n_sessions: float | None  # all, where they are known
    name: str

    @classmethod
    def of(cls, log: ClickLog) -> Clusters:
        """Return the sessions of a log, or its queries."""
        by_session = log.session is not None
        own = log.query if log.session is None else log.session
        ids, of_row = np.unique(own, return_inverse=True)
        name, known = "sessions" if by_session else "queries", log.n_sessions
        if log.impressions is None:
            sessions = np.full(len(ids), 1.0 if by_session else (known or 0) / len(ids))
            n_empty = known - len(ids) if by_session and known is not None else 0
            return cls(of_row, sessions, None, n_empty, known, name)
        if by_session:
            pairs = np.unique((of_row << 32) | log.query)
            visits = (pairs >> 32, pairs & 0xFFFFFFFF, np.ones(len(pairs)))
        else:
            n_of_query = _sessions_by_query(log, of_row, len(ids))
            visits = (np.arange(len(ids)), ids.astype(np.int64), n_of_query)
        sessions = add_up(visits[0], visits[2], len(ids))
        known = max(known or 0, float(sessions.sum()))
        return cls(of_row, sessions, visits, known - sessions.sum(), known, name)

    def __len__(self) -> int:
        return len(self.sessions)

    def sizes(self, log: ClickLog) -> tuple[Floats, str]:
        """Return what a value is divided by, (n,), and its name: sessions, or clicks if unknown."""
        if self.n_sessions is None:
            return self.total(log.clicks), "click"
        return self.sessions, "session"

    def total(self, by_row: Floats) -> Floats:
        """Return the sum over the rows of each cluster, (n,)."""
        return add_up(self.of_row, by_row, len(self))


def add_up(group: Ints, values: Floats, n_groups: int) -> Floats:
    """Return the sum of the values of each group, float64 (n_groups,)."""
    return np.bincount(group, values, n_groups)  # type: ignore[return-value] # typed as counts


def _sessions_by_query(log: ClickLog, query: Ints, n_queries: int) -> Floats:
    """Return how often each query was shown: as the log says, or as often as its first position.

    Without positions: as often as the item that was shown most often.
    """
    assert log.impressions is not None  # noqa: S101 (only called where it is)
    most = np.zeros(n_queries)
    if log.sessions is not None:
        most[query] = log.sessions
        return most
    if log.position is not None:
        from countersample.clicks.impressions.counts import (  # noqa: PLC0415 (imports engines)
            first_position,
        )

        return first_position(query, log.position, log.impressions, n_queries)
    slot = log.item
    pairs, member = np.unique((query << 32) | slot, return_inverse=True)
    shown = add_up(member, log.impressions, len(pairs))
    np.maximum.at(most, pairs >> 32, shown)
    return most


def resample(
    sums: Floats,
    empty: Floats | None = None,
    n_empty: float = 0,
    *,
    n_bootstrap: int,
    rng: np.random.Generator,
) -> Floats:
    """Return Σ_g w_g·sums_g + w₀·empty for draws of w, (n_bootstrap, k).

    The Poisson bootstrap: w_g ~ Poisson(1), so each cluster g is there about as often as when
    drawing with replacement; w₀ ~ Poisson(n_empty) for sessions that have no row. All k columns
    have the same draws, so that estimates made of them are paired. More than 4,000 clusters are put
    together at random into so many groups, with their share of the empty ones, which leaves mean
    and variance as they are.

    Parameters
    ----------
    sums : float64 (n_clusters, k)
        The first column is what an estimate is divided by: it is never 0 in a draw.
    empty : float64 (k,), optional
        What a session without a row adds to each column.
    n_empty : float
        How many of these there are.
    n_bootstrap : int
    rng : numpy Generator
    """
    whole_number("n_bootstrap", n_bootstrap, least=1)
    empty = np.zeros(sums.shape[1]) if empty is None else empty
    whole = sums.sum(axis=0) + n_empty * empty
    if len(sums) > MOST_GROUPS:
        group = rng.permutation(len(sums)) % MOST_GROUPS
        sums = np.stack([add_up(group, column, MOST_GROUPS) for column in sums.T], axis=1)
        counts = rng.multinomial(round(n_empty), np.full(MOST_GROUPS, 1 / MOST_GROUPS))
        sums += counts[:, None] * empty
        n_empty = 0
    drawn = np.empty((n_bootstrap, sums.shape[1]))
    step = max(1, _DRAWN_AT_ONCE // len(sums))
    for first in range(0, n_bootstrap, step):
        n = min(step, n_bootstrap - first)
        drawn[first : first + n] = rng.poisson(1.0, (n, len(sums))).astype(np.float64) @ sums
    drawn += rng.poisson(n_empty, n_bootstrap)[:, None] * empty
    # Of a handful of clusters none may be drawn; then the log itself is.
    drawn[drawn[:, 0] == 0] = whole
    return drawn


def ratio_intervals(
    ratios: Floats, above: Floats, below: Floats, confidence: float, n_clusters: int
) -> tuple[Floats, Floats]:
    """R_j · exp(∓ f·c·σ_j) − 1, both (k,): intervals of k ratios that hold at once.

    σ_j is the standard deviation of log R_j over draws, c the normal quantile or, of several
    ratios, that of max_j |log R_j(b) − median_j| / σ_j over draws b, and f by how much Student's
    quantile is above the normal one. They are around the estimate: weights 1/p of estimated
    propensities are too large on average, and draws from the log are so once more, so that
    percentiles of the draws would be off by that twice. Where a ratio is not above 0, the
    same is of R itself.

    Parameters
    ----------
    ratios : float (k,)
        The estimates R.
    above, below : float (n, k) and (n,)
        What they are ratios of in each draw.
    confidence : float in (0, 1)
    n_clusters : int
        How many queries or sessions the draws are of.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.evaluation.resampling import ratio_intervals
    >>> drawn = np.exp(np.random.default_rng(0).normal(size=(10_000, 5)))
    >>> low, high = ratio_intervals(np.ones(5), drawn, np.ones(10_000), 0.95, n_clusters=100_000)
    >>> held = ((drawn - 1 > low) & (drawn - 1 < high)).all(axis=1).mean()
    >>> bool(abs(held - 0.95) < 0.005)
    True
    """
    number("confidence", confidence, above=0, below=1)
    # Of a handful of clicks a draw may have none within the cut-off; then the log itself counts.
    drawn = np.tile(ratios, (len(above), 1))
    np.divide(above, below[:, None], out=drawn, where=below[:, None] > 0)
    is_positive = bool((ratios > 0).all() and (drawn > 0).all())
    centre, drawn = (np.log(ratios), np.log(drawn)) if is_positive else (ratios, drawn)
    from scipy.stats import norm, t  # noqa: PLC0415 (heavy, only where used)

    spread = drawn.std(axis=0)
    widest = float(norm.isf((1 - confidence) / 2))
    if len(ratios) > 1:
        steps = np.zeros_like(drawn)
        np.divide(np.abs(drawn - np.median(drawn, axis=0)), spread, out=steps, where=spread > 0)
        widest = float(np.quantile(steps.max(axis=1), confidence))
    half = max(widest, float(t.isf(norm.sf(widest), max(1, n_clusters - 1)))) * spread
    low, high = centre - half, centre + half
    return (np.exp(low) - 1, np.exp(high) - 1) if is_positive else (low - 1, high - 1)


def interval(values: Floats, confidence: float) -> tuple[float, float]:
    """Return the percentiles between which the middle share of the values lies."""
    number("confidence", confidence, above=0, below=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)
