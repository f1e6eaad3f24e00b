"""Resample queries or sessions and estimate propensities again, for intervals of values and gains.

A log of other queries would have had other clicks, and other propensities would have been estimated
from it. For each draw of queries, the values of the new and of the logged ranking are computed with
the propensities of this very draw, so that the interval includes both sources of uncertainty. If
later sessions evaluate, these are drawn, with propensities of draws of the days before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from countersample.evaluation.bootstrap import MAX_GROUPS, add_up
from countersample.logs.exposure import EXPOSURES, examination_of_rows
from countersample.metrics import item_ranks, rank_values
from countersample.propensity.cells import QueryDraws

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike

    from countersample._arrays import Bools, Floats, Ints
    from countersample.clicks.bias import PositionBiasCurve
    from countersample.evaluation.doubly_robust import RelevanceModel
    from countersample.logs import PositionCounts
    from countersample.logs.exposure import ClickProbabilities
    from countersample.logs.joins import Matched
    from countersample.logs.tally import Visits

N_DRAWS = 500  # of queries or sessions


@dataclass(frozen=True, eq=False)
class PropensityDraws:
    """Propensities that are estimated again from each draw of queries."""

    queries: QueryDraws
    """How often each query of the counts is in each draw."""
    curves: dict[str, Floats]
    """By context, (n_draws, n_positions); NaN at positions that a draw does not support."""


@dataclass(frozen=True, eq=False)
class Units:
    """The units that are drawn: queries, or groups of sessions."""

    draws: QueryDraws
    """How often each unit is in each draw."""
    clicks: sparse.csr_array
    """The share of the clicks of a row of the counts that belong to a unit, (n_rows, n_units)."""
    sessions: sparse.csr_array
    """The sessions of a query that belong to a unit, (n_queries, n_units)."""

    @classmethod
    def of_queries(cls, counts: PositionCounts, draws: QueryDraws) -> Units:
        """Draw queries, with all of their sessions."""
        rows, n_queries = np.arange(len(counts) + 1), len(counts.query_ids)
        clicks = sparse.csr_array((np.ones(len(counts)), counts.query, rows))
        clicks.resize(len(counts), n_queries)
        return cls(draws, clicks, sparse.csr_array(sparse.diags(counts.sessions)))

    @classmethod
    def of_sessions(
        cls, counts: PositionCounts, visits: Visits, n: int, rng: np.random.Generator
    ) -> Units:
        """Draw sessions, in random groups if there are very many."""
        n_units = min(visits.n_sessions, MAX_GROUPS)
        unit = (np.arange(visits.n_sessions) % n_units)[rng.permutation(visits.n_sessions)]
        value = np.maximum(counts.value[visits.row], 1e-300)
        clicks = sparse.coo_array(
            (visits.value / value, (visits.row, unit[visits.clicking])), (len(counts), n_units)
        )
        sessions = sparse.coo_array(
            (np.ones(len(visits.query)), (visits.query, unit[visits.session])),
            (len(counts.query_ids), n_units),
        )
        draws = QueryDraws(np.ones(n_units, np.bool_), n, int(rng.integers(2**63)))
        return cls(draws, clicks.tocsr(), sessions.tocsr())


def draw_values(
    scores: Floats,
    matched: Matched,
    propensities: ArrayLike | PositionBiasCurve | ClickProbabilities,
    curves: dict[str, Floats] | None,
    units: Units,
    *,
    metric: str,
    exposure: str,
    relevance: RelevanceModel | None,
    rng: np.random.Generator,
) -> Floats:
    """Return Σ_u w_u·V_u / Σ_u w_u·S_u of k new rankings and the logged one per draw, (n, k + 1).

    Scores are (n_items,) or (k, n_items); the logged ranking is last. w are the weights of the
    units, S_u their sessions, and V_u = Σ_clicks λ/ρ with the propensities of the draw, or without
    `curves` the propensities of the log itself. With `relevance`, the model of the doubly robust
    estimate, items that no click covers add λ·r̂·S_q, with r̂ scaled by the mean relevance of all
    others. Each draw also draws the weights of the model from their posterior.
    """
    has_features = matched.row >= 0
    shown, row = matched.counts.take(has_features), matched.row[has_features]
    point = examination_of_rows(propensities, matched.counts).alpha[has_features]
    rewards = np.stack(
        [rank_values(metric, item_ranks(each, matched.dataset)) for each in np.atleast_2d(scores)]
    )
    logged = _sum_by_pair(shown, shown.impressions * rank_values(metric, shown.position))
    values = np.vstack([rewards[:, row], logged / shown.sessions[shown.query]])
    evaluated = units.sessions.multiply((matched.sessions > 0)[:, None]).tocsr()
    sessions, rest = evaluated.sum(axis=0), np.zeros((len(values), units.clicks.shape[1]))
    errors = np.zeros((units.draws.n, len(values)))  # of Σ λ·r̂·S_q
    if relevance is not None:
        is_seen = _sum_by_pair(shown, np.where(np.isnan(point), 0.0, 1.0)) > 0
        unseen = _unseen_rewards(matched, shown, row, is_seen, values[-1], rewards)
        query = _dataset_query(matched, shown, row)
        by_query = np.add.reduceat(
            unseen * relevance.relevance, matched.dataset.offsets[:-1], axis=1
        )
        rest = np.where(query >= 0, by_query[:, query], 0.0) @ evaluated
        visited = np.zeros(matched.dataset.n_queries)
        visited[query[query >= 0]] = evaluated.sum(axis=1)[query >= 0]
        shares = unseen * np.repeat(visited, matched.dataset.query_sizes)
        covariance = relevance.covariance_of_sums(shares)
        errors = rng.multivariate_normal(
            np.zeros(len(values)), covariance, units.draws.n, method="eigh"
        )
    is_used = (_sum_by_pair(shown, shown.value) > 0) & ~np.isnan(point)
    part, values, point = shown.take(is_used), values[:, is_used], point[is_used]
    clicks = units.clicks[np.flatnonzero(has_features)[is_used]]
    # The doubly robust estimate needs exposure, however clicks are weighted in training.
    weigh = EXPOSURES["policy-aware" if relevance is not None else exposure]

    def weigh_clicks(theta: Floats) -> Floats:
        exposed = weigh(part, theta)
        weights: Floats = part.value * exposed.share / exposed.propensity
        return weights

    point_weights = weigh_clicks(point)
    level = point_weights.sum() / sessions.sum()
    thetas = None if curves is None else draw_thetas(part, point, curves)
    results = np.empty((units.draws.n, len(values)))
    draw = 0
    for block in units.draws.blocks():
        for w in block:
            weights = clicks @ w * (point_weights if thetas is None else weigh_clicks(next(thetas)))
            n_sessions = w @ sessions
            scale = weights.sum() / n_sessions / level  # of the mean relevance
            results[draw] = (values @ weights + (rest @ w + errors[draw]) * scale) / n_sessions
            draw += 1
    return results


def _dataset_query(matched: Matched, shown: PositionCounts, row: Ints) -> Ints:
    """Return the query of the dataset of each query of the counts, (n_queries,); −1 if none."""
    query = np.full(len(shown.query_ids), -1)
    query[shown.query] = np.searchsorted(matched.dataset.offsets, row, side="right") - 1
    return query


def _unseen_rewards(
    matched: Matched,
    shown: PositionCounts,
    row: Ints,
    is_seen: Bools,
    logged: Floats,
    rewards: Floats,
) -> Floats:
    """Return λ of the items that no click covers, and 0 for all others, (k + 1, n_items)."""
    is_covered = np.zeros(matched.dataset.n_items, np.bool_)
    is_covered[row[is_seen]] = True
    unseen = np.zeros((len(rewards) + 1, matched.dataset.n_items))
    unseen[:-1] = rewards * ~is_covered
    first = shown.pair_starts[:-1]
    first = first[~is_seen[first]]
    unseen[-1, row[first]] = logged[first]
    return unseen


def _sum_by_pair(counts: PositionCounts, column: Floats) -> Floats:
    """Return for each row the sum of a column over the rows of its pair."""
    starts = counts.pair_starts
    pair = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return add_up(pair, column, len(starts) - 1)[pair]


def draw_thetas(
    counts: PositionCounts, point: Floats, curves: dict[str, Floats]
) -> Iterator[Floats]:
    """Yield the examination probability of each row of the counts, draw by draw.

    As in `ContextPropensities.examination_of`, all curves of a draw are divided by their largest
    value, if it is above 1: the first positions of all contexts stay equal. The estimate of the
    whole log replaces values that a draw does not support.
    """
    depth = max(curve.shape[1] for curve in curves.values())
    n = len(next(iter(curves.values())))
    place = np.minimum(counts.position, depth) - 1
    largest = np.ones(n)
    for values in curves.values():
        np.fmax(largest, np.fmax.reduce(values, axis=1), out=largest)  # NaN is not above 1
    for draw in range(n):
        table = np.full((len(counts.context_ids), depth), np.nan)
        for code, name in enumerate(counts.context_ids):
            curve = curves.get(str(name), curves.get(""))
            if curve is not None:
                table[code, : curve.shape[1]] = curve[draw]
        theta = table[counts.context, place] / largest[draw]
        yield np.where(theta > 0, theta, point)  # 0 if the draw has no click there
