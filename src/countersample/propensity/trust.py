"""Trust bias: users click high ranks even if the item there is not relevant.

This adds β to the position-based model: P(click at k) = β_k + α_k·r. `Affine` estimates both from
items that were shown at several positions; `estimate_trust` adds intervals.

For each two positions j < k, over the query-item pairs shown at both, α and β solve ::

    h_1 = α_j·(m_k − β_k) − α_k·(m_j − β_j) = 0
    h_2 = α_j·C_jk − α_k·V_j = 0            h_3 = α_j·V_k − α_k·C_jk = 0

m are the means of click rates at j and k, C_jk is their covariance and V are their variances
without noise: with n impressions and c clicks, c(c − 1)/(n(n − 1)) has the mean of the squared
rate. So each h has mean 0 at the true α and β, whatever the relevance of the pairs: this is the
regression of the rates at k on those at j with errors in both. There are more equations than
unknowns. α and β minimise Σ hᵀ·Ω⁻¹·h over all two positions, with Ω the covariance of
(h_1, h_2, h_3) over queries, which depends on α: the generalised method of moments (Hansen, 1982),
continuously updated (Hansen, Heaton and Yaron, 1996), because α would be too small otherwise.

Nothing is assumed about the relevance of pairs, and two impressions of a pair per position are
enough. A relevance per pair, as in em, would make α and β wrong however many pairs there are
(Neyman and Scott, 1948). All lines are the same for relevances a·r + b: the scale is fixed by α = 1
at the first position, the origin by β = 0 at the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.special import chdtrc

from countersample.propensity.cells import MANY_QUERIES, check_connected, rows_in_common
from countersample.propensity.estimators import Estimator

if TYPE_CHECKING:
    from countersample._arrays import Floats, Ints
    from countersample.propensity.cells import Cells

_MIN_COVARIANCE = 3.0  # standard errors, of the click rates at two positions
_MAX_STEPS = 100
_TOLERANCE = 1e-7  # of a step
_MAX_PAIR_WEIGHT = 50.0  # examinations of a pair, beyond which its weight stays the same
_RIDGE = 1e-6  # on the covariance of equations, so that it has an inverse


def no_trust_p_value(beta: Floats, resamples: Floats) -> float:
    """Return P(χ² > βᵀ·S⁻¹·β), S the covariance of β over resamples: Wald's test."""
    spread = np.atleast_2d(np.cov(resamples, rowvar=False))
    spread += 1e-12 * np.eye(len(beta))
    return float(chdtrc(len(beta), beta @ np.linalg.solve(spread, beta)))


