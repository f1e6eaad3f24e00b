"""Regression on debiased click rates: what clicks say about an item together with non-clicks.

A path learns from clicks only: which items were clicked, beside which others. How often an item was
examined and not clicked says more, above all if clicks are few. Item d of query q was examined
E = Σ θ times and clicked C times, so C/E estimates its relevance. Within each query,

    min_w Σ_q Σ_d v_d (C_d/E_d − r̄_q − w·(x_d − x̄_q))² + α‖w‖²        v = E/(1 + E)

with r̄_q and x̄_q the means weighted by v. They take out what all items of a query have in common,
which no ranking can use. v and α are as in `countersample.evaluation.fit_relevance`: v is the
inverse of the variance of C/E, and α has the highest evidence. The answer has a closed form and
needs no learning rate, no steps and no held-out clicks.

Items that were never shown have no rate and do not take part. The rate of an item that few sessions
examined hardly counts. The regression takes part in the choice of the ranker like any other
candidate: see `countersample.tuning.choice`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from countersample.data.matrices import query_blocks
from countersample.evaluation.bootstrap import add_up
from countersample.evaluation.doubly_robust import exposure, regression_by_evidence
from countersample.metrics import ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Floats, Ints
    from countersample.clicks import ClickLog
    from countersample.data import RankingDataset

ROUNDING = 1e-9  # of Σ v·x²: features that vary less within queries do not vary
MAX_PRODUCTS = 10**10  # n·p²; of more, every second, third, … query takes part


def regress_click_rates(
    dataset: RankingDataset, log: ClickLog, folds: Sequence[Ints] = ()
) -> list[Floats]:
    """Return w without the queries of each fold, and then w of all, each float64 (n_features,).

    The log needs impressions: a row for every item that was shown, clicked or not.

    Examples
    --------
    Items with a larger feature were examined as often and clicked more, in both queries:

    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.tuning.click_rates import regress_click_rates
    >>> data = RankingDataset.from_arrays(
    ...     X=[[0], [1], [2], [0], [1], [2]], y=[0] * 6, qid=[1, 1, 1, 2, 2, 2]
    ... )
    >>> log = ClickLog(
    ...     [0, 0, 0, 1, 1, 1], [0, 1, 2] * 2, [0.5] * 6, [10, 19, 31, 11, 20, 29],
    ...     impressions=[100] * 6,
    ... )
    >>> [float(w[0].round(3)) for w in regress_click_rates(data, log, [[0], [1]])]
    [0.179, 0.209, 0.194]
    """
    seen, clicks = exposure(log, dataset)
    fold_of_query = np.full(dataset.n_queries, len(folds))
    for k, queries in enumerate(folds):
        fold_of_query[queries] = k
    with threadpool_limits(1, "blas"):  # sums of several threads differ in their last bits
        return _solve(
            *_fold_products(dataset, seen, ratio(clicks, seen), fold_of_query, len(folds))
        )


def _solve(products: Floats, squares: Floats, n_free: Ints) -> list[Floats]:
    """Return the weights without each fold but the last, and of all, from `_fold_products`."""
    whole, p, n = products.sum(axis=0), products.shape[1] - 1, int(n_free.sum())
    # Features at variance 1 within queries; one that does not vary has a weight of 0.
    within = np.diagonal(whole)[:p]
    within = np.where(within > ROUNDING * squares, within, 0.0)
    scale = np.sqrt(ratio(np.full(p, float(n)), within))
    factors = np.append(scale, 1.0)
    products *= factors[:, None] * factors
    whole *= factors[:, None] * factors
    moments = np.insert(np.insert(whole, p, 0.0, axis=0), p, 0.0, axis=1)  # of the constant
    moments[p, p] = n
    weights, _, penalty = regression_by_evidence(moments, n + 1)
    if not n:  # no query has two items whose examination is known
        return [np.zeros(p) for _ in products]
    result = []
    for part in products[:-1]:  # with the same penalty: folds differ little in what is best
        rest = whole - part
        result.append(np.linalg.solve(rest[:p, :p] + penalty * np.eye(p), rest[:p, p]) * scale)
    return [*result, weights[:p] * scale]


def _fold_products(
    dataset: RankingDataset, seen: Floats, rates: Floats, fold_of_query: Ints, n_folds: int
) -> tuple[Floats, Floats, Ints]:
    """Return Σ v·c·cᵀ of each fold, (n_folds + 1, p + 1, p + 1), Σ v·x², and n − n_queries of each.

    The columns c are the features and C/E, less their means in the query. The last fold has the
    queries of no fold.
    """
    p, n_folds = dataset.n_features, n_folds + 1
    products, n_free = np.zeros((n_folds, p + 1, p + 1)), np.zeros(n_folds, np.int64)
    squares = np.zeros(p)
    step = max(1, -(-int(np.count_nonzero(seen)) * p * p // MAX_PRODUCTS))
    query_of_item = np.repeat(np.arange(dataset.n_queries), dataset.query_sizes)
    for first, last in query_blocks(dataset.offsets, p):
        block = slice(int(dataset.offsets[first]), int(dataset.offsets[last]))
        is_used = (seen[block] > 0) & (query_of_item[block] % step == 0)
        query, e = query_of_item[block][is_used] - first, seen[block][is_used]
        v = e / (1 + e)
        columns = np.column_stack([dataset.features[block][is_used], rates[block][is_used]])
        squares += v @ columns[:, :p] ** 2
        means = np.zeros((last - first, p + 1))
        np.add.at(means, query, columns * v[:, None])
        means = ratio(means, add_up(query, v, last - first)[:, None])
        columns = (columns - means[query]) * np.sqrt(v)[:, None]
        fold = fold_of_query[first:last][query]
        n_free += np.bincount(fold, minlength=n_folds)
        n_free -= np.bincount(fold_of_query[first + np.unique(query)], minlength=n_folds)
        for k in np.unique(fold).tolist():
            part = columns[fold == k]
            products[k] += part.T @ part
    return products, squares, n_free
