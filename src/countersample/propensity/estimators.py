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
`trust.py` has the estimator of another model, with trust bias.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from countersample.data.matrices import check_features
from countersample.data.preprocessing import fill_missing
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
_EM_ROUNDS = 2000  # of EM, three updates each, for the whole log
_EM_TOLERANCE = 1e-6  # of the change of log p in a round
_RESAMPLE_ROUNDS = 100  # of EM, starting from the solution of the whole log
_RESAMPLE_TOLERANCE = 1e-5  # the spread over resamples is within 2 % of the exact one
_BLOCK_NUMBERS = 100_000  # in one array of a block of resamples
_MAX_NEWTON_STEP = 0.2  # in log p: beyond, one step from the whole log's maximum is inaccurate
_FEW_IMPRESSIONS = 5  # per pair and position: below, the relevance of a pair is too uncertain
_RIDGE = 1e-6  # so that features that separate clicks from no clicks have a maximum


class Estimator:
    """Base of all estimators: constructed from a log, it returns the curve of each resample.

    The constructor raises `UnsupportedError` if the log does not support the estimator. `notes` has
    what a reader of the estimate should know.
    """

    options: tuple[str, ...] = ()  # the names of the constructor's keyword arguments
    needs_all_items = False  # also items that were never clicked
    compares_pages = False  # instead of an item with itself

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self.notes: list[str] = []

    def curves(self, weights: Floats) -> Floats:
        """Return propensities relative to the first position, (n_resamples, K).

        Weights, (n_resamples, n_queries), are how often each query is in the resampled log. A
        position that a resample does not connect to the first is NaN.
        """
        raise NotImplementedError

    def find_unknown(self, weights: Floats) -> Bools:
        """Return where `curves` has NaN, (n_resamples, K)."""
        raise NotImplementedError

    def is_always_known(self) -> bool:
        """Return whether enough queries connect the positions that no resample loses one."""
        raise NotImplementedError


class _PairEstimator(Estimator):
    """Base of estimators that compare pairs with themselves at another position."""

    def __init__(self, cells: Cells, pairs: SharedPairs) -> None:
        super().__init__(cells)
        self._pairs = pairs

    def _mask(self, clicks: Floats, weight: Floats) -> Floats:
        """Return numbers with NaN where sums of `SharedPairs` leave a position unknown."""
        return mask_unknown(np.ones(clicks.shape[:2]), clicks, weight)

    def find_unknown(self, weights: Floats) -> Bools:
        return np.isnan(self._mask(*self._pairs.sums(weights)))

    def is_always_known(self) -> bool:
        edges = self._pairs.frequent_edges()[None]
        return not np.isnan(self._mask(edges, edges)).any()


# -- ratios of the same items


class _Ratios(_PairEstimator):
    """p_k = p_parent(k) · clicks[k, parent(k)] / clicks[parent(k), k], starting at the top.

    The parent is the first position or, along a chain, the position above.
    """

    def __init__(self, cells: Cells, pairs: SharedPairs, *, is_chain: bool = False) -> None:
        super().__init__(cells, pairs)
        others = np.arange(1, cells.n_positions)
        self._parents = dict(zip(others, others - 1 if is_chain else 0 * others, strict=True))
        clicks, weight = pairs.totals()
        is_used = np.zeros(clicks.shape, np.bool_)
        is_used[others, list(self._parents.values())] = True
        check_gaps(weight * (is_used | is_used.T))
        for k, j in self._parents.items():
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
        return self._mask(*self._pairs.sums(weights))

    def _mask(self, clicks: Floats, weight: Floats) -> Floats:  # noqa: ARG002 (clicks suffice)
        curves = np.ones(clicks.shape[:2])
        for k, j in self._parents.items():
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

    options = ("declared",)
    compares_pages = True

    def __init__(self, cells: Cells, *, declared: bool = False) -> None:
        is_verified = _check_shuffled(cells, declared=declared)
        super().__init__(cells, SharedPairs(_merge_pages(cells)))
        if not is_verified:
            self.notes.append(
                "that results were shuffled is not verified: no item was shown twice for a query"
            )


class Pivot(_Ratios):
    """p_k / p_1 from the pairs shown both at k and at the first position, the pivot.

    Agarwal et al., WSDM 2019, section 4.
    """

    options = ("weighting",)

    def __init__(self, cells: Cells, *, weighting: str = "harmonic") -> None:
        super().__init__(cells, SharedPairs(cells, weighting=weighting))


