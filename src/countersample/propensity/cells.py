"""The data of every estimator: clicks and impressions per query, item and position.

All estimators compare positions, and items that were shown at several positions make a fair
comparison possible. `Cells` has the counts, `SharedPairs` sums them over the items that two
positions share, and the checks raise `UnsupportedError` if the log does not connect every position
to the first. Positions count from 0 here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from countersample._params import choice, whole_number
from countersample.errors import DataError
from countersample.logs.counts import ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from countersample._arrays import Bools, Floats, Ints
    from countersample.logs import PositionCounts

MANY_QUERIES = 20  # a resample contains none of so many queries with probability e⁻²⁰
_BLOCK_NUMBERS = 4_000_000  # in an array of resamples


class UnsupportedError(DataError):
    """A log does not support a method; `deepest` bounds the depths at which it might."""

    def __init__(self, reason: str, deepest: int) -> None:
        super().__init__(reason)
        self.deepest = deepest


def sums(group: Ints, column: Floats, n_groups: int = 0) -> Floats:
    """Return the sum of a column per group, (n_groups or more,)."""
    return np.bincount(group, column, n_groups).astype(np.float64)


class Cells(NamedTuple):
    """One row per query, item, context and position that was shown, sorted in this order.

    A *pair* is an item as an answer to a query in a context: it is compared with itself at another
    position. A *page* is a query in a context.
    """

    query: Ints
    page: Ints
    pair: Ints
    feature_row: Ints  # of the pair without its context, in the order of `pair_ids`
    position: Ints
    clicks: Floats
    impressions: Floats
    logged: Floats  # impressions before days were weighted
    is_drawn: Bools  # per query: whether the log shows it, at whatever depth
    n_feature_rows: int
    n_positions: int

    @property
    def n_queries(self) -> int:
        """The number of queries of the log, including those with nothing shown."""
        return len(self.is_drawn)

    def by_position(self, column: Floats) -> Floats:
        """Return the sum of a column per position, (K,)."""
        return sums(self.position, column, self.n_positions)

    def draws(self, n: int, rng: np.random.Generator) -> QueryDraws:
        """Return a bootstrap by query: the same generator draws the same queries at any depth."""
        return QueryDraws(self.is_drawn, n, int(rng.integers(2**63)))


@dataclass(frozen=True, eq=False)
class QueryDraws:
    """A repeatable bootstrap by query: how often each query is in a resampled log.

    Attributes
    ----------
    is_drawn : bool (n_queries,)
        The queries of the log; all are drawn with the same probability.
    n : int
        The number of resampled logs.
    seed : int
    index : int (n,), optional
        The queries whose weights are returned, for a part of the log; by default all.
    """

    is_drawn: Bools
    n: int
    seed: int
    index: Ints | None = None

    def blocks(self, width: int = 1) -> Iterator[Floats]:
        """Yield weights, (n_block, n_queries), in blocks that fit into memory `width` times."""
        rng, n_drawn = np.random.default_rng(self.seed), int(self.is_drawn.sum())
        size = max(1, _BLOCK_NUMBERS // max(len(self.is_drawn), width))
        for start in range(0, self.n, size):
            n = min(size, self.n - start)
            weights = rng.multinomial(n_drawn, self.is_drawn / n_drawn, n).astype(np.float64)
            yield weights if self.index is None else weights[:, self.index]


def cells_of(counts: PositionCounts, depth: int | None = None) -> Cells:
    """Return the cells of a log down to a depth; reject a log without two clicked positions."""
    if depth is not None:
        whole_number("depth", depth, least=2, or_else="None")
    positions = np.unique(counts.position if depth is None else
                          counts.position[counts.position <= depth])  # fmt: skip
    if len(positions) < 2:
        where = f"position {positions[0]} only" if len(positions) else "no position"
        raise UnsupportedError(
            f"the log has impressions at {where}, expected at least two positions: propensities "
            "compare positions with each other",
            deepest=0,
        )
    if positions[-1] != len(positions):
        last = int((positions != np.arange(1, len(positions) + 1)).argmax())  # before the gap
        raise UnsupportedError(
            f"the log has impressions at position {positions[-1]} but none at position {last + 1}, "
            "expected all positions from 1: count positions without gaps",
            deepest=last,
        )
    cells = _make_cells(counts, len(positions))
    clicks = cells.by_position(cells.clicks)
    if not clicks.any():
        raise UnsupportedError("the log has no click: nothing can be learned from it", deepest=0)
    if cells.is_drawn.sum() < 2:
        raise UnsupportedError(
            "the log has one query, expected at least two: intervals come from drawing queries",
            deepest=0,
        )
    if not clicks.all():
        reject_zero(int(clicks.argmin()), "position {0} has no click")
    return cells


def _make_cells(counts: PositionCounts, n_positions: int) -> Cells:
    starts = counts.pair_starts
    feature_row = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    n_contexts = len(counts.context_ids)
    rows = np.flatnonzero(counts.position <= n_positions)
    pair = feature_row[rows]
    if n_contexts > 1:  # rows are sorted by pair and position, and by context only then
        pair = pair * n_contexts + counts.context[rows]
        order = np.argsort(pair, kind="stable")
        rows, pair = rows[order], pair[order]
    query = counts.query[rows].astype(np.int64)
    is_drawn = np.zeros(len(counts.query_ids), np.bool_)
    is_drawn[counts.query] = True
    return Cells(
        query=query,
        page=query if n_contexts == 1 else query * n_contexts + counts.context[rows],
        pair=pair,
        feature_row=feature_row[rows],
        position=counts.position[rows].astype(np.int64) - 1,
        clicks=counts.clicks[rows].astype(np.float64),
        impressions=counts.impressions[rows].astype(np.float64),
        logged=(counts.impressions if counts.logged is None else counts.logged)[rows].astype(float),
        is_drawn=is_drawn,
        n_feature_rows=len(starts) - 1,
        n_positions=n_positions,
    )


# -- what two positions share


class SharedPairs:
    """Sums over the strata that were shown at two positions.

    For positions j ≠ k, with strata s shown n_sj > 0 times at j and n_sk > 0 times at k::

        weight[j, k] = Σ_s w_s            w_s = n_sj · n_sk / (n_sj + n_sk), or 1
        clicks[j, k] = Σ_s w_s · c_sj / n_sj

    so that E clicks[j, k] = p_j · Σ_s w_s·r_s and E clicks[k, j] = p_k · Σ_s w_s·r_s: their ratio
    is p_j/p_k, whatever the relevance r_s of the strata. The harmonic weight gives the ratio of
    Mantel and Haenszel (1959), whose variance is near the smallest for few large strata and for
    many small ones; the weight 1 (``"equal"``) gives the ratio of Agarwal et al. (WSDM 2019). With
    `exchanged`, only pairs that exchanged positions with another pair of their page are used.

    The sums are stored per query, (n_queries, K²), so that a resample of queries is one product.
    """

    def __init__(
        self, cells: Cells, *, weighting: str = "harmonic", exchanged: bool = False
    ) -> None:
        choice("weighting", weighting, ("harmonic", "equal"))
        n = self._n_positions = cells.n_positions
        upper, lower = rows_in_common(cells.pair)
        if exchanged:
            edge = (cells.page[upper] * n + cells.position[upper]) * n + cells.position[lower]
            _, member, size = np.unique(edge, return_inverse=True, return_counts=True)
            upper, lower = upper[size[member] > 1], lower[size[member] > 1]
        here = np.concatenate([upper, lower])
        there = np.concatenate([lower, upper])
        n_here, n_there = cells.impressions[here], cells.impressions[there]
        weight = n_here * n_there / (n_here + n_there)
        if weighting == "equal":
            weight = np.ones(len(here))
        column = cells.position[here] * n + cells.position[there]
        shape = (cells.n_queries, n**2)
        rate = cells.clicks[here] / n_here
        # Both at once, as parts of a complex number: they have the same places.
        places = (cells.query[here], column)
        both = sparse.coo_array((weight * rate + 1j * weight, places), shape).tocsr()
        self._clicks, self._weight = (
            sparse.csr_array((part.copy(), both.indices, both.indptr), shape)
            for part in (both.data.real, both.data.imag)
        )

    def sums(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return clicks and weight of each resample, each (n_resamples, K, K)."""
        shape = (len(weights), self._n_positions, self._n_positions)
        clicks = (self._clicks.T @ weights.T).T.reshape(shape)
        weight = (self._weight.T @ weights.T).T.reshape(shape)
        return np.ascontiguousarray(clicks), np.ascontiguousarray(weight)

    def totals(self) -> tuple[Floats, Floats]:
        """Return clicks and weight of the whole log, each (K, K)."""
        clicks, weight = self.sums(np.ones((1, self._clicks.shape[0])))
        return clicks[0], weight[0]

    def frequent_edges(self) -> Floats:
        """Return 1 where at least `MANY_QUERIES` queries have clicks[j, k] > 0, else 0, (K, K)."""
        n_queries: Ints = (self._clicks > 0).sum(axis=0)
        return (n_queries >= MANY_QUERIES).astype(np.float64).reshape(2 * (self._n_positions,))


