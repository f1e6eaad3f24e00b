"""The exposure of an item: the probability that a session of its query examines it.

A query q has S_q sessions. Some of them showed item d, at positions that users examine with
probability θ(position, context). The propensity of a click on d is its exposure

    ρ(q, d) = (1/S_q) Σ_sessions θ(position of d in the session, context)

with 0 for a session that did not show d. A click weighs 1/ρ, wherever it happened: the policy-aware
weights of Oosterhuis and de Rijke (SIGIR 2020). Let r be the relevance of d. The expected number of
clicks is S_q·ρ·r, so the expected sum of weights is S_q·r. With trust bias, P(click) = β + α·r,
θ is α, and Σβ clicks are expected by chance.

Position-only weights 1/θ have that expectation only if every session shows d at the same position.
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
    """The probability of a click on an item of relevance r by place: β + α·r."""

    def examination_of(self, position: ArrayLike, context: ArrayLike) -> tuple[Floats, Floats]:
        """Return α and β for each row, each (n,); NaN if there is no estimate."""


class Examination(NamedTuple):
    """P(click) = β + α·r in each row of some counts; NaN if there is no estimate."""

    alpha: Floats  # θ, without trust bias
    beta: Floats
    last_position: int  # with an estimate


def examination_of_rows(
    propensities: ArrayLike | PositionBiasCurve | ClickProbabilities, counts: PositionCounts
) -> Examination:
    """Return the examination of each row of counts, at its position and in its context."""
    deepest = int(counts.position.max())
    if hasattr(propensities, "examination_of"):
        contexts = counts.context_ids[counts.context]
        alpha, beta = propensities.examination_of(counts.position, contexts)
        last = counts.position[~np.isnan(alpha)].max(initial=0)
        return Examination(alpha, beta, int(last))
    if hasattr(propensities, "propensity"):
        # A table has an end, a formula has none.
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
    """The weight of each row of some counts: count · share / propensity."""

    propensity: Floats  # NaN if θ is
    share: Floats  # of the row's clicks and of its θ that are counted


def _policy_aware(counts: PositionCounts, theta: Floats) -> Exposed:
    """Return ρ = (1/S_q) Σ impressions·θ over the rows of each pair, for each row.

    An item that a page shows twice may be examined more than once per session, ρ > 1. Then a share
    1/ρ of its clicks and examinations counts, with a propensity of 1: the weight is the same.
    """
    starts = counts.pair_starts
    seen = np.add.reduceat(np.nan_to_num(counts.impressions * theta), starts[:-1])
    pooled = np.repeat(seen, np.diff(starts)) / counts.sessions[counts.query]
    propensity = np.where(np.isnan(theta), np.nan, np.minimum(pooled, 1.0))
    return Exposed(propensity, 1 / np.maximum(pooled, 1.0))


def _position_only(_counts: PositionCounts, theta: Floats) -> Exposed:
    """Return θ of each row, as if every session showed the item at this position."""
    return Exposed(theta, np.ones(len(theta)))


# Functions of counts and θ, by name.
EXPOSURES: dict[str, Callable[[PositionCounts, Floats], Exposed]] = {
    "policy-aware": _policy_aware,
    "position-only": _position_only,
}


def weigh_pairs(
    groups: nw.LazyFrame[Any], sessions: nw.LazyFrame[Any], places: nw.LazyFrame[Any], worth: float
) -> nw.LazyFrame[Any]:
    """Return ρ, counted clicks and clicks by chance of each query-item pair, lazily.

    Policy-aware weights for counts that stay in the engine: `groups` of `aggregation.group`, the
    `sessions` of each query, ``alpha`` and ``beta`` of each of the `places` (position and context)
    with an estimate, and the mean value of a click, `worth`. The weight of a pair is
    (clicks − by_chance) / propensity. Rows without an estimate add nothing. A pair with no other
    rows has a propensity of 1 and no clicks: it was in the ranking.
    """
    by = [name for name in ("position", "context") if name in places.collect_schema()]
    value = nw.col("value" if "value" in groups.collect_schema() else "clicks")
    is_known = ~nw.col("alpha").is_null()
    shown = nw.col("impressions")
    rows = groups.join(places, on=by, how="left").select(
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
