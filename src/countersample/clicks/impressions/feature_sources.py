"""Tables of features as they are given: files and frames, with the ids that rows are known by."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.clicks.impressions.assembling import encode
from countersample.clicks.impressions.columns import typed_id
from countersample.clicks.impressions.counts import row_keys
from countersample.clicks.impressions.files import open_tables
from countersample.clicks.impressions.log_features import pairs_of
from countersample.clicks.impressions.queries import join_query_ids
from countersample.data.frames import check_column, collected
from countersample.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    import narwhals as nw
    import pyarrow as pa
    from numpy.typing import NDArray

    from countersample._arrays import Ints
    from countersample.clicks.impressions.handle import Impressions


@dataclass(frozen=True, eq=False)
class FeatureSource:
    """A table in memory, and the ids of its rows.

    Attributes
    ----------
    what : str
        What it is called in errors.
    frame : narwhals.DataFrame
    ids : dict of array (n_rows,), int64 or str
        ``query_id``, ``item_id``, or both.
    own_names : dict of str
        The names of these columns in the table.
    warnings : tuple of str
        What to know of its columns.
    """

    what: str
    frame: nw.DataFrame[Any]
    ids: dict[str, NDArray[Any]]
    own_names: dict[str, str]
    warnings: tuple[str, ...] = ()

    def to_arrow(self, names: Sequence[str]) -> pa.Table:
        """Return columns as an Arrow table."""
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

        columns = {}
        for name in names:
            try:
                columns[name] = self.frame.select(name).to_arrow()[name]
            except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
                raise DataError(
                    f"column {name!r} has values of mixed or unknown types, expected one type: "
                    "make them one, or leave it out (--exclude)"
                ) from error
        return pa.table(columns)


def open_features(
    source: str | PathLike[str] | Any,  # noqa: ANN401 (any frame narwhals knows)
    ids: Mapping[str, str],
    *,
    what: str,
    join_queries: bool,
    as_text: Sequence[str] = (),
) -> FeatureSource:
    """Read a table with named columns; `ids` are its own names of ``query_id`` and ``item_id``.

    Of files without types, columns `as_text` stay text, whatever they look like.
    """
    if not isinstance(source, str | os.PathLike):
        return _of_frame(source, ids, what, join_queries=join_queries, has_text_ids=False)
    with open_tables(os.fspath(source)) as files:
        table = files.format.read(files, as_text=(*ids.values(), *as_text))
        return _of_frame(
            table, ids, what, join_queries=join_queries, has_text_ids=files.format.has_text_ids
        )


def _of_frame(
    frame: Any,  # noqa: ANN401 (any frame narwhals knows)
    ids: Mapping[str, str],
    what: str,
    *,
    join_queries: bool,
    has_text_ids: bool,
) -> FeatureSource:
    table = collected(frame, "neither a path nor a data frame")
    found = {}
    for name, own in ids.items():
        check_column(own, table.columns, "; name the ids with query= and item=")
        column = table.select(typed_id(own, name, table.schema[own])).to_arrow()[name]
        if column.null_count:
            raise DataError(f"{column.null_count:,} rows have no {own}, expected one in each")
        if join_queries and name == "query_id":
            column = _joined(column)
        code, distinct = encode(column, has_text_ids=has_text_ids)
        found[name] = distinct[code]
    return FeatureSource(what, table, found, dict(ids))


def _joined(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ids of queries joined, before it is told whether all of them are integers."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    if pa.types.is_integer(column.type):
        return column
    return pa.chunked_array([join_query_ids(column.to_numpy())])


def rows_by_id(source: FeatureSource, name: str, wanted: NDArray[Any]) -> Ints:
    """Return the row of a table that has each wanted id, −1 where none has, (n,)."""
    known = source.ids[name]
    if not len(known):
        return np.full(len(wanted), -1)
    _check_kinds(source, name, wanted)
    order = np.argsort(known, kind="stable")
    in_order = known[order]
    twice = np.flatnonzero(in_order[1:] == in_order[:-1])
    if len(twice):
        raise DataError(
            f"{source.what} have {name} {in_order[twice[0]].item()!r} twice, expected a row for "
            "each: drop the duplicates"
        )
    distinct, code = np.unique(wanted, return_inverse=True)
    index = np.minimum(np.searchsorted(in_order, distinct), len(in_order) - 1)
    found = np.where(in_order[index] == distinct, order[index], -1)
    return found[code]


def rows_by_pair(source: FeatureSource, wanted: Mapping[str, NDArray[Any]]) -> Ints:
    """Return the row of a table that has each wanted pair, −1 where none has, (n,)."""
    n_known = len(source.ids["item_id"])
    if not n_known:
        return np.full(len(wanted["item_id"]), -1)
    codes = []
    for name, known in source.ids.items():
        _check_kinds(source, name, wanted[name])
        codes.append(np.unique(np.concatenate([known, wanted[name]]), return_inverse=True)[1])
    keys = row_keys(*codes)
    order = np.argsort(keys[:n_known], kind="stable")
    in_order = keys[:n_known][order]
    index = np.minimum(np.searchsorted(in_order, keys[n_known:]), n_known - 1)
    return np.where(in_order[index] == keys[n_known:], order[index], -1)


def _check_kinds(source: FeatureSource, name: str, wanted: NDArray[Any]) -> None:
    both = wanted, source.ids[name]
    kinds = ["text" if ids.dtype.kind in "OUT" else "integers" for ids in both]
    if kinds[0] != kinds[1]:
        raise DataError(
            f"{name} is {kinds[0]} among the pairs of query and item, and {kinds[1]} in "
            f"{source.what}, expected one type: make them one"
        )


def open_features_of(log: Impressions) -> FeatureSource:
    """Return the pairs of query and item that a log shows, with the features that it has itself."""
    pairs = pairs_of(log)
    names = {"query_id": "query_id", "item_id": "item_id"}
    found = _of_frame(
        pairs.table, names, "the log", join_queries=False, has_text_ids=log.has_text_ids
    )
    return replace(found, warnings=pairs.warnings)
