"""A raw log: `read_impressions` opens it, `Impressions` counts, checks, filters and samples it.

Each of these is computed in a module of its own (`tally`, `checks`, `days`); its columns are made
by `columns`.
"""

from __future__ import annotations

import os
import weakref
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from countersample._files import atomic_path, check_outputs
from countersample._params import whole_number
from countersample.data.tables import as_narwhals
from countersample.errors import DataError, ParameterError
from countersample.logs import aggregation
from countersample.logs.checks import LogCheck, check, describe_sessions, without_suspicious
from countersample.logs.columns import FEATURE, list_unused, prepare_rows, select_columns
from countersample.logs.days import (
    Days,
    convert_to_utc,
    find_clock,
    find_days,
    parse_days,
    weighted_days,
)
from countersample.logs.engines import ENGINES, check_types, collect, find_engine
from countersample.logs.files import JOINED_QUERIES, TEXT_IDS, explained, find_files
from countersample.logs.findings import add_up_pages, read_page_sums
from countersample.logs.joins import RowPropensities
from countersample.logs.readers import find_reader, open_with_reader
from countersample.logs.tally import (
    MAX_GROUPS,
    find_rows,
    find_visits,
    integers,
    tally,
)
from countersample.options import LogOptions

if TYPE_CHECKING:
    from datetime import date
    from os import PathLike

    from countersample.logs.checks import Suspicious
    from countersample.logs.counts import PositionCounts
    from countersample.logs.days import Clock
    from countersample.logs.findings import PageSums
    from countersample.logs.tally import Visits

_DEFAULT_ENGINE = next(iter(ENGINES))


class _Resources:
    """Resources of a log, closed when the last handle on it is gone."""

    def __init__(self, cleanup: ExitStack) -> None:
        self.close = weakref.finalize(self, cleanup.close)


