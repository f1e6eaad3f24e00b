"""The bootstrap: how much an estimate would change if other sessions had been logged.

Sessions (or queries, if a log has no sessions) are resampled as a whole. An estimate is a function
of sums over these clusters, so that one matrix product gives its value in many draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from countersample._params import number, whole_number

if TYPE_CHECKING:
    from countersample._arrays import Floats, Ints
    from countersample.clicks import ClickLog

MAX_GROUPS = 4_000
_WEIGHTS_AT_ONCE = 1 << 22


@dataclass(frozen=True, eq=False)
class Clusters:
    """The units of resampling: sessions, or queries if a log has no sessions."""

    of_row: Ints  # the cluster of each row of the log, from 0
    sessions: Floats  # per cluster; by query and without impressions, an even share of all
    # Clusters, queries and numbers of sessions; None for a log without impressions.
    visits: tuple[Ints, Ints, Floats] | None
    n_empty: float  # sessions without a row
    n_sessions: float | None  # all sessions, if their number is known
    name: str

    @classmethod
    def of(cls, log: ClickLog) -> Clusters:
        """Return the sessions of a log, or its queries."""
        by_session = log.session is not None
        units = log.query if log.session is None else log.session
        ids, of_row = np.unique(units, return_inverse=True)
        name, n_all = "sessions" if by_session else "queries", log.n_sessions
        if log.impressions is None:
            sessions = np.full(len(ids), 1.0 if by_session else (n_all or 0) / len(ids))
            n_empty = n_all - len(ids) if by_session and n_all is not None else 0
            return cls(of_row, sessions, None, n_empty, n_all, name)
        if by_session:
            pairs = np.unique((of_row << 32) | log.query)
            visits = (pairs >> 32, pairs & 0xFFFFFFFF, np.ones(len(pairs)))
        else:
            n_of_query = _sessions_by_query(log, of_row, len(ids))
            visits = (np.arange(len(ids)), ids.astype(np.int64), n_of_query)
        sessions = add_up(visits[0], visits[2], len(ids))
        n_all = max(n_all or 0, float(sessions.sum()))
        return cls(of_row, sessions, visits, n_all - sessions.sum(), n_all, name)

    def __len__(self) -> int:
        return len(self.sessions)

    def sizes(self, log: ClickLog) -> tuple[Floats, str]:
        """Return the divisor of a value, (n,), and its name: sessions, or clicks if unknown."""
        if self.n_sessions is None:
            return self.total(log.clicks), "click"
        return self.sessions, "session"

    def total(self, by_row: Floats) -> Floats:
        """Return the sum over the rows per cluster, (n,)."""
        return add_up(self.of_row, by_row, len(self))


def add_up(group: Ints, values: Floats, n_groups: int) -> Floats:
    """Return the sum of the values per group, float64 (n_groups,)."""
    return np.bincount(group, values, n_groups)  # type: ignore[return-value] # typed as counts


def _sessions_by_query(log: ClickLog, query: Ints, n_queries: int) -> Floats:
    """Return how often each query was shown: as in the log, or as often as its first position.

    Without positions, as often as its most frequent item.
    """
    assert log.impressions is not None  # noqa: S101 (the caller checks it)
    sessions = np.zeros(n_queries)
    if log.sessions is not None:
        sessions[query] = log.sessions
        return sessions
    if log.position is not None:
        from countersample.logs.counts import (  # noqa: PLC0415 (imports engines)
            first_position,
        )

        return first_position(query, log.position, log.impressions, n_queries)
    pairs, member = np.unique((query << 32) | log.item, return_inverse=True)
    np.maximum.at(sessions, pairs >> 32, add_up(member, log.impressions, len(pairs)))
    return sessions


def resample(
    sums: Floats,
    empty: Floats | None = None,
    n_empty: float = 0,
    *,
    n_bootstrap: int,
    rng: np.random.Generator,
) -> Floats:
    """Return Σ_g w_g·sums_g + w₀·empty for draws of w, (n_bootstrap, k).

    The Poisson bootstrap: w_g ~ Poisson(1), so each cluster g occurs about as often as when
    drawing with replacement; w₀ ~ Poisson(n_empty) for sessions that have no row. All k columns
    share the draws, so that estimates computed from them are paired. More than 4,000 clusters are
    merged at random into so many groups, with their share of the empty sessions. That changes
    neither mean nor variance.

    The first column of `sums`, (n_clusters, k), is the divisor of an estimate: it is never 0 in a
    draw. There are `n_empty` sessions without a row, each with the columns `empty`, (k,).
    """
    whole_number("n_bootstrap", n_bootstrap, least=1)
    empty = np.zeros(sums.shape[1]) if empty is None else empty
    whole = sums.sum(axis=0) + n_empty * empty
    if len(sums) > MAX_GROUPS:
        group = rng.permutation(len(sums)) % MAX_GROUPS
        sums = np.stack([add_up(group, column, MAX_GROUPS) for column in sums.T], axis=1)
        counts = rng.multinomial(round(n_empty), np.full(MAX_GROUPS, 1 / MAX_GROUPS))
        sums += counts[:, None] * empty
        n_empty = 0
    draws = np.empty((n_bootstrap, sums.shape[1]))
    step = max(1, _WEIGHTS_AT_ONCE // len(sums))
    for first in range(0, n_bootstrap, step):
        n = min(step, n_bootstrap - first)
        draws[first : first + n] = rng.poisson(1.0, (n, len(sums))).astype(np.float64) @ sums
    draws += rng.poisson(n_empty, n_bootstrap)[:, None] * empty
    # If there are few clusters, a draw may have none; then it is the log itself.
    draws[draws[:, 0] == 0] = whole
    return draws


def ratio_intervals(
    ratios: Floats, above: Floats, below: Floats, confidence: float, n_clusters: int
) -> tuple[Floats, Floats, Floats]:
    """R_j · exp(−σ_j²/2) − 1, and R_j · exp(∓ f·c·σ_j) − 1, (k,): intervals that hold at once.

    log R_j is about normal, so the mean of R_j is too large by exp(σ_j²/2): above all if
    propensities are estimated, since 1/p is convex. The ratio is divided by that. Its interval is
    about the median, which has no such bias.

    σ_j is the standard deviation of log R_j over draws. c is the normal quantile or, for several
    ratios, the quantile of max_j |log R_j(b) − median_j| / σ_j over draws b. f is Student's
    quantile divided by the normal one. Intervals are centred on the estimate: weights 1/p of
    estimated propensities are too large on average, and in draws from the log once more, so that
    percentiles of the draws would have this bias twice. If a ratio is not above 0, the interval is
    computed for R instead of log R, and the ratio stays as it is.

    The rows of the numerators `above`, (n, k), and the denominators `below`, (n,), are draws, and
    `n_clusters` is the number of resampled queries or sessions.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.evaluation.bootstrap import ratio_intervals
    >>> draws = np.exp(np.random.default_rng(0).normal(size=(10_000, 5)))
    >>> ratio, low, high = ratio_intervals(
    ...     np.ones(5), draws, np.ones(10_000), 0.95, n_clusters=100_000)
    >>> [round(float(each), 2) for each in ratio + 1]  # exp(-1/2), but for the noise of the draws
    [0.61, 0.6, 0.61, 0.61, 0.6]
    >>> coverage = ((draws - 1 > low) & (draws - 1 < high)).all(axis=1).mean()
    >>> bool(abs(coverage - 0.95) < 0.005)
    True
    """
    number("confidence", confidence, above=0, below=1)
    from scipy.stats import norm, t  # noqa: PLC0415 (heavy, only where used)

    # With few clicks a draw may have none within the cut-off; then it is the log itself.
    draws = np.tile(ratios, (len(above), 1))
    np.divide(above, below[:, None], out=draws, where=below[:, None] > 0)
    is_positive = bool((ratios > 0).all() and (draws > 0).all())
    centre, draws = (np.log(ratios), np.log(draws)) if is_positive else (ratios, draws)
    spread = draws.std(axis=0)
    c = float(norm.isf((1 - confidence) / 2))
    if len(ratios) > 1:
        steps = np.zeros_like(draws)
        np.divide(np.abs(draws - np.median(draws, axis=0)), spread, out=steps, where=spread > 0)
        c = float(np.quantile(steps.max(axis=1), confidence))
    half = max(c, float(t.isf(norm.sf(c), max(1, n_clusters - 1)))) * spread
    low, high = centre - half, centre + half
    if not is_positive:
        return ratios - 1, low - 1, high - 1
    return tuple(np.exp(each) - 1 for each in (centre - spread**2 / 2, low, high))


def interval(values: Floats, confidence: float) -> tuple[float, float]:
    """Return the percentiles that contain the middle share of the values."""
    number("confidence", confidence, above=0, below=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)
