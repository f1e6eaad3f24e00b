"""The relevance of each query and item of a log, with intervals.

An item that was shown n times, each time at a position where users click with probability
β + α·r, has clicks of the mean B + E·r, with B = Σβ and E = Σα over its impressions: E is its
**exposure**, the number of times it was examined, as far as is known. So

    r̂ = (clicks − B) / E

is the relevance of the item, the probability of a click where it is examined at the first position.
It is the mean weight of a session, as all else here weighs clicks (`clicks/impressions/exposure`).

Intervals are exact: Clopper and Pearson's for the mean of n impressions, (B + E·r) / n. Clicks
at several positions vary less than those of n impressions of one probability (Hoeffding, 1956), so
it holds the truth at least as often as it says. Where propensities are estimated, E is, too: ends
are moved apart by how much log E varies over propensities that were estimated again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample.clicks.impressions.exposure import examination_of_rows
from countersample.evaluation.resampling import add_up
from countersample.fitting.intervals import thetas_of_draws

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from countersample._arrays import Floats, Ints
    from countersample.clicks.impressions import PositionCounts
    from countersample.fitting.propensity_source import PropensitySource


class Estimated(NamedTuple):
    """The relevance of each query-item pair of some counts, each (n_pairs,)."""

    relevance: Floats  # NaN without exposure
    low: Floats
    high: Floats
    clicks: Ints
    impressions: Ints
    exposure: Floats


def relevance_of_pairs(
    counts: PositionCounts, source: PropensitySource, *, confidence: float
) -> tuple[Estimated, int]:
    """Return the relevance of each pair of counts, and how many clicks have no propensity."""
    found = examination_of_rows(source.propensities, counts)  # type: ignore[arg-type]
    is_known = ~np.isnan(found.alpha)
    starts = counts.pair_starts[:-1]

    def total(column: NDArray[Any]) -> NDArray[Any]:
        added: NDArray[Any] = np.add.reduceat(np.where(is_known, column, 0), starts)
        return added

    clicks, shown = total(counts.clicks), total(counts.impressions)
    exposure = total(counts.impressions * found.alpha)
    by_chance = total(counts.impressions * found.beta)
    spread = np.zeros(len(starts))
    if source.draws is not None:
        spread = _spread(counts, found.alpha, source.draws.curves)
    low, high = _ends(clicks, shown, spread, confidence, len(counts.query_ids))

    def relevance(mean: NDArray[Any]) -> Floats:
        found: Floats = np.full(len(starts), np.nan)
        np.divide(mean - by_chance, exposure, out=found, where=exposure > 0)
        return found

    estimated = Estimated(
        relevance=np.clip(relevance(clicks), 0.0, 1.0),
        low=np.clip(relevance(shown * low.mean) / low.factor, 0.0, 1.0),
        high=np.clip(relevance(shown * high.mean) * high.factor, 0.0, 1.0),
        clicks=clicks,
        impressions=shown,
        exposure=exposure,
    )
    return estimated, int(counts.clicks[~is_known].sum())


class _End(NamedTuple):
    mean: Floats  # of an impression's clicks
    factor: Floats  # by which the end moves outwards, as propensities are not sure


def _ends(
    clicks: Ints, shown: Ints, spread: Floats, confidence: float, n_queries: int
) -> tuple[_End, _End]:
    """Return the ends of the interval of Clopper and Pearson, and how far they are moved.

    A log's uncertainty and that of its propensities are independent for one pair of many, so that
    squares add, about the median of each end (the recovery of variances of Zou and Donner, 2008):
    w becomes √(w² + (z·σ)²), with w from the median to the end and σ that of log E.
    """
    from scipy.special import betaincinv  # noqa: PLC0415 (heavy, only where used)
    from scipy.stats import t  # noqa: PLC0415

    tail = (1 - confidence) / 2
    z = float(t.isf(tail, max(1, n_queries - 1)))
    is_clicked, is_missed = clicks > 0, clicks < shown

    def least(share: float) -> Floats:
        found = betaincinv(np.maximum(clicks, 1), shown - clicks + 1, share)
        return np.where(is_clicked, found, 0.0)

    def most(share: float) -> Floats:
        found = betaincinv(clicks + 1, np.maximum(shown - clicks, 1), share)
        return np.where(is_missed, found, 1.0)

    def end(mean: Floats, median: Floats) -> _End:
        width = np.zeros(len(mean))
        np.log(np.divide(mean, median, out=np.ones(len(mean)), where=mean > 0), out=width)
        width = np.abs(width)
        return _End(mean, np.exp(np.hypot(width, z * spread) - width))

    return end(least(tail), least(0.5)), end(most(1 - tail), most(0.5))


def _spread(counts: PositionCounts, point: Floats, curves: Mapping[str, Floats]) -> Floats:
    """Return the standard deviation of log E of each pair over draws of propensities."""
    starts = counts.pair_starts
    pair, n_pairs = np.repeat(np.arange(len(starts) - 1), np.diff(starts)), len(starts) - 1
    known = np.flatnonzero(~np.isnan(point))
    part, pair, point = counts.take(known), pair[known], point[known]
    once = np.log(np.maximum(add_up(pair, part.impressions * point, n_pairs), 1e-300))
    total, squares, n = np.zeros(n_pairs), np.zeros(n_pairs), 0
    for theta in thetas_of_draws(part, point, dict(curves)):
        exposure = add_up(pair, part.impressions * theta, n_pairs)
        off = np.log(np.maximum(exposure, 1e-300)) - once
        total, squares, n = total + off, squares + off**2, n + 1
    spread: Floats = np.sqrt(np.maximum(squares / n - (total / n) ** 2, 0.0))
    return spread