@dataclass(frozen=True, eq=False, repr=False)
class Impressions(AbstractContextManager["Impressions"]):
    """A log that is open but not loaded: results shown at positions, and clicks on them.

    `read_impressions` returns it. Use it in a ``with`` block, or `close` it, to release a Spark
    session or an unpacked file at once; otherwise garbage collection does.

    Attributes
    ----------
    frame : narwhals.LazyFrame
        The canonical columns: ``query_id``, ``item_id``, ``position``, ``click``, and, if the
        log has them, ``session``, ``client``, ``timestamp``, ``policy``, ``impressions``,
        ``propensity``, ``context``, ``value``, ``sessions``, ``session_policies``.
    engine : str
        The engine that counts it: duckdb or spark.
    source : str
        The path, or the kind of frame.
    has_text_ids : bool
        Whether ids came as text of a CSV file, so that "7" may mean the number.
    has_events : bool
        Whether the values of events define clicks.
    joins_queries : bool
        Whether queries that differ only in case and blanks are one.
    left_out : Suspicious, optional
        The sessions, clients and rows that `without_suspicious` left out.
    features : tuple of str
        The log's own columns that are features.
    half_life : float, optional
        The number of days after which a day counts half in training; see `with_half_life`.
    page_sums : PageSums, optional
        What an aggregated log stores of the views that it had.
    unused : tuple of str
        The columns of a table that are not read.
    """

    frame: nw.LazyFrame[Any]
    engine: str
    source: str
    has_text_ids: bool = False
    has_events: bool = False
    joins_queries: bool = False
    left_out: Suspicious | None = None
    features: tuple[str, ...] = ()
    half_life: float | None = None
    page_sums: PageSums | None = None
    unused: tuple[str, ...] = ()
    _resources: _Resources = field(default_factory=lambda: _Resources(ExitStack()))
    _cache: dict[str, Any] = field(default_factory=dict)  # the clock and the days of the frame

    @property
    def columns(self) -> tuple[str, ...]:
        """The canonical columns that the log has."""
        names = self.frame.collect_schema().names()
        return tuple(name for name in names if not name.startswith(FEATURE))

    @property
    def is_aggregated(self) -> bool:
        """Whether a row stands for several impressions."""
        return "impressions" in self.columns

    # -- counting

    def counts(self, *, max_groups: int = MAX_GROUPS) -> PositionCounts:
        """Count impressions and clicks of each query, item, position and context.

        Parameters
        ----------
        max_groups : int
            If there are more groups, items that were never clicked are counted together per query,
            as `PositionCounts.rest`. Estimates from clicks do not change.

        Raises
        ------
        DataError
            If rows are impossible (no id, a position of 0, a click of 2): with their number.
            ``check().counts`` leaves such rows out.
        """
        problems, counts, _ = tally(self, max_groups=max_groups)
        reason = problems.sentence(has_impressions=self.is_aggregated)
        if reason is not None:
            raise DataError(
                f"{self.source}: {reason}; correct them, or count the others with check().counts"
            )
        if counts is None:
            raise DataError(f"{self.source}: the log has no rows, expected at least one impression")
        return counts

    def check(self, *, randomized: str | None = None, max_groups: int = MAX_GROUPS) -> LogCheck:
        """Validate and describe the log; see `LogCheck`.

        Parameters
        ----------
        randomized : str, optional
            The policy whose rankings were shuffled at random; by default it is found by its name.
        max_groups : int
            As in `counts`.
        """
        return check(self, randomized=randomized, max_groups=max_groups)

    def logged_propensities(self, counts: PositionCounts) -> RowPropensities:
        """Return the log's own propensity of each row of `counts`: Σ value / Σ value/propensity.

        It is the (harmonic) mean over the clicks of the row, weighted by their value, so that the
        weight of the row is the sum of their weights. It is 1 if the clicks have no value, NaN
        without a click.
        """
        if "propensity" not in self.columns:
            raise DataError(f"{self.source}: no column 'propensity'")
        weight = np.zeros(len(counts))
        for share, part in weighted_days(self):
            table = part.collect(aggregation.group_weights(part.frame))
            n_bad = (integers(table["clicked"]).sum() - integers(table["good"]).sum()).item()
            if n_bad:
                raise DataError(
                    f"{self.source}: the propensity is missing, 0 or beyond 1 in {n_bad:,} of the "
                    "rows with a click, expected within (0, 1]: correct them, or estimate "
                    "propensities from the log"
                )
            rows = find_rows(table, counts, has_text_ids=self.has_text_ids)
            weight[rows] += share * table["weight"].to_numpy()
        if not np.isfinite(weight).all():
            raise DataError(
                f"{self.source}: a propensity is so small that the weight of its click is infinite "
                "in floating point: correct it, or estimate propensities from the log"
            )
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = counts.value / weight
        mean[(counts.clicks > 0) & (counts.value == 0)] = 1.0
        return RowPropensities(np.minimum(mean, 1.0))  # NaN stays

    def visits(self, counts: PositionCounts) -> Visits | None:
        """Return the sessions one by one, for intervals; None without ids of sessions."""
        return find_visits(self, counts)

    def collect(self, frame: nw.LazyFrame[Any]) -> pa.Table:
        """Compute a frame that derives from `frame` in the engine; return it as an Arrow table."""
        return collect(frame, self.source)

    # -- parts of the log

    def with_frame(self, frame: nw.LazyFrame[Any], **changes: Any) -> Impressions:  # noqa: ANN401 (fields)
        """Return the log with other rows; the unit of its timestamps stays the same."""
        cache = {name: value for name, value in self._cache.items() if name == "clock"}
        # The sums of pages are about all rows of the log.
        return replace(self, frame=frame, _cache=cache, **({"page_sums": None} | changes))

    def without_suspicious(self) -> Impressions:
        """Return the log without sessions that look wrong, and with repeated rows counted once.

        Sessions that clicked everything they showed, clients with very many sessions and repeated
        rows are left out; see `Suspicious`. The log is read once to find them.
        """
        if "session" not in self.columns:
            remedy = (
                ": this log is aggregated, so leave them out when you count a day "
                "(countersample log count --suspicious skip)"
            )
            raise DataError(
                f"{self.source}: no column 'session', so sessions that look wrong cannot be found"
                + (remedy if self.is_aggregated else "")
            )
        suspicious = describe_sessions(self).suspicious
        assert suspicious is not None  # noqa: S101 (the log has ids of sessions)
        pages = add_up_pages(self)
        merges_views = pages.has_click_rows or pages.has_repeated_rows
        rows = without_suspicious(self.frame, suspicious, merges_views=merges_views)
        return self.with_frame(rows, left_out=replace(suspicious, is_left_out=True))

    def of_policy(self, *policies: str) -> Impressions:
        """Return the rows of one policy, or of several: the randomized traffic."""
        if "policy" not in self.columns:
            raise DataError(
                f"{self.source}: no column 'policy', so its rows cannot be selected by policy"
            )
        # A list, because narwhals 2.10 hands it on to Spark.
        return self.with_frame(self.frame.filter(nw.col("policy").is_in([*policies])))

    def sample_queries(self, n: int, *, seed: int = 0) -> Impressions:
        """Return all rows of n queries, drawn without replacement; the same in every engine.

        A query has all of its sessions or none, so an item's propensity, (1/S_q) Σ θ, and with it
        the weight of its clicks, is the same as in the whole log. In a sample of rows it would not
        be: a session with one row left would seem not to have shown the other items. A smaller
        sample with the same seed is a part of a larger one.
        """
        whole_number("n", n, least=1)
        prefix = f"{whole_number('seed', seed, least=0)}:"
        ids = self.frame.filter(~nw.col("query_id").is_null()).select("query_id").unique()
        first = find_engine(self.engine).first_by_digest(ids, n, prefix, self.source)
        return self.with_frame(self.frame.join(first, on="query_id", how="semi"))

    def write(self, path: str | PathLike[str]) -> int:
        """Write the log as one Parquet file with the canonical columns, sorted; return its rows."""
        check_outputs([Path(path)], [self.source])
        # Engines have no order; equal logs give equal files.
        table = self.collect(self.frame.sort(*self.columns))
        if not len(table):
            raise DataError(f"{self.source}: the log has no rows, expected at least one")
        with atomic_path(path) as temporary:
            parquet.write_table(table, temporary)
        return len(table)

    # -- days

    def days(self) -> Days:
        """Return the days of the log and the rows of each; computed once per log."""
        days: Days = self._cache.get("days") or find_days(self)
        self._cache["days"] = days
        return days

    def clock(self) -> Clock:
        """Return how the day of a row is computed from its timestamp."""
        clock: Clock = self._cache.get("clock") or find_clock(self)
        self._cache["clock"] = clock
        return clock

    def of_days(self, *, since: date | None = None, until: date | None = None) -> Impressions:
        """Return the rows from the day `since` on, and before the day `until`.

        Rows without a timestamp are before every day.
        """
        clock, frame = self.clock(), self.frame
        if since is not None:
            frame = frame.filter(clock.day >= clock.literal(since))
        if until is not None:
            is_before = clock.day < clock.literal(until)
            frame = frame.filter(is_before | nw.col("timestamp").is_null())
        return self.with_frame(frame)

    def with_half_life(self, half_life: str) -> Impressions:
        """Return the log with recent days counting more in training.

        A day counts 2^(−age/half-life): its impressions, clicks and sessions, in propensities and
        in training. The evaluation counts each click once, and so do `counts` and `check`.

        Parameters
        ----------
        half_life : str
            The time after which a day counts half: ``"14d"``, ``"2w"``.
        """
        n_days = parse_days(half_life, "half_life").days
        self.days()  # raises an error if the log has none
        return replace(self, half_life=float(n_days))

    def check_no_half_life(self, purpose: str) -> None:
        """Reject a half-life for a purpose in which all days count alike."""
        if self.half_life is not None:
            raise ParameterError(
                f"{self.source}: the log has a half-life, expected none for {purpose}, in which "
                "every day counts alike"
            )

    def close(self) -> None:
        """Release temporary files, and a Spark session that was started here."""
        self._resources.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Impressions({self.source!r}, engine={self.engine!r}, columns={self.columns})"


