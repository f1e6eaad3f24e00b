"""Click logs: which items were clicked, and the probability that each was examined.

`ClickLog` checks its columns once, on construction, and is never changed: every variant is a new
log. It is saved as Parquet.
"""

from __future__ import annotations

import json
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from countersample._arrays import as_codes, as_indices, as_numbers, check_rows
from countersample._files import atomic_path
from countersample._frames import Tabular
from countersample._json import check_schema, parse_json
from countersample._params import choice, number
from countersample._version import __version__
from countersample.data import RankingDataset
from countersample.data.dataset import take_rows
from countersample.data.sources import reading
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    import pyarrow as pa
    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Floats

    Column = NDArray[Any]  # of any numbers; stored as int32, int64 (session) or float64

SCHEMA_VERSION = 1
_METADATA = b"countersample"
# What pyarrow raises for strange files, beside errors of its own.
_ARROW_ERRORS = (ValueError, LookupError, TypeError, OverflowError, NotImplementedError)


@dataclass(frozen=True, eq=False, repr=False)
class ClickLog(Tabular):
    """Clicks on the items of a dataset, one row per click (or per group of equal clicks).

    Training needs the first three columns. Most others describe what was shown, for estimates of a
    ranker's value from clicks (`countersample.evaluation.estimate`).

    An item's propensity is the probability that it is examined in a session of its query:
    ρ = (1/S) Σ_sessions θ(position), with S the sessions of the query, and 0 for a session that did
    not show the item. If every session shows it at the same position, ρ is θ(position), the
    examination probability of that position.

    Parameters
    ----------
    query : int array (n_rows,)
        The index of the query in its dataset, from 0.
    item : int array (n_rows,)
        The index of the clicked item within that query, from 0.
    propensity : float array (n_rows,)
        ρ, the probability that the item is examined in a session of its query, in (0, 1].
    count : array (n_rows,), optional
        How many clicks the row stands for, or their value; by default 1.
    by_chance : array (n_rows,), optional
        How much of the count is expected whatever the item: Σβ, if users trust high positions.
        The weight of the row is (count − by_chance) / propensity, which may be negative.
    events : array (n_rows,), optional
        The number of clicks, if the count is their value; by default the count itself.
    session : array (n_rows,), optional
        The session of the row, an integer or a string. A session is one ranking shown once.
    position : int array (n_rows,), optional
        The rank at which the item was shown, from 1.
    impressions : array (n_rows,), optional
        How often the item was shown there. A log with this column has a row for everything that
        was shown; items that were never clicked have a count of 0.
    examination : array (n_rows,), optional
        θ, the probability that the item was examined at the position of the row, in [0, 1]; 0 if it
        is unknown, and then the row's clicks are not counted. By default the propensity.
    sessions : array (n_rows,), optional
        S, the number of sessions of the row's query; by default counted from the log.
    n_sessions : float, optional
        The number of sessions, including those without a click.
    fingerprint : str, optional
        The fingerprint of the dataset of the log.

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

    query: Column
    item: Column
    propensity: Column
    count: Column | None = None
    _: KW_ONLY
    by_chance: Column | None = None
    events: Column | None = None
    session: Column | None = None
    position: Column | None = None
    impressions: Column | None = None
    examination: Column | None = None
    sessions: Column | None = None
    n_sessions: float | None = None
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        readers = {"query": as_indices, "item": as_indices, "position": as_indices,
                   "session": as_codes}  # fmt: skip
        for name in _COLUMNS:
            column: Any = getattr(self, name)
            if column is None and name not in _REQUIRED:
                continue
            column = readers.get(name, as_numbers)(column, name)
            if column.shape != (len(self.query),):
                raise DataError(
                    f"{name} has shape {column.shape}, expected ({len(self.query)},): one per row"
                )
            object.__setattr__(self, name, column)
        if not len(self.query):
            raise DataError("the click log is empty, expected at least one click")
        self._check_numbers()
        if self.n_sessions is None:
            return
        object.__setattr__(self, "n_sessions", float(self.n_sessions))
        least = 1 if self.session is None else len(np.unique(self.session))
        if not least <= self.n_sessions < np.inf:
            raise DataError(
                f"n_sessions is {self.n_sessions:g}, expected at least {least:,}, the number of "
                "sessions in the log"
            )

    def _check_numbers(self) -> None:
        check_rows(self.propensity, "propensity", "a number above 0 and at most 1",
                    (self.propensity > 0) & (self.propensity <= 1))  # fmt: skip
        if self.examination is not None:
            is_valid = (self.examination >= 0) & (self.examination <= 1)
            check_rows(self.examination, "examination", "a number from 0 to 1", is_valid)
        if self.position is not None:
            check_rows(self.position, "position", "a rank, counted from 1", self.position >= 1)
        for name in ("count", "by_chance", "events", "impressions", "sessions"):
            column = getattr(self, name)
            if column is not None:
                is_valid = (column >= 0) & np.isfinite(column)
                check_rows(column, name, "a number of at least 0", is_valid)
        if self.count is not None and not self.count.any():
            raise DataError("every count is 0, expected at least one click")

    @classmethod
    def from_labels(
        cls, dataset: RankingDataset, *, relevant: float = 1, gain: str = "linear"
    ) -> ClickLog:
        """Return the log of a user who examines everything and clicks an item gain(label) times.

        Training on it is full supervision: the objective becomes Σ gain(label) · λ(rank). The
        smallest label that is clicked is `relevant`. The gain is the label (``"linear"``), or
        2^label − 1 as in nDCG (``"exponential"``).

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
    def concat(cls, logs: Iterable[ClickLog]) -> ClickLog:
        """Return the log of all rows of several logs of one dataset, in their order.

        Sessions of different logs stay separate, even with equal ids, and each row keeps its
        propensity. The fingerprint is kept if all logs have it, and the number of sessions is the
        sum if all logs have one. Logs of different datasets, or with different columns, raise
        `DataError`.

        Examples
        --------
        >>> from countersample import ClickLog
        >>> monday = ClickLog([0, 1], [2, 0], [0.5, 1.0], session=[1, 2])
        >>> tuesday = ClickLog([0], [2], [0.25], session=[1])
        >>> both = ClickLog.concat([monday, tuesday])
        >>> both.weights, both.session
        (array([2., 1., 4.]), array([0, 1, 2]))
        """
        return cls(**_concatenate(list(logs)))

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
        """Return the log with the smallest propensity raised: less variance, some bias."""
        least = number("min_propensity", min_propensity, above=0, most=1)
        return self.replace(propensity=np.maximum(self.propensity, least))

    def temper(self, exponent: float) -> ClickLog:
        """Return the log with the propensities p^α: 1/p^α is naive for α = 0, IPS for 1.

        Values in between have less variance than IPS, and less bias than naive training. The other
        columns stay as they are, `examination` too.

        Examples
        --------
        >>> from countersample import ClickLog
        >>> ClickLog(query=[0, 1], item=[0, 1], propensity=[1.0, 0.25]).temper(0.5).weights
        array([1., 2.])
        """
        alpha = number("temper", exponent, least=0, most=1)
        return self.replace(propensity=self.propensity**alpha)

    def take(self, rows: NDArray[Any] | slice) -> ClickLog:
        """Return the log of these rows (indices, a mask or a slice).

        `n_sessions` becomes None, because sessions without a click have no rows.
        """
        columns: dict[str, Any] = self.columns_of_frame()
        selection = {name: column[rows] for name, column in columns.items()}
        return self.replace(**selection, n_sessions=None)

    def weighted(self) -> ClickLog:
        """Return the rows whose weight is not 0, which are those to learn from.

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

    def merge(self) -> ClickLog:
        """Return the log with one row for each query and item that was clicked.

        Counts are added up and the propensity becomes count / Σ(count/propensity), so that the
        weight of a row is the sum of the merged weights. N and M̄ stay the same; M becomes the
        largest *mean* weight of a pair, so it is smaller if clicks on the same pair had different
        propensities. Positions, sessions and impressions are dropped. Rows with clicks by chance
        only are merged by these.

        Examples
        --------
        >>> from countersample import ClickLog
        >>> merged = ClickLog(query=[0, 0], item=[3, 3], propensity=[0.25, 0.5]).merge()
        >>> merged.weights, merged.max_weight  # 4 + 2, and a mean of 3 per click
        (array([6.]), 3.0)
        """
        return self.replace(**_merge_pairs(self), **dict.fromkeys(_COLUMNS[5:]))

    def detached(self) -> ClickLog:
        """Return queries, items, propensities and counts, without the dataset's fingerprint.

        For the same items with other features, which have another fingerprint.
        """
        return ClickLog(
            self.query, self.item, self.propensity, self.count, by_chance=self.by_chance
        )

    def replace(self, **columns: Any) -> ClickLog:  # noqa: ANN401 (the columns)
        """Return the log with other columns; None removes a column."""
        return replace(self, **columns)

    # -- with its dataset

    def check(self, dataset: RankingDataset) -> None:
        """Raise an error if this log is not of the dataset: its fingerprint, queries and items."""
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
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import parquet  # noqa: PLC0415

        note = {
            "schema_version": SCHEMA_VERSION,
            "written_by": __version__,
            "dataset": self.fingerprint,
            "n_sessions": self.n_sessions,
        }
        metadata = {_METADATA: json.dumps(note).encode()}
        with atomic_path(path) as temporary:
            table = pa.table(self.columns_of_frame(), metadata=metadata)
            parquet.write_table(table, temporary, compression="zstd")

    @classmethod
    def load(cls, path: str | PathLike[str], dataset: RankingDataset | None = None) -> ClickLog:
        """Read a log written by `save`; with a dataset, check that the log is of it."""
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import parquet  # noqa: PLC0415

        cannot = "not a click log in Parquet ({})"
        # The path is opened here, because pyarrow would also read folders and remote addresses.
        with reading(path, cannot, pa.ArrowException), Path(path).open("rb") as file:
            try:
                table = parquet.ParquetFile(file).read()
                names = [name for name in _COLUMNS if name in table.column_names]
                columns = {name: table[name].to_numpy() for name in names}
            except _ARROW_ERRORS as error:
                raise DataError(cannot.format(error)) from error
            note = _read_note(table)
            log = cls(**columns, fingerprint=note.dataset, n_sessions=note.n_sessions)
            if dataset is not None:
                log.check(dataset)
        return log

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return (
            f"ClickLog(n_clicks={self.n_clicks:_.0f}, max_weight={self.max_weight:.4g}, "
            f"mean_weight={self.mean_weight:.4g})"
        )


_COLUMNS = tuple(each.name for each in fields(ClickLog))[:-2]
_REQUIRED = ("query", "item", "propensity")


# -- files


class _Note(msgspec.Struct):
    """The metadata of a saved log."""

    schema_version: int
    dataset: str | None
    n_sessions: float | None = None


def _read_note(table: pa.Table) -> _Note:
    """Return the metadata of a saved log, or raise an error."""
    names = table.column_names
    metadata = (table.schema.metadata or {}).get(_METADATA)
    if metadata is None or not set(names) >= set(_COLUMNS[:3]):
        raise DataError(
            f"not a click log of this package (columns {', '.join(names)}), expected one written "
            "by ClickLog.save"
        )
    try:
        note = check_schema(parse_json(metadata), _Note, "its note")
    except DataError as error:
        raise DataError(f"the note of its schema version is damaged ({error})") from error
    if note.schema_version != SCHEMA_VERSION:
        raise DataError(
            f"of schema version {note.schema_version}, expected {SCHEMA_VERSION}: read it with the "
            "release that wrote it"
        )
    return note


# -- rows of several logs, and rows on the same item


def _merge_pairs(log: ClickLog) -> dict[str, Any]:
    """Return the columns of a log with one row per pair, whose weight is the sum of its rows'.

    The propensity is the harmonic mean, weighted by clicks and clicks by chance.
    """
    pairs = (log.query.astype(np.int64) << 32) | log.item
    keys, member = np.unique(pairs, return_inverse=True)

    def total(column: Floats) -> Floats:
        return np.bincount(member, column).astype(np.float64)

    size = log.clicks if log.by_chance is None else log.clicks + log.by_chance
    rows = total(size) > 0
    count = total(log.clicks)[rows]
    propensity = np.minimum(total(size)[rows] / total(size / log.propensity)[rows], 1.0)
    by_chance = None
    if log.by_chance is not None:
        weight = total(log.weights)[rows]
        # If propensities differ, too much of the count may seem to be by chance.
        is_heavy = weight * propensity > count
        propensity = np.where(is_heavy, count / np.where(is_heavy, weight, 1.0), propensity)
        by_chance = np.maximum(count - weight * propensity, 0.0)
    return {
        "query": keys[rows] >> 32,
        "item": keys[rows] & 0xFFFFFFFF,
        "propensity": propensity,
        "count": count,
        "by_chance": by_chance,
    }


def _concatenate(logs: list[ClickLog]) -> dict[str, Any]:
    """Return the columns and the facts of all rows of several logs; see `ClickLog.concat`."""
    if not logs:
        raise DataError("there is no click log to put together, expected at least one")
    fingerprints = [log.fingerprint for log in logs]
    distinct = sorted({name for name in fingerprints if name is not None})
    if len(distinct) > 1:
        raise DataError(
            f"the click logs are of different datasets (fingerprints {', '.join(distinct)}), "
            "expected one"
        )
    frames = [log.columns_of_frame() for log in logs]
    for index, frame in enumerate(frames):
        if frame.keys() != frames[0].keys():
            raise DataError(
                f"click log {index} (counted from 0) has the columns {', '.join(frame)}, expected "
                f"those of the first: {', '.join(frames[0])}"
            )
    columns: dict[str, list[NDArray[Any]]] = {
        name: [np.asarray(frame[name]) for frame in frames] for name in frames[0]
    }
    if "session" in columns:  # sessions of different logs stay separate
        start = 0
        for index, session in enumerate(columns["session"]):
            codes = np.unique(session, return_inverse=True)[1] + start
            columns["session"][index], start = codes, int(codes.max()) + 1
    if "sessions" in columns:
        columns["sessions"] = _add_sessions(logs)
    n_sessions = [log.n_sessions for log in logs]
    facts = {
        "n_sessions": None if None in n_sessions else sum(n_sessions),  # type: ignore[arg-type]
        "fingerprint": None if None in fingerprints else fingerprints[0],
    }
    return facts | {name: np.concatenate(parts) for name, parts in columns.items()}


def _add_sessions(logs: list[ClickLog]) -> list[NDArray[Any]]:
    """Return the sessions of each row's query in all logs together, per log."""
    total = np.zeros(max(int(log.query.max()) for log in logs) + 1)
    for log in logs:
        query, first = np.unique(log.query, return_index=True)
        total[query] += log.sessions[first]  # type: ignore[index] # the caller checks it
    return [total[log.query] for log in logs]


