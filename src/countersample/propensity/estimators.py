"""Propensity estimators: one class each, and the registry `METHODS` at the end of this file.

All rest on the position-based model, P(click) = p_position · r_pair, with r the relevance of a
pair (a query and an item). There are two families.

- *Ratios of the same items.* If a pair was shown both at j and at k, its relevance cancels:
  p_k / p_j = clicks at k / clicks at j. The estimators differ in which positions they compare, and
  in what makes the comparison fair: shuffles and swaps are interventions made on purpose; pivot,
  adjacent chain and all pairs use those that changes of the logging policy make anyway
  (*intervention harvesting*).
- *Expectation maximisation.* The whole model is fitted by maximum likelihood, with a relevance per
  pair, or with relevance as a function of features.

To add an estimator, write a subclass of `Estimator` and add one line to `METHODS`.
`affine.py` has the estimator of another model, with trust bias.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from countersample._params import choice, whole_number
from countersample.data.matrices import check_features
from countersample.data.preprocessing import fill_missing_matrix
from countersample.errors import DataError, ParameterError
from countersample.propensity.cells import (
    MANY_QUERIES,
    Cells,
    SharedPairs,
    UnsupportedError,
    check_clicks,
    check_gaps,
    find_connected,
    mask_unknown,
    reject_zero,
    rows_in_common,
    sums,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Bools, Floats
    from countersample.logs import PositionCounts

_MAX_EXCESS = 5.0  # standard deviations; uniform shuffles exceed it once in three million logs
_MAX_STEPS = 100  # of Newton's method
_TOLERANCE = 1e-10  # of a step in log p
_MAX_CLICK = 1 - 1e-12  # the largest P(click)
_MAX_CLICK_SHARE = 1 - 1e-6  # if every impression is clicked, there is no slope to follow
_EDGE = 1e-9  # probabilities stay this far from 0 and 1
_BLOCK_NUMBERS = 100_000  # in one array of a block of resamples
_RESAMPLE_TOLERANCE = 10  # times the tolerance: the spread is within 2 % of the exact one
_RESAMPLE_ROUNDS = 100  # of EM, starting from the solution of the whole log
_MAX_NEWTON_STEP = 0.2  # in log p: beyond, one step from the whole log's maximum is inaccurate
_FEW_IMPRESSIONS = 5  # per pair and position: below, the relevance of a pair is too uncertain
_RIDGE = 1e-6  # so that features that separate clicks from no clicks have a maximum
_SHRINKAGE = 0.1  # of each boosted tree


class Estimator:
    """Base of all estimators: constructed from a log, it returns the curve of each resample.

    The constructor raises `UnsupportedError` if the log does not support the estimator. `notes` has
    what a reader of the estimate should know.
    """

    needs_features = False  # of each query-item pair, as the option `features`
    needs_all_items = False  # also items that were never clicked
    compares_pages = False  # instead of an item with itself

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self.notes: list[str] = []

    def curves(self, weights: Floats) -> Floats:
        """Return propensities relative to the reference, (n_resamples, K).

        Weights, (n_resamples, n_queries), are how often each query is in the resampled log. A
        position that a resample does not connect to the reference is NaN.
        """
        raise NotImplementedError

    def find_unknown(self, weights: Floats) -> Bools:
        """Return where `curves` has NaN, (n_resamples, K)."""
        return np.isnan(self.curves(weights))

    def is_always_known(self) -> bool:
        """Return whether enough queries connect the positions that no resample loses one."""
        return False


# -- ratios of the same items


class _Ratios(Estimator):
    """p_k = p_parent(k) · clicks[k, parent(k)] / clicks[parent(k), k], starting at the reference.

    The parent is the reference itself, or along a chain the next position towards it.
    """

    def __init__(self, cells: Cells, pairs: SharedPairs, *, is_chain: bool = False) -> None:
        super().__init__(cells)
        self._pairs, self._reference = pairs, cells.reference
        away = np.arange(cells.n_positions) - cells.reference
        self._others = np.flatnonzero(away)
        self._parent = cells.reference + (away - np.sign(away) if is_chain else 0 * away)
        clicks, weight = pairs.totals()
        is_used = np.zeros(clicks.shape, np.bool_)
        is_used[self._others, self._parent[self._others]] = True
        is_used |= is_used.T
        check_gaps(weight * is_used, self._reference)
        for k in self._others:
            j = self._parent[k]
            if not clicks[k, j]:
                reject_zero(int(k), f"no query-item pair shown at positions {{0}} and {j + 1} was "
                            "clicked at position {0}")  # fmt: skip
            if not clicks[j, k]:
                raise UnsupportedError(
                    f"no query-item pair shown at positions {j + 1} and {k + 1} was clicked at "
                    f"position {j + 1}, so how they compare is not known: take a longer log",
                    deepest=int(k),
                )

    def curves(self, weights: Floats) -> Floats:
        return self._from_clicks(self._pairs.sums(weights)[0])

    def is_always_known(self) -> bool:
        return not np.isnan(self._from_clicks(self._pairs.frequent_edges()[None])).any()

    def _from_clicks(self, clicks: Floats) -> Floats:
        curves = np.ones((len(clicks), len(self._parent)))
        for k in sorted(self._others, key=lambda index: abs(index - self._reference)):
            j = self._parent[k]
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = clicks[:, k, j] / clicks[:, j, k]
            curves[:, k] = curves[:, j] * np.where(np.isfinite(ratio), ratio, np.nan)
        return curves


class Randomized(_Ratios):
    """p_k / p_j = click-through at k / click-through at j, if results are shuffled uniformly.

    With uniform shuffles every position of a query has items of the same mean relevance, so its
    positions are compared directly (Wang et al., SIGIR 2016; Joachims et al., WSDM 2017). Pages
    are the strata, so lists may have different lengths. A log whose items prefer some positions is
    rejected. If no item was shown twice for a query, shuffling cannot be verified: such a log is
    rejected unless it is `declared` to be shuffled.
    """

    compares_pages = True

    def __init__(self, cells: Cells, *, declared: bool = False) -> None:
        is_verified = _check_shuffled(cells, declared=declared)
        super().__init__(cells, SharedPairs(_merge_pages(cells)))
        if not is_verified:
            self.notes.append(
                "that results were shuffled is not verified: no item was shown twice for a query"
            )


class Pivot(_Ratios):
    """p_k / p_pivot from the pairs shown both at k and at the reference, the pivot.

    Agarwal et al., WSDM 2019, section 4.
    """

    def __init__(self, cells: Cells, *, weighting: str = "harmonic") -> None:
        super().__init__(cells, SharedPairs(cells, weighting=weighting))


class AdjacentChain(_Ratios):
    """p_k = p_{k−1} · (ratio from the pairs shown both at k − 1 and at k), from the reference on.

    Agarwal et al., WSDM 2019, section 4. Errors add up along the chain.
    """

    def __init__(self, cells: Cells, *, weighting: str = "harmonic") -> None:
        super().__init__(cells, SharedPairs(cells, weighting=weighting), is_chain=True)


class Swaps(_Ratios):
    """p_k / p_j from items that changed places: each was shown at j while the other was at k.

    For traffic in which two results are swapped at random: the first with one below (Joachims et
    al., WSDM 2017) or neighbours (Radlinski and Joachims, AAAI 2006). Each position is compared
    with the reference if there are such swaps for all of them, and else with its neighbour. Pairs
    that moved alone are not used: only in a swap is the rest of the page the same.
    """

    def __init__(self, cells: Cells) -> None:
        pairs = SharedPairs(cells, exchanged=True)
        clicks, _ = pairs.totals()
        is_compared = (clicks[:, cells.reference] > 0) & (clicks[cells.reference] > 0)
        is_chain = not np.delete(is_compared, cells.reference).all()
        try:
            super().__init__(cells, pairs, is_chain=is_chain)
        except UnsupportedError as error:
            is_compared[cells.reference] = True
            raise UnsupportedError(
                f"among items that changed places, {error}",
                deepest=max(error.deepest, int(is_compared.argmin())),
            ) from error
        if is_chain:
            self.notes.append("from swaps of neighbours")


def _merge_pages(cells: Cells) -> Cells:
    """Return the cells with all items of a page and position as one."""
    key = cells.page * cells.n_positions + cells.position
    _, first, member = np.unique(key, return_index=True, return_inverse=True)
    return cells._replace(
        query=cells.query[first],
        page=cells.page[first],
        pair=cells.page[first],
        position=cells.position[first],
        clicks=sums(member, cells.clicks),
        impressions=sums(member, cells.impressions),
    )


def _check_shuffled(cells: Cells, *, declared: bool) -> bool:
    """Reject a log whose items are not spread evenly; return whether the log can show it.

    With uniform shuffles, the m impressions of an item fall on the L positions of its page evenly:
    X² = Σ (n − m/L)²·L/m has mean L − 1 and variance 2(L − 1)(1 − 1/m).
    """
    length = np.zeros(int(cells.page.max()) + 1, np.int64)
    np.maximum.at(length, cells.page, cells.position + 1)
    _, first, member = np.unique(cells.pair, return_index=True, return_inverse=True)
    n_shown = sums(member, cells.logged)  # whole numbers, whose noise is known
    n_places = length[cells.page[first]].astype(np.float64)
    squares = sums(member, cells.logged**2)
    statistic = squares * n_places / n_shown - n_shown
    variance = float((2 * (n_places - 1) * (1 - 1 / n_shown)).sum())
    if not variance and declared:
        return False
    if not variance:
        raise UnsupportedError(
            "no query-item pair was shown twice, so whether results were shuffled cannot be seen: "
            "take a longer log of shuffled results",
            deepest=0,
        )
    excess = float((statistic - (n_places - 1)).sum()) / np.sqrt(variance)
    if excess > _MAX_EXCESS:
        raise UnsupportedError(
            "items keep to some positions of their query (an even spread is "
            f"{excess:.3g} standard deviations away), so results were not shuffled uniformly: "
            "take the shuffled share of the traffic",
            deepest=cells.n_positions - 1,
        )
    return True


class _PairEstimator(Estimator):
    """Base of estimators whose likelihood has a maximum if clicks connect positions both ways."""

    def __init__(self, cells: Cells, *, weighting: str = "harmonic") -> None:
        super().__init__(cells)
        self._pairs = SharedPairs(cells, weighting=weighting)
        check_clicks(self._pairs, cells.reference)

    def find_unknown(self, weights: Floats) -> Bools:
        clicks, weight = self._pairs.sums(weights)
        ones = np.ones(clicks.shape[:2])
        return np.isnan(mask_unknown(ones, clicks, weight, self._cells.reference))

    def is_always_known(self) -> bool:
        edges = self._pairs.frequent_edges()[None]
        return bool(find_connected(edges, self._cells.reference).all())


class AllPairs(_PairEstimator):
    """p maximises Σ_{j≠k} clicks[j,k]·log(p_j·r_jk) + (weight − clicks)[j,k]·log(1 − p_j·r_jk).

    r_jk = r_kj is the mean relevance of the pairs shown both at j and at k, a parameter as well.
    Every position is compared with every other at once: the AllPairs estimator of Agarwal et al.,
    WSDM 2019, section 4.
    """

    def curves(self, weights: Floats) -> Floats:
        """Return the curve of each resample, by Newton's method."""
        return all_pairs_curves(*self._pairs.sums(weights), self._cells.reference)