class AdjacentChain(_Ratios):
    """p_k = p_{k−1} · (ratio from the pairs shown both at k − 1 and at k), from the top down.

    Agarwal et al., WSDM 2019, section 4. Errors add up along the chain.
    """

    options = ("weighting",)

    def __init__(self, cells: Cells, *, weighting: str = "harmonic") -> None:
        super().__init__(cells, SharedPairs(cells, weighting=weighting), is_chain=True)


class Swaps(_Ratios):
    """p_k / p_j from items that changed places: each was shown at j while the other was at k.

    For traffic in which two results are swapped at random: the first with one below (Joachims et
    al., WSDM 2017) or neighbours (Radlinski and Joachims, AAAI 2006). Each position is compared
    with the first if there are such swaps for all of them, and else with its neighbour. Pairs
    that moved alone are not used: only in a swap is the rest of the page the same.
    """

    def __init__(self, cells: Cells) -> None:
        pairs = SharedPairs(cells, exchanged=True)
        clicks, _ = pairs.totals()
        is_compared = (clicks[:, 0] > 0) & (clicks[0] > 0)
        is_compared[0] = True
        is_chain = not is_compared.all()
        try:
            super().__init__(cells, pairs, is_chain=is_chain)
        except UnsupportedError as error:
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


class AllPairs(_PairEstimator):
    """p maximises Σ_{j≠k} clicks[j,k]·log(p_j·r_jk) + (weight − clicks)[j,k]·log(1 − p_j·r_jk).

    r_jk = r_kj is the mean relevance of the pairs shown both at j and at k, a parameter as well.
    Every position is compared with every other at once: the AllPairs estimator of Agarwal et al.,
    WSDM 2019, section 4.
    """

    options = ("weighting",)

    def __init__(self, cells: Cells, *, weighting: str = "harmonic") -> None:
        super().__init__(cells, SharedPairs(cells, weighting=weighting))
        check_clicks(self._pairs)

    def curves(self, weights: Floats) -> Floats:
        """Return the curve of each resample, by Newton's method."""
        return all_pairs_curves(*self._pairs.sums(weights))


def all_pairs_curves(clicks: Floats, weight: Floats) -> Floats:
    """Return argmax_p max_r Σ_{j≠k} c_jk·log(p_j·r_jk) + (w_jk − c_jk)·log(1 − p_j·r_jk).

    With φ = log p and ρ = log r each term is concave in φ_j + ρ_jk, so there is one maximum.
    Given p, the best r_jk is the smaller root of ::

        2w·p_j·p_k·r² − (p_j·(w + c_kj) + p_k·(w + c_jk))·r + c_jk + c_kj = 0

    The rest is a function of φ alone, whose gradient is Σ_k c_jk − (w − c_jk)·μ/(1 − μ), with
    μ = p_j·r_jk, and whose second derivative is minus the Laplacian of the graph of positions with
    edges a_jk·a_kj / (a_jk + a_kj), a = (w − c)·μ/(1 − μ)². Newton's steps solve with it. It has an
    inverse, once the first position is fixed, because the positions are connected.

    Clicks and weight are of `SharedPairs`, (n_resamples, K, K); p of the first position is 1. The
    result, (n_resamples, K), is masked by `mask_unknown`.

    Examples
    --------
    With two positions, the result is the ratio of their clicks:

    >>> from countersample.propensity.estimators import all_pairs_curves
    >>> all_pairs_curves(np.array([[[0, 6], [3, 0]]]), np.array([[[0, 20], [20, 0]]]))
    array([[1. , 0.5]])
    """
    sums_of_log = clicks, weight = np.asarray(clicks, np.float64), np.asarray(weight, np.float64)
    clicks = np.minimum(clicks, _MAX_CLICK_SHARE * weight)
    is_known = find_connected(clicks)
    within = is_known[:, :, None] & is_known[:, None, :]
    clicks, weight = np.where(within, clicks, 0.0), np.where(within, weight, 0.0)
    log_p = np.zeros(is_known.shape)
    running = np.flatnonzero(is_known.sum(axis=1) > 1)
    value = _log_likelihood(clicks[running], weight[running], log_p[running])
    for _ in range(_MAX_STEPS):
        if not len(running):
            break
        before, data = log_p[running], (clicks[running], weight[running])
        step = _newton_step(*data, before, is_known[running])
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
    return mask_unknown(np.exp(log_p), *sums_of_log)


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


