"""Join the counts of a log to the features of its items: a click log to train on, in memory.

The weights are computed in `exposure`; `shards` does the same in Spark.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from countersample._params import choice
from countersample.clicks.log import ClickLog
from countersample.errors import DataError
from countersample.logs.counts import check_id_kinds, find_ids, list_names
from countersample.logs.exposure import (
    EXPOSURES,
    Exposed,
    examination_of_rows,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample.clicks.bias import PositionBiasCurve
    from countersample.data import RankingDataset
    from countersample.logs.counts import PositionCounts
    from countersample.logs.exposure import ClickProbabilities


Examinable: TypeAlias = "ArrayLike | PositionBiasCurve | ClickProbabilities | RowPropensities"


@dataclass(frozen=True, eq=False)
class RowPropensities:
    """A propensity for each row of some `PositionCounts`; NaN for rows without a click."""

    value: NDArray[np.float64]


@dataclass(frozen=True)
class JoinReport:
    """How many clicks of a log can be used, and why others cannot.

    Attributes
    ----------
    n_clicks, n_joined : int
        Clicks of the log, and those that are in the click log.
    no_query, no_item : int
        Clicks on queries without features, and on items without features of other queries.
    no_propensity, no_context : int
        Clicks on items with features, at positions or in contexts without propensities.
    n_pairs, n_pairs_without_features : int
        Query-item pairs that were shown, and those without features, clicked or not.
    last_position : int
        The last position that has a propensity.
    contexts : tuple of str
        The contexts without propensities.
    """

    n_clicks: int
    n_joined: int
    no_query: int
    no_item: int
    no_propensity: int
    n_pairs: int
    n_pairs_without_features: int
    last_position: int
    no_context: int = 0
    contexts: tuple[str, ...] = ()

    @property
    def n_skipped(self) -> int:
        """Clicks that are not in the click log."""
        return self.n_clicks - self.n_joined

    def sentence(self) -> str:
        """Describe how many clicks cannot be used, and why."""
        reasons = [
            (self.no_query, "on queries without features"),
            (self.no_item, "on items without features"),
            (self.no_propensity, f"at positions beyond {self.last_position}, the last propensity"),
            (self.no_context, f"in contexts without propensities ({list_names(self.contexts)})"),
        ]
        parts = ", ".join(f"{count:,} {reason}" for count, reason in reasons if count)
        if not parts:
            return f"all {self.n_clicks:,} clicks have features and a propensity"
        return f"{self.n_skipped:,} of {self.n_clicks:,} clicks cannot be used: {parts}"

    def check(self, missing: Literal["error", "skip"] = "skip") -> None:
        """Reject a log without a click that can be used, or with some that cannot if required."""
        if not self.n_clicks:
            raise DataError("the log has no click, so there is nothing to learn from")
        if not self.n_joined:
            raise DataError(
                f"no click has both features and a propensity: {self.sentence()}; check that "
                "query and item ids of the log and of the features match"
            )
        if self.n_skipped and missing == "error":
            raise DataError(
                f"{self.sentence()}; add them, or leave those clicks out with missing='skip'"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Matched:
    """Counts of a log with the features of their items.

    ``query`` and ``row`` are the query and the row of the dataset for each row of the counts, −1 if
    there is none.
    """

    counts: PositionCounts
    dataset: RankingDataset
    query: Ints
    row: Ints

    @classmethod
    def of(
        cls, counts: PositionCounts, dataset: RankingDataset, item_ids: ArrayLike | None = None
    ) -> Matched:
        """Look up the items of a log in a dataset."""
        return cls(counts, dataset, *_match_rows(counts, dataset, item_ids))

    @property
    def sessions(self) -> Floats:
        """S_q of each query of the counts that is evaluated, and 0 for others, (n_queries,).

        These queries showed an item with features. If items without a click are counted together,
        it is not known whether one of them has features, and all queries with features count.
        """
        rows = self.row >= 0 if self.counts.rest is None else self.query >= 0
        is_evaluated = np.zeros(len(self.counts.query_ids), np.bool_)
        is_evaluated[self.counts.query[rows]] = True
        return np.where(is_evaluated, self.counts.sessions, 0.0)

    def with_features(self) -> tuple[PositionCounts, NDArray[np.float32]]:
        """Return the counts of items with features, and the features of each query-item pair."""
        rows = self.row >= 0
        counts = self.counts.take(rows)
        return counts, self.dataset.features[self.row[rows][counts.pair_starts[:-1]]]

    def shown(
        self, propensities: Examinable, *, exposure: str = "policy-aware"
    ) -> tuple[ClickLog, JoinReport, Ints]:
        """Return the log of everything shown that has features.

        Items that were never clicked have a count of 0. Items at places without a known examination
        have a count and an examination of 0: they were in the ranking, but their clicks are not
        used. The report counts the clicks that are not used. The last array has the row of `counts`
        for each row of the log, (n_rows,).
        """
        counts = self.counts
        weigh = EXPOSURES[choice("exposure", exposure, EXPOSURES)]
        theta: Floats | None = None
        by_chance: Floats | None = None
        if isinstance(propensities, RowPropensities):
            value = propensities.value
            if value.shape != counts.clicks.shape:
                raise DataError(
                    f"there are {len(value)} propensities for {len(counts)} rows of counts: make "
                    "both of the same log"
                )
            # Propensities, not examinations: clicks have one, and others need none.
            exposed = Exposed(np.where(counts.clicks > 0, value, 1.0), np.ones(len(counts)))
            last_position = int(counts.position.max())
        else:
            theta, beta, last_position = examination_of_rows(propensities, counts)
            exposed = weigh(counts, theta)
            if np.any(beta > 0):  # clicks by chance have the mean value
                mean_value = counts.value.sum() / max(1, counts.n_clicks)
                by_chance = mean_value * counts.impressions * beta
        has_propensity = (self.row >= 0) & ~np.isnan(exposed.propensity)
        report = self._report(has_propensity, last_position)
        rows = np.flatnonzero(self.row >= 0)
        query, is_used, share = self.query[rows], has_propensity[rows], exposed.share[rows]

        def use(column: Floats | None) -> Floats | None:
            return None if column is None else np.where(is_used, column[rows] * share, 0.0)

        has_values = (counts.value != counts.clicks).any()
        log = ClickLog(
            query=query,
            item=self.row[rows] - self.dataset.offsets[query],
            propensity=np.where(is_used, exposed.propensity[rows], 1.0),
            count=use(counts.value),
            by_chance=use(by_chance),
            events=use(counts.clicks.astype(np.float64)) if has_values else None,
            position=counts.position[rows],
            impressions=counts.impressions[rows],
            examination=use(theta),
            sessions=counts.sessions[counts.query[rows]],
            n_sessions=None if counts.rest is None else float(self.sessions.sum()),
            fingerprint=self.dataset.fingerprint,
        )
        return log, report, rows

    def _report(self, has_propensity: NDArray[np.bool_], last_position: int) -> JoinReport:
        """Count the clicks that can be used; reject a log without any."""
        clicks, starts = self.counts.clicks, self.counts.pair_starts[:-1]
        has_query, has_item = self.query >= 0, self.row >= 0
        context, n_contexts = self.counts.context, len(self.counts.context_ids)
        has_curve = np.bincount(context[has_propensity], minlength=n_contexts) > 0
        is_needed = np.bincount(context[has_item], minlength=n_contexts) > 0
        no_curve = has_item & ~has_curve[context]
        report = JoinReport(
            n_clicks=self.counts.n_clicks,
            n_joined=int(clicks[has_propensity].sum()),
            no_query=int(clicks[~has_query].sum()),
            no_item=int(clicks[has_query & ~has_item].sum()),
            no_propensity=int(clicks[has_item & ~has_propensity & ~no_curve].sum()),
            no_context=int(clicks[no_curve].sum()),
            n_pairs=len(starts),
            n_pairs_without_features=int((~has_item[starts]).sum()),
            last_position=last_position,
            contexts=tuple(self.counts.context_ids[is_needed & ~has_curve].tolist()),
        )
        report.check()
        return report


def join_features(
    counts: PositionCounts,
    propensities: Examinable,
    dataset: RankingDataset,
    item_ids: ArrayLike | None = None,
    *,
    exposure: str = "policy-aware",
    missing: Literal["error", "skip"] = "error",
    keep: Literal["clicked", "shown"] = "clicked",
) -> tuple[ClickLog, JoinReport]:
    """Make a click log of counts: one row per query, item and position with clicks.

    Parameters
    ----------
    counts : PositionCounts
    propensities : array-like, PositionBiasCurve, RowPropensities, or with ``examination_of``
        The probability that position 1, 2, … is examined; or a position-bias curve, with a method
        ``propensity(ranks)``; or an estimate by context or with trust bias; or the log's own
        propensities, which are used as they are.
    dataset : RankingDataset
        The features of the items, by query; its `query_ids` are the log's.
    item_ids : array-like (n_items,), optional
        The log's id of each row of the dataset; by default items are numbered from 0 in each
        query.
    exposure : {"policy-aware", "position-only"}
        Whether a click weighs 1/ρ, with ρ the probability that its item is examined in a session of
        its query (see `countersample.logs.exposure`), or 1/θ of its position, which is right only
        if every session shows an item at the same position.
    missing : {"error", "skip"}
        Whether clicks without features or without a propensity raise an error, or are left out and
        reported.
    keep : {"clicked", "shown"}
        Whether the log has rows for clicks alone, which is enough for a weighted sum over clicks,
        or for everything shown, with `impressions`: for doubly robust estimates and training.

    Examples
    --------
    Item y was shown in one of two sessions, at position 2, which half of the users examine:

    >>> from countersample import RankingDataset
    >>> from countersample.logs import PositionCounts, join_features
    >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[0, 0], qid=["a", "a"])
    >>> counts = PositionCounts.from_columns(["a", "a", "a"], ["x", "x", "y"], [1, 1, 2], [1, 0, 1])
    >>> log, report = join_features(counts, [1.0, 0.5], data, item_ids=["x", "y"])
    >>> log.item, log.weights  # 1 / (0.5 / 2)
    (array([0, 1], dtype=int32), array([1., 4.]))
    >>> report.sentence()
    'all 2 clicks have features and a propensity'
    """
    choice("missing", missing, ("error", "skip"))
    choice("keep", keep, ("clicked", "shown"))
    if keep == "shown" and (counts.rest is not None or isinstance(propensities, RowPropensities)):
        raise DataError(
            "keep is 'shown', expected a log with each item that was shown and its examination: "
            "these counts combine all items without a click, or the propensities are the log's "
            "own, which only clicks have; take keep='clicked'"
        )
    shown, report, _ = Matched.of(counts, dataset, item_ids).shown(propensities, exposure=exposure)
    report.check(missing)
    return shown if keep == "shown" else clicked(shown, counts.n_sessions), report


def clicked(shown: ClickLog, n_sessions: float | None = None) -> ClickLog:
    """Return the rows that have a weight, for training, without what else was shown."""
    return shown.weighted().replace(impressions=None, n_sessions=n_sessions)


def _match_rows(
    counts: PositionCounts, dataset: RankingDataset, item_ids: ArrayLike | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the dataset's query and row of each row of counts; −1 if it has none."""
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
    query = _find_ids(dataset.query_ids, counts.query_ids, "query")[counts.query]
    distinct, code = np.unique(ids, return_inverse=True)
    item = _find_ids(distinct, counts.item_ids, "item")[counts.item]
    keys = np.repeat(np.arange(dataset.n_queries), sizes) * len(distinct) + code
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    twice = np.flatnonzero(keys[1:] == keys[:-1])
    if len(twice):
        row = int(order[twice[0] + 1])
        query_id = dataset.query_ids[np.searchsorted(dataset.offsets, row, "right") - 1]
        raise DataError(
            f"the features have two rows of item {ids[row]} of query {query_id}, expected one: "
            "drop the duplicates"
        )
    has_ids = (query >= 0) & (item >= 0)
    place = find_ids(np.where(has_ids, query * len(distinct) + item, -1), keys)
    return query, np.where(place < 0, -1, order[place])


def _find_ids(known: NDArray[Any], ids: NDArray[Any], kind: str) -> NDArray[np.int64]:
    """Return the position of each id of the log among the ids of the features; −1 if absent."""
    is_text, known_is_text = (each.dtype.kind in "OUT" for each in (ids, known))
    check_id_kinds(f"{kind}_id", ("the log", is_text), ("the features", known_is_text))
    order = np.argsort(known, kind="stable")
    place = find_ids(ids, known[order])
    return np.where(place < 0, -1, order[place])
