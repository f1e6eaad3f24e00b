"""Which positions a log joins to the reference, and the words for those that it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from countersample.clicks.impressions.counts import ranges
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample._arrays import Bools, Floats, Ints
    from countersample.propensity.cells import SharedPairs

MANY = 20  # queries: that none of so many is drawn happens in e⁻²⁰ of resamples


class UnsupportedError(DataError):
    """A log that does not support a method, and the depth below which it might.

    `deepest` is a bound: at no depth beyond it is the method supported either. Whether it is at
    `deepest` itself is found by trying.
    """

    def __init__(self, reason: str, deepest: int) -> None:
        super().__init__(reason)
        self.deepest = deepest


def refuse_zero(index: int, reason: str) -> None:
    """Refuse a position whose propensity would be 0, with the reason."""
    raise UnsupportedError(
        f"{reason.format(index + 1)}, so its propensity would be 0, which cannot be weighted: "
        "take a longer log",
        deepest=index,
    )


def refuse_gaps(weight: Floats, reference: int) -> None:
    """Refuse positions that no pair connects to the reference, naming the gap.

    weight is that of `SharedPairs`, (K, K), and 0 for those that the method does not use.
    """
    refuse_split(
        weight > 0,
        reference,
        "no query-item pair was shown both in {0} and in {1}",
        "shuffle or swap results for a share of the traffic",
        "weak",
    )


def refuse_one_sided(pairs: SharedPairs, reference: int) -> None:
    """Refuse gaps, and positions whose clicks do not lead to the reference and back.

    If no pair shown at positions inside a group and outside of it was clicked on one of the two
    sides, the likelihood grows for ever as the one side goes to 0: there is a maximum where, and
    only where, the graph with an edge from j to k for clicks[j, k] > 0 is strongly connected (as
    Ford found for paired comparisons, 1957).
    """
    clicks, weight = pairs.totals()
    refuse_gaps(weight, reference)
    unclicked = clicks.sum(axis=1) == 0
    if unclicked.any():
        refuse_zero(
            int(unclicked.argmax()),
            "no query-item pair that was also shown elsewhere was clicked at position {0}",
        )
    refuse_split(
        clicks > 0,
        reference,
        "no query-item pair that was shown both in {0} and in {1} was clicked in each",
        "take a longer log",
        "strong",
    )


def refuse_split(
    edges: Bools, reference: int, gap: str, advice: str, connection: Literal["weak", "strong"]
) -> None:
    """Refuse positions that edges, (K, K), do not connect to the reference."""
    group = csgraph.connected_components(sparse.csr_array(edges), connection=connection)[1]
    inside = group == group[reference]
    if inside.all():
        return
    first, rest = np.flatnonzero(inside), np.flatnonzero(~inside)
    raise UnsupportedError(
        f"{gap.format(positions_text(first), positions_text(rest))}, so how their propensities "
        f"compare is not known: {advice}",
        # Fewer positions connect no more: the first that is outside stays outside.
        deepest=int(rest[0]),
    )


def connected(clicks: Floats, reference: int) -> Bools:
    """Return which positions clicks join to the reference, there and back, (n_resamples, K).

    As in `refuse_one_sided`, for many at once. clicks are (n_resamples, K, K).
    """
    edges = clicks > 0
    there, back = _reached(edges, reference), _reached(edges.transpose(0, 2, 1), reference)
    return there & back


def _reached(edges: Bools, reference: int) -> Bools:
    reached = np.zeros(edges.shape[:2], np.bool_)
    reached[:, reference] = True
    while True:
        more = reached | (reached[:, :, None] & edges).any(axis=1)
        if (more == reached).all():
            return reached
        reached = more


def marked(curves: Floats, clicks: Floats, weight: Floats, reference: int) -> Floats:
    """Return the curves with 0 where no shared pair was clicked, NaN where nothing is known.

    curves are (n_resamples, K); clicks and weight are those of `SharedPairs`, (n_resamples, K, K).
    """
    is_clicked = clicks.sum(axis=2) > 0
    is_shared = (weight * is_clicked[:, None, :]).any(axis=2)  # with a position that was clicked
    unknown = np.where(~is_clicked & is_shared, 0.0, np.nan)
    found = np.where(connected(clicks, reference), curves, unknown)
    found[~is_clicked[:, reference]] = np.nan
    return found


def lost_of(pairs: SharedPairs, weights: Floats, reference: int) -> Bools:
    """Return which positions are unknown in each resample, as `marked` has it, (n, K)."""
    clicks, weight = pairs.sums(weights)
    return np.isnan(marked(np.ones(clicks.shape[:2]), clicks, weight, reference))


def is_surely_connected(pairs: SharedPairs, reference: int) -> bool:
    """Tell whether clicks of many queries join all positions, so that every resample does."""
    return bool(connected(pairs.carried(MANY)[None], reference).all())


def positions_text(indices: Sequence[int] | Ints) -> str:
    """Return "position 3" or "positions 1–3, 5" for positions from 0."""
    noun = "positions" if len(indices) > 1 else "position"
    return f"{noun} {ranges(np.asarray(indices) + 1)}"