def _newton_step(clicks: Floats, weight: Floats, log_p: Floats, is_known: Bools) -> Floats:
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
    is_fixed[:, 0] = True
    gradient[is_fixed] = 0.0
    laplacian[is_fixed] = 0.0
    laplacian.transpose(0, 2, 1)[is_fixed] = 0.0
    # A flat direction (every shown pair was clicked) gets a little curvature, so there is a step.
    largest = np.maximum(laplacian[:, diagonal, diagonal].max(axis=1, keepdims=True), 1e-300)
    laplacian[:, diagonal, diagonal] += np.where(is_fixed, 1.0, 1e-12 * largest)
    step = np.linalg.solve(laplacian, gradient[:, :, None])[:, :, 0]
    longest = np.abs(step).max(axis=1, keepdims=True)
    short_step: Floats = step * np.minimum(1.0, 1.0 / np.maximum(longest, 1e-300))
    return short_step


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
    """  # noqa: D400 (the formula is the summary)

    def __init__(self, cells: Cells) -> None:
        super().__init__(cells, SharedPairs(cells))
        check_clicks(self._pairs)
        _, member = np.unique(cells.pair, return_inverse=True)
        n_clicks = np.bincount(member, cells.clicks)[member]
        is_used = (np.bincount(member)[member] > 1) & (n_clicks > 0)
        self._cells = cells = cells._replace(
            query=cells.query[is_used],
            pair=np.unique(member[is_used], return_inverse=True)[1],
            position=cells.position[is_used],
            clicks=cells.clicks[is_used],
            impressions=cells.impressions[is_used],
        )
        n_cells = len(cells.query)
        self._starts = np.flatnonzero(np.diff(cells.pair, prepend=-1))
        self._positions = sparse.csr_array(
            (np.ones(n_cells), (cells.position, np.arange(n_cells))), (cells.n_positions, n_cells)
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
        for start in range(0, len(far), block):
            rows = far[start : start + block]
            cell_weights = weights[np.ix_(rows, self._cells.query)]
            states, _ = self._solve(
                cell_weights, self._solution, _RESAMPLE_ROUNDS, _RESAMPLE_TOLERANCE
            )
            log_curves[rows] = self._log_curve(states)
        return mask_unknown(np.exp(log_curves), *self._pairs.sums(weights))

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
        return steps - steps[:, :1]

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
        """The p and r of the whole log, from which resamples start."""
        cells = self._cells
        rates = cells.by_position(cells.clicks) / cells.by_position(cells.impressions)
        examination = np.maximum(rates / rates.max() * 0.9, 0.01)
        start = np.concatenate([examination, np.full(len(self._starts), 0.5)])
        once = np.ones((1, len(cells.query)))
        states, has_converged = self._solve(once, start, _EM_ROUNDS, _EM_TOLERANCE)
        if not has_converged:
            self.notes.append(f"em had not settled after {_EM_ROUNDS} rounds")
        solution: Floats = states[0]
        return solution

    def _solve(
        self, weights: Floats, start: Floats, rounds: int, tolerance: float
    ) -> tuple[Floats, bool]:
        """Return p and r side by side, (n_resamples, K + n_pairs), and whether all converged."""
        state = np.tile(start, (len(weights), 1))
        impressions = (self._positions @ (weights * self._cells.impressions).T).T
        running = np.arange(len(weights))
        for _ in range(rounds):
            before = state[running]
            after = self._round(before, weights[running], impressions[running])
            state[running] = after
            change = self._log_curve(after) - self._log_curve(before)
            running = running[np.abs(change).max(axis=1) > tolerance]
            if not len(running):
                break
        return state, not len(running)

    def _log_curve(self, state: Floats) -> Floats:
        examination = np.log(state[:, : self._cells.n_positions])
        return examination - examination[:, :1]

    def _split(self, state: Floats) -> tuple[Floats, Floats]:
        """Return p and r of each cell, each (n_resamples, n_cells)."""
        n_positions = self._cells.n_positions
        return state[:, self._cells.position], state[:, n_positions + self._cells.pair]

    def _round(self, state: Floats, weights: Floats, impressions: Floats) -> Floats:
        """Return the state after a step of SQUAREM, scheme S3, row by row.

        x − 2αr + α²v with r = F(x) − x, v = F(F(x)) − F(x) − r and α = −‖r‖/‖v‖; or F(F(x)) if
        that is more likely. Then one more update.
        """
        once = self._update(state, weights, impressions)
        twice = self._update(once, weights, impressions)
        first = once - state
        bend = twice - once - first
        norm = np.sqrt((bend**2).sum(axis=1, keepdims=True))
        length = np.sqrt((first**2).sum(axis=1, keepdims=True)) / np.maximum(norm, 1e-300)
        length = np.maximum(length, 1.0)
        further = np.clip(state + 2 * length * first + length**2 * bend, _EDGE, 1 - _EDGE)
        is_better = self._likelihood(further, weights) >= self._likelihood(twice, weights)
        return self._update(np.where(is_better[:, None], further, twice), weights, impressions)

    def _update(self, state: Floats, weights: Floats, impressions: Floats) -> Floats:
        examination, relevance = self._split(state)
        both = examination * relevance
        missed = (self._cells.impressions - self._cells.clicks) / (1 - both)
        examined = (self._cells.clicks + missed * (examination - both)) * weights
        relevant = self._cells.clicks + missed * (relevance - both)
        # A position that no resampled query shows keeps its value.
        total = (self._positions @ examined.T).T
        positions = np.where(
            impressions > 0,
            total / np.maximum(impressions, 1e-300),
            state[:, : len(impressions[0])],
        )
        pairs = np.add.reduceat(relevant, self._starts, axis=1) / self._shown
        result: Floats = np.concatenate([positions, pairs], axis=1)
        return np.clip(result, _EDGE, 1 - _EDGE)

    def _likelihood(self, state: Floats, weights: Floats) -> Floats:
        examination, relevance = self._split(state)
        both = examination * relevance
        misses = self._cells.impressions - self._cells.clicks
        total: Floats = (
            weights * (self._cells.clicks * np.log(both) + misses * np.log1p(-both))
        ).sum(axis=1)
        return total


class RegressionEM(Estimator):
    """p, w maximise Σ_cells c·log(p_k·r_i) + (n − c)·log(1 − p_k·r_i), r_i = 1/(1 + exp(−w·x_i)).

    Wang et al., WSDM 2018. As in `TabularEM`, with a logistic regression of P(relevant) on the
    features x_i of pair i instead of a relevance per pair. So items need not be shown at several
    positions; instead, features must predict relevance, and must not predict the position. The
    likelihood is smooth: L-BFGS finds the maximum that the alternation of expectation and
    maximisation would reach.

    Parameters
    ----------
    cells : Cells
    features : float array (n_pairs, n_features)
        One row per query-item pair, in the order of `pair_ids`.
    """

    options = ("features",)
    needs_all_items = True

    def __init__(self, cells: Cells, *, features: ArrayLike | None = None) -> None:
        super().__init__(cells)
        table = _check_table(features, cells.n_feature_rows)
        pairs, self._pair = np.unique(cells.feature_row, return_inverse=True)
        columns = table[pairs]
        spread = columns.std(axis=0)
        scores = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1)
        self._design = np.column_stack([scores, np.ones(len(scores))])
        places, shape = (cells.query, cells.position), (cells.n_queries, cells.n_positions)
        self._by_query = [
            sparse.coo_array((column, places), shape).tocsr()
            for column in (cells.impressions, cells.clicks)
        ]

    def curves(self, weights: Floats) -> Floats:
        """Return one step from the whole log's maximum if it is short; otherwise maximise again.

        The step is the score bootstrap of Kline and Santos (2012).
        """
        cells = self._cells
        logits = self._solution[: cells.n_positions] + (weights - 1) @ self._influence
        change = log_expit(logits) - log_expit(self._solution[: cells.n_positions])
        change -= change[:, :1]
        for row in np.flatnonzero(np.abs(change).max(axis=1) > _MAX_NEWTON_STEP):
            state = self._climb(weights[row, cells.query], self._solution)
            logits[row] = state[: cells.n_positions]
        examination = expit(logits)
        with np.errstate(divide="ignore", invalid="ignore"):
            curves = examination / examination[:, :1]
        return np.where(self.find_unknown(weights), np.nan, curves)

    def find_unknown(self, weights: Floats) -> Bools:
        """Return the positions that are not shown, or all if the first has no click."""
        impressions, clicks = ((by_query.T @ weights.T).T for by_query in self._by_query)
        is_unknown: Bools = (impressions == 0) | (clicks[:, :1] == 0)
        return is_unknown

    def is_always_known(self) -> bool:
        """Return whether many queries show every position and click the first."""
        impressions, clicks = ((by_query > 0).sum(axis=0) for by_query in self._by_query)
        return bool(min(impressions.min(), clicks[0]) >= MANY_QUERIES)

    @cached_property
    def _solution(self) -> Floats:
        """Logit p and the coefficients of the whole log, from which resamples start."""
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
    return np.asarray(fill_missing(table), np.float64)


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
