"""Open a log of files or a frame: `read_impressions`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import narwhals as nw

from countersample.clicks.impressions.engines import ENGINES, find_engine, make_engine
from countersample.clicks.impressions.explaining import explained
from countersample.clicks.impressions.files import find_files
from countersample.clicks.impressions.formats import JOINED_QUERIES, TEXT_IDS, Parquet
from countersample.clicks.impressions.handle import Impressions, Opened
from countersample.clicks.impressions.preparing import Preparation
from countersample.clicks.impressions.readers import find_reader
from countersample.clicks.impressions.readers.plain import Plain
from countersample.data.frames import as_narwhals
from countersample.errors import DataError, ParameterError
from countersample.options import LogOptions

if TYPE_CHECKING:
    from os import PathLike

    from countersample.clicks.impressions.engines import Engine

_DEFAULT = next(iter(ENGINES))


def read_impressions(
    source: str | PathLike[str] | Any,  # noqa: ANN401 (any frame narwhals knows)
    options: LogOptions | None = None,
    **settings: Any,  # noqa: ANN401 (fields of LogOptions)
) -> Impressions:
    """Open a raw log of impressions; nothing is loaded before it is needed.

    Parameters
    ----------
    source : path, glob, address or data frame
        Parquet (a file, a folder, a glob, partitioned), CSV, TSV or JSON lines, compressed too; a
        folder with the ``ubi_queries`` and ``ubi_events`` of User Behavior Insights; a folder that
        `count_days` wrote, or some of its days; or a data frame of pandas, polars, pyarrow, DuckDB
        or Spark.
    options : LogOptions, optional
        How the log is read.
    **settings
        Or single fields of `LogOptions`, by keyword.

    Examples
    --------
    >>> import pyarrow
    >>> from countersample.clicks.impressions import read_impressions
    >>> table = pyarrow.table({"q": ["a", "a"], "item_id": [7, 9], "rank": [1, 2], "click": [0, 1]})
    >>> log = read_impressions(table, columns={"query_id": "q", "position": "rank"})
    >>> log.counts().clicks
    array([0, 1])
    """
    options = LogOptions.of(options, **settings)
    log = _open_log(source, options)
    return log.without_suspicious() if options.suspicious == "skip" else log


def _open_log(source: str | PathLike[str] | Any, options: LogOptions) -> Impressions:  # noqa: ANN401
    reader, engine = options.reader, options.engine
    preparation = Preparation.of(
        options.columns, options.context, options.values,
        join_queries=options.join_queries,
        positions_from=options.positions_from, features=options.features,
    )  # fmt: skip
    settings = {
        "master": options.master,
        "memory_limit": options.memory_limit,
        "temp_dir": None if options.temp_dir is None else os.fspath(options.temp_dir),
    }
    with ExitStack() as cleanup:
        if isinstance(source, str | os.PathLike):
            log = _read_files(os.fspath(source), reader, preparation, engine, settings, cleanup)
        elif reader is not None:
            raise ParameterError("reader is for files, not for a frame: name its columns instead")
        else:
            log = _read_frame(source, preparation, engine, settings, cleanup)
        _check_aggregated(log, source, options)
        return replace(
            log, has_events=bool(preparation.values), joins_queries=preparation.join_queries,
            features=preparation.features, _opened=Opened(cleanup.pop_all()),
        )  # fmt: skip


def _check_aggregated(
    log: Impressions,
    source: str | PathLike[str] | Any,  # noqa: ANN401 (any frame narwhals knows)
    options: LogOptions,
) -> None:
    """Reject options and times that would change the sessions of an aggregated log."""
    if "sessions" not in log.columns:
        return
    metadata = {}
    if isinstance(source, str | os.PathLike):
        files = find_files(os.fspath(source))
        metadata = files.format.metadata(files) if isinstance(files.format, Parquet) else {}
    if options.join_queries and metadata.get(JOINED_QUERIES) != b"true":
        raise DataError(
            f"{log.source}: join_queries would add up the sessions of queries that were counted "
            "apart: join them when the log is counted (log count --join-queries)"
        )
    if options.positions_from == 0 and TEXT_IDS in metadata:
        raise DataError(
            f"{log.source}: positions_from is 0, and an aggregated log counts positions from 1: "
            "leave it out"
        )
    kind = log.frame.collect_schema().get("timestamp")
    if kind is not None and (kind.is_numeric() or getattr(kind, "time_zone", None)):
        raise DataError(
            f"{log.source}: the timestamp is {kind}, and the sessions of an aggregated log are "
            "those of a day: expected a date, or text such as 2026-03-31"
        )


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