class Affine(Estimator):
    """α and β minimise Σ hᵀ·Ω⁻¹·h: the equations are at the top of this module."""

    needs_all_items = True

    def __init__(self, cells: Cells) -> None:
        super().__init__(cells)
        edges, query, edge, sums = _sums_by_query(cells)
        is_frequent = np.bincount(edge, sums[3] > 0, len(edges)) >= MANY_QUERIES
        first, second = np.divmod(edges, cells.n_positions)
        self._check(
            first[is_frequent], second[is_frequent],
            f"fewer than {MANY_QUERIES} queries have items that were shown twice or more both in "
            "{0} and in {1}",
        )  # fmt: skip
        rows = is_frequent[edge]
        self._first, self._second = first[is_frequent], second[is_frequent]
        self._edge, self._sums = (np.cumsum(is_frequent) - 1)[edge[rows]], sums[:, rows]
        starts = np.searchsorted(query[rows], np.arange(cells.n_queries + 1))
        shape = (cells.n_queries, len(self._first))
        self._by_query = [sparse.csr_array((row, self._edge, starts), shape) for row in self._sums]
        (totals,) = self._totals(np.ones((1, cells.n_queries)))
        moments = _moments(totals)
        self._covariance = self._covariances(totals, moments)
        is_varied = moments[:, 2] > _MIN_COVARIANCE * np.sqrt(self._covariance[:, 2, 2])
        self._check(
            self._first[is_varied], self._second[is_varied],
            "query-item pairs that were shown both in {0} and in {1} do not differ enough in their "
            "clicks to tell trust from relevance",
        )  # fmt: skip
        self._solution = self._solve(moments, self._start(totals, moments))

    def curves(self, weights: Floats) -> Floats:
        """Return α and β of each resample side by side, (n_resamples, 2K)."""
        states = (self._solve(_moments(row), self._solution) for row in self._totals(weights))
        return np.array([np.concatenate(self._split(state)) for state in states])

    def is_always_known(self) -> bool:
        """Return True: many queries connect each two positions that are compared."""
        return True

    def _check(self, first: Ints, second: Ints, gap: str) -> None:
        is_linked = np.zeros((self._cells.n_positions, self._cells.n_positions), np.bool_)
        is_linked[first, second] = True
        advice = "take a longer log, or shuffle results for a share of the traffic"
        check_connected(is_linked, gap, advice, "weak")

    def _totals(self, weights: Floats) -> Floats:
        """Return the sums of each resample, (n_resamples, 9, n_edges)."""
        return np.stack([(by_query.T @ weights.T).T for by_query in self._by_query], axis=1)

    def _split(self, state: Floats) -> tuple[Floats, Floats]:
        """Return α and β, each (K,)."""
        cut = self._cells.n_positions - 1
        alpha = np.exp(np.append(0.0, state[:cut]))
        return alpha, np.append(state[cut:], 0.0)

    def _covariances(self, totals: Floats, moments: Floats) -> Floats:
        """Return the covariance of the moments over queries, to first order, (n_edges, 5, 5)."""
        total, pairs = totals[[0, 3]][:, self._edge]
        x, y = (totals[4:6] / totals[3])[:, self._edge]
        w, w_x, w_y, v, v_x, v_y, v_xy, v_xx, v_yy = self._sums
        of = moments[self._edge].T
        influence = np.stack([
            (w_x - of[0] * w) / total,
            (w_y - of[1] * w) / total,
            (v_xy - y * v_x - x * v_y + (x * y - of[2]) * v) / pairs,
            (v_xx - 2 * x * v_x + (x**2 - of[3]) * v) / pairs,
            (v_yy - 2 * y * v_y + (y**2 - of[4]) * v) / pairs,
        ])  # fmt: skip
        n_edges = len(self._first)
        covariance = np.empty((n_edges, 5, 5))
        for a in range(5):
            for b in range(5):
                product = influence[a] * influence[b]
                covariance[:, a, b] = np.bincount(self._edge, product, n_edges)
        return covariance

    def _start(self, totals: Floats, moments: Floats) -> Floats:
        """Return log α by least squares of ½·log(V_k/V_j), then β by least squares of h_1."""
        m_j, m_k, shared, v_j, v_k = moments.T
        is_usable = (shared > 0) & (v_j > 0) & (v_k > 0)
        ratio = np.log(np.where(is_usable, v_k, 1) / np.where(is_usable, v_j, 1)) / 2
        rows, (first, second) = np.arange(len(is_usable)), (self._first, self._second)
        weight = np.sqrt(np.where(is_usable, totals[3], 0))
        design = np.zeros((len(is_usable), self._cells.n_positions))
        design[rows, second], design[rows, first] = weight, -weight
        log_alpha = np.linalg.lstsq(design[:, 1:], ratio * weight)[0]
        alpha = np.exp(np.append(0.0, log_alpha))
        a_j, a_k, weight = alpha[first], alpha[second], np.sqrt(totals[0])
        design = np.zeros((len(is_usable), self._cells.n_positions))
        design[rows, second], design[rows, first] = a_j * weight, -a_k * weight
        beta = np.linalg.lstsq(design[:, :-1], (a_j * m_k - a_k * m_j) * weight)[0]
        return np.concatenate([log_alpha, beta])

    def _solve(self, moments: Floats, start: Floats) -> Floats:
        """Return argmin Σ hᵀ·Ω⁻¹·h from a start, by the method of Levenberg and Marquardt."""
        state, damping = start, 1e-4
        value, slope, bend = self._derivatives(moments, state)
        for _ in range(_MAX_STEPS):
            step = np.linalg.solve(bend + damping * np.diag(np.diag(bend)), -slope)
            after = self._derivatives(moments, state + step)
            if not after[0] <= value:
                damping *= 10
                if damping > 1e8:
                    break
                continue
            state, damping = state + step, max(damping / 10, 1e-9)
            has_converged = np.abs(step).max() < _TOLERANCE
            value, slope, bend = after
            if has_converged:
                break
        return state

    def _derivatives(self, moments: Floats, state: Floats) -> tuple[float, Floats, Floats]:
        """Return Σ hᵀ·Ω⁻¹·h, half its slope, and half its Gauss-Newton curvature.

        With z the moments less β, h = D(α)·z and Ω = D·Σ·Dᵀ, the slope is that of D·z* at the
        z* = z − Σ·Dᵀ·Ω⁻¹·h that is nearest to z among those with D·z* = 0.
        """
        alpha, beta = self._split(state)
        first, second, n_edges = self._first, self._second, len(self._first)
        a_j, a_k = alpha[first], alpha[second]
        by_moment = np.zeros((n_edges, 3, 5))
        by_moment[:, 0, 0], by_moment[:, 0, 1] = -a_k, a_j
        by_moment[:, 1, 2], by_moment[:, 1, 3] = a_j, -a_k
        by_moment[:, 2, 2], by_moment[:, 2, 4] = -a_k, a_j
        z = moments.copy()
        z[:, 0] -= beta[first]
        z[:, 1] -= beta[second]
        h = by_moment @ z[:, :, None]
        spread = by_moment @ self._covariance
        omega = spread @ by_moment.transpose(0, 2, 1)
        diagonal = np.arange(3)
        omega[:, diagonal, diagonal] += _RIDGE * omega[:, diagonal, diagonal] + 1e-12
        weights = np.linalg.solve(omega, h)
        near = z - (spread.transpose(0, 2, 1) @ weights)[:, :, 0]

        n_positions, rows = self._cells.n_positions, np.arange(n_edges)
        by_state = np.zeros((n_edges, 3, 2 * n_positions))
        by_state[rows, :, first] = a_j[:, None] * near[:, [1, 2, 4]]
        by_state[rows, :, second] = -a_k[:, None] * near[:, [0, 3, 2]]
        by_state[rows, 0, n_positions + first] = a_k
        by_state[rows, 0, n_positions + second] = -a_j
        by_state = by_state[:, :, 1:-1]  # α of the first position and β of the last are fixed
        weighted = np.linalg.solve(omega, by_state).reshape(3 * n_edges, -1)
        flat = by_state.reshape(3 * n_edges, -1)
        return float((h * weights).sum()), flat.T @ weights.ravel(), flat.T @ weighted