def all_pairs_curves(clicks: Floats, weight: Floats, reference: int) -> Floats:
    """Return argmax_p max_r Σ_{j≠k} c_jk·log(p_j·r_jk) + (w_jk − c_jk)·log(1 − p_j·r_jk).

    With φ = log p and ρ = log r each term is concave in φ_j + ρ_jk, so there is one maximum.
    Given p, the best r_jk is the smaller root of ::

        2w·p_j·p_k·r² − (p_j·(w + c_kj) + p_k·(w + c_jk))·r + c_jk + c_kj = 0

    The rest is a function of φ alone, whose gradient is Σ_k c_jk − (w − c_jk)·μ/(1 − μ), with
    μ = p_j·r_jk, and whose second derivative is minus the Laplacian of the graph of positions with
    edges a_jk·a_kj / (a_jk + a_kj), a = (w − c)·μ/(1 − μ)². Newton's steps solve with it. It has an
    inverse, once the reference is fixed, because the positions are connected.

    Clicks and weight are of `SharedPairs`, (n_resamples, K, K); p of the reference is 1. The
    result, (n_resamples, K), is masked by `mask_unknown`.

    Examples
    --------
    With two positions, the result is the ratio of their clicks:

    >>> from countersample.propensity.estimators import all_pairs_curves
    >>> all_pairs_curves(np.array([[[0, 6], [3, 0]]]), np.array([[[0, 20], [20, 0]]]), 0)
    array([[1. , 0.5]])
    """
    sums_of_log = clicks, weight = np.asarray(clicks, np.float64), np.asarray(weight, np.float64)
    clicks = np.minimum(clicks, _MAX_CLICK_SHARE * weight)
    is_known = find_connected(clicks, reference)
    within = is_known[:, :, None] & is_known[:, None, :]
    clicks, weight = np.where(within, clicks, 0.0), np.where(within, weight, 0.0)
    log_p = np.zeros(is_known.shape)
    running = np.flatnonzero(is_known.sum(axis=1) > 1)
    value = _log_likelihood(clicks[running], weight[running], log_p[running])
    for _ in range(_MAX_STEPS):
        if not len(running):
            break
        before, data = log_p[running], (clicks[running], weight[running])
        step = _newton_step(*data, before, is_known[running], reference)
        after = _log_likelihood(*data, before + step)
        for _ in range(30):  # the function is concave: a short enough step goes up
            is_worse = after < value - 1e-12 * np.abs(value)
            if not is_worse.any():
                break
            step[is_worse] /= 2
            trial = (before + step)[is_worse]
            after[is_worse] = _log_likelihood(data[0][is_worse], data[1][is_worse], trial)
        log_p[running] = before + step
        is_running = np.abs(step).max(axis=1) > _TOLERANCE
        running, value = running[is_running], after[is_running]
    return mask_unknown(np.exp(log_p), *sums_of_log, reference)


