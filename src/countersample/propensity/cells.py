"""What every estimator starts from: clicks and impressions by query, pair and position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from countersample._params import choice, whole_number
from countersample.propensity.connections import UnsupportedError, refuse_zero

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countersample._arrays import Bools, Floats, Ints
    from countersample.clicks.impressions import PositionCounts

_BLOCK = 4_000_000  # numbers in an array of resamples


def sums(group: Ints, column: Floats, n_groups: int = 0) -> Floats:
    """Return the sum of a column for each group, (n_groups or more,)."""
    return np.bincount(group, column, n_groups).astype(np.float64)


class Cells(NamedTuple):
    """A row for each query, item, context and position that was shown, sorted in this order.

    A *pair* is an item as an answer to a query in a context: what is relevant or not, and what is
    compared with itself at another position. A *page* is a query in a context. Positions count from
    0 here, as indices do.
    """

    query: Ints
    page: Ints
    pair: Ints
    feature_row: Ints  # of the pair without its context, in the order of `pair_ids`
    position: Ints
    clicks: Floats
    impressions: Floats
    logged: Floats  # impressions before days were weighted
    is_drawn: Bools  # by query: whether the log shows it, be it below the depth
    n_feature_rows: int
    n_positions: int
    reference: int  # the position whose propensity is 1

    @property
    def n_queries(self) -> int:
        """The queries of the log, with those of which nothing was shown."""
        return len(self.is_drawn)

    def by_position(self, column: Floats) -> Floats:
        """Return the sum of a column for each position, (K,)."""
        return sums(self.position, column, self.n_positions)

    def draws(self, n: int, rng: np.random.Generator) -> QueryDraws:
        """Return a bootstrap by query.

        Which queries are drawn does not depend on the depth, so that with the same generator the
        same are at any depth.
        """
        return QueryDraws(self.is_drawn, n, int(rng.integers(2**63)))


@dataclass(frozen=True, eq=False)
class QueryDraws:
    """A bootstrap by query that can be gone through again: how often each query is in a log.

    Attributes
    ----------
    is_drawn : bool (n_queries,)
        The queries of the log; each is drawn with the same probability.
    n : int
        How many logs are drawn.
    seed : int
    index : int (n,), optional
        The queries whose weights are asked for, as a part of the log has fewer; all by default.
    """

    is_drawn: Bools
    n: int
    seed: int
    index: Ints | None = None

    def blocks(self, width: int = 1) -> Iterator[Floats]:
        """Yield weights, (some, n_queries), so few at a time that `width` arrays of them fit."""
        rng, n_drawn = np.random.default_rng(self.seed), int(self.is_drawn.sum())
        size = max(1, _BLOCK // max(len(self.is_drawn), width))
        for at in range(0, self.n, size):
            n = min(size, self.n - at)
            weights = rng.multinomial(n_drawn, self.is_drawn / n_drawn, n).astype(np.float64)
            yield weights if self.index is None else weights[:, self.index]


class Method(Protocol):
    """An estimator that has been given its log, and has found that the log supports it."""

    notes: list[str]

    def curves(self, weights: Floats) -> Floats:
        """Return propensities relative to the reference, (n_resamples, K).

        The weights, (n_resamples, n_queries), are how often each query is in the log. NaN is for a
        position that a resample does not connect to the reference.
        """

    def lost(self, weights: Floats) -> Bools:
        """Return where `curves` has NaN, (n_resamples, K)."""

    @property
    def is_sure(self) -> bool:
        """Whether so many queries connect the positions that no resample loses one."""


def cells_of(counts: PositionCounts, *, reference: int = 1, depth: int | None = None) -> Cells:
    """Return the cells of a log down to a depth; refuse a log that says nothing about positions."""
    if depth is not None:
        whole_number("depth", depth, least=2, or_else="None")
    positions = np.unique(counts.position if depth is None else
                          counts.position[counts.position <= depth])  # fmt: skip
    if len(positions) < 2:
        where = f"position {positions[0]} only" if len(positions) else "no position"
        raise UnsupportedError(
            f"the log has impressions at {where}, expected at least two positions: how likely a "
            "position is examined shows only beside another",
            deepest=0,
        )
    if positions[-1] != len(positions):
        last = int((positions != np.arange(1, len(positions) + 1)).argmax())  # before the gap
        raise UnsupportedError(
            f"the log has impressions at position {positions[-1]} but none at position {last + 1}, "
            "expected all positions from 1: count positions without gaps",
            deepest=last,
        )
    whole_number("reference", reference, least=1, most=len(positions))
    cells = _cells(counts, len(positions), reference - 1)
    clicks = cells.by_position(cells.clicks)
    if not clicks.any():
        raise UnsupportedError("the log has no click: nothing can be learned from it", deepest=0)
    if cells.is_drawn.sum() < 2:
        raise UnsupportedError(
            "the log has one query, expected at least two: intervals come from drawing queries",
            deepest=0,
        )
    if not clicks.all():
        refuse_zero(int(clicks.argmin()), "position {0} has no click")
    return cells


def _cells(counts: PositionCounts, n_positions: int, reference: int) -> Cells:
    starts = counts.pair_starts
    feature_row = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    n_contexts = len(counts.context_ids)
    kept = np.flatnonzero(counts.position <= n_positions)
    if n_contexts > 1:  # rows are sorted by pair and position, and by context only then
        pair = feature_row[kept] * n_contexts + counts.context[kept]
        order = np.argsort(pair, kind="stable")
        kept, pair = kept[order], pair[order]
    query, feature_row = counts.query[kept].astype(np.int64), feature_row[kept]
    is_drawn = np.zeros(len(counts.query_ids), np.bool_)
    is_drawn[counts.query] = True
    return Cells(
        query=query,
        page=query if n_contexts == 1 else query * n_contexts + counts.context[kept],
        pair=feature_row if n_contexts == 1 else pair,
        feature_row=feature_row,
        position=counts.position[kept].astype(np.int64) - 1,
        clicks=counts.clicks[kept].astype(np.float64),
        impressions=counts.impressions[kept].astype(np.float64),
        logged=(counts.impressions if counts.logged is None else counts.logged)[kept].astype(float),
        is_drawn=is_drawn,
        n_feature_rows=len(starts) - 1,
        n_positions=n_positions,
        reference=reference,
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
        Keep a pair only where another pair of its page was shown at the same two positions.
    """

    def __init__(
        self, cells: Cells, *, weighting: str = "harmonic", exchanged: bool = False
    ) -> None:
        choice("weighting", weighting, ("harmonic", "equal"))
        upper, lower = joined(cells.pair)
        if exchanged:
            edge = (
                cells.page[upper] * cells.n_positions + cells.position[upper]
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
        # Both at once, as parts of a complex number: they are at the same places.
        both = sparse.coo_array((weight * rate + 1j * weight, (row, column)), shape).tocsr()
        self._clicks, self._weight = (
            sparse.csr_array((part.copy(), both.indices, both.indptr), shape)
            for part in (both.data.real, both.data.imag)
        )
        self._n_positions = cells.n_positions

    def sums(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return clicks and weight of each resample, each (n_resamples, K, K)."""
        shape = (len(weights), self._n_positions, self._n_positions)
        clicks = (self._clicks.T @ weights.T).T.reshape(shape)
        weight = (self._weight.T @ weights.T).T.reshape(shape)
        return np.ascontiguousarray(clicks), np.ascontiguousarray(weight)

    def carried(self, least: int) -> Floats:
        """Return 1 where at least so many queries have clicks[j, k] > 0, else 0, (K, K)."""
        n_queries: Ints = (self._clicks > 0).sum(axis=0)
        return (n_queries >= least).astype(np.float64).reshape(2 * (self._n_positions,))

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
