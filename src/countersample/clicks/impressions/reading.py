"""Open a log of files or a frame: `read_impressions`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import narwhals as nw

from countersample.clicks.impressions.engines import ENGINES, find_engine, make_engine
from countersample.clicks.impressions.explaining import explained
from countersample.clicks.impressions.handle import Impressions, Opened
from countersample.clicks.impressions.preparing import Preparation
from countersample.clicks.impressions.readers import find_reader
from countersample.clicks.impressions.readers.plain import Plain
from countersample.data.frames import as_narwhals
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from countersample.clicks.impressions.engines import Engine

_DEFAULT = next(iter(ENGINES))


def read_impressions(
    source: str | PathLike[str] | Any,  # noqa: ANN401 (any frame narwhals knows)
    *,
    reader: str | None = None,
    columns: Mapping[str, str] | None = None,
    context: str | Sequence[str] | None = None,
    values: Mapping[str, float] | None = None,
    join_queries: bool = False,
    positions_from: Literal[0, 1] = 1,
    features: Sequence[str] = (),
    engine: str | None = None,
    master: str | None = None,
    memory_limit: str | None = None,
    temp_dir: str | PathLike[str] | None = None,
) -> Impressions:
    """Open a log of impressions; nothing is loaded before it is needed.

    Parameters
    ----------
    source : path, glob, address or data frame
        Parquet (a file, a folder, a glob, partitioned), CSV, TSV or JSON lines, compressed too; a
        folder with the ``ubi_queries`` and ``ubi_events`` of User Behavior Insights; or a data
        frame of pandas, polars, pyarrow, DuckDB or Spark. A log may be aggregated: with a column
        ``impressions``, a row stands for so many impressions; see `count_days`.
    reader : {"ubi", "metarank", "baidu-ultr", "yandex", "open-bandit", "expedia"}, optional
        Whose log the files are, where its columns are not named as here.
    columns : mapping, optional
        The log's own names of canonical columns: ``{"query_id": "q"}``.
    context : str or sequence of str, optional
        The log's own columns that say where a row was shown, such as ``["device", "layout"]``;
        ``context`` where there is such a column.
    values : mapping, optional
        What events are worth: ``{"click": 1, "cart": 3, "purchase": 10}``. The column ``event``
        tells what happened; an event that is named here is a click of that value, others are
        none. Rows of the same session, query, item and position are one impression, whose value
        is the sum over its distinct events.
    join_queries : bool
        Whether queries that differ in case and blanks only are one; ids of features are joined by
        `join_query_ids`.
    positions_from : {1, 0}
        The number of the first position in the log.
    features : sequence of str
        The log's own columns of numbers that are features of what was shown: ``["price"]``. A query
        and item have the mean over their impressions; see `read_features`.
    engine : {"duckdb", "spark"}, optional
        The engine that counts the log: by default Spark for a frame of Spark, else DuckDB.
    master : str, optional
        The Spark master, such as ``spark://host:7077``; all cores of this machine by default.
    memory_limit : str, optional
        How much memory DuckDB may take, such as ``"2GB"``; beyond it, it uses the disk.
    temp_dir : path, optional
        Where DuckDB puts what does not fit.

    Examples
    --------
    >>> import pyarrow
    >>> from countersample.clicks.impressions import read_impressions
    >>> table = pyarrow.table({"q": ["a", "a"], "item_id": [7, 9], "rank": [1, 2], "click": [0, 1]})
    >>> log = read_impressions(table, columns={"query_id": "q", "position": "rank"})
    >>> log.counts().clicks
    array([0, 1])
    """
    preparation = Preparation.of(
        columns, context, values, join_queries=join_queries, positions_from=positions_from,
        features=features,
    )  # fmt: skip
    settings = {
        "master": master,
        "memory_limit": memory_limit,
        "temp_dir": None if temp_dir is None else os.fspath(temp_dir),
    }
    with ExitStack() as cleanup:
        if isinstance(source, str | os.PathLike):
            log = _read_files(os.fspath(source), reader, preparation, engine, settings, cleanup)
        elif reader is not None:
            raise ParameterError("reader is for files, not for a frame: name its columns instead")
        else:
            log = _read_frame(source, preparation, engine, settings, cleanup)
        return replace(
            log, has_events=bool(preparation.values), joins_queries=preparation.join_queries,
            features=preparation.features, _opened=Opened(cleanup.pop_all()),
        )  # fmt: skip


def _read_files(
    source: str,
    reader: str | None,
    preparation: Preparation,
    engine: str | None,
    settings: dict[str, str | None],
    cleanup: ExitStack,
) -> Impressions:
    log_reader = find_reader(reader, source)
    if preparation.features and not isinstance(log_reader, Plain):
        raise ParameterError(
            "features of the log are those of a log with a row for each impression, in columns of "
            "its own, and not of somebody else's: give them in a table of features"
        )
    runner = make_engine(find_engine(engine or _DEFAULT), cleanup, settings)
    with runner.explained(source):
        rows, has_text_ids = log_reader.open(source, runner, preparation, cleanup)
        runner.check_types(rows.to_native())
        frame = preparation.finish(rows)
    return Impressions(frame, runner.name, source, has_text_ids=has_text_ids)


def _read_frame(
    source: Any,  # noqa: ANN401 (any frame narwhals knows)
    preparation: Preparation,
    engine: str | None,
    settings: dict[str, str | None],
    cleanup: ExitStack,
) -> Impressions:
    native = as_narwhals(source, "neither a path nor a data frame")
    kind = native.implementation
    home = next((each for each in ENGINES.values() if kind in each.implementations), None)
    chosen = home or ENGINES[_DEFAULT] if engine is None else find_engine(engine)
    name = f"the {kind.value} frame"
    with chosen.explained(name):
        with explained(name, _errors_of(kind, home)):
            frame = preparation.select(native.lazy())
        if chosen is not home:
            _check_objects(frame)
            runner = make_engine(chosen, cleanup, settings)
            with explained(name, _errors_of(kind, home)):
                table = frame.collect(backend="pyarrow").to_arrow()
            frame = nw.from_native(runner.from_arrow(table)).lazy()
        elif any(settings.values()):
            raise ParameterError("master, memory_limit and temp_dir are for files, not for a frame")
        return Impressions(preparation.finish(frame), chosen.name, name)


def _errors_of(kind: nw.Implementation, home: type[Engine] | None) -> tuple[type[Exception], ...]:
    """Return the errors of the library whose frame is read, beside those of Arrow and narwhals."""
    if home is not None:
        return home.errors()
    if kind is nw.Implementation.POLARS:
        return (import_module("polars").exceptions.PolarsError,)
    return ()


def _check_objects(frame: nw.LazyFrame[Any]) -> None:
    """Reject a column of pandas objects of several types, with a clearer error than Arrow's."""
    for name, dtype in frame.collect_schema().items():
        if dtype == nw.Object:
            values = frame.select(name).collect()[name].drop_nulls().to_list()
            kinds = sorted({type(value).__name__ for value in values})
            if len(kinds) > 1:
                raise DataError(
                    f"{name} has values of type {' and '.join(kinds)}, expected one type: make "
                    "them one"
                )
