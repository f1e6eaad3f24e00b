"""The pairs of query and item that a log shows, and the features that it has of them itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from countersample.clicks.impressions import aggregation
from countersample.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from countersample._arrays import Floats
    from countersample.clicks.impressions.handle import Impressions

_NOTABLE = 0.01  # of the pairs: where a feature differs in more of them, it is told


class PairsOfLog(NamedTuple):
    """Pairs that were shown, sorted by their ids, with the features of the log.

    A feature is the mean over the impressions of the pair that have a value; ``warnings`` say of
    which features that hides much.
    """

    table: pa.Table
    warnings: tuple[str, ...]


def pairs_of(log: Impressions) -> PairsOfLog:
    """Find the pairs of a log where it is, in one aggregation."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    found = log.collect(aggregation.pairs(log.frame))
    found = found.sort_by([(name, "ascending") for name in aggregation.PAIR])
    table, warnings = found.select(aggregation.PAIR), []
    for number, name in enumerate(log.features):
        total, n, low, high = (
            found[f"{column}_{number}"].cast(pa.float64()).to_numpy()
            for column in ("sum", "n", "low", "high")
        )
        if not n.any():
            raise DataError(f"{log.source}: the feature {name!r} of the log has no number in it")
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(n > 0, total / n, np.nan)
        if name in table.column_names:
            raise DataError(f"{log.source}: {name!r} is an id of the log, expected a feature")
        table = table.append_column(name, pa.array(mean, from_pandas=True))
        warnings += _of_changes(name, mean, high - low)
    return PairsOfLog(table, tuple(warnings))


def _of_changes(name: str, mean: Floats, spread: Floats) -> list[str]:
    """Say how much a feature differs between impressions of the same query and item."""
    is_known = ~np.isnan(mean)
    changes = spread[is_known] > 0
    if changes.mean() <= _NOTABLE:
        return []
    between = float(mean[is_known].std())
    within = (
        f", by {spread[is_known][changes].mean() / between:.2g} standard deviations of what "
        "pairs have on average,"
        if between
        else ""
    )
    told = (
        f"The log's own {name!r} differs{within} between impressions of the same query and item in "
        f"{changes.mean():.0%} of the pairs. A pair has the mean: what changes from user to user "
        "or from day to day is not learned from."
    )
    return [told]
