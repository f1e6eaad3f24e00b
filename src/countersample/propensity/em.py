"""The position-based model, by expectation maximisation: a relevance for each query-item pair."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from countersample.propensity.cells import Cells, SharedPairs, joined, sums
from countersample.propensity.connections import (
    is_surely_connected,
    lost_of,
    marked,
    refuse_one_sided,
)

if TYPE_CHECKING:
    from countersample._arrays import Bools, Floats

_EDGE = 1e-9  # probabilities stay this far from 0 and 1
_BLOCK = 100_000  # numbers in one array of a block of resamples
_ROUGH = 10  # times the tolerance, for resamples: their spread is within 2 % of the exact one
_FEW_ROUNDS = 100  # for resamples, which start where the log itself ends
_FAR = 0.2  # in log p: a longer step of Newton is not trusted
_FEW = 5  # impressions of a pair and position, below which its relevance is badly known


class TabularEM:
    """p, r maximise Σ_cells c·log(p_k·r_i) + (n − c)·log(1 − p_k·r_i), by alternating ::

        P(examined | no click) = p_k·(1 − r_i) / (1 − p_k·r_i)
        P(relevant | no click) = r_i·(1 − p_k) / (1 − p_k·r_i)
        p_k = Σ_i c + (n − c)·P(examined | no click) / Σ_i n
        r_i = Σ_k c + (n − c)·P(relevant | no click) / Σ_k n

    with k a position and i a query-item pair (Chuklin, Markov and de Rijke, Click Models for Web
    Search, 2015), extrapolated as Varadhan and Roland (2008) do, which takes far fewer rounds. A
    pair shown at one position, or never clicked, has a relevance that explains it wholly: it says
    nothing of p and is left out, which changes nothing but the time.

    There is no prior on r. A prior would say that pairs shown low are as relevant as those shown
    high, and so take the work of the ranker for position bias.

    Parameters
    ----------
    cells : Cells
    max_rounds : int
        Each is three updates.
    tolerance : float
        Of the change of log p in a round, for the log itself.
    """  # noqa: D400 (the formula is the summary)

    def __init__(self, cells: Cells, *, max_rounds: int = 2000, tolerance: float = 1e-6) -> None:
        self._pairs = SharedPairs(cells)
        refuse_one_sided(self._pairs, cells.reference)
        self.notes: list[str] = []
        self._rounds, self._tolerance = max_rounds, tolerance
        _, member = np.unique(cells.pair, return_inverse=True)
        is_kept = (np.bincount(member)[member] > 1) & (
            np.bincount(member, cells.clicks)[member] > 0
        )
        self._cells = cells = cells._replace(
            query=cells.query[is_kept],
            pair=np.unique(member[is_kept], return_inverse=True)[1],
            position=cells.position[is_kept],
            clicks=cells.clicks[is_kept],
            impressions=cells.impressions[is_kept],
        )
        self._starts = np.flatnonzero(np.diff(cells.pair, prepend=-1))
        self._positions = sparse.csr_array(
            (np.ones(len(cells.position)), (cells.position, np.arange(len(cells.position)))),
            (cells.n_positions, len(cells.position)),
        )
        self._shown = np.add.reduceat(cells.impressions, self._starts)
        often = float(np.median(cells.impressions))
        if often < _FEW:
            self.notes.append(
                f"half of the pairs were shown {often:g} times or less at a position: their "
                "relevance is badly known, and em is biased then towards a curve that is too flat"
            )

    def curves(self, weights: Floats) -> Floats:
        """Return the curve of each resample; see `Method`.

        One step of Newton from the whole log's maximum where that is short, and else by em.
        """
        steps = self._steps(weights)
        log_curves = self._log_curve(self._solution[None]) + steps
        far = np.flatnonzero(np.abs(steps).max(axis=1) > _FAR)
        block = max(1, _BLOCK // len(self._cells.query))
        for at in range(0, len(far), block):
            rows = far[at : at + block]
            mine = weights[np.ix_(rows, self._cells.query)]
            solved, _ = self._solve(
                mine, self._solution, min(_FEW_ROUNDS, self._rounds), _ROUGH * self._tolerance
            )
            log_curves[rows] = self._log_curve(solved)
        return marked(np.exp(log_curves), *self._pairs.sums(weights), self._cells.reference)

    def lost(self, weights: Floats) -> Bools:
        """Return where `curves` has NaN."""
        return lost_of(self._pairs, weights, self._cells.reference)

    @property
    def is_sure(self) -> bool:
        """Whether no resample loses a position; see `Method`."""
        return is_surely_connected(self._pairs, self._cells.reference)

    def _steps(self, weights: Floats) -> Floats:
        """Return how far log p of each resample is from the whole log's, to first order, (n, K).

        The likelihood at the best r has the slope Σ_i c − (n − c)·μ/(1 − μ) in log p_k and, for
        each pair, the bend diag(a) − a·aᵀ/Σa, a = (n − c)·μ/(1 − μ)², μ = p_k·r_i; or diag(a) where
        r is at 1. Both are sums over queries. The largest p is held: scale is free, or p is at 1.
        """
        slope, bend = (by_query.T @ weights.T for by_query in self._derivatives)
        n_positions = self._cells.n_positions
        bend = bend.T.reshape(-1, n_positions, n_positions)
        held = int(self._solution[:n_positions].argmax())
        free = np.delete(np.arange(n_positions), held)
        system = bend[:, free[:, None], free]
        diagonal = np.arange(len(free))
        largest = np.maximum(system[:, diagonal, diagonal].max(axis=1, keepdims=True), 1e-30)
        system[:, diagonal, diagonal] += 1e-9 * largest  # a position that a resample does not have
        steps = np.zeros((len(weights), n_positions))
        steps[:, free] = np.linalg.solve(system, slope[free].T[:, :, None])[:, :, 0]
        return steps - steps[:, [self._cells.reference]]

    @cached_property
    def _derivatives(self) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Slope (n_queries, K) and bend (n_queries, K²) of the likelihood, by query."""
        cells = self._cells
        examination, relevance = (part[0] for part in self._split(self._solution[None]))
        both = examination * relevance
        misses = cells.impressions - cells.clicks
        slope = cells.clicks - misses * both / (1 - both)
        bend = misses * both / (1 - both) ** 2
        total = sums(cells.pair, bend)[cells.pair]
        is_free = (relevance < 1 - 1e-6) & (total > 0)
        upper, lower = joined(cells.pair)
        here = np.concatenate([np.arange(len(bend)), upper, lower])
        there = np.concatenate([np.arange(len(bend)), lower, upper])
        shared = -np.where(is_free, bend / np.where(total > 0, total, 1), 0.0)[here] * bend[there]
        shared[: len(bend)] += bend
        column = cells.position[here] * cells.n_positions + cells.position[there]
        shape = (cells.n_queries, cells.n_positions)
        return (
            sparse.coo_array((slope, (cells.query, cells.position)), shape).tocsr(),
            sparse.coo_array(
                (shared, (cells.query[here], column)), (shape[0], shape[1] ** 2)
            ).tocsr(),
        )

    @cached_property
    def _solution(self) -> Floats:
        """The p and r of the whole log, from which those of resamples are not far."""
        cells = self._cells
        rates = cells.by_position(cells.clicks) / cells.by_position(cells.impressions)
        examination = np.maximum(rates / rates.max() * 0.9, 0.01)
        start = np.concatenate([examination, np.full(len(self._starts), 0.5)])
        once = np.ones((1, len(cells.query)))
        solution, is_settled = self._solve(once, start, self._rounds, self._tolerance)
        if not is_settled:
            self.notes.append(f"em had not settled after {self._rounds} rounds")
        found: Floats = solution[0]
        return found

    def _solve(
        self, weights: Floats, start: Floats, rounds: int, tolerance: float
    ) -> tuple[Floats, bool]:
        """Return p and r side by side, (n_resamples, K + n_pairs), and whether all settled."""
        state = np.tile(start, (len(weights), 1))
        shown = (self._positions @ (weights * self._cells.impressions).T).T
        running = np.arange(len(weights))
        for _ in range(rounds):
            mine, n_shown = weights[running], shown[running]
            before = state[running]
            after = self._round(before, mine, n_shown)
            state[running] = after
            change = self._log_curve(after) - self._log_curve(before)
            running = running[np.abs(change).max(axis=1) > tolerance]
            if not len(running):
                break
        return state, not len(running)

    def _log_curve(self, state: Floats) -> Floats:
        examination = np.log(state[:, : self._cells.n_positions])
        return examination - examination[:, [self._cells.reference]]

    def _split(self, state: Floats) -> tuple[Floats, Floats]:
        """Return p and r of each cell, each (n_resamples, n_cells)."""
        n_positions = self._cells.n_positions
        return state[:, self._cells.position], state[:, n_positions + self._cells.pair]

    def _round(self, state: Floats, weights: Floats, shown: Floats) -> Floats:
        """Return three updates' worth and more: a step of SQUAREM, scheme S3, row by row.

        x − 2αr + α²v with r = F(x) − x, v = F(F(x)) − F(x) − r and α = −‖r‖/‖v‖; where that is
        less likely than F(F(x)), F(F(x)) it is. Then one more update.
        """
        once = self._update(state, weights, shown)
        twice = self._update(once, weights, shown)
        first = once - state
        bend = twice - once - first
        norm = np.sqrt((bend**2).sum(axis=1, keepdims=True))
        length = np.sqrt((first**2).sum(axis=1, keepdims=True)) / np.maximum(norm, 1e-300)
        length = np.maximum(length, 1.0)
        further = np.clip(state + 2 * length * first + length**2 * bend, _EDGE, 1 - _EDGE)
        is_better = self._likelihood(further, weights) >= self._likelihood(twice, weights)
        return self._update(np.where(is_better[:, None], further, twice), weights, shown)

    def _update(self, state: Floats, weights: Floats, shown: Floats) -> Floats:
        examination, relevance = self._split(state)
        both = examination * relevance
        missed = (self._cells.impressions - self._cells.clicks) / (1 - both)
        examined = (self._cells.clicks + missed * (examination - both)) * weights
        relevant = self._cells.clicks + missed * (relevance - both)
        # A position that no resampled query shows keeps its value: nothing is known of it.
        total = (self._positions @ examined.T).T
        positions = np.where(
            shown > 0, total / np.maximum(shown, 1e-300), state[:, : len(shown[0])]
        )
        pairs = np.add.reduceat(relevant, self._starts, axis=1) / self._shown
        updated: Floats = np.concatenate([positions, pairs], axis=1)
        return np.clip(updated, _EDGE, 1 - _EDGE)

    def _likelihood(self, state: Floats, weights: Floats) -> Floats:
        examination, relevance = self._split(state)
        both = examination * relevance
        misses = self._cells.impressions - self._cells.clicks
        total: Floats = (
            weights * (self._cells.clicks * np.log(both) + misses * np.log1p(-both))
        ).sum(axis=1)
        return total
