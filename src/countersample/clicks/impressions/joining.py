"""Counts of a log joined to the features of its items: a click log to train on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from countersample._params import choice
from countersample.clicks.impressions.counts import named
from countersample.clicks.impressions.exposure import (
    EXPOSURES,
    Examination,
    Exposed,
    examination_of_rows,
)
from countersample.clicks.log import ClickLog
from countersample.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats, Ints
    from countersample.clicks.bias import PositionBiasCurve
    from countersample.clicks.impressions.counts import PositionCounts
    from countersample.clicks.impressions.exposure import ClickProbabilities
    from countersample.data import RankingDataset


Examinable: TypeAlias = "ArrayLike | PositionBiasCurve | ClickProbabilities | RowPropensities"


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
    no_context : int
        Clicks on items with features, in contexts that have no propensities.
    n_pairs, n_pairs_without_features : int
        Query-item pairs that were shown, and those without features, clicked or not.
    last_position : int
        The last position that has a propensity.
    contexts : tuple of str
        The contexts that have none.
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
        """Say what became of the clicks."""
        parts = [
            (self.no_query, "on queries without features"),
            (self.no_item, "on items without features"),
            (self.no_propensity, f"at positions beyond {self.last_position}, the last propensity"),
            (self.no_context, f"in contexts without propensities ({named(self.contexts)})"),
        ]
        said = ", ".join(f"{count:,} {what}" for count, what in parts if count)
        if not said:
            return f"all {self.n_clicks:,} clicks have features and a propensity"
        return f"{self.n_skipped:,} of {self.n_clicks:,} clicks cannot be used: {said}"

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Matched:
    """Counts of a log with the features of their items."""

    counts: PositionCounts
    dataset: RankingDataset
    query: Ints  # of the dataset, for each row of counts; −1 where there is none
    row: Ints  # likewise

    @classmethod
    def of(
        cls, counts: PositionCounts, dataset: RankingDataset, item_ids: ArrayLike | None = None
    ) -> Matched:
        """Look up the items of a log in a dataset."""
        return cls(counts, dataset, *_match_rows(counts, dataset, item_ids))

    @property
    def sessions(self) -> Floats:
        """S_q of each query of the counts that is judged, and 0 of others, (n_queries,).

        Those that showed an item with features. Where items without a click are counted together,
        whether one of them has features is not known, and all queries that have some are.
        """
        kept = self.row >= 0 if self.counts.rest is None else self.query >= 0
        is_judged = np.zeros(len(self.counts.query_ids), np.bool_)
        is_judged[self.counts.query[kept]] = True
        return np.where(is_judged, self.counts.sessions, 0.0)

    def with_features(self) -> tuple[PositionCounts, NDArray[np.float32]]:
        """Return the counts of items that have features, and those of each query-item pair."""
        kept = self.row >= 0
        known = self.counts.take(kept)
        return known, self.dataset.features[self.row[kept][known.pair_starts[:-1]]]

    def shown(
        self, propensities: Examinable, *, exposure: str = "policy-aware"
    ) -> tuple[ClickLog, JoinReport, Ints]:
        """Return the log of everything shown that has features.

        What was never clicked has a count of 0. So has what was shown where its examination is not
        known: it has none, and its clicks are not used, but it was in the ranking. The second says
        what became of the clicks, and the third is the row of `counts` that each row of the log is,
        (n_rows,).
        """
        counts = self.counts
        weigh = EXPOSURES[choice("exposure", exposure, EXPOSURES)]
        if isinstance(propensities, RowPropensities):
            # They are propensities, not examinations, known where clicked and not asked elsewhere.
            found = _own(propensities, counts)
            exposed = Exposed(np.where(counts.clicks > 0, found.alpha, 1.0), np.ones(len(counts)))
            theta, by_chance = None, None
        else:
            found = examination_of_rows(propensities, counts)
            exposed, theta = weigh(counts, found.alpha), found.alpha
            by_chance = None
            if np.any(found.beta > 0):  # clicks, each of which is worth the mean
                worth = counts.value.sum() / max(1, counts.n_clicks)
                by_chance = worth * counts.impressions * found.beta
        is_known = (self.row >= 0) & ~np.isnan(exposed.propensity)
        report = self._report(is_known, found.last_position)
        rows = np.flatnonzero(self.row >= 0)
        query, known, share = self.query[rows], is_known[rows], exposed.share[rows]

        def used(column: Floats | None) -> Floats | None:
            return None if column is None else np.where(known, column[rows] * share, 0.0)

        is_worth_more = (counts.value != counts.clicks).any()
        log = ClickLog(
            query=query,
            item=self.row[rows] - self.dataset.offsets[query],
            propensity=np.where(known, exposed.propensity[rows], 1.0),
            count=used(counts.value),
            by_chance=used(by_chance),
            events=used(counts.clicks.astype(np.float64)) if is_worth_more else None,
            position=counts.position[rows],
            impressions=counts.impressions[rows],
            examination=used(theta),
            sessions=counts.sessions[counts.query[rows]],
            n_sessions=None if counts.rest is None else float(self.sessions.sum()),
            fingerprint=self.dataset.fingerprint,
        )
        return log, report, rows

    def _report(self, is_known: NDArray[np.bool_], last_position: int) -> JoinReport:
        """Say what became of the clicks; refuse a log none of whose clicks can be used."""
        clicks, starts = self.counts.clicks, self.counts.pair_starts[:-1]
        has_query, has_item = self.query >= 0, self.row >= 0
        contexts = self.counts.context
        n_contexts = len(self.counts.context_ids)
        told = np.bincount(contexts[is_known], minlength=n_contexts) > 0
        asked = np.bincount(contexts[has_item], minlength=n_contexts) > 0
        no_curve = has_item & ~told[contexts]
        report = JoinReport(
            n_clicks=self.counts.n_clicks,
            n_joined=int(clicks[is_known].sum()),
            no_query=int(clicks[~has_query].sum()),
            no_item=int(clicks[has_query & ~has_item].sum()),
            no_propensity=int(clicks[has_item & ~is_known & ~no_curve].sum()),
            no_context=int(clicks[no_curve].sum()),
            n_pairs=len(starts),
            n_pairs_without_features=int((~has_item[starts]).sum()),
            last_position=last_position,
            contexts=tuple(self.counts.context_ids[asked & ~told].tolist()),
        )
        refuse_useless(report)
        return report


def refuse_useless(report: JoinReport) -> None:
    """Refuse a log none of whose clicks can be used."""
    if not report.n_clicks:
        raise DataError("the log has no click, so there is nothing to learn from")
    if not report.n_joined:
        raise DataError(
            f"no click has both features and a propensity: {report.sentence()}; check that "
            "query and item ids of the log and of the features mean the same"
        )


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
    """Make a click log of counts: a row for each query, item and position that was clicked.

    Parameters
    ----------
    counts : PositionCounts
    propensities : array-like, PositionBiasCurve, RowPropensities, or with ``examination_of``
        How likely position 1, 2, … is examined; or a position-bias curve, with a method
        ``propensity(ranks)``; or an estimate by context or with trust bias; or the log's own
        propensities, which are used as they are.
    dataset : RankingDataset
        The features of the items, by query; its `query_ids` are the log's.
    item_ids : array-like (n_items,), optional
        The log's id of each row of the dataset; by default items are numbered from 0 in each
        query.
    exposure : {"policy-aware", "position-only"}
        Whether a click weighs 1/ρ, with ρ the probability that its item is examined in a session of
        its query (see `countersample.clicks.impressions.exposure`), or 1/θ of its position, which
        is right only where every session shows an item at the same position.
    missing : {"error", "skip"}
        Whether clicks without features or without a propensity are refused, or left out and
        reported.
    keep : {"clicked", "shown"}
        Whether only what was clicked has rows, which is all that a weighted sum over clicks needs,
        or everything that was shown, with `impressions`: for doubly robust estimates and training.

    Examples
    --------
    Item y was shown in one of two sessions, at position 2, where half of the users look:

    >>> from countersample import RankingDataset
    >>> from countersample.clicks.impressions import PositionCounts, join_features
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
            "keep is 'shown', expected a log that tells each item that was shown and how likely it "
            "is examined there: these counts have items without a click together, or the "
            "propensities are the log's own, of clicks alone; take keep='clicked'"
        )
    shown, report, _ = Matched.of(counts, dataset, item_ids).shown(propensities, exposure=exposure)
    if report.n_skipped and missing == "error":
        raise DataError(
            f"{report.sentence()}; add them, or leave those clicks out with missing='skip'"
        )
    return shown if keep == "shown" else clicked(shown, counts.n_sessions), report


def clicked(shown: ClickLog, n_sessions: float | None = None) -> ClickLog:
    """Return what is learned from: the rows that have a weight, without what else was shown."""
    return shown.weighted().replace(impressions=None, n_sessions=n_sessions)


def _own(propensities: RowPropensities, counts: PositionCounts) -> Examination:
    if propensities.value.shape != counts.clicks.shape:
        raise DataError(
            f"there are {len(propensities.value)} propensities for {len(counts)} rows of "
            "counts: make both of the same log"
        )
    return Examination(propensities.value, np.zeros(len(counts)), int(counts.position.max()))


def _match_rows(
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
        of_query = dataset.query_ids[np.searchsorted(dataset.offsets, row, "right") - 1]
        raise DataError(
            f"the features have two rows of item {ids[row]} of query {of_query}, expected one: "
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
