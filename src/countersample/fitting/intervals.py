"""How sure a gain is: queries drawn again, and propensities estimated again from each draw.

A log of other queries would have had other clicks, and would have told other propensities to weigh
them by. For each draw of queries, with the propensities that this very draw tells, the values of
the new ranking and of what was logged are computed anew, so that an interval has both in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from countersample.clicks.impressions.exposure import EXPOSURES, examination_of_rows
from countersample.evaluation.ranking import item_ranks, rank_values
from countersample.evaluation.resampling import add_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countersample._arrays import Floats
    from countersample.clicks.impressions import PositionCounts
    from countersample.clicks.impressions.joining import Matched
    from countersample.propensity import ContextPropensities, Propensities
    from countersample.propensity.cells import QueryDraws


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
    propensities: Propensities | ContextPropensities,
    draws: PropensityDraws,
    *,
    metric: str,
    exposure: str,
    relevance: Floats | None,
) -> Floats:
    """Return Σ_q w_q·V_q / Σ_q w_q·S_q of the new and the logged ranking in each draw, (n, 2).

    w are the weights of the queries, S_q their sessions, and V_q = Σ_clicks λ/ρ with the
    propensities of the draw. With `relevance`, the r̂ of the doubly robust estimate, items that were
    never shown add λ·r̂·S_q, where r̂ rises and falls as the mean relevance of all that was shown.
    """
    point = examination_of_rows(propensities, matched.counts).alpha
    is_known = (matched.row >= 0) & ~np.isnan(point)
    shown, row, theta = matched.counts.take(is_known), matched.row[is_known], point[is_known]
    rewards = rank_values(metric, item_ranks(scores, matched.dataset))
    sessions = np.where(np.isin(np.arange(len(shown.query_ids)), shown.query), shown.sessions, 0.0)
    rest = np.zeros(len(sessions))
    if relevance is not None:
        is_new = np.ones(matched.dataset.n_items, np.bool_)
        is_new[row] = False
        by_query = np.add.reduceat(rewards * relevance * is_new, matched.dataset.offsets[:-1])
        own = np.zeros(len(sessions), np.int64)
        own[shown.query] = matched.query[is_known]
        rest = sessions * by_query[own]
    logged = _by_pair(shown, shown.impressions * rank_values(metric, shown.position))
    both = np.stack([rewards[row], logged / shown.sessions[shown.query]])
    clicked = _by_pair(shown, shown.value) > 0
    part, both, theta = shown.take(clicked), both[:, clicked], theta[clicked]
    weigh = EXPOSURES[exposure]
    level = (part.value / weigh(part, theta)).sum() / sessions.sum()
    again = _thetas(part, theta, draws.curves)
    found = np.empty((draws.queries.n, 2))
    at = 0
    for weights in draws.queries.blocks():
        for w in weights:
            weight = w[part.query] * part.value / weigh(part, next(again))
            below = w @ sessions
            found[at] = both @ weight / below
            found[at, 0] += (w @ rest) / below * (weight.sum() / below / level)
            at += 1
    return found


def _by_pair(counts: PositionCounts, column: Floats) -> Floats:
    """Return the sum of a column over the rows of each pair, for each row."""
    starts = counts.pair_starts
    pair = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return add_up(pair, column, len(starts) - 1)[pair]


def _thetas(counts: PositionCounts, point: Floats, curves: dict[str, Floats]) -> Iterator[Floats]:
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
        table /= max(1.0, np.nanmax(table))
        theta = table[counts.context, place]
        yield np.where(np.isnan(theta), point, theta)
