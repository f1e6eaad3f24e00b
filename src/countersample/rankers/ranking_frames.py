"""Data frames of any library ranked where they are: `rank_frame`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from countersample._extras import need
from countersample._params import whole_number
from countersample.data.frames import as_narwhals
from countersample.data.rows import group_rows
from countersample.errors import DataError, ParameterError
from countersample.rankers.serving import (
    TableReading,
    check_ids,
    codes_of,
    rank_batches,
    rank_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countersample.rankers._saved import SavedScorer

_SPARK = (nw.Implementation.PYSPARK, nw.Implementation.PYSPARK_CONNECT)


def rank_frame(
    serving: SavedScorer,
    frame: Any,  # noqa: ANN401 (any frame narwhals knows)
    *,
    query: str | None,
    item: str | None,
    top: int | None,
) -> Any:  # noqa: ANN401 (the same kind of frame)
    """Return ids, score and rank of each row; see `ClickRanker.rank_frame`."""
    if top is not None:
        whole_number("top", top, least=1)
    native = as_narwhals(frame)
    reading = TableReading.of(serving, native.collect_schema().names(), query, item)
    if native.implementation in _SPARK:
        return _of_spark(serving, reading, frame, top)
    if isinstance(native, nw.DataFrame):
        return _of_eager(serving, reading, native, top).to_native()
    table = native.select(reading.columns).collect()
    found = _of_eager(serving, reading, table, top)
    if native.implementation == nw.Implementation.DUCKDB:
        import duckdb  # noqa: PLC0415 (heavy, only where used)

        return duckdb.from_arrow(found.to_arrow())
    return found.lazy().to_native()


def _of_eager(
    serving: SavedScorer, reading: TableReading, frame: nw.DataFrame[Any], top: int | None
) -> nw.DataFrame[Any]:
    """Rank a frame that is in memory, whatever the order of its rows; they stay in it."""
    ids = frame.select(reading.query, *([] if reading.item is None else [reading.item]))
    if not len(frame):
        raise DataError("the data frame has no rows, expected at least one")
    table = _as_arrow(frame, reading.columns)
    check_ids(reading, table)
    codes, _ = codes_of(table[reading.query])
    order, offsets, _ = group_rows(codes)
    rows = np.arange(len(codes)) if order is None else order
    scores, ranks = rank_table(serving, reading, table, rows, offsets)
    columns: dict[str, Any] = {"score": scores, "rank": ranks}
    if reading.item is None:
        place = np.arange(len(rows)) - np.repeat(offsets[:-1], np.diff(offsets))
        numbers = np.empty_like(place)
        numbers[rows] = place
        columns = {reading.names[1]: numbers, **columns}
    backend = frame.implementation
    series = [nw.new_series(name, each, backend=backend) for name, each in columns.items()]
    found = _with(ids, series)
    if top is None:
        return found
    kept = np.flatnonzero(ranks <= top)
    best = kept[np.lexsort((ranks[kept], codes[kept]))]
    chosen: nw.DataFrame[Any] = found[best.tolist()]
    return chosen


def _with(ids: nw.DataFrame[Any], series: list[nw.Series[Any]]) -> nw.DataFrame[Any]:
    """Return the ids with columns beside them, by place and not by any index."""
    if ids.implementation == nw.Implementation.PANDAS:
        index = ids.to_native().index
        natives = [each.to_native().set_axis(index) for each in series]
        series = [nw.from_native(each, series_only=True) for each in natives]
    return ids.with_columns(*series)


def _as_arrow(frame: nw.DataFrame[Any], names: list[str]) -> pa.Table:
    columns = {}
    for name in names:
        try:
            columns[name] = frame.select(name).to_arrow()[name]
        except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
            raise DataError(
                f"column {name!r} has values of mixed or unknown types, expected one type"
            ) from error
    return pa.table(columns)


def _of_spark(
    serving: SavedScorer,
    reading: TableReading,
    frame: Any,  # noqa: ANN401 (a data frame of Spark)
    top: int | None,
) -> Any:  # noqa: ANN401 (likewise)
    """Rank on the workers: a query is sorted into one partition, and ranked as it comes by."""
    if reading.item is None:
        raise ParameterError(
            "item is None and the frame has no column 'item_id', expected the column of the "
            "items' ids: rows of Spark have no order that could number them"
        )
    types = need("pyspark.sql.types")
    ids = [frame.schema[name] for name in (reading.query, reading.item)]
    schema = types.StructType([
        *ids, types.StructField("score", types.DoubleType()),
        types.StructField("rank", types.LongType()),
    ])  # fmt: skip

    def ranked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in rank_batches(serving, reading, batches, top):
            yield from table.to_batches()

    together = frame.select(*(f"`{name.replace('`', '``')}`" for name in reading.columns))
    keys = [together[f"`{name.replace('`', '``')}`"] for name in (reading.query, reading.item)]
    return together.repartition(keys[0]).sortWithinPartitions(*keys).mapInArrow(ranked, schema)
