"""Statistics of a dataset: `describe`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from countersample import _text
from countersample._frames import Tabular, statistics
from countersample.data.matrices import column_ranges, row_blocks
from countersample.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from countersample.data.dataset import RankingDataset

_MAX_GRADES = 20


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
