"""A click log: what was clicked, and how likely each click's item was to be examined."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from countersample._frames import Tabular
from countersample._params import choice, number, whole_number
from countersample.clicks._columns import as_codes, as_indices, as_numbers, check_rows
from countersample.clicks._log_files import read_log, write_log
from countersample.clicks._merging import concatenated, merged_pairs
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    from countersample.clicks.impressions import Impressions, PositionCounts
    from countersample.clicks.impressions.joining import Examinable
    from countersample.data import RankingDataset

_COLUMNS = (
    "query", "item", "propensity", "count", "by_chance", "events", "session", "position",
    "impressions", "examination", "sessions",
)  # fmt: skip
_FACTS = ("n_sessions", "fingerprint")


class ClickLog(Tabular):
    """Clicks on the items of a dataset, a row a click (or several alike).

    Training needs the first three columns. Most others say what was shown, for estimates of a
    ranker's value from clicks (`countersample.evaluation.estimate`).

    An item's propensity is the probability that it is examined in a session of its query, over
    what was shown: ρ = (1/S) Σ_sessions θ(position), with S the sessions of the query, and 0 for a
    session that did not show the item. Where each session shows it at the same position that is
    θ(position), the examination probability of the position.

    Parameters
    ----------
    query : int array (n_rows,)
        The index of the query in its dataset, from 0.
    item : int array (n_rows,)
        The index of the clicked item within that query, from 0.
    propensity : float array (n_rows,)
        ρ, the probability that the item is examined in a session of its query, in (0, 1].
    count : array (n_rows,), optional
        How many clicks the row stands for, or what they are worth; 1 by default.
    by_chance : array (n_rows,), optional
        How much of the count is expected whatever the item: Σβ, where users trust high positions.
        The row weighs (count − by_chance) / propensity, which may be below 0.
    events : array (n_rows,), optional
        How many clicks the count is the worth of; by default the count itself.
    session : array (n_rows,), optional
        Which session the row is of, integers or strings. A session is one ranking shown once.
    position : int array (n_rows,), optional
        The rank at which the item was shown, from 1.
    impressions : array (n_rows,), optional
        How often the item was shown there. A log that has this column has a row for everything
        that was shown; what was never clicked has a count of 0.
    examination : array (n_rows,), optional
        θ, the probability that the item was examined where the row shows it, in [0, 1]; 0 where it
        is not known, and the row's clicks are not counted. By default the propensity.
    sessions : array (n_rows,), optional
        S, the sessions of the row's query. By default they are counted from the log.
    n_sessions : float, optional
        How many sessions there were, those without a click included.
    fingerprint : str, optional
        The fingerprint of the dataset the log is of.

    Examples
    --------
    >>> from countersample import ClickLog
    >>> log = ClickLog(query=[0, 0, 1], item=[2, 0, 1], propensity=[0.25, 1.0, 0.5])
    >>> log
    ClickLog(n_clicks=3, max_weight=4, mean_weight=2.333)
    >>> log.weights
    array([4., 1., 2.])
    >>> log.clip(0.5).max_weight
    2.0
    """

    def __init__(
        self,
        query: ArrayLike,
        item: ArrayLike,
        propensity: ArrayLike,
        count: ArrayLike | None = None,
        *,
        by_chance: ArrayLike | None = None,
        events: ArrayLike | None = None,
        session: ArrayLike | None = None,
        position: ArrayLike | None = None,
        impressions: ArrayLike | None = None,
        examination: ArrayLike | None = None,
        sessions: ArrayLike | None = None,
        n_sessions: float | None = None,
        fingerprint: str | None = None,
    ) -> None:
        self.query = as_indices(query, "query")
        self.item = as_indices(item, "item")
        self.propensity = as_numbers(propensity, "propensity")
        self.count = _optional(count, "count")
        self.by_chance = _optional(by_chance, "by_chance")
        self.events = _optional(events, "events")
        self.session = None if session is None else as_codes(session, "session")
        self.position = None if position is None else as_indices(position, "position")
        self.impressions = _optional(impressions, "impressions")
        self.examination = _optional(examination, "examination")
        self.sessions = _optional(sessions, "sessions")
        self.n_sessions = None if n_sessions is None else float(n_sessions)
        self.fingerprint = fingerprint
        for name in _COLUMNS:
            column = getattr(self, name)
            if column is not None and column.shape != (len(self.query),):
                raise DataError(
                    f"{name} has shape {column.shape}, expected ({len(self.query)},): one for "
                    "each click"
                )
        if not len(self.query):
            raise DataError("the click log is empty, expected at least one click")
        self._check_numbers()
        if self.count is not None and not self.count.any():
            raise DataError("every count is 0, expected at least one click")
        if self.position is not None:
            check_rows(self.position, "position", "a rank, counted from 1", self.position >= 1)
        if self.n_sessions is None:
            return
        least = 1 if self.session is None else len(np.unique(self.session))
        if not least <= self.n_sessions < np.inf:
            raise DataError(
                f"n_sessions is {self.n_sessions:g}, expected at least {least:,}, the sessions "
                "that the log has rows of"
            )

    def _check_numbers(self) -> None:
        check_rows(self.propensity, "propensity", "a number above 0 and at most 1",
                    (self.propensity > 0) & (self.propensity <= 1))  # fmt: skip
        if self.examination is not None:
            good = (self.examination >= 0) & (self.examination <= 1)
            check_rows(self.examination, "examination", "a number from 0 to 1", good)
        for name in ("count", "by_chance", "events", "impressions", "sessions"):
            column = getattr(self, name)
            if column is not None:
                good = (column >= 0) & np.isfinite(column)
                check_rows(column, name, "a number of at least 0", good)

    @classmethod
    def from_labels(
        cls, dataset: RankingDataset, *, relevant: float = 1, gain: str = "linear"
    ) -> ClickLog:
        """Return the log of a user who sees everything and clicks an item gain(label) times.

        Training on it is full supervision: the objective becomes Σ gain(label) · λ(rank).

        Parameters
        ----------
        dataset : RankingDataset
        relevant : float
            The smallest label that is clicked.
        gain : {"linear", "exponential"}
            The label, or 2^label − 1: what nDCG pays for it, for a ranker that nDCG judges.

        Examples
        --------
        >>> from countersample import ClickLog, RankingDataset
        >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[0, 2], qid=["a", "a"])
        >>> ClickLog.from_labels(data)
        ClickLog(n_clicks=2, max_weight=1, mean_weight=1)
        >>> ClickLog.from_labels(data, gain="exponential").count
        array([3.])
        """
        choice("gain", gain, ("linear", "exponential"))
        rows = np.flatnonzero((dataset.labels >= relevant) & (dataset.labels > 0))
        if not len(rows):
            raise DataError(f"no item has a label of at least {relevant:g}: nothing to learn from")
        query = np.searchsorted(dataset.offsets, rows, side="right") - 1
        return cls(
            query=query,
            item=rows - dataset.offsets[query],
            propensity=np.ones(len(rows)),
            count=dataset.labels[rows] if gain == "linear" else np.exp2(dataset.labels[rows]) - 1,
            fingerprint=dataset.fingerprint,
        )

    @classmethod
    def from_impressions(
        cls,
        impressions: Impressions | PositionCounts,
        propensities: Examinable,
        dataset: RankingDataset,
        item_ids: ArrayLike | None = None,
        *,
        exposure: str = "policy-aware",
        missing: Literal["error", "skip"] = "error",
        keep: Literal["clicked", "shown"] = "clicked",
    ) -> ClickLog:
        """Return the log of what was shown and clicked, joined to the features of its items.

        Parameters
        ----------
        impressions : Impressions or PositionCounts
            What `countersample.clicks.impressions.read_impressions` gives, or its counts.
        propensities, dataset, item_ids, exposure, missing, keep
            As for `countersample.clicks.impressions.join_features`, which also returns a report.
            What ``missing="skip"`` leaves out is a warning.

        Examples
        --------
        >>> from countersample import ClickLog, RankingDataset
        >>> from countersample.clicks.impressions import PositionCounts
        >>> data = RankingDataset.from_arrays(X=[[0.1], [0.9]], y=[0, 0], qid=["a", "a"])
        >>> counts = PositionCounts.from_columns(["a", "a"], ["x", "y"], [1, 2], [1, 1])
        >>> ClickLog.from_impressions(counts, [1.0, 0.25], data, item_ids=["x", "y"]).weights
        array([1., 4.])
        """
        from countersample.clicks.impressions import join_features  # noqa: PLC0415 (imports this)

        counts: Any = impressions.counts() if hasattr(impressions, "counts") else impressions
        log, report = join_features(
            counts, propensities, dataset, item_ids, exposure=exposure, missing=missing, keep=keep
        )
        if report.n_skipped:
            warnings.warn(report.sentence(), stacklevel=2)
        return log

    @classmethod
    def concat(cls, logs: Iterable[ClickLog]) -> ClickLog:
        """Return the log of all rows of several logs of one dataset, in their order.

        Sessions of different logs stay apart, whatever their numbers, and each row keeps its
        propensity, which is of its own log. The fingerprint is kept where all logs have it, and the
        number of sessions is the sum where it is known of all.

        Raises
        ------
        DataError
            For logs of different datasets, and where a column (``session``, ``position``,
            ``impressions``) is in some logs only. Without ``count`` a row is one click.

        Examples
        --------
        >>> from countersample import ClickLog
        >>> monday = ClickLog([0, 1], [2, 0], [0.5, 1.0], session=[1, 2])
        >>> tuesday = ClickLog([0], [2], [0.25], session=[1])
        >>> both = ClickLog.concat([monday, tuesday])
        >>> both.weights, both.session
        (array([2., 1., 4.]), array([0, 1, 2]))
        """
        return cls(**concatenated(list(logs), _COLUMNS))

    # -- statistics

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.query)

    @property
    def clicks(self) -> NDArray[np.float64]:
        """The number of clicks of each row, (n_rows,)."""
        return np.ones(self.n_rows) if self.count is None else self.count

    @property
    def n_clicks(self) -> float:
        """N, the number of clicks."""
        return float(self.n_rows if self.count is None else self.count.sum())

    @property
    def weights(self) -> NDArray[np.float64]:
        """The importance weight of each row, v = (count − by_chance) / propensity, (n_rows,)."""
        clicks = 1.0 if self.count is None else self.count
        return (clicks if self.by_chance is None else clicks - self.by_chance) / self.propensity

    @property
    def max_weight(self) -> float:
        """M = max 1/propensity over the rows that have clicks."""
        return float(1 / self.propensity[self.clicks > 0].min())

    @property
    def mean_weight(self) -> float:
        """M̄ = Σ |v| / N, with v the weights."""
        return float(np.abs(self.weights).sum() / self.n_clicks)

    # -- variants

    def clip(self, min_propensity: float) -> ClickLog:
        """Return the log with propensities of at least this much: less variance, some bias."""
        least = number("min_propensity", min_propensity, above=0, most=1)
        return self.replace(propensity=np.maximum(self.propensity, least))

    def temper(self, exponent: float) -> ClickLog:
        """Return the log with the propensities p^α: 1/p^α is naive for α = 0, IPS for 1.

        What lies between has less variance than IPS, and less bias than naive training. The other
        columns stay, `examination` too: what users see is not tempered.

        Examples
        --------
        >>> from countersample import ClickLog
        >>> ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.25]).temper(0.5).weights
        array([1., 2.])
        """
        alpha = number("temper", exponent, least=0, most=1)
        return self.replace(propensity=self.propensity**alpha)

    def head(self, n: int) -> ClickLog:
        """Return the log of the first n rows."""
        return self.take(slice(whole_number("n", n, least=1)))

    def take(self, rows: NDArray[Any] | slice) -> ClickLog:
        """Return the log of these rows (indices, a mask or a slice).

        How many sessions they are of is not known any more, as those without a click have no rows.
        """
        columns: dict[str, Any] = self.columns_of_frame()
        taken = {name: column[rows] for name, column in columns.items()}
        return self.replace(**taken, n_sessions=None)

    def weighted(self) -> ClickLog:
        """Return the rows that have a weight: what is learned from.

        Examples
        --------
        >>> from countersample import ClickLog
        >>> ClickLog([0, 0], [0, 1], [1.0, 0.5], count=[0, 2]).weighted().item
        array([1], dtype=int32)
        """
        has_weight = self.weights != 0
        return self if has_weight.all() else self.take(has_weight)

    def of_queries(self, queries: ArrayLike, *, exclude: bool = False) -> ClickLog:
        """Return the rows of these queries, or of all others.

        Examples
        --------
        >>> from countersample import ClickLog
        >>> log = ClickLog(query=[0, 2, 2], item=[0, 1, 3], propensity=[1.0, 0.5, 0.25])
        >>> log.of_queries([2]).item, log.of_queries([2], exclude=True).item
        (array([1, 3], dtype=int32), array([0], dtype=int32))
        """
        return self.take(np.isin(self.query, queries, invert=exclude))

    def merge(self, unit: str = "pair") -> ClickLog:
        """Return the log with one row for each query and item that was clicked.

        Counts are added up and the propensity becomes count / Σ(count/propensity), so that the
        weight of a row is the sum of the weights merged. N and M̄ stay as they are; M becomes the
        largest *mean* weight of a pair, so it is smaller where clicks on the same pair had
        different propensities. What was shown, where and in which session, is not kept. Rows that
        count by chance only are merged by that.

        Parameters
        ----------
        unit : {"pair"}
            What is merged: clicks on the same query and item.

        Examples
        --------
        >>> from countersample import ClickLog
        >>> merged = ClickLog(query=[0, 0], item=[3, 3], propensity=[0.25, 0.5]).merge()
        >>> merged.weights, merged.max_weight  # 4 + 2, and a mean of 3 a click
        (array([6.]), 3.0)
        """
        choice("unit", unit, ("pair",))
        gone = ("events", "session", "position", "impressions", "examination", "sessions")
        return self.replace(**merged_pairs(self), **dict.fromkeys(gone))

    def detached(self) -> ClickLog:
        """Return its queries, items, propensities and counts, of no dataset in particular.

        For the same items with other features, whose fingerprint is another.

        Examples
        --------
        >>> from countersample import ClickLog, synthetic
        >>> data = synthetic("tiny", rng=0)
        >>> log = ClickLog.from_labels(data)
        >>> log.fingerprint == data.fingerprint, log.detached().fingerprint
        (True, None)
        """
        return ClickLog(
            self.query, self.item, self.propensity, self.count, by_chance=self.by_chance
        )

    def replace(self, **columns: Any) -> ClickLog:  # noqa: ANN401 (the columns)
        """Return the log with other columns, or without those that are None."""
        present = {name: getattr(self, name) for name in (*_COLUMNS, *_FACTS)}
        return ClickLog(**(present | columns))

    # -- with its dataset

    def check(self, dataset: RankingDataset) -> None:
        """Refuse a dataset this log is not of: another fingerprint, an unknown query or item."""
        if self.fingerprint is not None and self.fingerprint != dataset.fingerprint:
            raise DataError(
                f"the click log is of another dataset (fingerprint {self.fingerprint}, this one "
                f"is {dataset.fingerprint}): use the data it was made with"
            )
        check_rows(self.query, "query", f"below {dataset.n_queries}, the number of queries",
                    self.query < dataset.n_queries)  # fmt: skip
        sizes = dataset.query_sizes[self.query]
        check_rows(self.item, "item", "below the number of items of its query", self.item < sizes)

    # -- frames and files

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns that the log has, by their names."""
        columns = {name: getattr(self, name) for name in _COLUMNS}
        return {name: column for name, column in columns.items() if column is not None}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the log as Parquet, atomically."""
        facts = {"dataset": self.fingerprint, "n_sessions": self.n_sessions}
        write_log(path, self.columns_of_frame(), facts)

    @classmethod
    def load(cls, path: str | PathLike[str], dataset: RankingDataset | None = None) -> ClickLog:
        """Read a log written by `save`; with a dataset, check that it is of that one."""
        kept = read_log(path, _COLUMNS)
        try:
            log = cls(**kept)
            if dataset is not None:
                log.check(dataset)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
        return log

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return (
            f"ClickLog(n_clicks={self.n_clicks:_.0f}, max_weight={self.max_weight:.4g}, "
            f"mean_weight={self.mean_weight:.4g})"
        )


def _optional(values: ArrayLike | None, name: str) -> NDArray[np.float64] | None:
    return None if values is None else as_numbers(values, name)
