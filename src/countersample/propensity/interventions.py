"""Estimators that compare the same items at two positions: p_k/p_j = clicks at k / clicks at j.

All rest on the position-based model, P(click) = p_position · r_pair. Where a pair (a query and an
item) was shown both at j and at k, its relevance r cancels. They differ in which positions are
compared, and in what makes the comparison fair: shuffles and swaps are interventions made on
purpose; pivot, adjacent chain and all pairs take those that changes of the logging policy make
anyway (*intervention harvesting*).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from countersample.propensity.cells import Cells, SharedPairs, sums
from countersample.propensity.connections import (
    MANY,
    UnsupportedError,
    is_surely_connected,
    lost_of,
    refuse_gaps,
    refuse_one_sided,
    refuse_zero,
)
from countersample.propensity.likelihood import all_pairs_curves

if TYPE_CHECKING:
    from countersample._arrays import Bools, Floats

_NOT_SHUFFLED = 5.0  # standard deviations; uniform shuffles exceed it once in three million logs


class _Ratios:
    """p_k = p_parent(k) · clicks[k, parent(k)] / clicks[parent(k), k], from the reference on.

    The parent is the reference itself, or along a chain the next position towards it.
    """

    def __init__(self, cells: Cells, pairs: SharedPairs, *, is_chain: bool = False) -> None:
        self._pairs, self._reference = pairs, cells.reference
        away = np.arange(cells.n_positions) - cells.reference
        self._others = np.flatnonzero(away)
        self._parent = cells.reference + (away - np.sign(away) if is_chain else 0 * away)
        self.notes: list[str] = []
        clicks, weight = pairs.totals()
        used = np.zeros(clicks.shape, np.bool_)
        used[self._others, self._parent[self._others]] = True
        used |= used.T
        refuse_gaps(weight * used, self._reference)
        for k in self._others:
            j = self._parent[k]
            if not clicks[k, j]:
                refuse_zero(int(k), f"no query-item pair shown at positions {{0}} and {j + 1} was "
                            "clicked at position {0}")  # fmt: skip
            if not clicks[j, k]:
                raise UnsupportedError(
                    f"no query-item pair shown at positions {j + 1} and {k + 1} was clicked at "
                    f"position {j + 1}, so how they compare is not known: take a longer log",
                    deepest=int(k),
                )

    def curves(self, weights: Floats) -> Floats:
        """Return the curve of each resample; see `Method`."""
        return self._from_clicks(self._pairs.sums(weights)[0])

    def lost(self, weights: Floats) -> Bools:
        """Return where `curves` has NaN."""
        return np.isnan(self.curves(weights))

    @property
    def is_sure(self) -> bool:
        """Whether no resample loses a position; see `Method`."""
        return not np.isnan(self._from_clicks(self._pairs.carried(MANY)[None])).any()

    def _from_clicks(self, clicks: Floats) -> Floats:
        curves = np.ones((len(clicks), len(self._parent)))
        for k in sorted(self._others, key=lambda index: abs(index - self._reference)):
            j = self._parent[k]
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = clicks[:, k, j] / clicks[:, j, k]
            curves[:, k] = curves[:, j] * np.where(np.isfinite(ratio), ratio, np.nan)
        return curves


class Randomized(_Ratios):
    """p_k / p_j = click-through at k / click-through at j, where results are shuffled uniformly.

    With uniform shuffles every position of a query has items of the same mean relevance, so its
    positions are compared as they are (Wang et al., SIGIR 2016; Joachims et al., WSDM 2017).
    Pages are the strata, so that lists of different lengths do no harm. A log in which items keep
    to some positions is refused; one whose items were shown once each shows neither, and is refused
    unless it is `declared` to be shuffled.
    """

    def __init__(self, cells: Cells, *, declared: bool = False) -> None:
        is_seen = _refuse_order(cells, declared=declared)
        super().__init__(cells, SharedPairs(_by_page(cells)))
        if not is_seen:
            self.notes.append(
                "that results were shuffled is taken as told: no item was shown twice for a query"
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
    that moved alone are not used: the rest of the page is the same only in a swap.
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


class AllPairs:
    """p maximises Σ_{j≠k} clicks[j,k]·log(p_j·r_jk) + (weight − clicks)[j,k]·log(1 − p_j·r_jk).

    r_jk = r_kj is the mean relevance of the pairs shown both at j and at k, a parameter as well.
    Every position is compared with every other at once: the AllPairs estimator of Agarwal et al.,
    WSDM 2019, section 4.
    """

    def __init__(self, cells: Cells, *, weighting: str = "harmonic") -> None:
        self._pairs = SharedPairs(cells, weighting=weighting)
        self._reference = cells.reference
        refuse_one_sided(self._pairs, cells.reference)
        self.notes: list[str] = []

    def curves(self, weights: Floats) -> Floats:
        """Return the curve of each resample; see `Method`."""
        return all_pairs_curves(*self._pairs.sums(weights), self._reference)

    def lost(self, weights: Floats) -> Bools:
        """Return where `curves` has NaN."""
        return lost_of(self._pairs, weights, self._reference)

    @property
    def is_sure(self) -> bool:
        """Whether no resample loses a position; see `Method`."""
        return is_surely_connected(self._pairs, self._reference)


def _by_page(cells: Cells) -> Cells:
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


def _refuse_order(cells: Cells, *, declared: bool) -> bool:
    """Refuse a log whose items are not spread evenly over the positions of their page.

    Return whether that can be seen at all.

    With uniform shuffles, the m impressions of an item fall on the L positions of its page evenly:
    X² = Σ (n − m/L)²·L/m has mean L − 1 and variance 2(L − 1)(1 − 1/m).
    """
    length = np.zeros(int(cells.page.max()) + 1, np.int64)
    np.maximum.at(length, cells.page, cells.position + 1)
    _, first, member = np.unique(cells.pair, return_index=True, return_inverse=True)
    shown = sums(member, cells.logged)  # whole numbers, whose noise is known
    spread = length[cells.page[first]].astype(np.float64)
    squares = sums(member, cells.logged**2)
    statistic = squares * spread / shown - shown
    variance = float((2 * (spread - 1) * (1 - 1 / shown)).sum())
    if not variance and declared:
        return False
    if not variance:
        raise UnsupportedError(
            "no query-item pair was shown twice, so whether results were shuffled cannot be seen: "
            "take a longer log of shuffled results",
            deepest=0,
        )
    excess = float((statistic - (spread - 1)).sum()) / np.sqrt(variance)
    if excess > _NOT_SHUFFLED:
        raise UnsupportedError(
            "items keep to some positions of their query (an even spread is "
            f"{excess:.3g} standard deviations away), so results were not shuffled uniformly: "
            "take the shuffled share of the traffic",
            deepest=cells.n_positions - 1,
        )
    return True
