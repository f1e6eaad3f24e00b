"""Logs drawn from the position-based model, and slow twins of the estimators.

P(click) = theta[position] · relevance[query, item], each impression on its own. Clicks of the same
query, item and position are drawn at once, from the binomial distribution.
"""

import numpy as np
from conftest import SEED
from scipy.optimize import minimize
from scipy.special import expit

from countersample.logs import PositionCounts


def streams(n):
    """Return independent generators."""
    return [np.random.default_rng(seed) for seed in np.random.SeedSequence(SEED).spawn(n)]


def counted(query, item, position, impressions, click_rate, rng):
    """Draw the clicks of cells and count them."""
    clicks = rng.binomial(impressions, click_rate)
    shown = impressions > 0
    columns = (query, item, position, clicks, impressions)
    return PositionCounts.from_columns(*(column[shown] for column in columns))


def repeat_queries(counts, queries):
    """Return the log that has these queries, in this order, under the ids 0, 1, 2, …."""
    rows = [np.flatnonzero(counts.query == query) for query in queries]
    copy, row = np.repeat(np.arange(len(queries)), list(map(len, rows))), np.concatenate(rows)
    return PositionCounts.from_columns(
        copy, counts.item[row], counts.position[row], counts.clicks[row], counts.impressions[row]
    )


def served(rng, theta, *, n_queries, sessions, n_rankers=3, noise=0.3, relevance=None, beta=None):
    """Draw a log in which several rankers order the same items, each by relevance and noise.

    Returns the counts and the relevance (n_queries, K), which is highest at the top. With trust
    bias, P(click) is β more at each position.
    """
    depth = len(theta)
    if relevance is None:
        relevance = rng.beta(1, 3, (n_queries, depth))
    scores = relevance[:, None] + noise * rng.standard_normal((n_queries, n_rankers, depth))
    item = np.argsort(-scores, axis=2)
    query = np.broadcast_to(np.arange(n_queries)[:, None, None], item.shape)
    index = np.broadcast_to(np.arange(depth), item.shape)
    shown = rng.multinomial(sessions, np.full(n_rankers, 1 / n_rankers), n_queries)
    impressions = np.broadcast_to(shown[:, :, None], item.shape)
    rate = theta[index] * relevance[query, item] + (0 if beta is None else beta[index])
    cells = (query, item, index + 1, impressions, rate)
    return counted(*(cell.ravel() for cell in cells), rng), relevance


def shuffled(rng, theta, *, n_queries, sessions, relevance=None, lengths=None):
    """Draw a log of uniform shuffles: a permutation for each session of each query."""
    depth = len(theta)
    lengths = np.full(n_queries, depth) if lengths is None else lengths
    keys = rng.random((n_queries, sessions, depth))
    keys[np.broadcast_to(np.arange(depth) >= lengths[:, None, None], keys.shape)] = 2
    item = np.argsort(keys, axis=2)
    if relevance is None:
        relevance = rng.beta(1, 3, (n_queries, depth))
    query = np.broadcast_to(np.arange(n_queries)[:, None, None], item.shape)
    index = np.broadcast_to(np.arange(depth), item.shape)
    kept = index < lengths[:, None, None]
    rate = theta[index] * relevance[query, item]
    cells = (query, item, index + 1, np.ones_like(item), rate)
    return counted(*(cell[kept] for cell in cells), rng)


def swapped(rng, theta, *, n_queries, sessions, chain=False):
    """Draw a log of items in order of relevance, two of which change places in half of sessions."""
    depth = len(theta)
    relevance = -np.sort(-rng.beta(1, 3, (n_queries, depth)), axis=1)
    item = np.tile(np.arange(depth), (n_queries, sessions, 1))
    lower = rng.integers(1, depth, (n_queries, sessions))
    upper = lower - 1 if chain else np.zeros_like(lower)
    q, s = np.nonzero(rng.random((n_queries, sessions)) < 0.5)
    item[q, s, upper[q, s]], item[q, s, lower[q, s]] = lower[q, s], upper[q, s]
    query = np.broadcast_to(np.arange(n_queries)[:, None, None], item.shape)
    index = np.broadcast_to(np.arange(depth), item.shape)
    rate = theta[index] * relevance[query, item]
    cells = (query, item, index + 1, np.ones_like(item), rate)
    return counted(*(cell.ravel() for cell in cells), rng)


