"""Labelled queries in memory: `RankingDataset`, its statistics, and the scores of its items.

Files are read by `labelled_files`, features are scaled by `preprocessing`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from countersample import _text
from countersample._frames import Tabular, statistics
from countersample.data.compact import CompactFeatures, compact_report
from countersample.data.matrices import (
    as_numbers,
    check_features,
    check_finite,
    check_matrix,
    check_offsets,
    column_ranges,
    has_nan,
    row_blocks,
)
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    from countersample._arrays import Ints
    from countersample.data.compact import CompactReport
    from countersample.data.preprocessing import Normalizer

_HASH_BYTES = 1 << 22  # hashed at a time
_MAX_GRADES = 20  # in a description


@dataclass(frozen=True, eq=False, repr=False)
class RankingDataset(Tabular):
    """Queries, their items as feature vectors, and one relevance label per item.

    The items of query ``q`` are the rows ``offsets[q]:offsets[q + 1]``. Arrays are not copied if
    their type fits (a memory map stays one), so a dataset may be larger than memory.

    Parameters
    ----------
    features : float32 array (n_items, n_features), C-contiguous; or CompactFeatures
        NaN is a missing value.
    labels : float32 array (n_items,)
        Relevance grades, larger is better.
    offsets : int64 array (n_queries + 1,)
        The first row of each query; the first offset is 0 and the last is n_items.
    query_ids : array (n_queries,), int64 or str
    feature_names : tuple of str, optional

    Examples
    --------
    >>> import numpy as np
    >>> from countersample import RankingDataset
    >>> data = RankingDataset.from_arrays(
    ...     X=[[0.1, 1.0], [0.9, 0.0], [0.5, 0.5]], y=[0, 2, 1], qid=["a", "a", "b"]
    ... )
    >>> data
    RankingDataset(n_queries=2, n_items=3, n_features=2, labels=0..2)
    >>> data.offsets
    array([0, 2, 3])
    >>> data.subset([1]).query_ids
    array(['b'], dtype='<U1')
    """

    features: Any  # NDArray[np.float32] | CompactFeatures, which stands where an array does
    labels: NDArray[np.float32]
    offsets: NDArray[np.int64]
    query_ids: NDArray[Any]
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        n_items = check_matrix(self.features)
        if self.labels.shape != (n_items,):
            raise DataError(
                f"labels have shape {self.labels.shape}, expected ({n_items},): one for each row "
                "of features"
            )
        check_offsets(self.offsets, n_items)
        if self.query_ids.shape != (self.n_queries,):
            raise DataError(
                f"query_ids have shape {self.query_ids.shape}, expected ({self.n_queries},): one "
                "for each query"
            )
        if self.feature_names is not None and len(self.feature_names) != self.n_features:
            raise DataError(
                f"{len(self.feature_names)} feature names for {self.n_features} features"
            )

    # -- Constructors

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,  # noqa: N803 (the field's name for it)
        y: ArrayLike,
        qid: ArrayLike,
        *,
        feature_names: Sequence[str] | None = None,
    ) -> RankingDataset:
        """Return the dataset of a matrix, its labels and the query id of each row.

        Rows of a query need not be adjacent: queries are sorted by their first row, and the rows of
        a query keep their order. Infinite features, and labels that are not finite, are rejected.

        Parameters
        ----------
        X : array-like (n_items, n_features)
        y : array-like (n_items,)
        qid : array-like (n_items,), integers or strings
        feature_names : sequence of str, optional
        """
        features = np.ascontiguousarray(as_numbers(X, "X"))
        labels = as_numbers(y, "y")
        ids = np.asarray(qid)
        n_items = check_matrix(features)
        for name, array in (("y", labels), ("qid", ids)):
            if array.shape != (n_items,):
                raise DataError(f"{name} has shape {array.shape}, expected ({n_items},) as X has")
        if n_items == 0:
            raise DataError("X has no rows, expected at least one")
        check_features(features, "X")
        check_finite(labels, "y")
        order, offsets, query_ids = group_rows(ids)
        if order is not None:
            features, labels = features[order], labels[order]
        names = None if feature_names is None else tuple(feature_names)
        return cls(features, labels, offsets, query_ids, names)

    @classmethod
    def from_frame(
        cls,
        frame: Any,  # noqa: ANN401 (any frame narwhals supports)
        *,
        label: str = "label",
        query: str = "qid",
    ) -> RankingDataset:
        """Return the dataset of a data frame with one row per item.

        Parameters
        ----------
        frame : data frame of pandas, polars, pyarrow or DuckDB, eager or lazy
            A null of a feature is a missing value (NaN).
        label, query : str
            The columns of the relevance label and the query id. All others are features.
        """
        from countersample.data import tables  # noqa: PLC0415 (imports narwhals)

        table = tables.collect_frame(frame)
        for column in (label, query):
            tables.check_column(column, table.columns)
            tables.check_no_nulls(table[column])
        names = [column for column in table.columns if column not in {label, query}]
        matrix = np.empty((len(table), len(names)), np.float32)
        for k, name in enumerate(names):
            matrix[:, k] = tables.number_column(table[name], is_feature=True)
        labels = tables.number_column(table[label], is_feature=False)
        return cls.from_arrays(matrix, labels, table[query].to_numpy(), feature_names=names)

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return ``qid``, ``label`` and each feature (``f1`` … if they have no names)."""
        return {
            "qid": np.repeat(self.query_ids, self.query_sizes),
            "label": self.labels,
            **{
                name: np.ascontiguousarray(self.features[:, k])
                for k, name in enumerate(self.names_of_features)
            },
        }

    def _shown(self) -> dict[str, ArrayLike]:
        sizes = {
            "n_queries": self.n_queries,
            "n_items": self.n_items,
            "n_features": self.n_features,
            "label_min": float(self.labels.min(initial=np.inf)),
            "label_max": float(self.labels.max(initial=-np.inf)),
        }
        return statistics(sizes)

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> RankingDataset:
        """Open a folder written by `save` as a memory map, in milliseconds."""
        from countersample.data.store import open_folder  # noqa: PLC0415 (store imports this)

        return open_folder(Path(folder))

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the dataset as a folder of ``.npy`` files and a JSON header, atomically."""
        from countersample.data.store import save_folder  # noqa: PLC0415 (store imports this)

        save_folder(self, folder)

    # -- Properties

    @property
    def n_queries(self) -> int:
        """The number of queries."""
        return len(self.offsets) - 1

    @property
    def n_items(self) -> int:
        """The number of items over all queries."""
        return int(self.features.shape[0])

    @property
    def n_features(self) -> int:
        """The number of features of an item."""
        return int(self.features.shape[1])

    @property
    def names_of_features(self) -> tuple[str, ...]:
        """`feature_names`, or f1, f2, … by default, (n_features,)."""
        return self.feature_names or tuple(f"f{k + 1}" for k in range(self.n_features))

    @property
    def query_sizes(self) -> NDArray[np.int64]:
        """The number of items of each query, (n_queries,)."""
        return np.diff(self.offsets)

    @property
    def bits(self) -> int | None:
        """The bits per feature of a compact dataset; None for float32 features."""
        return self.features.bits if isinstance(self.features, CompactFeatures) else None

    @cached_property
    def has_missing(self) -> bool:
        """Whether a feature has a missing value (NaN)."""
        return has_nan(self.features)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content: equal data has equal fingerprints, on any machine.

        A compact dataset has the fingerprint of its original, because they share their logs.
        """
        return self.content_hash()

    def content_hash(self) -> str:
        """Return a hash of the stored arrays, query ids and names; codes are hashed as codes."""
        digest = hashlib.blake2b(digest_size=16)
        for array in self._arrays():
            digest.update(f"{array.dtype.name}{array.shape}".encode())
            rows = max(1, _HASH_BYTES // max(1, array[:1].nbytes))
            for start in range(0, len(array), rows):
                with np.errstate(invalid="ignore"):  # in a damaged file
                    block = array[start : start + rows] + array.dtype.type(0)  # −0 becomes 0
                if block.dtype.kind == "f":
                    block[np.isnan(block)] = np.nan  # NaN has many bit patterns
                digest.update(block.astype(block.dtype.newbyteorder("<"), copy=False).data)
        ids = [str(i) for i in self.query_ids.tolist()]
        names = list(self.feature_names or ())
        digest.update(json.dumps([self.query_ids.dtype.kind, ids, names]).encode())
        return digest.hexdigest()

    def _arrays(self) -> list[NDArray[Any]]:
        return [self.offsets, self.labels, *stored_arrays(self.features)]

    def describe(self) -> Description:
        """Return statistics: sizes, density, grades, degenerate queries."""
        return describe(self)

    # -- Subsets and variants

    def subset(self, queries: ArrayLike) -> RankingDataset:
        """Return the dataset of these queries, in this order.

        Parameters
        ----------
        queries : array-like of int (positions) or of bool (n_queries,)
        """
        positions = _query_positions(queries, self.n_queries)
        sizes = self.query_sizes[positions]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = np.repeat(self.offsets[positions] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return RankingDataset(
            take_rows(self.features, rows),
            self.labels[rows],
            offsets,
            self.query_ids[positions],
            self.feature_names,
        )

    def split(
        self, *fractions: float, rng: np.random.Generator | int | None = None
    ) -> tuple[RankingDataset, ...]:
        """Split the queries at random into parts of the given fractions, together at most 1.

        Examples
        --------
        >>> from countersample import synthetic
        >>> train, test = synthetic("tiny", n_queries=10, rng=0).split(0.8, 0.2, rng=0)
        >>> train.n_queries, test.n_queries
        (8, 2)
        """
        if not fractions or min(fractions) <= 0 or sum(fractions) > 1 + 1e-9:
            raise ParameterError(
                f"fractions are {fractions}, expected positive numbers that sum to at most 1"
            )
        order = np.random.default_rng(rng).permutation(self.n_queries)
        ends = np.rint(np.cumsum([0.0, *fractions]) * self.n_queries).astype(np.int64)
        return tuple(self.subset(np.sort(order[start:end])) for start, end in pairwise(ends))

    def normalized(self, how: str | Normalizer = "query-minmax") -> RankingDataset:
        """Return the dataset with its features brought to a common scale.

        `how` is a name, to fit a normalizer on this dataset, or a fitted Normalizer: for test data,
        pass the one of training.
        """
        from countersample.data.preprocessing import Normalizer  # noqa: PLC0415 (imports this)

        normalizer = Normalizer.fit(self, how) if isinstance(how, str) else how
        return normalizer(self)

    def with_features(self, features: NDArray[np.float32] | CompactFeatures) -> RankingDataset:
        """Return the same queries, labels and names with other features."""
        names = self.feature_names if features.shape[1] == self.n_features else None
        return RankingDataset(features, self.labels, self.offsets, self.query_ids, names)

    def select_features(
        self, features: Sequence[str] | None = None, *, drop: Sequence[str] | None = None
    ) -> RankingDataset:
        """Return the same queries and labels with some of the features.

        Parameters
        ----------
        features, drop : sequence of str, optional
            The features to keep, in this order, or the features to leave out. Features without
            names are called f1, f2, …, or by their numbers: 1, 2, ….
        """
        names = self.names_of_features
        selection = choose_features(names, features, drop, is_numbered=self.feature_names is None)
        if selection == list(names):
            return self
        index = [names.index(name) for name in selection]
        if isinstance(self.features, CompactFeatures):
            matrix: Any = self.features.select(index)
        else:
            matrix = np.ascontiguousarray(self.features[:, index])
        return RankingDataset(matrix, self.labels, self.offsets, self.query_ids, tuple(selection))

    def compact(self, bits: int | str = "auto") -> RankingDataset:
        """Return the dataset with its features in 8 or 16 bits: a quarter or half of the memory.

        Training, scoring and evaluation read the codes. A ranker that is trained on them scores
        float32 features, too. "auto" is 8 bits if no value is off by more than a twentieth of the
        standard deviation of its feature, else 16: see `compact_report`.

        Examples
        --------
        >>> from countersample import synthetic
        >>> data = synthetic("tiny", rng=0)
        >>> small = data.compact()
        >>> small.bits, data.features.nbytes / small.features.nbytes
        (8, 4.0)
        """
        if self.bits is not None:
            raise DataError(
                f"the dataset has {self.bits} bits a feature already: compact the original"
            )
        n_bits = self.compact_report(bits).bits
        dataset = self.with_features(CompactFeatures.of(self.features, bits=n_bits))
        dataset.__dict__["fingerprint"] = self.fingerprint
        return dataset

    def compact_report(self, bits: int | str = "auto") -> CompactReport:
        """Return the precision of the codes of `compact`, per feature."""
        return compact_report(self.features, self.names_of_features, bits)

    # -- Python's protocols

    def __len__(self) -> int:
        return self.n_queries

    __hash__ = None  # type: ignore[assignment] # compared by content, as arrays are

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RankingDataset):
            return NotImplemented
        if self.feature_names != other.feature_names or self.bits != other.bits:
            return False
        pairs = zip(self._arrays(), other._arrays(), strict=True)
        return np.array_equal(self.query_ids, other.query_ids) and all(
            np.array_equal(one, two, equal_nan=one.dtype.kind == two.dtype.kind == "f")
            for one, two in pairs
        )

    def __repr__(self) -> str:
        grades = f"{self.labels.min():g}..{self.labels.max():g}" if self.n_items else "none"
        return (
            f"RankingDataset(n_queries={self.n_queries:_}, n_items={self.n_items:_}, "
            f"n_features={self.n_features:_}, labels={grades}"
            f"{'' if self.bits is None else f', bits={self.bits}'})"
        )


# -- Statistics ------------------------------------------------------------------------------------


class Histogram(NamedTuple):
    """Whole numbers by bin: ``counts[b]`` of them are in ``edges[b] .. edges[b + 1] - 1``."""

    edges: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Description(Tabular):
    """Statistics of a dataset, computed by `describe`."""

    n_queries: int
    n_items: int
    n_features: int
    items_min: int  # of a query
    items_median: float
    items_mean: float
    items_max: int
    items_histogram: Histogram  # queries by number of items; edges 1, 2, 5, 10, 20, 50, …
    density: float  # share of the feature values that are there and not zero
    missing: float  # share of the feature values that are missing
    feature_min: float  # over all features
    feature_max: float
    n_constant_features: int  # with at most one value
    label_min: float
    label_mean: float
    label_max: float
    grades: dict[float, int] | None  # items by label; None for more than 20 different labels
    n_queries_one_grade: int  # all items have the same label: nothing can be learned from them
    n_queries_none_relevant: int  # without a label > 0
    n_queries_one_item: int
    n_bytes: int  # memory of the arrays

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the names and values of the statistics."""
        return statistics(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as plain values for JSON; grades have strings as keys there."""
        values = asdict(self) | {"items_histogram": self.items_histogram._asdict()}
        if self.grades is not None:
            values["grades"] = {f"{grade:g}": count for grade, count in self.grades.items()}
        return values

    def summary(self, *, has_labels: bool = True) -> str:
        """Return the statistics for a terminal, with or without the statistics of labels."""
        labels = f"{self.label_min:g} … {self.label_max:g}, mean {self.label_mean:.3g}"
        sizes = (
            f"{self.items_min:,} … {self.items_max:,}, mean {self.items_mean:.1f}, "
            f"median {self.items_median:g}"
        )
        rows = [
            ("queries", f"{self.n_queries:,}"),
            ("items", f"{self.n_items:,}"),
            ("items per query", sizes),
            ("features", f"{self.n_features:,}, of which {self.n_constant_features:,} constant"),
            ("values", f"{self.feature_min:g} … {self.feature_max:g}"),
            ("density", f"{100 * self.density:.1f} % of the values are not zero"),
            ("missing", f"{100 * self.missing:.1f} % of the values"),
            ("labels", labels if has_labels else "none"),
            ("memory", _text.size(self.n_bytes)),
        ]
        edges, counts = self.items_histogram
        names = (
            f"{low:,}" if high == low + 1 else f"{low:,}–{high - 1:,}"
            for low, high in pairwise(edges)
        )
        bars = _text.bars(zip(names, counts, strict=True))
        blocks = [_text.pairs(rows), "  queries by number of items", bars]
        if has_labels and self.grades is not None:
            grades = ((f"{grade:g}", count) for grade, count in self.grades.items())
            blocks += ["  items by grade", _text.bars(grades)]
        if has_labels:
            useless = [
                ("one grade only", f"{self.n_queries_one_grade:,}"),
                ("no relevant item", f"{self.n_queries_none_relevant:,}"),
                ("one item only", f"{self.n_queries_one_item:,}"),
            ]
            blocks += ["  queries that teach a ranker nothing", _text.pairs(useless, indent=4)]
        return "\n".join(blocks)


def describe(dataset: RankingDataset) -> Description:
    """Return statistics of a dataset; a memory map larger than memory is read block by block.

    Examples
    --------
    >>> from countersample import RankingDataset
    >>> data = RankingDataset.from_arrays(
    ...     X=[[0, 1.5], [2, 1.5], [0, 1.5]], y=[0, 3, 0], qid=["a", "a", "b"]
    ... )
    >>> statistics = describe(data)
    >>> statistics.density, statistics.n_constant_features, statistics.grades  # 4 of 6 values
    (0.6666666666666666, 1, {0.0: 2, 3.0: 1})
    >>> statistics.items_histogram
    Histogram(edges=(1, 2, 5), counts=(1, 1))
    """
    if dataset.n_queries == 0 or dataset.n_features == 0:
        raise DataError(
            f"nothing to describe: {dataset.n_queries} queries with {dataset.n_features} features, "
            "expected at least one of each"
        )
    features, labels, sizes = dataset.features, dataset.labels, dataset.query_sizes
    n_nonzero = n_missing = 0
    for rows in row_blocks(features):
        block = features[rows]
        n_missing_here = int(np.count_nonzero(np.isnan(block)))
        n_nonzero += int(np.count_nonzero(block)) - n_missing_here
        n_missing += n_missing_here
    low, high = column_ranges(features)
    worst = np.minimum.reduceat(labels, dataset.offsets[:-1])
    best = np.maximum.reduceat(labels, dataset.offsets[:-1])
    values, counts = np.unique(labels, return_counts=True)
    grades = dict(zip(values.tolist(), counts.tolist(), strict=True))
    return Description(
        n_queries=dataset.n_queries,
        n_items=dataset.n_items,
        n_features=dataset.n_features,
        items_min=int(sizes.min()),
        items_median=float(np.median(sizes)),
        items_mean=float(sizes.mean()),
        items_max=int(sizes.max()),
        items_histogram=_histogram(sizes),
        density=n_nonzero / features.size,
        missing=n_missing / features.size,
        feature_min=float(low.min()),
        feature_max=float(high.max()),
        n_constant_features=int(np.count_nonzero(low == high)),
        label_min=float(values[0]),
        label_mean=float(labels.mean(dtype=np.float64)),
        label_max=float(values[-1]),
        grades=grades if len(grades) <= _MAX_GRADES else None,
        n_queries_one_grade=int(np.count_nonzero(worst == best)),
        n_queries_none_relevant=int(np.count_nonzero(best <= 0)),
        n_queries_one_item=int(np.count_nonzero(sizes == 1)),
        n_bytes=sum(
            array.nbytes for array in (features, labels, dataset.offsets, dataset.query_ids)
        ),
    )


def _histogram(sizes: NDArray[np.int64]) -> Histogram:
    """Count by bins 1, 2–4, 5–9, 10–19, 20–49, …, from the first to the last that is needed."""
    largest = int(sizes.max())
    series = [m * 10**e for e in range(len(str(largest)) + 1) for m in (1, 2, 5)]
    first = sum(edge <= sizes.min() for edge in series) - 1
    last = sum(edge <= largest for edge in series)
    edges = series[first : last + 1]
    return Histogram(tuple(edges), tuple(np.histogram(sizes, edges)[0].tolist()))


# -- Rows and columns ------------------------------------------------------------------------------


def stored_arrays(features: NDArray[Any] | CompactFeatures) -> tuple[NDArray[Any], ...]:
    """Return the arrays that hold features: the matrix, or codes, scale and offset."""
    if isinstance(features, CompactFeatures):
        return features.codes, features.scale, features.offset
    return (features,)


def take_rows(features: Any, rows: Ints) -> Any:  # noqa: ANN401 (array or codes)
    """Return these rows of features; codes stay codes."""
    return features.take(rows) if isinstance(features, CompactFeatures) else features[rows]


def group_rows(ids: NDArray[Any]) -> tuple[Ints | None, Ints, NDArray[Any]]:
    """Sort rows by query id, queries by their first row; return order, offsets and query ids.

    The order, (n,), has the row numbers; None if the rows of each query are adjacent already.
    """
    if ids.dtype.kind in "OUT":
        ids = np.asarray(ids.astype(str))
    elif ids.dtype.kind in "iu":
        ids = ids.astype(np.int64)
    else:
        raise DataError(f"query ids are of type {ids.dtype}, expected integers or strings")
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    _, first_run, query_of_run = np.unique(ids[starts], return_index=True, return_inverse=True)
    if len(first_run) == len(starts):
        return None, np.append(starts, len(ids)).astype(np.int64), ids[starts]
    rank = np.empty(len(first_run), np.int64)
    rank[np.argsort(first_run)] = np.arange(len(first_run))
    query = np.repeat(rank[query_of_run], np.diff(np.append(starts, len(ids))))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(query))]).astype(np.int64)
    return np.argsort(query, kind="stable"), offsets, ids[starts[np.sort(first_run)]]


