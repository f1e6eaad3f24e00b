"""Features of what was shown, in two logs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from countersample.clicks.impressions.joining import Matched
from countersample.errors import DataError
from countersample.evaluation.resampling import add_up
from countersample.fitting.drift.logs import BUCKETS, units_of_queries
from countersample.fitting.drift.testing import Change, Rate, compare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countersample._arrays import Floats, Ints
    from countersample.clicks.impressions import FeatureTable, PositionCounts

CUTS = 9  # of the values before, at which the shares below are compared: deciles
DISTANCE = 0.05  # between the shares below a value: less is not relevant
MISSING = 0.02  # of the impressions without a value: less is not relevant


class Shown:
    """The rows of a log that have features; units are queries."""

    def __init__(self, counts: PositionCounts, features: FeatureTable) -> None:
        matched = Matched.of(counts, features.dataset, features.item_ids)
        there = matched.row >= 0
        unit = units_of_queries(counts.query_ids)[counts.query]
        shown = counts.impressions.astype(np.float64)
        self.without = Rate(add_up(unit, shown * ~there, BUCKETS), add_up(unit, shown, BUCKETS))
        self.unit, self.shown = unit[there], shown[there]
        self.row, self.features = matched.row[there], features.dataset.features

    def values(self, feature: int) -> Floats:
        """Return a feature of each row."""
        found: Floats = np.asarray(self.features[:, feature], np.float64)[self.row]
        return found

    def below(self, values: Floats, cuts: Floats) -> tuple[Floats, Floats]:
        """Return impressions at most at each cut by unit, (BUCKETS, n_cuts), and of each bin."""
        n = len(cuts) + 1
        there = ~np.isnan(values)
        place = np.searchsorted(cuts, values[there], side="left")
        cell = self.unit[there] * n + place
        by_bin = add_up(cell, self.shown[there], BUCKETS * n).reshape(BUCKETS, n)
        return np.cumsum(by_bin, axis=1), by_bin.sum(axis=0)

    def missing(self, values: Floats) -> Rate:
        """Return the share of impressions whose value is missing."""
        return Rate(
            add_up(self.unit, self.shown * np.isnan(values), BUCKETS),
            add_up(self.unit, self.shown, BUCKETS),
        )


def compare_features(
    counts: tuple[PositionCounts, PositionCounts], tables: tuple[FeatureTable, FeatureTable]
) -> Iterator[Change]:
    """Compare the features of what was shown before and after, one by one.

    A feature's change is the largest between the shares of impressions below a value, at the
    deciles of the values before, so that its scale does not matter.
    """
    names = [table.dataset.feature_names for table in tables]
    if names[0] != names[1] or tables[0].dataset.n_features != tables[1].dataset.n_features:
        raise DataError("the features before and after have different names, expected the same")
    before, after = (Shown(*each) for each in zip(counts, tables, strict=True))
    yield compare("feature", "(no features at all)", before.without, after.without,
                  measure="difference", margin=MISSING)  # fmt: skip
    for k in range(tables[0].dataset.n_features):
        name = str(k) if names[0] is None else names[0][k]
        values = before.values(k), after.values(k)
        lost = before.missing(values[0]), after.missing(values[1])
        if any(rate.above.any() for rate in lost):
            yield compare("feature", f"{name}, missing", *lost, measure="difference",
                          margin=MISSING)  # fmt: skip
        yield _moved(name, before, after, values)


def _moved(name: str, before: Shown, after: Shown, values: tuple[Floats, Floats]) -> Change:
    cuts = _deciles(values[0], before.shown)
    (old, old_bins), (new, new_bins) = before.below(values[0], cuts), after.below(values[1], cuts)
    found = [
        compare("feature", name, Rate(old[:, k], old[:, -1]), Rate(new[:, k], new[:, -1]),
                measure="difference", margin=DISTANCE)
        for k in range(len(cuts))
    ]  # fmt: skip
    if not found:  # nothing but missing values
        nothing = np.nan
        return Change("feature", name, nothing, nothing, "difference", nothing, nothing, nothing,
                      DISTANCE, None)  # fmt: skip
    largest = max(found, key=lambda each: np.nan_to_num(abs(each.change)))
    tested = [each.p_value for each in found if each.p_value is not None]
    p = min(1.0, len(tested) * min(tested)) if tested else None
    return replace(largest, p_value=p, distance=_stability(old_bins, new_bins))


def _deciles(values: Floats, shown: Floats) -> Floats:
    """Return the distinct values below which a tenth, two tenths, … of the impressions are."""
    there = ~np.isnan(values)
    order = np.argsort(values[there], kind="stable")
    until = np.cumsum(shown[there][order])
    if not len(until):
        return until
    at: Ints = np.searchsorted(until, until[-1] * np.arange(1, CUTS + 1) / (CUTS + 1))
    found: Floats = np.unique(values[there][order][np.minimum(at, len(until) - 1)])
    return found


def _stability(old: Floats, new: Floats) -> float | None:
    """Return the population stability index, Σ (p' − p)·log(p'/p) over bins."""
    if not (old.sum() and new.sum()):
        return None
    p, q = (np.maximum(bins / bins.sum(), 1e-4) for bins in (old, new))
    return float(np.sum((q - p) * np.log(q / p)))