def _click_probabilities(clicks: Floats, weight: Floats, log_p: Floats) -> Floats:
    """Return μ_jk = p_j·r_jk at the best r, (n, K, K)."""
    here = np.exp(log_p)[:, :, None]
    there = here.transpose(0, 2, 1)
    swapped = clicks.transpose(0, 2, 1)
    linear = here * (weight + swapped) + there * (weight + clicks)
    total = clicks + swapped
    root = np.sqrt(np.maximum(linear**2 - 8 * weight * here * there * total, 0.0))
    with np.errstate(invalid="ignore"):
        best = np.where(total > 0, 2 * total / (linear + root), 0.0)
    means: Floats = np.minimum(here * best, _MAX_CLICK)
    return means


def _log_likelihood(clicks: Floats, weight: Floats, log_p: Floats) -> Floats:
    """Return the log-likelihood at the best r, (n,)."""
    means = _click_probabilities(clicks, weight, log_p)
    with np.errstate(divide="ignore", invalid="ignore"):
        hits = np.where(clicks > 0, clicks * np.log(means), 0.0)
    total: Floats = (hits + (weight - clicks) * np.log1p(-means)).sum(axis=(1, 2))
    return total


def _newton_step(
    clicks: Floats, weight: Floats, log_p: Floats, is_known: Bools, reference: int
) -> Floats:
    means = _click_probabilities(clicks, weight, log_p)
    misses = weight - clicks
    gradient = (clicks - misses * means / (1 - means)).sum(axis=2)
    bend = misses * means / (1 - means) ** 2
    both = bend + bend.transpose(0, 2, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        edges = np.where(both > 0, bend * bend.transpose(0, 2, 1) / both, 0.0)
    laplacian = -edges
    diagonal = np.arange(clicks.shape[1])
    laplacian[:, diagonal, diagonal] += edges.sum(axis=2)
    is_fixed = ~is_known
    is_fixed[:, reference] = True
    gradient[is_fixed] = 0.0
    laplacian[is_fixed] = 0.0
    laplacian.transpose(0, 2, 1)[is_fixed] = 0.0
    # A flat direction (every shown pair was clicked) gets a little curvature, so there is a step.
    largest = np.maximum(laplacian[:, diagonal, diagonal].max(axis=1, keepdims=True), 1e-300)
    laplacian[:, diagonal, diagonal] += np.where(is_fixed, 1.0, 1e-12 * largest)
    step = np.linalg.solve(laplacian, gradient[:, :, None])[:, :, 0]
    longest = np.abs(step).max(axis=1, keepdims=True)
    shortened: Floats = step * np.minimum(1.0, 1.0 / np.maximum(longest, 1e-300))
    return shortened


# -- expectation maximisation


class TabularEM(_PairEstimator):
    """p, r maximise Σ_cells c·log(p_k·r_i) + (n − c)·log(1 − p_k·r_i), by alternating ::

        P(examined | no click) = p_k·(1 − r_i) / (1 − p_k·r_i)
        P(relevant | no click) = r_i·(1 − p_k) / (1 − p_k·r_i)
        p_k = Σ_i c + (n − c)·P(examined | no click) / Σ_i n
        r_i = Σ_k c + (n − c)·P(relevant | no click) / Σ_k n

    with k a position and i a query-item pair (Chuklin, Markov and de Rijke, Click Models for Web
    Search, 2015), extrapolated as in Varadhan and Roland (2008), which takes far fewer rounds. A
    pair shown at one position, or never clicked, is explained by its relevance alone: it contains
    no information on p and is left out to save time.

    There is no prior on r. A prior would assume that pairs shown low are as relevant as those shown
    high, and so mistake a good ranking for position bias.

    Parameters
    ----------
    cells : Cells
    max_rounds : int
        One round is three updates.
    tolerance : float
        Of the change of log p in a round, for the whole log.
    """  # noqa: D400 (the formula is the summary)

    def __init__(self, cells: Cells, *, max_rounds: int = 2000, tolerance: float = 1e-6) -> None:
        super().__init__(cells)
        self._rounds, self._tolerance = max_rounds, tolerance
        _, member = np.unique(cells.pair, return_inverse=True)
        is_used = (np.bincount(member)[member] > 1) & (
            np.bincount(member, cells.clicks)[member] > 0
        )
        self._cells = cells = cells._replace(
            query=cells.query[is_used],
            pair=np.unique(member[is_used], return_inverse=True)[1],
            position=cells.position[is_used],
            clicks=cells.clicks[is_used],
            impressions=cells.impressions[is_used],
        )
        self._starts = np.flatnonzero(np.diff(cells.pair, prepend=-1))
        self._positions = sparse.csr_array(
            (np.ones(len(cells.position)), (cells.position, np.arange(len(cells.position)))),
            (cells.n_positions, len(cells.position)),
        )
        self._shown = np.add.reduceat(cells.impressions, self._starts)
        typical = float(np.median(cells.impressions))
        if typical < _FEW_IMPRESSIONS:
            self.notes.append(
                f"half of the pairs were shown {typical:g} times or less at a position: their "
                "relevance is uncertain, which biases em towards a curve that is too flat"
            )

    def curves(self, weights: Floats) -> Floats:
        """Return one step of Newton from the whole log's maximum if it is short, and else EM."""
        steps = self._steps(weights)
        log_curves = self._log_curve(self._solution[None]) + steps
        far = np.flatnonzero(np.abs(steps).max(axis=1) > _MAX_NEWTON_STEP)
        block = max(1, _BLOCK_NUMBERS // len(self._cells.query))
        rounds = min(_RESAMPLE_ROUNDS, self._rounds)
        tolerance = _RESAMPLE_TOLERANCE * self._tolerance
        for start in range(0, len(far), block):
            rows = far[start : start + block]
            cell_weights = weights[np.ix_(rows, self._cells.query)]
            states, _ = self._solve(cell_weights, self._solution, rounds, tolerance)
            log_curves[rows] = self._log_curve(states)
        return mask_unknown(np.exp(log_curves), *self._pairs.sums(weights), self._cells.reference)

    def _steps(self, weights: Floats) -> Floats:
        """Return how far log p of each resample is from the whole log's, to first order, (n, K).

        The likelihood at the best r has the slope Σ_i c − (n − c)·μ/(1 − μ) in log p_k and, per
        pair, the curvature diag(a) − a·aᵀ/Σa, a = (n − c)·μ/(1 − μ)², μ = p_k·r_i; or diag(a) if r
        is at 1. Both are sums over queries. The largest p is fixed: scale is free, or p is at 1.
        """
        slope, bend = (by_query.T @ weights.T for by_query in self._derivatives)
        n_positions = self._cells.n_positions
        bend = bend.T.reshape(-1, n_positions, n_positions)
        fixed = int(self._solution[:n_positions].argmax())
        free = np.delete(np.arange(n_positions), fixed)
        system = bend[:, free[:, None], free]
        diagonal = np.arange(len(free))
        largest = np.maximum(system[:, diagonal, diagonal].max(axis=1, keepdims=True), 1e-30)
        system[:, diagonal, diagonal] += 1e-9 * largest  # for a position that a resample lacks
        steps = np.zeros((len(weights), n_positions))
        steps[:, free] = np.linalg.solve(system, slope[free].T[:, :, None])[:, :, 0]
        return steps - steps[:, [self._cells.reference]]

    @cached_property
    def _derivatives(self) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Slope (n_queries, K) and curvature (n_queries, K²) of the likelihood, by query."""
        cells = self._cells
        examination, relevance = (part[0] for part in self._split(self._solution[None]))
        both = examination * relevance
        misses = cells.impressions - cells.clicks
        slope = cells.clicks - misses * both / (1 - both)
        bend = misses * both / (1 - both) ** 2
        total = sums(cells.pair, bend)[cells.pair]
        is_free = (relevance < 1 - 1e-6) & (total > 0)
        upper, lower = rows_in_common(cells.pair)
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
        """The p and r of the whole log: those of resamples are close."""
        cells = self._cells
        rates = cells.by_position(cells.clicks) / cells.by_position(cells.impressions)
        examination = np.maximum(rates / rates.max() * 0.9, 0.01)
        start = np.concatenate([examination, np.full(len(self._starts), 0.5)])
        once = np.ones((1, len(cells.query)))
        states, has_converged = self._solve(once, start, self._rounds, self._tolerance)
        if not has_converged:
            self.notes.append(f"em had not settled after {self._rounds} rounds")
        solution: Floats = states[0]
        return solution

    def _solve(
        self, weights: Floats, start: Floats, rounds: int, tolerance: float
    ) -> tuple[Floats, bool]:
        """Return p and r side by side, (n_resamples, K + n_pairs), and whether all converged."""
        state = np.tile(start, (len(weights), 1))
        shown = (self._positions @ (weights * self._cells.impressions).T).T
        running = np.arange(len(weights))
        for _ in range(rounds):
            before = state[running]
            after = self._round(before, weights[running], shown[running])
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
        """Return the state after a step of SQUAREM, scheme S3, row by row.

        x − 2αr + α²v with r = F(x) − x, v = F(F(x)) − F(x) − r and α = −‖r‖/‖v‖; or F(F(x)) if
        that is more likely. Then one more update.
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
        # A position that no resampled query shows keeps its value.
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


class RegressionEM(Estimator):
    """p, f maximise Σ_cells c·log(p_k·r_i) + (n − c)·log(1 − p_k·r_i), r_i = f(features of i).

    Wang et al., WSDM 2018. As in `TabularEM`, with a regression of P(relevant) on features instead
    of a relevance per pair. So items need not be shown at several positions; instead, features must
    predict relevance, and must not predict the position.

    With ``model="logistic"`` the likelihood is smooth: L-BFGS finds the maximum that the
    alternation of expectation and maximisation would reach. With ``model="boosting"`` each round
    adds a small regression tree, and sets p to its exact maximum given r (Liu and Rubin, 1994).

    Parameters
    ----------
    cells : Cells
    features : float array (n_pairs, n_features)
        One row per query-item pair, in the order of `pair_ids`.
    model : {"logistic", "boosting"}
    n_trees : int
        The rounds of boosting.
    """

    needs_features = True
    needs_all_items = True

    def __init__(
        self,
        cells: Cells,
        *,
        features: ArrayLike | None = None,
        model: str = "logistic",
        n_trees: int = 200,
    ) -> None:
        super().__init__(cells)
        self._is_boosted = choice("model", model, ("logistic", "boosting")) == "boosting"
        self._n_trees = whole_number("n_trees", n_trees, least=1)
        table = _check_table(features, cells.n_feature_rows)
        pairs, self._pair = np.unique(cells.feature_row, return_inverse=True)
        self._columns = columns = table[pairs]
        spread = columns.std(axis=0)
        scaled = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1)
        self._design = np.column_stack([scaled, np.ones(len(scaled))])
        if self._is_boosted:
            self.notes.append(
                "all resamples share one relevance model, so the intervals leave out its error"
            )

    def curves(self, weights: Floats) -> Floats:
        """Return the curve of each resample of queries, (n_resamples, K)."""
        cells = self._cells
        if self._is_boosted:
            examination = np.array(
                [self._examination(row[cells.query], self._relevance) for row in weights]
            )
        else:
            examination = self._resampled_logistic(weights)
        with np.errstate(divide="ignore", invalid="ignore"):
            curves = examination / examination[:, [cells.reference]]
        return np.where(self.find_unknown(weights), np.nan, curves)

    def _resampled_logistic(self, weights: Floats) -> Floats:
        """Return p: one step from the whole log's maximum if it is short, and else climb again.

        The step is the score bootstrap of Kline and Santos (2012).
        """
        cells = self._cells
        logits = self._solution[: cells.n_positions] + (weights - 1) @ self._influence
        change = log_expit(logits) - log_expit(self._solution[: cells.n_positions])
        change -= change[:, [cells.reference]]
        for row in np.flatnonzero(np.abs(change).max(axis=1) > _MAX_NEWTON_STEP):
            state = self._climb(weights[row, cells.query], self._solution)
            logits[row] = state[: cells.n_positions]
        examination: Floats = expit(logits)
        return examination

    def find_unknown(self, weights: Floats) -> Bools:
        """Return the positions that are not shown, or all if the reference has no click."""
        shown, clicked = ((by_query.T @ weights.T).T for by_query in self._by_query)
        is_unknown: Bools = (shown == 0) | (clicked[:, [self._cells.reference]] == 0)
        return is_unknown

    def is_always_known(self) -> bool:
        """Return whether many queries show every position and click the reference."""
        shown, clicked = ((by_query > 0).sum(axis=0) for by_query in self._by_query)
        return bool(min(shown.min(), clicked[self._cells.reference]) >= MANY_QUERIES)

    @cached_property
    def _by_query(self) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Impressions and clicks, each (n_queries, K)."""
        cells = self._cells
        where = (cells.query, cells.position)
        shape = (cells.n_queries, cells.n_positions)
        shown = sparse.coo_array((cells.impressions, where), shape).tocsr()
        return shown, sparse.coo_array((cells.clicks, where), shape).tocsr()

    @cached_property
    def _solution(self) -> Floats:
        """Logit p and the coefficients of the whole log: those of resamples are close."""
        start = np.zeros(self._cells.n_positions + self._design.shape[1])
        return self._climb(np.ones(len(self._cells.query)), start)

    @cached_property
    def _influence(self) -> Floats:
        """The change of logit p if a query is repeated once, to first order, (n_queries, K).

        The slope of the likelihood per query, times the inverse of its expected curvature, both in
        logit p and the coefficients.
        """
        cells, design = self._cells, self._design
        by_position, coef = self._solution[: cells.n_positions], self._solution[cells.n_positions :]
        score = (design @ coef)[self._pair]
        click = np.minimum(expit(by_position)[cells.position] * expit(score), 1 - 1e-15)
        misses = cells.impressions - cells.clicks
        excess = cells.clicks - misses * click / (1 - click)
        spread = cells.impressions * click / (1 - click)
        to_position, to_score = expit(-by_position)[cells.position], expit(-score)

        n_queries, n_positions, n_pairs = cells.n_queries, cells.n_positions, len(design)
        by_query = sparse.coo_array(
            (excess * to_score, (cells.query, self._pair)), (n_queries, n_pairs)
        )
        slope = np.zeros((n_queries, n_positions + design.shape[1]))
        np.add.at(slope, (cells.query, cells.position), excess * to_position)
        slope[:, n_positions:] = by_query.tocsr() @ design
        both = sparse.coo_array(
            (spread * to_position * to_score, (cells.position, self._pair)), (n_positions, n_pairs)
        )
        cross = both.tocsr() @ design
        positions = np.diag(cells.by_position(spread * to_position**2))
        features = (design.T * sums(self._pair, spread * to_score**2, n_pairs)) @ design
        bend = np.block([[positions, cross], [cross.T, features]])
        bend += 2 * _RIDGE * cells.impressions.sum() * np.eye(len(bend))
        return slope @ np.linalg.inv(bend)[:, :n_positions]

    def _climb(self, weights: Floats, start: Floats) -> Floats:
        """Return logit p and the coefficients, side by side."""
        cells = self._cells
        total = float(weights @ cells.impressions)

        def loss(state: Floats) -> tuple[float, Floats]:
            by_position, coef = state[: cells.n_positions], state[cells.n_positions :]
            score = (self._design @ coef)[self._pair]
            log_click = log_expit(by_position)[cells.position] + log_expit(score)
            click = np.minimum(np.exp(log_click), 1 - 1e-15)
            misses = cells.impressions - cells.clicks
            value = weights @ (cells.clicks * log_click + misses * np.log1p(-click))
            slope = weights * (cells.clicks - misses * click / (1 - click))
            to_position = cells.by_position(slope) * expit(-by_position)
            to_score = sums(self._pair, slope * expit(-score), len(self._design))
            gradient = np.concatenate([to_position, to_score @ self._design]) / total
            ridge = _RIDGE * (state @ state)
            return -value / total + ridge, 2 * _RIDGE * state - gradient

        result = minimize(
            loss, start, jac=True, method="L-BFGS-B",
            options={"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-7},
        )  # fmt: skip
        solution: Floats = result.x
        return solution

    @cached_property
    def _relevance(self) -> Floats:
        """The relevance of each pair by boosted trees, (n_pairs,).

        Each tree is a Newton step in the score z, r = 1/(1 + e^−z), with the slope and the expected
        curvature of the likelihood: with μ = p·r, Σ_k (c − n·μ)/(1 − μ)·(1 − r) and
        Σ_k n·μ/(1 − μ)·(1 − r)².
        """
        from sklearn.tree import DecisionTreeRegressor  # noqa: PLC0415 (heavy, only used here)

        cells = self._cells
        ones = np.ones(len(cells.query))
        n_pairs = len(self._columns)
        tree = DecisionTreeRegressor(max_leaf_nodes=8, min_samples_leaf=20, random_state=0)
        score = np.zeros(n_pairs)
        for _ in range(self._n_trees):
            relevance = np.clip(expit(score), _EDGE, 1 - _EDGE)
            click = self._examination(ones, relevance)[cells.position] * relevance[self._pair]
            excess = (cells.clicks - cells.impressions * click) / (1 - click)
            spread = cells.impressions * click / (1 - click)
            slope = sums(self._pair, excess, n_pairs) * (1 - relevance)
            curvature = sums(self._pair, spread, n_pairs) * (1 - relevance) ** 2
            tree.fit(self._columns, slope / curvature, sample_weight=curvature)
            score += _SHRINKAGE * tree.predict(self._columns)
        fitted: Floats = np.clip(expit(score), _EDGE, 1 - _EDGE)
        return fitted

    def _examination(self, weights: Floats, relevance: Floats) -> Floats:
        """Return the p that solve Σ c/p = Σ (n − c)·r/(1 − p·r) at each position, (K,)."""
        cells = self._cells
        by_cell = relevance[self._pair]
        misses = weights * (cells.impressions - cells.clicks)
        hits = cells.by_position(weights * cells.clicks)
        examination = np.full(cells.n_positions, 0.5)
        for _ in range(100):  # Newton steps on a concave function, restricted to (0, 1)
            rest = 1 - examination[cells.position] * by_cell
            slope = hits / examination - cells.by_position(misses * by_cell / rest)
            curvature = hits / examination**2 + cells.by_position(misses * (by_cell / rest) ** 2)
            step = slope / np.maximum(curvature, 1e-300)
            following = np.clip(examination + step, examination / 4, (examination + 1 - _EDGE) / 2)
            change = np.abs(following - examination).max()
            examination = following
            if change <= 1e-10:
                break
        return np.where(hits > 0, examination, 0.0)


def _check_table(features: ArrayLike | None, n_pairs: int) -> Floats:
    if features is None:
        raise ParameterError(
            "regression-em needs features=, an array with a row for each query-item pair in the "
            "order of pair_ids(counts)"
        )
    table = np.asarray(features, np.float64)
    if table.ndim != 2 or len(table) != n_pairs or not table.shape[1]:
        raise DataError(
            f"features have shape {table.shape}, expected a row for each of {n_pairs} "
            "query-item pairs, in the order of pair_ids(counts)"
        )
    check_features(table, "features")
    return np.asarray(fill_missing_matrix(table), np.float64)


def pair_ids(counts: PositionCounts) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the query and item id of each query-item pair, in the order of rows of `features`.

    Examples
    --------
    >>> from countersample.logs import PositionCounts
    >>> from countersample.propensity import pair_ids
    >>> counts = PositionCounts.from_columns(["a", "a", "b"], [7, 7, 7], [1, 2, 1], [1, 0, 1])
    >>> pair_ids(counts)
    (array(['a', 'b'], dtype='<U1'), array([7, 7]))
    """
    first = counts.pair_starts[:-1]
    return counts.query_ids[counts.query[first]], counts.item_ids[counts.item[first]]


# -- registry

METHODS: dict[str, type[Estimator]] = {
    "randomized": Randomized,
    "swaps": Swaps,
    "pivot": Pivot,
    "adjacent-chain": AdjacentChain,
    "all-pairs": AllPairs,
    "em": TabularEM,
    "regression-em": RegressionEM,
}