def choose_features(
    names: Sequence[str],
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    *,
    is_numbered: bool = False,
) -> list[str]:
    """Return the features to use: those listed, in their order, or all that are not dropped.

    With `is_numbered` the names are only numbers: then ``"3"`` is ``"f3"``. An unknown name raises
    a DataError with the nearest name.
    """
    from countersample.data.tables import check_column  # noqa: PLC0415 (imports narwhals)

    if features is not None and drop is not None:
        raise ParameterError(
            "features to use and features to drop are both given, expected one of them"
        )
    entries = [
        f"f{name}" if is_numbered and name.isdecimal() else name for name in features or drop or ()
    ]
    for name in entries:
        check_column(name, list(names), what="feature")
    if features is not None:
        selection = list(dict.fromkeys(entries))
    else:
        selection = [name for name in names if name not in entries]
    if not selection:
        raise DataError("no feature is left, expected at least one")
    return selection


def _query_positions(queries: ArrayLike, n_queries: int) -> Ints:
    """Return positions of queries from positions or a mask."""
    positions = np.asarray(queries)
    if positions.size == 0 and positions.dtype != bool:
        return np.zeros(0, np.int64)
    if positions.ndim != 1 or positions.dtype.kind not in "iub":
        raise ParameterError("queries are positions: a list of integers, or a mask of bools")
    if positions.dtype == bool:
        if len(positions) != n_queries:
            raise ParameterError(
                f"a mask of shape {positions.shape}, expected ({n_queries},): one entry per query"
            )
        return np.flatnonzero(positions)
    is_outside = (positions < -n_queries) | (positions >= n_queries)
    if is_outside.any():
        query = positions[is_outside][0]
        raise ParameterError(f"query {query} of a dataset with {n_queries} queries")
    return positions.astype(np.int64) % n_queries


# -- Scores ----------------------------------------------------------------------------------------


class Ranker(Protocol):
    """Anything that scores items by their features."""

    def predict(self, features: NDArray[np.float32], /) -> ArrayLike:
        """Return the score of each row, (n_items,); larger ranks higher."""


def scores_of(scores_or_ranker: Any, dataset: RankingDataset) -> Any:  # noqa: ANN401 (array-like)
    """Return scores unchanged, or the scores that a ranker's ``predict`` gives to a dataset.

    A ranker of this package receives the dataset, with feature names and queries; any other ranker
    receives the features. A function receives the dataset.
    """
    if not hasattr(scores_or_ranker, "predict"):
        return scores_or_ranker(dataset) if callable(scores_or_ranker) else scores_or_ranker
    takes_datasets = getattr(scores_or_ranker, "takes_datasets", False)
    return scores_or_ranker.predict(dataset if takes_datasets else dataset.features)