def shared_sums(counts, depth, *, strata="pairs", exchanged=False):
    """ĉ of Agarwal et al., in loops: Σ over strata shown both at j and at k of w · c_j/n_j.

    Strata are query-item pairs, or queries; `exchanged` ones are pairs beside which another pair of
    the query was shown at the same two positions.
    """
    table = {}
    columns = (counts.query, counts.item, counts.position, counts.clicks, counts.impressions)
    for query, item, position, clicks, shown in zip(*(c.tolist() for c in columns), strict=True):
        cells = table.setdefault((query, item if strata == "pairs" else 0), {})
        before = cells.get(position - 1, (0, 0))
        cells[position - 1] = (before[0] + clicks, before[1] + shown)
    total, weight = np.zeros((depth, depth)), np.zeros((depth, depth))
    for (query, _), positions in table.items():
        others = [cells for (q, _), cells in table.items() if q == query and cells is not positions]
        for j, (c_j, n_j) in positions.items():
            for k, (_, n_k) in positions.items():
                if exchanged and not any(j in cells and k in cells for cells in others):
                    continue
                if j != k:
                    w = n_j * n_k / (n_j + n_k)
                    total[j, k] += w * c_j / n_j
                    weight[j, k] += w
    return total, weight


def all_pairs_by_scipy(clicks, weight):
    """AllPairs with all its parameters, log p and log r_jk, by a general optimiser."""
    depth = len(clicks)
    j, k = np.nonzero(np.triu(weight, 1))
    edge = np.full((depth, depth), -1)
    edge[j, k] = edge[k, j] = np.arange(len(j))
    first, second = np.nonzero(edge >= 0)
    c, w, e = clicks[first, second], weight[first, second], edge[first, second]

    def loss(state):
        log_p = np.append(0.0, state[: depth - 1])
        log_click = np.minimum(log_p[first] + state[depth - 1 :][e], -1e-9)
        slope = c - (w - c) * np.exp(log_click) / -np.expm1(log_click)
        value = c @ log_click + (w - c) @ np.log(-np.expm1(log_click))
        to_p = np.bincount(first, slope, depth)[1:]
        return -value, -np.append(to_p, np.bincount(e, slope))

    start = np.append(np.full(depth - 1, -0.1), np.full(len(j), -3.0))
    bounds = [(None, None)] * (depth - 1) + [(None, -0.05)] * len(j)
    precise = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=precise)
    found = minimize(loss, found.x, jac=True, method="BFGS", options={"gtol": 1e-8})
    return np.exp(np.append(0.0, found.x[: depth - 1]))


def likelihood_by_scipy(counts, depth, features=None):
    """The position-based model by a general optimiser: a relevance a pair, or one of features."""
    starts = counts.pair_starts
    pair = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    design = np.eye(len(starts) - 1)
    if features is not None:
        design = np.column_stack([features, np.ones(len(features))])
    position, clicks, shown = counts.position - 1, counts.clicks, counts.impressions

    def loss(state):
        p, r = expit(state[:depth])[position], expit(design @ state[depth:])[pair]
        slope = clicks - (shown - clicks) * p * r / (1 - p * r)
        value = clicks @ np.log(p * r) + (shown - clicks) @ np.log1p(-p * r)
        to_p = np.bincount(position, slope * (1 - p), depth)
        to_r = np.bincount(pair, slope * (1 - r), len(design)) @ design
        return -value, -np.append(to_p, to_r)

    precise = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-14, "gtol": 1e-6}
    start = np.zeros(depth + design.shape[1])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=precise)
    p = expit(found.x[:depth])
    return p / p[0]


def curve(method, counts, features, depth):
    """The curve of a method by its definition: each method has a line here."""

    def from_the_first(**strata):
        clicks, _ = shared_sums(counts, depth, **strata)
        return [1] + [clicks[k, 0] / clicks[0, k] for k in range(1, depth)]

    def along_the_chain():
        clicks, _ = shared_sums(counts, depth)
        return np.cumprod([1] + [clicks[k + 1, k] / clicks[k, k + 1] for k in range(depth - 1)])

    return {
        "randomized": lambda: from_the_first(strata="queries"),
        "swaps": lambda: from_the_first(exchanged=True),
        "pivot": from_the_first,
        "adjacent-chain": along_the_chain,
        "all-pairs": lambda: all_pairs_by_scipy(*shared_sums(counts, depth)),
        "em": lambda: likelihood_by_scipy(counts, depth),
        "regression-em": lambda: likelihood_by_scipy(counts, depth, features),
    }[method]()
