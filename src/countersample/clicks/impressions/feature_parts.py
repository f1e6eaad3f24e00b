"""Features of pairs, of items, of queries and of a log, joined when the matrix is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks.impressions.counts import row_keys
from countersample.clicks.impressions.feature_sources import rows_by_id, rows_by_pair
from countersample.data.arrow_values import as_floats
from countersample.data.dataset import RankingDataset
from countersample.data.encoding import encode_columns
from countersample.data.frames import check_column
from countersample.data.rows import group_rows
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from countersample._arrays import Ints
    from countersample.clicks.impressions.feature_sources import FeatureSource
    from countersample.data.encoding import FeatureEncoder

LABEL = "label"


@dataclass(frozen=True, eq=False)
class FeatureParts:
    """Tables that together have the features of pairs of query and item.

    No table of all pairs is made of them: `rows` says which row of each table a pair is, and what
    is known of an item is encoded once.

    Attributes
    ----------
    sources : dict of FeatureSource
    rows : dict of int64 array (n_pairs,)
        The row of each source that each pair is; −1 where it has none.
    query_ids, item_ids : arrays (n_pairs,)
        Pairs of a query side by side.
    warnings : tuple of str
    """

    sources: dict[str, FeatureSource]
    rows: dict[str, Ints]
    query_ids: NDArray[Any]
    item_ids: NDArray[Any]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, sources: dict[str, FeatureSource], *, join_queries: bool) -> FeatureParts:
        """Match the rows of tables; the first of them has the pairs."""
        first, *others = sources
        ids = sources[first].ids
        rows = {first: np.arange(len(ids["item_id"]))}
        if join_queries:
            codes = (np.unique(column, return_inverse=True)[1] for column in ids.values())
            rows[first] = np.sort(np.unique(row_keys(*codes), return_index=True)[1])
        query_ids, item_ids = (ids[name][rows[first]] for name in ("query_id", "item_id"))
        wanted = {"query_id": query_ids, "item_id": item_ids}
        is_known = np.ones(len(query_ids), np.bool_)
        for name in others:
            source = sources[name]
            if len(source.ids) == 2:  # of pairs: what has none is missing
                rows[name] = rows_by_pair(source, wanted)
            else:
                (by,) = source.ids
                rows[name] = rows_by_id(source, by, wanted[by])
                is_known &= rows[name] >= 0
        if not is_known.any():
            raise DataError(
                "no pair of query and item has all features: check that the ids of the tables "
                "mean the same"
            )
        order, _, _ = group_rows(query_ids[is_known])
        kept = np.flatnonzero(is_known)
        kept = kept if order is None else kept[order]
        return cls(
            sources,
            {name: each[kept] for name, each in rows.items()},
            query_ids[kept],
            item_ids[kept],
            (
                *(text for source in sources.values() for text in source.warnings),
                *_of_unknown(len(is_known) - len(kept), len(is_known)),
            ),
        )

    def homes(self, features: Sequence[str] | None) -> dict[str, str]:
        """Return where each column is that may be a feature; ids and labels only where named."""
        found: dict[str, str] = {}
        for part, source in self.sources.items():
            for name in source.frame.columns:
                is_own = name in source.own_names.values() or (name == LABEL and part == "pairs")
                if is_own and name not in (features or ()):
                    continue
                if name in found:
                    raise DataError(
                        f"{source.what} and {self.sources[found[name]].what} both have a column "
                        f"{name!r}, expected names that differ: rename one"
                    )
                found[name] = part
        return found

    def tables(self, homes: Mapping[str, str], names: Iterable[str]) -> dict[str, pa.Table]:
        """Return, for each of the columns, the table that has it."""
        wanted = dict.fromkeys(names)
        for name in wanted:
            check_column(name, list(homes), what="feature")
        tables = {
            part: source.to_arrow([name for name in wanted if homes[name] == part])
            for part, source in self.sources.items()
        }
        return {name: tables[homes[name]] for name in wanted}

    def labels(self, homes: Mapping[str, str]) -> NDArray[np.float32] | None:
        """Return the labels of pairs, where their table has some that are no feature."""
        source = self.sources.get("pairs")
        if source is None or LABEL in homes or LABEL not in source.frame.columns:
            return None
        found = as_floats(LABEL, source.to_arrow([LABEL])[LABEL])
        if np.isnan(found).any():
            row = int(np.isnan(found).argmax())
            raise DataError(f"column {LABEL!r} has no value in row {row}, expected one")
        return found.astype(np.float32)[self.rows["pairs"]]

    def dataset(
        self,
        encoder: FeatureEncoder,
        homes: Mapping[str, str],
        tables: Mapping[str, pa.Table],
        labels: NDArray[np.float32] | None,
    ) -> RankingDataset:
        """Return the pairs with the features that an encoder makes of the columns."""
        matrix = encode_columns(
            encoder,
            len(self.item_ids),
            {name: (tables[name], self.rows[homes[name]]) for name in encoder.column_names},
        )
        if labels is None:
            labels = np.zeros(len(matrix), np.float32)
        return RankingDataset.from_arrays(
            matrix, labels, self.query_ids, feature_names=encoder.feature_names
        )


def _of_unknown(n_unknown: int, n_pairs: int) -> tuple[str, ...]:
    if not n_unknown:
        return ()
    told = (
        f"{n_unknown:,} of {n_pairs:,} pairs of query and item have no row in the features of "
        "items or of queries, and are left out."
    )
    return (told,)
