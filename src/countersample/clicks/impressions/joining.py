"""Counts of a log joined to the features of its items: a click log to train on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from countersample._params import choice
from countersample.clicks.bias import check_weightable
from countersample.clicks.log import ClickLog
from countersample.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample.clicks.bias import PositionBiasCurve
    from countersample.clicks.impressions.counts import PositionCounts
    from countersample.data import RankingDataset


@dataclass(frozen=True, eq=False)
class RowPropensities:
    """A propensity for each row of some `PositionCounts`; NaN where nothing was clicked."""

    value: NDArray[np.float64]


@dataclass(frozen=True)
class JoinReport:
    """What became of the clicks of a log.

    Attributes
    ----------
    n_clicks : int
        Clicks of the log.
    n_joined : int
        Clicks that are in the click log.
    no_query : int
        Clicks on queries that have no features.
    no_item : int
        Clicks on items that have none, of queries that have.
    no_propensity : int
        Clicks on items with features, at positions beyond the propensities.
    n_pairs, n_pairs_without_features : int
        Query-item pairs that were shown, and those without features, clicked or not.
    last_position : int
        The last position that has a propensity.
    """

    n_clicks: int
    n_joined: int
    no_query: int
    no_item: int
    no_propensity: int
    n_pairs: int
    n_pairs_without_features: int
    last_position: int

    @property
    def n_skipped(self) -> int:
        """Clicks that are not in the click log."""
        return self.n_clicks - self.n_joined

    def sentence(self) -> str:
        """Say what became of the clicks."""
        parts = [
            (self.no_query, "on queries without features"),
            (self.no_item, "on items without features"),
            (self.no_propensity, f"at positions beyond {self.last_position}, the last propensity"),
        ]
        said = ", ".join(f"{count:,} {what}" for count, what in parts if count)
        if not said:
            return f"all {self.n_clicks:,} clicks have features and a propensity"
        return f"{self.n_skipped:,} of {self.n_clicks:,} clicks cannot be used: {said}"

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values for JSON."""
        return asdict(self)


def join_features(
    counts: PositionCounts,
    propensities: ArrayLike | PositionBiasCurve | RowPropensities,
    dataset: RankingDataset,
    item_ids: ArrayLike | None = None,
    *,
    missing: Literal["error", "skip"] = "error",
) -> tuple[ClickLog, JoinReport]:
    """Make a click log of counts: a row for each query, item and position that was clicked.

    Parameters
    ----------
    counts : PositionCounts
    propensities : array-like, PositionBiasCurve or RowPropensities
        The propensity of position 1, 2, …; or a position-bias curve, with a method
        ``propensity(ranks)``, as estimates have; or the log's own ones.
    dataset : RankingDataset
        The features of the items, by query; its `query_ids` are the log's.
    item_ids : array-like (n_items,), optional
        The log's id of each row of the dataset; by default items are numbered from 0 in each
        query.
    missing : {"error", "skip"}
        Whether clicks without features or without a propensity are refused, or left out and
        reported.

    Examples
    --------
    >>> from countersample import RankingDataset
    >>> from countersample.clicks.impressions import PositionCounts, join_features
    >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[0, 0], qid=["a", "a"])
    >>> counts = PositionCounts.from_columns(["a", "a"], ["x", "y"], [1, 2], [1, 1])
    >>> log, report = join_features(counts, [1.0, 0.25], data, item_ids=["x", "y"])
    >>> log.item, log.weights
    (array([0, 1], dtype=int32), array([1., 4.]))
    >>> report.sentence()
    'all 2 clicks have features and a propensity'
    """
    choice("missing", missing, ("error", "skip"))
    if not counts.n_clicks:
        raise DataError("the log has no click, so there is nothing to learn from")
    query, row = match_rows(counts, dataset, item_ids)
    propensity, last = propensity_of_rows(propensities, counts)
    clicks = counts.clicks
    has_query, has_item, has_propensity = query >= 0, row >= 0, ~np.isnan(propensity)
    starts = counts.pair_starts[:-1]
    is_used = has_item & has_propensity & (clicks > 0)
    report = JoinReport(
        n_clicks=counts.n_clicks,
        n_joined=int(clicks[is_used].sum()),
        no_query=int(clicks[~has_query].sum()),
        no_item=int(clicks[has_query & ~has_item].sum()),
        no_propensity=int(clicks[has_item & ~has_propensity].sum()),
        n_pairs=len(starts),
        n_pairs_without_features=int((~has_item[starts]).sum()),
        last_position=last,
    )
    if not report.n_joined:
        raise DataError(
            f"no click has both features and a propensity: {report.sentence()}; check that "
            "query and item ids of the log and of the features mean the same"
        )
    if report.n_skipped and missing == "error":
        raise DataError(
            f"{report.sentence()}; add them, or leave those clicks out with missing='skip'"
        )
    log = ClickLog(
        query=query[is_used],
        item=row[is_used] - dataset.offsets[query[is_used]],
        propensity=propensity[is_used],
        count=clicks[is_used],
        position=counts.position[is_used],
        n_sessions=counts.n_sessions,
        fingerprint=dataset.fingerprint,
    )
    return log, report