def _sums_by_query(cells: Cells) -> tuple[Ints, Ints, Ints, Floats]:
    """Return the two positions of each edge as one code, (n_edges,), and sums by query and edge.

    The latter are the query and the edge of each, (n,), and the sums over its pairs, (9, n), of ::

        w, w·x, w·y                      w = n_j·n_k/(n_j + n_k), x and y the rates at j and k
        v, v·x, v·y, v·xy, v·x², v·y²    v = w if both were shown at least twice, else 0

    with x² and y² as c(c − 1)/(n(n − 1)), whose mean is the squared P(click).
    """
    upper, lower = rows_in_common(cells.pair)
    edges, edge = np.unique(
        cells.position[upper] * cells.n_positions + cells.position[lower], return_inverse=True
    )
    n_j, n_k = cells.impressions[upper], cells.impressions[lower]
    c_j, c_k = cells.clicks[upper], cells.clicks[lower]
    x, y = c_j / n_j, c_k / n_k
    w = n_j * n_k / (n_j + n_k)
    v = np.where((n_j > 1) & (n_k > 1), w, 0.0)
    xx = c_j * (c_j - 1) / np.maximum(n_j * (n_j - 1), 1)
    yy = c_k * (c_k - 1) / np.maximum(n_k * (n_k - 1), 1)
    group, member = np.unique(cells.query[upper] * max(1, len(edges)) + edge, return_inverse=True)
    columns = (w, w * x, w * y, v, v * x, v * y, v * x * y, v * xx, v * yy)
    sums = np.array([np.bincount(member, column, len(group)) for column in columns])
    query, of_group = np.divmod(group, max(1, len(edges)))
    return edges, query, of_group, sums