def rows_in_common(stratum: Ints) -> tuple[Ints, Ints]:
    """Return the rows of each two cells of a stratum, the upper position first.

    Strata are sorted, so the cells of one are neighbours: cells `lag` rows apart are compared for
    each lag, up to the number of positions.
    """
    uppers, lowers = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for lag in range(1, len(stratum)):
        rows = np.flatnonzero(stratum[lag:] == stratum[:-lag])
        if not len(rows):
            break
        uppers.append(rows)
        lowers.append(rows + lag)
    return np.concatenate(uppers), np.concatenate(lowers)


# -- which positions are connected


def reject_zero(index: int, reason: str) -> None:
    """Reject a position whose propensity would be 0, with the reason."""
    raise UnsupportedError(
        f"{reason.format(index + 1)}, so its propensity would be 0, which cannot be weighted: "
        "take a longer log",
        deepest=index,
    )


def check_gaps(weight: Floats) -> None:
    """Reject positions that no pair connects to the first.

    The weight comes from `SharedPairs`, (K, K), and is 0 for positions that the method does not
    compare.
    """
    gap = "no query-item pair was shown both in {0} and in {1}"
    check_connected(weight > 0, gap, "shuffle or swap results for a share of the traffic", "weak")


def check_clicks(pairs: SharedPairs) -> None:
    """Reject gaps, and positions whose clicks do not lead to the first and back.

    If no pair shown inside and outside of a group of positions was clicked on one of the two
    sides, the likelihood grows for ever as that side goes to 0. There is a maximum if and only if
    the graph with an edge from j to k for clicks[j, k] > 0 is strongly connected (shown by Ford for
    paired comparisons, 1957).
    """
    clicks, weight = pairs.totals()
    check_gaps(weight)
    is_unclicked = clicks.sum(axis=1) == 0
    if is_unclicked.any():
        reject_zero(
            int(is_unclicked.argmax()),
            "no query-item pair that was also shown elsewhere was clicked at position {0}",
        )
    gap = "no query-item pair that was shown both in {0} and in {1} was clicked in each"
    check_connected(clicks > 0, gap, "take a longer log", "strong")


