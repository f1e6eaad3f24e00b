"""Rows of a click log on the same query and item, merged into one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from countersample._arrays import Floats
    from countersample.clicks.log import ClickLog


def merged_pairs(log: ClickLog) -> dict[str, ArrayLike | None]:
    """Return the columns of a log with a row a pair, whose weight is the sum of those merged.

    The propensity is the (harmonic) mean over what was counted, by chance or not.
    """
    pairs = (log.query.astype(np.int64) << 32) | log.item
    keys, member = np.unique(pairs, return_inverse=True)

    def total(column: Floats) -> Floats:
        return np.bincount(member, column).astype(np.float64)

    counted = log.clicks if log.by_chance is None else log.clicks + log.by_chance
    kept = total(counted) > 0
    count = total(log.clicks)[kept]
    propensity = np.minimum(total(counted)[kept] / total(counted / log.propensity)[kept], 1.0)
    by_chance = None
    if log.by_chance is not None:
        weight = total(log.weights)[kept]
        # Where propensities differ, too much of the count may seem to be by chance.
        too_heavy = weight * propensity > count
        propensity = np.where(too_heavy, count / np.where(too_heavy, weight, 1.0), propensity)
        by_chance = np.maximum(count - weight * propensity, 0.0)
    return {
        "query": keys[kept] >> 32,
        "item": keys[kept] & 0xFFFFFFFF,
        "propensity": propensity,
        "count": count,
        "by_chance": by_chance,
    }