def read_impressions(
    source: str | PathLike[str] | Any,  # noqa: ANN401 (any frame narwhals knows)
    options: LogOptions | None = None,
    **settings: Any,  # noqa: ANN401 (fields of LogOptions)
) -> Impressions:
    """Open a raw log of impressions; nothing is loaded before it is needed.

    Parameters
    ----------
    source : path, glob, address or data frame
        Parquet (a file, a folder, a glob, partitioned), CSV, TSV or JSON lines, also compressed; a
        folder with the ``ubi_queries`` and ``ubi_events`` of User Behavior Insights; a folder that
        `count_days` wrote, or some of its days; or a data frame of pandas, polars, pyarrow, DuckDB
        or Spark.
    options : LogOptions, optional
        How the log is read.
    **settings
        Single fields of `LogOptions`, by keyword.

    Examples
    --------
    >>> import pyarrow
    >>> from countersample.logs import read_impressions
    >>> table = pyarrow.table({"q": ["a", "a"], "item_id": [7, 9], "rank": [1, 2], "click": [0, 1]})
    >>> log = read_impressions(table, columns={"query_id": "q", "position": "rank"})
    >>> log.counts().clicks
    array([0, 1])
    """
    options = LogOptions.of(options, **settings)
    with ExitStack() as cleanup:
        if isinstance(source, str | os.PathLike):
            log = _read_files(os.fspath(source), options, cleanup)
        elif options.reader is not None:
            raise ParameterError("reader is for files, not for a frame: name its columns instead")
        else:
            log = _read_frame(source, options, cleanup)
        log = replace(
            log,
            has_events=bool(options.values),
            joins_queries=options.join_queries,
            features=tuple(dict.fromkeys(options.features)),
            page_sums=_check_aggregated(log, source, options),
            _resources=_Resources(cleanup.pop_all()),
        )
    return log.without_suspicious() if options.suspicious == "skip" else log


