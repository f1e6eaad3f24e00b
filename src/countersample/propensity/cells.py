"""What every estimator starts from: clicks and impressions by query, pair and position."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from countersample._params import choice, whole_number
from countersample.clicks.impressions.counts import ranges
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Bools, Floats, Ints
    from countersample.clicks.impressions import PositionCounts


def sums(group: Ints, column: Floats, n_groups: int = 0) -> Floats:
    """Return the sum of a column for each group, (n_groups or more,)."""
    return np.bincount(group, column, n_groups).astype(np.float64)


class Cells(NamedTuple):
    """A row for each query, item and position that was shown, sorted in this order.

    A *pair* is an item as an answer to a query: what is relevant or not. Positions count from 0
    here, as indices do.
    """

    query: Ints
    pair: Ints
    position: Ints
    clicks: Floats
    impressions: Floats
    n_queries: int
    n_pairs: int  # of the log; those shown below the depth have no cells
    n_positions: int
    reference: int  # the position whose propensity is 1

    def by_position(self, column: Floats) -> Floats:
        """Return the sum of a column for each position, (K,)."""
        return sums(self.position, column, self.n_positions)


class Method(Protocol):
    """An estimator that has been given its log, and has found that the log supports it."""

    notes: list[str]

    def curves(self, weights: Floats) -> Floats:
        """Return propensities relative to the reference, (n_resamples, K).

        The weights, (n_resamples, n_queries), are how often each query is in the log. NaN is for a
        position that a resample does not connect to the reference.
        """


def cells_of(counts: PositionCounts, *, reference: int = 1, depth: int | None = None) -> Cells:
    """Return the cells of a log down to a depth; refuse a log that says nothing about positions."""
    if depth is not None:
        whole_number("depth", depth, least=2, or_else="None")
    starts = counts.pair_starts
    pair = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    kept = counts.impressions > 0
    if depth is not None:
        kept &= counts.position <= depth
    positions = np.unique(counts.position[kept])
    if len(positions) < 2:
        where = f"position {positions[0]} only" if len(positions) else "no position"
        raise DataError(
            f"the log has impressions at {where}, expected at least two positions: how likely a "
            "position is examined shows only beside another"
        )
    if positions[-1] != len(positions):
        last = int((positions != np.arange(1, len(positions) + 1)).argmax())  # before the gap
        advice = f", or estimate down to depth={last}" if last >= 2 else ""
        raise DataError(
            f"the log has impressions at position {positions[-1]} but none at position {last + 1}, "
            f"expected all positions from 1: count positions without gaps{advice}"
        )
    whole_number("reference", reference, least=1, most=len(positions))
    cells = Cells(
        counts.query[kept].astype(np.int64),
        pair[kept],
        counts.position[kept].astype(np.int64) - 1,
        counts.clicks[kept].astype(np.float64),
        counts.impressions[kept].astype(np.float64),
        len(counts.query_ids),
        len(starts) - 1,
        len(positions),
        reference - 1,
    )
    clicks = cells.by_position(cells.clicks)
    if not clicks.any():
        raise DataError("the log has no click: nothing can be learned from it")
    if cells.n_queries < 2:
        raise DataError(
            "the log has one query, expected at least two: intervals come from drawing queries"
        )
    if not clicks.all():
        refuse_zero(int(clicks.argmin()), "position {0} has no click")
    return cells


def refuse_zero(index: int, reason: str) -> None:
    """Refuse a position whose propensity would be 0, with the reason."""
    position = index + 1
    advice = f", or estimate down to depth={index}" if index >= 2 else ""
    raise DataError(
        f"{reason.format(position)}, so its propensity would be 0, which cannot be weighted: "
        f"take a longer log{advice}"
    )


class SharedPairs:
    """What strata that were shown at two positions say about these two.

    For positions j ≠ k, with strata s shown n_sj > 0 times at j and n_sk > 0 times at k::

        weight[j, k] = Σ_s w_s            w_s = n_sj · n_sk / (n_sj + n_sk), or 1
        clicks[j, k] = Σ_s w_s · c_sj / n_sj

    so that E clicks[j, k] = p_j · Σ_s w_s·r_s and E clicks[k, j] = p_k · Σ_s w_s·r_s: their ratio
    is p_j/p_k, whatever the relevance r_s of the strata. With the first weight the ratio is that
    of Mantel and Haenszel (1959), whose variance is near the smallest, be the strata few and large
    or many and small; with 1 it is that of Agarwal et al. (WSDM 2019).

    Each is kept by query, (n_queries, K²), so that a resample of queries is one product.

    Parameters
    ----------
    cells : Cells
    weighting : {"harmonic", "equal"}
        The first weight, or 1.
    exchanged : bool
        Keep a pair only where another pair of its query was shown at the same two positions.
    """

    def __init__(
        self, cells: Cells, *, weighting: str = "harmonic", exchanged: bool = False
    ) -> None:
        choice("weighting", weighting, ("harmonic", "equal"))
        upper, lower = joined(cells.pair)
        if exchanged:
            edge = (
                cells.query[upper] * cells.n_positions + cells.position[upper]
            ) * cells.n_positions
            _, member, size = np.unique(
                edge + cells.position[lower], return_inverse=True, return_counts=True
            )
            upper, lower = upper[size[member] > 1], lower[size[member] > 1]
        here = np.concatenate([upper, lower])
        there = np.concatenate([lower, upper])
        n_here, n_there = cells.impressions[here], cells.impressions[there]
        weight = n_here * n_there / (n_here + n_there)
        if weighting == "equal":
            weight = np.ones(len(here))
        column = cells.position[here] * cells.n_positions + cells.position[there]
        row = cells.query[here]
        shape = (cells.n_queries, cells.n_positions**2)
        rate = cells.clicks[here] / n_here
        self._clicks = sparse.coo_array((weight * rate, (row, column)), shape).tocsr()
        self._weight = sparse.coo_array((weight, (row, column)), shape).tocsr()
        self._n_positions = cells.n_positions

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


def joined(stratum: Ints) -> tuple[Ints, Ints]:
    """Return the rows of each two cells of a stratum, the upper position first.

    Strata are sorted, so the cells of one are neighbours: those `lag` rows apart are compared for
    each lag, of which there are at most as many as positions.
    """
    uppers, lowers = [], []
    lag = 1
    while lag < len(stratum):
        rows = np.flatnonzero(stratum[lag:] == stratum[:-lag])
        if not len(rows):
            break
        uppers.append(rows)
        lowers.append(rows + lag)
        lag += 1
    nothing = np.zeros(0, np.int64)
    return np.concatenate([nothing, *uppers]), np.concatenate([nothing, *lowers])


def refuse_gaps(weight: Floats, reference: int) -> None:
    """Refuse positions that no pair connects to the reference, naming the gap.

    weight is that of `SharedPairs`, (K, K), and 0 for those that the method does not use.
    """
    _refuse_split(
        csgraph.connected_components(sparse.csr_array(weight > 0), directed=False)[1],
        reference,
        "no query-item pair was shown both in {0} and in {1}",
        "shuffle or swap results for a share of the traffic",
    )


def refuse_one_sided(pairs: SharedPairs, reference: int) -> None:
    """Refuse gaps, and positions whose clicks do not lead to the reference and back.

    If no pair shown at positions inside a group and outside of it was clicked on one of the two
    sides, the likelihood grows for ever as the one side goes to 0: there is a maximum where, and
    only where, the graph with an edge from j to k for clicks[j, k] > 0 is strongly connected (as
    Ford found for paired comparisons, 1957).
    """
    clicks, weight = pairs.totals()
    refuse_gaps(weight, reference)
    unclicked = clicks.sum(axis=1) == 0
    if unclicked.any():
        refuse_zero(
            int(unclicked.argmax()),
            "no query-item pair that was also shown elsewhere was clicked at position {0}",
        )
    _refuse_split(
        csgraph.connected_components(sparse.csr_array(clicks > 0), connection="strong")[1],
        reference,
        "no query-item pair that was shown both in {0} and in {1} was clicked in each",
        "take a longer log",
    )


def _refuse_split(group: Ints, reference: int, gap: str, advice: str) -> None:
    """Refuse positions that are not in the group of the reference."""
    inside = group == group[reference]
    if inside.all():
        return
    first, rest = np.flatnonzero(inside), np.flatnonzero(~inside)
    depth = int(rest[0])
    down_to = f", or estimate down to depth={depth}" if depth >= 2 else ""
    raise DataError(
        f"{gap.format(positions_text(first), positions_text(rest))}, so how their propensities "
        f"compare is not known: {advice}{down_to}"
    )


def connected(clicks: Floats, reference: int) -> Bools:
    """Return which positions clicks join to the reference, there and back, (n_resamples, K).

    As in `refuse_one_sided`, for many at once. clicks are (n_resamples, K, K).
    """
    edges = clicks > 0
    there, back = _reached(edges, reference), _reached(edges.transpose(0, 2, 1), reference)
    return there & back


def _reached(edges: Bools, reference: int) -> Bools:
    reached = np.zeros(edges.shape[:2], np.bool_)
    reached[:, reference] = True
    while True:
        more = reached | (reached[:, :, None] & edges).any(axis=1)
        if (more == reached).all():
            return reached
        reached = more


def marked(curves: Floats, clicks: Floats, weight: Floats, reference: int) -> Floats:
    """Return the curves with 0 where no shared pair was clicked, NaN where nothing is known.

    curves are (n_resamples, K); clicks and weight are those of `SharedPairs`, (n_resamples, K, K).
    """
    is_clicked = clicks.sum(axis=2) > 0
    is_shared = (weight * is_clicked[:, None, :]).any(axis=2)  # with a position that was clicked
    unknown = np.where(~is_clicked & is_shared, 0.0, np.nan)
    found = np.where(connected(clicks, reference), curves, unknown)
    found[~is_clicked[:, reference]] = np.nan
    return found


def positions_text(indices: Sequence[int] | Ints) -> str:
    """Return "position 3" or "positions 1–3, 5" for positions from 0."""
    noun = "positions" if len(indices) > 1 else "position"
    return f"{noun} {ranges(np.asarray(indices) + 1)}"
