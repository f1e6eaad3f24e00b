"""How sure a gain is: queries or sessions drawn again, and propensities estimated again.

A log of other queries would have had other clicks, and would have told other propensities to weigh
them by. For each draw of queries, with the propensities that this very draw tells, the values of
the new ranking and of what was logged are computed anew, so that an interval has both in it. Where
later sessions judge, they are drawn again, and propensities are those of draws of what was before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from countersample.clicks.impressions.exposure import EXPOSURES, examination_of_rows
from countersample.evaluation.ranking import item_ranks, rank_values
from countersample.evaluation.resampling import MOST_GROUPS, add_up
from countersample.propensity.cells import QueryDraws

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike

    from countersample._arrays import Bools, Floats, Ints
    from countersample.clicks.bias import PositionBiasCurve
    from countersample.clicks.impressions import PositionCounts
    from countersample.clicks.impressions.exposure import ClickProbabilities
    from countersample.clicks.impressions.joining import Matched
    from countersample.clicks.impressions.visits import Visits


@dataclass(frozen=True, eq=False)
class Units:
    """What is drawn: queries, or groups of sessions.

    Attributes
    ----------
    draws : QueryDraws
        How often each unit is in each log.
    clicks : sparse array (n_rows of the counts, n_units)
        The share of the clicks of a row that are in a unit.
    sessions : sparse array (n_queries of the counts, n_units)
        The sessions of a query in a unit.
    """

    draws: QueryDraws
    clicks: sparse.csr_array
    sessions: sparse.csr_array

    @classmethod
    def of_queries(cls, counts: PositionCounts, draws: QueryDraws) -> Units:
        """Draw queries, with all of their sessions."""
        rows, n_queries = np.arange(len(counts) + 1), len(counts.query_ids)
        clicks = sparse.csr_array((np.ones(len(counts)), counts.query, rows))
        clicks.resize(len(counts), n_queries)
        return cls(draws, clicks, sparse.csr_array(sparse.diags_array(counts.sessions)))

    @classmethod
    def of_sessions(
        cls, counts: PositionCounts, visits: Visits, n: int, rng: np.random.Generator
    ) -> Units:
        """Draw sessions, in groups of them at random where there are very many."""
        n_units = min(visits.n_sessions, MOST_GROUPS)
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


@dataclass(frozen=True, eq=False)
class PropensityDraws:
    """Propensities estimated again from each log of a bootstrap by query.

    Attributes
    ----------
    queries : QueryDraws
        How often each query of the counts is in each log.
    curves : dict of float arrays (n, K), by context
        NaN where a log does not tell.
    """

    queries: QueryDraws
    curves: dict[str, Floats]


def values_of_draws(
    scores: Floats,
    matched: Matched,
    propensities: ArrayLike | PositionBiasCurve | ClickProbabilities,
    curves: dict[str, Floats] | None,
    units: Units,
    *,
    metric: str,
    exposure: str,
    relevance: Floats | None,
) -> Floats:
    """Return Σ_u w_u·V_u / Σ_u w_u·S_u of new and logged rankings in each draw, (n, k + 1).

    There are k new ones, with scores of (n_items,) or (k, n_items); what was logged is last. w are
    the weights of the units, S_u their sessions, and V_u = Σ_clicks λ/ρ with the propensities
    of the draw; without `curves` those of the log itself. With `relevance`, the r̂ of the doubly
    robust estimate, items that no click tells of add λ·r̂·S_q, where r̂ rises and falls as the mean
    relevance of all others.
    """
    has_features = matched.row >= 0
    shown, row = matched.counts.take(has_features), matched.row[has_features]
    point = examination_of_rows(propensities, matched.counts).alpha[has_features]
    rewards = np.stack(
        [rank_values(metric, item_ranks(each, matched.dataset)) for each in np.atleast_2d(scores)]
    )
    logged = _by_pair(shown, shown.impressions * rank_values(metric, shown.position))
    values = np.vstack([rewards[:, row], logged / shown.sessions[shown.query]])
    judged = units.sessions.multiply((matched.sessions > 0)[:, None]).tocsr()
    sessions, rest = judged.sum(axis=0), np.zeros((len(values), units.clicks.shape[1]))
    if relevance is not None:
        is_seen = _by_pair(shown, np.where(np.isnan(point), 0.0, 1.0)) > 0
        rest = _unseen(matched, shown, row, is_seen, values[-1], rewards, relevance) @ judged
    used = (_by_pair(shown, shown.value) > 0) & ~np.isnan(point)
    part, values, point = shown.take(used), values[:, used], point[used]
    clicks = units.clicks[np.flatnonzero(has_features)[used]]
    # The doubly robust estimate asks for exposure, however clicks are weighted in training.
    weigh = EXPOSURES["policy-aware" if relevance is not None else exposure]

    def weight(theta: Floats) -> Floats:
        exposed = weigh(part, theta)
        weights: Floats = part.value * exposed.share / exposed.propensity
        return weights

    once = weight(point)
    level = once.sum() / sessions.sum()
    again = None if curves is None else thetas_of_draws(part, point, curves)
    found = np.empty((units.draws.n, len(values)))
    at = 0
    for weights in units.draws.blocks():
        for w in weights:
            drawn = clicks @ w * (once if again is None else weight(next(again)))
            below = w @ sessions
            found[at] = (values @ drawn + rest @ w * (drawn.sum() / below / level)) / below
            at += 1
    return found


def _unseen(
    matched: Matched,
    shown: PositionCounts,
    row: Ints,
    is_seen: Bools,
    logged: Floats,
    rewards: Floats,
    relevance: Floats,
) -> Floats:
    """Return Σ λ·r̂ over the items of each query that no click tells of, (k + 1, n_queries)."""
    dataset, n_queries = matched.dataset, len(shown.query_ids)
    is_told = np.zeros(dataset.n_items, np.bool_)
    is_told[row[is_seen]] = True
    by_query = np.add.reduceat(rewards * (relevance * ~is_told), dataset.offsets[:-1], axis=1)
    own = np.full(n_queries, -1)
    own[shown.query] = np.searchsorted(dataset.offsets, row, side="right") - 1
    new = np.where(own >= 0, by_query[:, own], 0.0)
    first = shown.pair_starts[:-1]
    once = first[~is_seen[first]]
    old = add_up(shown.query[once].astype(np.int64), (logged * relevance[row])[once], n_queries)
    return np.vstack([new, old])


def _by_pair(counts: PositionCounts, column: Floats) -> Floats:
    """Return the sum of a column over the rows of each pair, for each row."""
    starts = counts.pair_starts
    pair = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return add_up(pair, column, len(starts) - 1)[pair]


def thetas_of_draws(
    counts: PositionCounts, point: Floats, curves: dict[str, Floats]
) -> Iterator[Floats]:
    """Go through the examination probabilities of the rows of counts, draw by draw.

    As `Propensities.propensity` has them: divided by the largest value above 1. Where a draw does
    not tell, that of the log itself is taken.
    """
    depth = max(curve.shape[1] for curve in curves.values())
    n = len(next(iter(curves.values())))
    place = np.minimum(counts.position, depth) - 1
    for draw in range(n):
        table = np.full((len(counts.context_ids), depth), np.nan)
        for code, name in enumerate(counts.context_ids):
            curve = curves.get(str(name), curves.get(""))
            if curve is not None:
                table[code, : curve.shape[1]] = curve[draw]
        table /= np.maximum(1.0, np.nanmax(table, axis=1, keepdims=True, initial=0.0))
        theta = table[counts.context, place]
        yield np.where(theta > 0, theta, point)  # 0 where the draw has no click there
