"""Statistics of a dataset: `describe`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample import _text
from countersample._frames import Tabular, statistics
from countersample.data.matrices import column_ranges, row_blocks
from countersample.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample.data.dataset import RankingDataset

_MOST_GRADES = 20


@dataclass(frozen=True)
class Histogram:
    """Whole numbers by bin: ``counts[b]`` of them are in ``edges[b] .. edges[b + 1] - 1``."""

    edges: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Description(Tabular):
    """Statistics of a dataset, computed by `describe`.

    Attributes
    ----------
    n_queries, n_items, n_features : int
    items_min, items_max : int
    items_median, items_mean : float
        Items of a query.
    items_histogram : Histogram
        Queries by number of items; edges 1, 2, 5, 10, 20, 50, …
    density : float
        Share of the feature values that are there and not zero.
    missing : float
        Share of the feature values that are missing.
    feature_min, feature_max : float
        Over all features.
    n_constant_features : int
        Features with at most one value.
    label_min, label_mean, label_max : float
    grades : dict of float to int, or None
        How many items have each label; None where there are more than 20 different labels.
    n_queries_one_grade : int
        Queries whose items all have the same label: nothing can be learned from their labels.
    n_queries_none_relevant : int
        Queries without an item of label > 0.
    n_queries_one_item : int
    n_bytes : int
        Memory of the arrays.
    """

    n_queries: int
    n_items: int
    n_features: int
    items_min: int
    items_median: float
    items_mean: float
    items_max: int
    items_histogram: Histogram
    density: float
    missing: float
    feature_min: float
    feature_max: float
    n_constant_features: int
    label_min: float
    label_mean: float
    label_max: float
    grades: dict[float, int] | None
    n_queries_one_grade: int
    n_queries_none_relevant: int
    n_queries_one_item: int
    n_bytes: int

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the names and values of the statistics."""
        return statistics(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as plain values for JSON; grades have strings as keys there.

        Examples
        --------
        >>> from countersample import synthetic
        >>> synthetic("tiny", rng=0).describe().to_dict()["grades"]
        {'0': 408, '1': 235, '2': 172, '3': 92, '4': 42}
        """
        values = asdict(self)
        if self.grades is not None:
            values["grades"] = {f"{grade:g}": count for grade, count in self.grades.items()}
        return values

    def summary(self, *, has_labels: bool = True) -> str:
        """Return the statistics for a terminal, with or without those of labels."""
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
        bins = zip(pairwise(self.items_histogram.edges), self.items_histogram.counts, strict=True)
        names = (
            (f"{low:,}" if high == low + 1 else f"{low:,}–{high - 1:,}", count)
            for (low, high), count in bins
        )
        blocks = [_text.pairs(rows), "  queries by number of items", _text.bars(names)]
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
    """Return statistics of a dataset, from one pass over the features.

    The features are read block by block, so a memory map larger than memory is fine.

    Raises
    ------
    DataError
        For a dataset without queries or without features.

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
    >>> statistics.n_queries_one_grade, statistics.n_queries_none_relevant
    (1, 1)
    >>> statistics.n_queries_one_item
    1
    """
    if dataset.n_queries == 0 or dataset.n_features == 0:
        raise DataError(
            f"nothing to describe: {dataset.n_queries} queries with {dataset.n_features} features, "
            "expected at least one of each"
        )
    sizes = dataset.query_sizes
    return Description(
        n_queries=dataset.n_queries,
        n_items=dataset.n_items,
        n_features=dataset.n_features,
        items_min=int(sizes.min()),
        items_median=float(np.median(sizes)),
        items_mean=float(sizes.mean()),
        items_max=int(sizes.max()),
        items_histogram=_histogram(sizes),
        **_describe_features(dataset.features),
        **_describe_labels(dataset.labels, dataset.offsets),
        n_queries_one_item=int(np.count_nonzero(sizes == 1)),
        n_bytes=sum(
            array.nbytes
            for array in (dataset.features, dataset.labels, dataset.offsets, dataset.query_ids)
        ),
    )


def _describe_features(features: NDArray[np.float32]) -> dict[str, Any]:
    n_nonzero = n_missing = 0
    for rows in row_blocks(features):
        block = features[rows]
        here = int(np.count_nonzero(np.isnan(block)))
        n_nonzero += int(np.count_nonzero(block)) - here
        n_missing += here
    low, high = column_ranges(features)
    return {
        "density": n_nonzero / features.size,
        "missing": n_missing / features.size,
        "feature_min": float(low.min()),
        "feature_max": float(high.max()),
        "n_constant_features": int(np.count_nonzero(low == high)),
    }


def _describe_labels(labels: NDArray[np.float32], offsets: NDArray[np.int64]) -> dict[str, Any]:
    worst = np.minimum.reduceat(labels, offsets[:-1])
    best = np.maximum.reduceat(labels, offsets[:-1])
    values, counts = np.unique(labels, return_counts=True)
    few = len(values) <= _MOST_GRADES
    return {
        "label_min": float(values[0]),
        "label_mean": float(labels.mean(dtype=np.float64)),
        "label_max": float(values[-1]),
        "grades": dict(zip(values.tolist(), counts.tolist(), strict=True)) if few else None,
        "n_queries_one_grade": int(np.count_nonzero(worst == best)),
        "n_queries_none_relevant": int(np.count_nonzero(best <= 0)),
    }


def _histogram(sizes: NDArray[np.int64]) -> Histogram:
    """Count by bins 1, 2–4, 5–9, 10–19, 20–49, …, from the first to the last that is needed."""
    most = int(sizes.max())
    series = [m * 10**e for e in range(len(str(most)) + 1) for m in (1, 2, 5)]
    first = sum(edge <= sizes.min() for edge in series) - 1
    last = sum(edge <= most for edge in series)
    edges = series[first : last + 1]
    return Histogram(tuple(edges), tuple(np.histogram(sizes, edges)[0].tolist()))