def match_rows(
    counts: PositionCounts, dataset: RankingDataset, item_ids: ArrayLike | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the dataset's query and row of each row of counts; −1 where it has none."""
    sizes = dataset.query_sizes
    if item_ids is None:
        ids: NDArray[Any] = np.arange(dataset.n_items) - np.repeat(dataset.offsets[:-1], sizes)
    else:
        ids = np.asarray(item_ids)
        if ids.shape != (dataset.n_items,):
            raise DataError(
                f"item_ids have shape {ids.shape}, expected ({dataset.n_items},): one for each "
                "row of features"
            )
    query = _positions(dataset.query_ids, counts.query_ids, "query")[counts.query]
    distinct, code = np.unique(ids, return_inverse=True)
    item = _positions(distinct, counts.item_ids, "item")[counts.item]
    keys = np.repeat(np.arange(dataset.n_queries), sizes) * len(distinct) + code
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    twice = np.flatnonzero(keys[1:] == keys[:-1])
    if len(twice):
        row = int(order[twice[0] + 1])
        raise DataError(
            f"row {row} of the features is the second one of its query and item, expected one: "
            "drop the duplicates"
        )
    is_known = (query >= 0) & (item >= 0)
    wanted = np.where(is_known, query * len(distinct) + item, -1)
    index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return query, np.where(is_known & (keys[index] == wanted), order[index], -1)


def _positions(known: NDArray[Any], wanted: NDArray[Any], what: str) -> NDArray[np.int64]:
    """Return where each wanted id is among the known ones; −1 where it is not."""
    kinds = ["text" if ids.dtype.kind in "OUT" else "integers" for ids in (wanted, known)]
    if kinds[0] != kinds[1]:
        raise DataError(
            f"the {what} ids of the log are {kinds[0]} and those of the features are {kinds[1]}, "
            "expected one type: make them one"
        )
    order = np.argsort(known, kind="stable")
    index = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
    found = order[index]
    return np.where(known[found] == wanted, found, -1)


def propensity_of_rows(
    propensities: ArrayLike | PositionBiasCurve | RowPropensities, counts: PositionCounts
) -> tuple[NDArray[np.float64], int]:
    """Return the propensity of each row, NaN where there is none; and the last position."""
    deepest = int(counts.position.max())
    if isinstance(propensities, RowPropensities):
        if propensities.value.shape != counts.clicks.shape:
            raise DataError(
                f"there are {len(propensities.value)} propensities for {len(counts)} rows of "
                "counts: make both of the same log"
            )
        return propensities.value, deepest
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
    padded = np.append(np.full(deepest + 1, np.nan), np.nan)
    padded[1 : len(values) + 1] = values
    return padded[counts.position], len(values)
