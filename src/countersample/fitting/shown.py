"""A log joined to features: what was clicked to learn from, what was shown to judge by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from countersample.clicks import ClickLog
from countersample.clicks.impressions import PositionCounts, RowPropensities
from countersample.clicks.impressions.joining import match_rows, propensity_of_rows

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Ints
    from countersample.clicks.bias import PositionBiasCurve
    from countersample.clicks.impressions import FeatureTable


@dataclass(frozen=True, eq=False)
class Matched:
    """Counts of a log with the features of their items."""

    counts: PositionCounts
    table: FeatureTable
    query: Ints  # of the table, for each row of counts; −1 where there is none
    row: Ints  # likewise

    @classmethod
    def of(cls, counts: PositionCounts, table: FeatureTable) -> Matched:
        """Look up the items of a log in a table of features."""
        return cls(counts, table, *match_rows(counts, table.dataset, table.item_ids))

    def with_features(self) -> tuple[PositionCounts, NDArray[np.float32]]:
        """Return the counts of items that have features, and those of each query-item pair."""
        kept = self.row >= 0
        known = self.counts.take(kept)
        return known, self.table.dataset.features[self.row[kept][known.pair_starts[:-1]]]

    def shown(
        self, propensities: ArrayLike | PositionBiasCurve | RowPropensities
    ) -> tuple[ClickLog, Ints]:
        """Return the log of everything shown that has features and a propensity.

        What was never clicked has a count of 0. The second is the row of `counts` that each row of
        the log is, (n_rows,).
        """
        counts = self.counts
        propensity, _ = propensity_of_rows(propensities, counts)
        if isinstance(propensities, RowPropensities):  # known where clicked, not asked elsewhere
            propensity = np.where(counts.clicks > 0, propensity, 1.0)
        rows = np.flatnonzero((self.row >= 0) & ~np.isnan(propensity))
        dataset, query = self.table.dataset, self.query[rows]
        log = ClickLog(
            query=query,
            item=self.row[rows] - dataset.offsets[query],
            propensity=propensity[rows],
            count=counts.clicks[rows],
            position=counts.position[rows],
            impressions=counts.impressions[rows],
            fingerprint=dataset.fingerprint,
        )
        return log, rows