# -- items that were shown


def only_shown(dataset: RankingDataset, log: ClickLog) -> tuple[RankingDataset, ClickLog]:
    """Return the items that were shown according to the log, and its rows on them.

    A page shows 10 of 40 items. Clicks contain no information on the other 30: if they counted as
    irrelevant, a ranker would learn to repeat the logging policy. So a click is compared only with
    the items shown beside it. A log without impressions has no such information, and everything is
    kept.

    The dataset has the shown items of queries that have any; it is the same one if all were shown.
    The log has no fingerprint.

    Examples
    --------
    >>> from countersample import ClickLog, RankingDataset
    >>> from countersample.clicks.log import only_shown
    >>> data = RankingDataset.from_arrays(
    ...     X=[[1.0], [2.0], [3.0], [4.0]], y=[0, 0, 0, 0], qid=["a", "b", "b", "b"])
    >>> log = ClickLog(query=[1, 1], item=[2, 0], propensity=[1.0, 0.5], count=[1, 0],
    ...                position=[1, 2], impressions=[5, 5])
    >>> shown, rows = only_shown(data, log)
    >>> shown.features.ravel(), rows.query, rows.item
    (array([2., 4.], dtype=float32), array([0, 0], dtype=int32), array([1, 0], dtype=int32))
    """
    is_shown = np.ones(dataset.n_items, bool)
    if log.impressions is not None:
        row = dataset.offsets[log.query] + log.item
        is_shown = np.zeros(dataset.n_items, bool)
        is_shown[row] = True
    if is_shown.all():
        return dataset, log.replace(fingerprint=None)
    rows = np.flatnonzero(is_shown)
    sizes = np.add.reduceat(is_shown, dataset.offsets[:-1], dtype=np.int64)
    queries = np.flatnonzero(sizes)
    offsets = np.append(0, np.cumsum(sizes[queries]))
    query = np.searchsorted(queries, log.query)
    item = np.searchsorted(rows, row) - offsets[query]
    items = RankingDataset(
        take_rows(dataset.features, rows), dataset.labels[rows], offsets,
        dataset.query_ids[queries], dataset.feature_names,
    )  # fmt: skip
    return items, log.replace(query=query, item=item, fingerprint=None)
