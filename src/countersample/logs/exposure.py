"""How likely an item is examined in a session of its query: the propensity of its clicks.

Sessions of query q were S_q. Item d was shown in some of them, at positions where users examine an
item with probability θ(position, context). Over what was shown,

    ρ(q, d) = (1/S_q) Σ_sessions θ(position of d in the session, context)

with 0 for a session that did not show it, and a click on it weighs 1/ρ, wherever it happened: the
policy-aware weights of Oosterhuis and de Rijke (SIGIR 2020). Given what was shown, clicks have the
mean S_q·ρ·r, with r the relevance of the item, so the sum of the weights has the mean S_q·r. With
trust bias, P(click) = β + α·r, θ is α, and what is expected by chance is Σβ.

Position-only weights 1/θ, the usual ones, take it that each session shows the item at this very
position. They have that mean for one position each, and so S_q·r only where that is so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import narwhals as nw
import numpy as np

from countersample.clicks.bias import check_weightable
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.clicks.bias import PositionBiasCurve
    from countersample.logs.counts import PositionCounts


class ClickProbabilities(Protocol):
    """How likely an item of relevance r is clicked where it was shown: β + α·r."""

    def examination_of(self, position: ArrayLike, context: ArrayLike) -> tuple[Floats, Floats]:
        """Return α and β for each row, each (n,); NaN where there is no estimate."""


class Examination(NamedTuple):
    """P(click) = β + α·r in each row of some counts; NaN where that is not known."""

    alpha: Floats  # θ, where there is no trust bias
    beta: Floats
    last_position: int  # that is known


def examination_of_rows(
    propensities: ArrayLike | PositionBiasCurve | ClickProbabilities, counts: PositionCounts
) -> Examination:
    """Return how likely each row of counts is examined where it was shown."""
    deepest = int(counts.position.max())
    if hasattr(propensities, "examination_of"):
        contexts = counts.context_ids[counts.context]
        alpha, beta = propensities.examination_of(counts.position, contexts)
        known = counts.position[~np.isnan(alpha)]
        return Examination(alpha, beta, int(known.max(initial=0)))
    if hasattr(propensities, "propensity"):
        # A table ends somewhere, which a formula does not.
        table = getattr(propensities, "value", getattr(propensities, "table", None))
        last = deepest if table is None else min(deepest, len(table))
        values = np.asarray(propensities.propensity(np.arange(1, last + 1)), np.float64)
    else:
        values = np.asarray(propensities, np.float64)
        if values.ndim != 1 or not len(values):
            raise DataError(
                f"propensities have shape {values.shape}, expected one for each position from 1"
            )
        values = values[:deepest]
    check_weightable(values, most=1)
    padded = np.full(deepest + 1, np.nan)
    padded[1 : len(values) + 1] = values
    return Examination(padded[counts.position], np.zeros(len(counts)), len(values))


class Exposed(NamedTuple):
    """How each row of some counts is weighted: count · share / propensity."""

    propensity: Floats  # NaN where θ is
    share: Floats  # of the row's clicks and of its θ that are counted


def _policy_aware(counts: PositionCounts, theta: Floats) -> Exposed:
    """Return ρ = (1/S_q) Σ impressions·θ over the rows of each pair, for each row.

    An item that a page shows twice may be examined more than once a session, ρ > 1. Its clicks and
    its examinations are then counted in part, 1/ρ, with a propensity of 1: it has the same weight.
    """
    starts = counts.pair_starts
    seen = np.add.reduceat(np.nan_to_num(counts.impressions * theta), starts[:-1])
    pooled = np.repeat(seen, np.diff(starts)) / counts.sessions[counts.query]
    propensity = np.where(np.isnan(theta), np.nan, np.minimum(pooled, 1.0))
    return Exposed(propensity, 1 / np.maximum(pooled, 1.0))


def _position_only(_counts: PositionCounts, theta: Floats) -> Exposed:
    """Return θ of each row: as if every session showed the item there."""
    return Exposed(theta, np.ones(len(theta)))


# How a row of counts with its θ is weighted.
EXPOSURES: dict[str, Callable[[PositionCounts, Floats], Exposed]] = {
    "policy-aware": _policy_aware,
    "position-only": _position_only,
}


def weigh_pairs(
    groups: nw.LazyFrame[Any], sessions: nw.LazyFrame[Any], known: nw.LazyFrame[Any], worth: float
) -> nw.LazyFrame[Any]:
    """Return ρ, counted clicks and clicks by chance of each query-item pair, lazily.

    The policy-aware weights as above, for counts that stay where the log is: `groups` of
    `aggregation.group`, the `sessions` of each query, and of each position (and context) that is
    `known`, its ``alpha`` and ``beta``; `worth` is what a click is worth on average. The weight of
    a pair is (clicks − by_chance) / propensity. Rows whose examination is not known add nothing,
    and a pair that has no others a propensity of 1 and no clicks: it was in the ranking.
    """
    by = [name for name in ("position", "context") if name in known.collect_schema()]
    value = nw.col("value" if "value" in groups.collect_schema() else "clicks")
    is_known = ~nw.col("alpha").is_null()
    shown = nw.col("impressions")
    rows = groups.join(known, on=by, how="left").select(
        "query_id",
        "item_id",
        seen=nw.when(is_known).then(shown * nw.col("alpha")).otherwise(nw.lit(0.0)),
        counted=nw.when(is_known).then(value.cast(nw.Float64)).otherwise(nw.lit(0.0)),
        chance=nw.when(is_known).then(shown * nw.col("beta") * worth).otherwise(nw.lit(0.0)),
    )
    sums = {name: nw.col(name).sum() for name in ("seen", "counted", "chance")}
    pairs = rows.group_by("query_id", "item_id").agg(**sums)
    pooled = nw.col("seen") / nw.col("sessions")
    most = nw.when(pooled > 1).then(pooled).otherwise(nw.lit(1.0))
    is_below = (pooled > 0) & (pooled <= 1)
    return pairs.join(sessions, on="query_id", how="inner").select(
        "query_id",
        "item_id",
        propensity=nw.when(is_below).then(pooled).otherwise(nw.lit(1.0)),
        clicks=nw.col("counted") / most,
        by_chance=nw.col("chance") / most,
    )