def check_connected(
    edges: Bools, gap: str, advice: str, connection: Literal["weak", "strong"]
) -> None:
    """Reject positions that edges, (K, K), do not connect to the first."""
    group = csgraph.connected_components(sparse.csr_array(edges), connection=connection)[1]
    inside, outside = np.flatnonzero(group == group[0]), np.flatnonzero(group != group[0])
    if not len(outside):
        return
    raise UnsupportedError(
        f"{gap.format(positions_text(inside), positions_text(outside))}, so how their propensities "
        f"compare is not known: {advice}",
        # Fewer positions connect no more: the first that is outside stays outside.
        deepest=int(outside[0]),
    )


def find_connected(clicks: Floats) -> Bools:
    """Return which positions clicks connect to the first, there and back, (n_resamples, K).

    As in `check_clicks`, for many resamples at once; clicks are (n_resamples, K, K).
    """
    edges = clicks > 0
    return _find_reachable(edges) & _find_reachable(edges.transpose(0, 2, 1))


def _find_reachable(edges: Bools) -> Bools:
    reachable = np.zeros(edges.shape[:2], np.bool_)
    reachable[:, 0] = True
    while True:
        more = reachable | (reachable[:, :, None] & edges).any(axis=1)
        if (more == reachable).all():
            return reachable
        reachable = more


def mask_unknown(curves: Floats, clicks: Floats, weight: Floats) -> Floats:
    """Return the curves with 0 where no shared pair was clicked, NaN where nothing is known.

    Curves are (n_resamples, K); clicks and weight are of `SharedPairs`, (n_resamples, K, K).
    """
    is_clicked = clicks.sum(axis=2) > 0
    is_shared = (weight * is_clicked[:, None, :]).any(axis=2)  # with a position that was clicked
    rest = np.where(~is_clicked & is_shared, 0.0, np.nan)
    result = np.where(find_connected(clicks), curves, rest)
    result[~is_clicked[:, 0]] = np.nan
    return result


def positions_text(indices: Sequence[int] | Ints) -> str:
    """Return "position 3" or "positions 1–3, 5" for positions from 0."""
    noun = "positions" if len(indices) > 1 else "position"
    return f"{noun} {ranges(np.asarray(indices) + 1)}"