def _read_files(source: str, options: LogOptions, cleanup: ExitStack) -> Impressions:
    reader = find_reader(options.reader, source)
    if options.features and reader is not None:
        raise ParameterError(
            f"features of the log are columns of a log with one row per impression, and the reader "
            f"{reader} has none: give them in a table of features"
        )
    engine = find_engine(options.engine or _DEFAULT_ENGINE)(cleanup, options)
    unused: tuple[str, ...] = ()
    with explained(source):
        if reader is None:
            files = find_files(source).unpack(cleanup)
            table = nw.from_native(engine.scan(files)).lazy()
            rows = select_columns(table, options)
            unused = list_unused(options, table.collect_schema().names())
            has_text_ids = files.has_text_ids
        else:
            rows, has_text_ids = open_with_reader(reader, source, engine, options, cleanup)
        check_types(rows)
        frame = prepare_rows(convert_to_utc(rows), options)
    return Impressions(frame, engine.name, source, has_text_ids=has_text_ids, unused=unused)


def _read_frame(
    source: Any,  # noqa: ANN401 (any frame narwhals knows)
    options: LogOptions,
    cleanup: ExitStack,
) -> Impressions:
    native = as_narwhals(source, "neither a path nor a data frame")
    kind = native.implementation
    home = next((each for each in ENGINES.values() if kind in each.implementations), None)
    chosen = find_engine(options.engine) if options.engine else home or ENGINES[_DEFAULT_ENGINE]
    name = f"the {kind.value} frame"
    with explained(name):
        frame = select_columns(native.lazy(), options)
        if chosen is not home:
            engine = chosen(cleanup, options)
            table = frame.collect(backend="pyarrow").to_arrow()
            frame = nw.from_native(engine.from_arrow(table)).lazy()
        elif options.master or options.memory_limit or options.temp_dir:
            raise ParameterError("master, memory_limit and temp_dir are for files, not for a frame")
        return Impressions(prepare_rows(convert_to_utc(frame), options), chosen.name, name)


def _check_aggregated(
    log: Impressions,
    source: str | PathLike[str] | Any,  # noqa: ANN401 (any frame narwhals knows)
    options: LogOptions,
) -> PageSums | None:
    """Return what the files of an aggregated log store of its pages, if `count_days` wrote them.

    Options and times that would change its sessions are rejected.
    """
    if "sessions" not in log.columns:
        return None
    files = find_files(os.fspath(source)) if isinstance(source, str | os.PathLike) else None
    metadata = {} if files is None else files.metadata()
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
            "counted per day: expected a date, or text such as 2026-03-31"
        )
    return read_page_sums(files.paths) if files is not None and TEXT_IDS in metadata else None
