"""Labelled queries in memory: `RankingDataset`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._frames import Tabular, statistics
from countersample.data._arrays import (
    as_numbers,
    check_features,
    check_finite,
    check_matrix,
    check_offsets,
    has_nan,
)
from countersample.data.compact import CompactFeatures
from countersample.data.compacting import Compactable
from countersample.data.hashing import content_hash, kept_arrays
from countersample.data.rows import group_rows, query_positions, rows_of
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    from countersample.data.describe import Description
    from countersample.data.normalize import Normalizer


@dataclass(frozen=True, eq=False, repr=False)
class RankingDataset(Compactable, Tabular):
    """Queries, their items as feature vectors, and a relevance label an item.

    The items of query ``q`` are the rows ``offsets[q]:offsets[q + 1]``; the rows of a query are
    always adjacent. Arrays are kept as they are given when their type fits (a memory map stays
    one), so a dataset may be larger than memory.

    Parameters
    ----------
    features : float32 array (n_items, n_features), C-contiguous; or CompactFeatures
        NaN is a value that is missing.
    labels : float32 array (n_items,)
        Relevance grades, larger is better.
    offsets : int64 array (n_queries + 1,)
        Where each query's rows start; the first is 0 and the last is n_items.
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

    # -- made from other things

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,  # noqa: N803 (the field's name for it)
        y: ArrayLike,
        qid: ArrayLike,
        *,
        feature_names: Sequence[str] | None = None,
    ) -> RankingDataset:
        """Make a dataset of a matrix, its labels and the query id of each row.

        Rows of a query need not be adjacent: queries are put in the order in which they are first
        seen, the rows of each in the order given.

        Parameters
        ----------
        X : array-like (n_items, n_features)
        y : array-like (n_items,)
        qid : array-like (n_items,)
            Integers or strings.
        feature_names : sequence of str, optional

        Raises
        ------
        DataError
            For shapes that do not fit, no rows, a feature that is infinite or a label that is not
            finite (with its row). A feature that is NaN is missing.
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
        frame: Any,  # noqa: ANN401 (any frame narwhals knows)
        *,
        label: str = "label",
        query: str = "qid",
        features: Sequence[str] | None = None,
    ) -> RankingDataset:
        """Make a dataset of a data frame with a row an item.

        Parameters
        ----------
        frame : data frame of pandas, polars, pyarrow or DuckDB, eager or lazy
            A feature that is null in a row is missing there (NaN).
        label, query : str
            The columns of the relevance label and the query id.
        features : sequence of str, optional
            The columns of the features; all others by default.

        Examples
        --------
        >>> import pyarrow
        >>> from countersample import RankingDataset
        >>> table = pyarrow.table({"qid": [1, 1], "label": [0, 1], "bm25": [0.2, 0.7]})
        >>> RankingDataset.from_frame(table).feature_names
        ('bm25',)
        """
        from countersample.data import frames  # noqa: PLC0415 (frames imports this)

        table = frames.collected(frame)
        for column in (label, query, *(features or ())):
            frames.check_column(column, table.columns)
        names = features or [c for c in table.columns if c not in {label, query}]
        matrix = np.empty((len(table), len(names)), np.float32)
        for k, name in enumerate(names):
            matrix[:, k] = frames.features(table[name], is_chosen=features is not None)
        frames.check_no_nulls(table[query])
        labels = frames.numbers(table[label], is_chosen=True)
        return cls.from_arrays(matrix, labels, table[query].to_numpy(), feature_names=names)

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return ``qid``, ``label`` and each feature (``f1`` … where they have no names)."""
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
        """Open a folder written by `save`: a memory map, ready in milliseconds."""
        from countersample.data.store import open_folder  # noqa: PLC0415 (store imports this)

        return open_folder(folder)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the dataset as a folder of ``.npy`` files and a JSON header, atomically."""
        from countersample.data.store import save_folder  # noqa: PLC0415 (store imports this)

        save_folder(self, folder)

    # -- what it is

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
        """`feature_names`, or f1, f2, … where they have none, (n_features,)."""
        return self.feature_names or tuple(f"f{k + 1}" for k in range(self.n_features))

    @property
    def query_sizes(self) -> NDArray[np.int64]:
        """The number of items of each query, (n_queries,)."""
        return np.diff(self.offsets)

    @cached_property
    def has_missing(self) -> bool:
        """Whether a value of a feature is missing (NaN)."""
        return has_nan(self.features)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the whole content: equal data, equal fingerprint, on any machine.

        A compact dataset has that of the one it was made of: a log of one is a log of both.
        """
        return self.content_hash()

    def content_hash(self) -> str:
        """Return a hash of what is kept: of codes, the codes."""
        return content_hash(self)

    def describe(self) -> Description:
        """Figures a person wants to know: sizes, density, grades, degenerate queries."""
        from countersample.data.describe import describe  # noqa: PLC0415 (describe imports this)

        return describe(self)

    # -- parts and variants

    def subset(self, queries: ArrayLike) -> RankingDataset:
        """Return the dataset of these queries, in this order.

        Parameters
        ----------
        queries : array-like of int (positions) or of bool (n_queries,)
        """
        chosen = query_positions(queries, self.n_queries)
        sizes = self.query_sizes[chosen]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = np.repeat(self.offsets[chosen] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return RankingDataset(
            rows_of(self.features, rows),
            self.labels[rows],
            offsets,
            self.query_ids[chosen],
            self.feature_names,
        )

    def split(
        self, *fractions: float, rng: np.random.Generator | int | None = None
    ) -> tuple[RankingDataset, ...]:
        """Split the queries at random into parts of the given fractions.

        Parameters
        ----------
        *fractions : float
            Each in (0, 1), together at most 1 (what is left over is left out).
        rng : numpy Generator or seed

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

        Parameters
        ----------
        how : {"query-minmax", "minmax", "root-minmax", "standard"} or a fitted Normalizer
            A name fits on this dataset; pass the normalizer of the training data for other data.
        """
        from countersample.data.normalize import Normalizer  # noqa: PLC0415 (imports this)

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
            The names of those to keep, in this order, or of those to leave out. Features without
            names are called f1, f2, …, or by their numbers: 1, 2, ….

        Examples
        --------
        >>> from countersample import synthetic
        >>> data = synthetic("tiny", rng=0)
        >>> data.select_features(["2", "f1"]).feature_names
        ('f2', 'f1')
        """
        from countersample.data.choosing import choose_features  # noqa: PLC0415 (imports this)

        known = self.names_of_features
        chosen = choose_features(known, features, drop, is_numbered=self.feature_names is None)
        if chosen == list(known):
            return self
        index = [known.index(name) for name in chosen]
        if isinstance(self.features, CompactFeatures):
            matrix: Any = self.features.select(index)
        else:
            matrix = np.ascontiguousarray(self.features[:, index])
        return RankingDataset(matrix, self.labels, self.offsets, self.query_ids, tuple(chosen))

    # -- Python's habits

    def __len__(self) -> int:
        return self.n_queries

    __hash__ = None  # type: ignore[assignment] # compared by content, as arrays are

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RankingDataset):
            return NotImplemented
        if self.feature_names != other.feature_names or self.bits != other.bits:
            return False
        if self.bits is not None and self.features.roots != other.features.roots:
            return False
        mine, others = (
            (each.offsets, each.query_ids, each.labels, *kept_arrays(each.features))
            for each in (self, other)
        )
        return all(map(_are_equal, mine, others))

    def __repr__(self) -> str:
        grades = f"{self.labels.min():g}..{self.labels.max():g}" if self.n_items else "none"
        return (
            f"RankingDataset(n_queries={self.n_queries:_}, n_items={self.n_items:_}, "
            f"n_features={self.n_features:_}, labels={grades}"
            f"{'' if self.bits is None else f', bits={self.bits}'})"
        )


def _are_equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Tell whether arrays are equal; what is missing is equal to what is missing."""
    return np.array_equal(one, other, equal_nan=one.dtype.kind == other.dtype.kind == "f")
