"""Tables of item features by query and item id: `read_features`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks.impressions.assembling import encode
from countersample.clicks.impressions.columns import typed_id
from countersample.clicks.impressions.counts import row_keys
from countersample.clicks.impressions.engines import Pandas
from countersample.clicks.impressions.files import find_files, format_of
from countersample.clicks.impressions.queries import join_query_ids
from countersample.data.choosing import choose_features
from countersample.data.dataset import RankingDataset
from countersample.data.frames import check_column, collected
from countersample.data.rows import group_rows
from countersample.data.store import is_dataset_folder
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    import pyarrow as pa
    from numpy.typing import NDArray

_LABEL = "label"


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Items with their features, and the ids a log knows them by.

    Parameters
    ----------
    dataset : RankingDataset
        Its labels are 0 where the table has none.
    item_ids : array (n_items,), int64 or str
        The id of each row.
    has_labels : bool
        Whether the labels came with the table.
    """

    dataset: RankingDataset
    item_ids: NDArray[Any]
    has_labels: bool


def read_features(
    source: str | PathLike[str] | Any,  # noqa: ANN401 (any frame narwhals knows)
    *,
    query: str = "query_id",
    item: str = "item_id",
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    join_queries: bool = False,
) -> FeatureTable:
    """Read the features of items, a row for each query and item.

    Parameters
    ----------
    source : path or data frame
        Parquet, CSV, TSV or JSON lines with named columns, or a data frame with them; LETOR text or
        a saved dataset, whose items are numbered from 0 in each query.
    query, item : str
        The columns of the ids.
    features : sequence of str, optional
        The columns of the features; all others by default, but for one called ``label``. Those of
        LETOR text have no names: f1, f2, …, or their numbers.
    drop : sequence of str, optional
        Or the columns that are left out, numbers or not.
    join_queries : bool
        Whether queries that differ in case and blanks only are one, as `read_impressions` has it.
        Of an item that several of them have, the first row is taken.

    Examples
    --------
    >>> import pyarrow
    >>> from countersample.clicks.impressions import read_features
    >>> table = pyarrow.table({"query_id": [1, 1], "item_id": ["x", "y"], "bm25": [0.2, 0.7]})
    >>> read_features(table).item_ids
    array(['x', 'y'], dtype='<U1')
    """
    if not isinstance(source, str | os.PathLike):
        return _of_frame(source, query, item, features, drop, join_queries=join_queries)
    name = os.fspath(source)
    if is_dataset_folder(Path(name)):
        return _of_dataset(Path(name), features, drop)
    try:
        files = find_files(name)
    except DataError:
        if not Path(name).exists() or format_of(name) is not None:
            raise
        return _of_dataset(Path(name), features, drop)  # LETOR text, whose name may be anything
    with Pandas.explained(name), ExitStack() as cleanup:
        files = files.unpacked(Pandas.unpacks, cleanup)
        table = files.format.read(files, as_text=(query, item))
        return _of_frame(
            table, query, item, features, drop, join_queries=join_queries,
            has_text_ids=files.format.has_text_ids,
        )  # fmt: skip


def _of_frame(
    frame: Any,  # noqa: ANN401 (any frame narwhals knows)
    query: str,
    item: str,
    features: Sequence[str] | None,
    drop: Sequence[str] | None,
    *,
    join_queries: bool,
    has_text_ids: bool = False,
) -> FeatureTable:
    table = collected(frame, "neither a path nor a data frame")
    if features is not None or drop is not None:
        ids_and_label = {query, item, _LABEL} - set(features or ())
        own_columns = [name for name in table.columns if name not in ids_and_label]
        features = choose_features(own_columns, features, drop)
    ids = {}
    for name, own in {"query_id": query, "item_id": item}.items():
        check_column(own, table.columns, "; name the ids with query= and item=")
        column = table.select(typed_id(own, name, table.schema[own])).to_arrow()[name]
        if column.null_count:
            raise DataError(f"{column.null_count:,} rows have no {own}, expected one in each")
        if join_queries and name == "query_id":
            column = _joined(column)
        code, distinct = encode(column, has_text_ids=has_text_ids)
        ids[name] = distinct[code]
    if join_queries:
        codes = (np.unique(column, return_inverse=True)[1] for column in ids.values())
        first = np.sort(np.unique(row_keys(*codes), return_index=True)[1])
        table = table[first.tolist()]
        ids = {name: column[first] for name, column in ids.items()}
    has_labels = _LABEL in table.columns and not (features and _LABEL in features)
    order, _, _ = group_rows(ids["query_id"])
    rest = table.drop(*(own for own in {query, item} if own not in (features or ())))
    numbered = rest.to_arrow().append_column("\0query", [ids["query_id"]])
    if not has_labels:
        numbered = numbered.append_column("\0label", [np.zeros(len(table), np.float32)])
    dataset = RankingDataset.from_frame(
        numbered,
        label=_LABEL if has_labels else "\0label",
        query="\0query",
        features=features,
    )
    item_ids = ids["item_id"] if order is None else ids["item_id"][order]
    return FeatureTable(dataset, item_ids, has_labels)


def _joined(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ids of queries joined, before it is told whether all of them are integers."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    if pa.types.is_integer(column.type):
        return column
    return pa.chunked_array([join_query_ids(column.to_numpy())])


def _of_dataset(
    path: Path, features: Sequence[str] | None, drop: Sequence[str] | None
) -> FeatureTable:
    from countersample.data.load import load_train  # noqa: PLC0415 (the reader of LETOR text)

    dataset = load_train(path).select_features(features, drop=drop)
    starts = np.repeat(dataset.offsets[:-1], dataset.query_sizes)
    return FeatureTable(dataset, np.arange(dataset.n_items) - starts, has_labels=True)