def _moments(totals: Floats) -> Floats:
    """Return m_j, m_k, C_jk, V_j and V_k of each edge, (n_edges, 5)."""
    w, w_x, w_y, v, v_x, v_y, v_xy, v_xx, v_yy = np.maximum(totals, 1e-300)
    x, y = v_x / v, v_y / v
    return np.stack([w_x / w, w_y / w, v_xy / v - x * y, v_xx / v - x**2, v_yy / v - y**2], axis=1)


def level_of_irrelevance(cells: Cells, alpha: Floats, beta: Floats) -> float:
    """μ + (κ − √(κ² + 4v³)) / 2v: the lower of two relevances with this mean, variance and skew.

    If items are either relevant or not, r has two values, which follow from its mean μ, its
    variance v and its third central moment κ: the lower is the r of irrelevant items. If r has more
    values, it is the lower node of Gaussian quadrature with two nodes: a level amid the less
    relevant items.

    An impression at k has (click − β_k)/α_k, whose mean is r. Sums of powers of these, weighted by
    α, give unbiased estimates of r, r² and r³ per query-item pair (products of different
    impressions), and their means over pairs give the means of r, r² and r³.

    Examples
    --------
    >>> import numpy as np
    >>> from countersample.logs import PositionCounts
    >>> from countersample.propensity.trust import level_of_irrelevance
    >>> from countersample.propensity.cells import cells_of
    >>> counts = PositionCounts.from_columns(
    ...     query_id=[1] * 4 + [2] * 4, item_id=[7, 7, 8, 8] * 2, position=[1, 2] * 4,
    ...     click=[5000, 2500, 200, 100] * 2, impressions=[10_000] * 8,
    ... )
    >>> cells = cells_of(counts)
    >>> round(level_of_irrelevance(cells, np.array([1, 0.5]), np.zeros(2)), 3)
    0.02
    """
    pair = np.unique(cells.pair, return_inverse=True)[1]
    slope, by_chance = alpha[cells.position], beta[cells.position]
    misses = cells.impressions - cells.clicks
    powers = (1, 2, 3)
    p1, p2, p3 = (
        np.bincount(pair, cells.clicks * (1 - by_chance) ** p + misses * (-by_chance) ** p)
        for p in powers
    )
    u1, u2, u3 = (np.bincount(pair, cells.impressions * slope**p) for p in powers)
    is_usable = np.bincount(pair, cells.impressions) >= 3
    p1, p2, p3, u1, u2, u3 = (column[is_usable] for column in (p1, p2, p3, u1, u2, u3))
    weight = np.minimum(u1, _MAX_PAIR_WEIGHT)
    total = weight.sum()
    if not total:
        return 0.0
    mean = weight @ (p1 / u1) / total
    second = weight @ ((p1**2 - p2) / (u1**2 - u2)) / total
    third = weight @ ((p1**3 - 3 * p1 * p2 + 2 * p3) / (u1**3 - 3 * u1 * u2 + 2 * u3)) / total
    variance = second - mean**2
    if variance <= 0:
        return 0.0
    skew = third - 3 * mean * second + 2 * mean**3
    return float(mean + (skew - np.sqrt(skew**2 + 4 * variance**3)) / (2 * variance))
