"""Write aggregated logs (`log count`): one row per query, item, position, context, policy and day.

The sums are computed by `aggregation`. `count_days` writes a log as plain Parquet, one folder per
day (``day=2026-03-09/``), which `read_impressions` reads like any other log. A row has

- ``impressions``: how many rows of the log it stands for, and ``click``: how many of them were
  clicked; ``value`` is the sum of the values of these clicks;
- ``propensity``: the harmonic mean Σ value / Σ value/propensity of the clicks, so that the weight
  value/propensity of the row is the sum of their weights. It is missing if a propensity was;
- ``sessions``: the sessions of the query on that day, the same in all of its rows, so that S_q is
  the sum over days. It is missing in rows without a session, which count by position 1;
- ``session_policies``: the policies that these sessions saw, if the log has policies. With
  interleaving a session saw several, and ``sessions`` counts the sessions that saw this very set:
  S_q of one policy is then the sum over the sets that contain it.

Ids of sessions and of clients are not stored.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import narwhals as nw
import pyarrow as pa
from pyarrow import parquet

from countersample import _text
from countersample._files import atomic_path, check_outputs
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.logs import aggregation
from countersample.logs.aggregation import Problems
from countersample.logs.checks import describe_sessions
from countersample.logs.columns import NONE
from countersample.logs.days import parse_day
from countersample.logs.files import JOINED_QUERIES, TEXT_IDS, find_files
from countersample.logs.findings import PAGE_SUMS, PageSums, add_up_pages
from countersample.logs.tally import integers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from countersample.logs.impressions import Impressions

#: The share of a day's impressions that a log must have to replace it: some rows may be deleted.
MIN_REPLACED = 0.9
_FILE = "part.parquet"
_SEPARATOR = " + "  # between the policies of a session
_Version: TypeAlias = "tuple[int, int, int] | None"  # of the file of a day


@dataclass(frozen=True)
class CountedDay:
    """A day that `count_days` wrote.

    Attributes
    ----------
    day : date
    folder : str
        The folder of the day.
    n_rows : int
        Rows of the aggregated log.
    n_impressions, n_clicks : int
    n_sessions : int, optional
        None if the log has no ids of sessions.
    n_bytes : int
        Size on disk.
    warnings : tuple of str
        Sessions, clients and rows that look wrong.
    """

    day: date
    folder: str
    n_rows: int
    n_impressions: int
    n_clicks: int
    n_sessions: int | None
    n_bytes: int
    warnings: tuple[str, ...]


def summarize_days(days: Sequence[CountedDay]) -> str:
    """Return a table of days and their warnings, for a terminal."""
    rows = [
        (str(each.day), f"{each.n_impressions:,}", f"{each.n_clicks:,}",
         "not logged" if each.n_sessions is None else f"{each.n_sessions:,}",
         _text.size(each.n_bytes))
        for each in days
    ]  # fmt: skip
    table = _text.table(("day", "impressions", "clicks", "sessions", "size"), rows)
    warnings = (f"{each.day}: {text}" for each in days for text in each.warnings)
    return "\n".join([table, *_text.warning_paragraphs(warnings)])


def count_days(
    log: Impressions,
    folder: str | PathLike[str],
    *,
    day: date | str | None = None,
    replace: bool = False,
    skip_impossible: bool = False,
) -> list[CountedDay]:
    """Aggregate a log by day, and add each day to a folder: ``FOLDER/day=2026-03-09/``.

    Days of the folder are not read, so that adding a day takes the same time for any number of
    days. A day is written under a temporary name and renamed. To forget a day, delete its folder.

    Parameters
    ----------
    log : Impressions
        See `read_impressions`.
    folder : path
        The folder of the aggregated log, created if needed.
    day : date or str, optional
        The day of a log without timestamps. Other logs are split by their timestamps, in UTC.
    replace : bool
        Whether to replace days that exist; by default they raise an error. A day is only
        replaced by about as many impressions or more: count late rows with all others of the day.
    skip_impossible : bool
        Whether to leave out impossible rows and rows without a timestamp; by default they raise an
        error.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow
    >>> from countersample.logs import count_days, read_impressions
    >>> log = pyarrow.table({
    ...     "query_id": ["a", "a", "b"], "item_id": [7, 9, 7], "position": [1, 2, 1],
    ...     "click": [0, 1, 1], "session": ["s", "s", "t"],
    ...     "timestamp": ["2026-03-01T10:00", "2026-03-01T10:00", "2026-03-02T09:30"],
    ... })
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [str(each.day) for each in count_days(read_impressions(log), folder)]
    ...     read_impressions(folder).counts().clicks
    ['2026-03-01', '2026-03-02']
    array([0, 1, 1])
    """
    home = Path(folder)
    check_outputs([home], [log.source])
    if "sessions" in log.columns:
        raise ParameterError(
            f"{log.source}: the log is aggregated already, expected a raw log: copy its folders"
        )
    parts = _split_days(log, day, skip_impossible=skip_impossible)
    versions = _check_folder(home, [each for each, _ in parts], replace=replace)
    parts = [part for part in parts if _has_rows(*part, skip_impossible=skip_impossible)]
    if not parts:
        raise DataError(f"{log.source}: no row is possible")
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CounterSampleError(f"{home}: cannot be written: {error.strerror}") from error
    return [_write_day(part, home, each, versions[each]) for each, part in parts]


def is_aggregated(source: str) -> bool:
    """Return whether a path has files that `count_days` wrote."""
    with suppress(CounterSampleError):
        return TEXT_IDS in find_files(source).metadata()
    return False


def aggregate(log: Impressions, *, is_mixed: bool) -> nw.LazyFrame[Any]:
    """Return the rows of an aggregated log, lazily; see the top of this module.

    `is_mixed` is whether some sessions saw several policies.
    """
    frame, columns = log.frame, log.columns
    by = [*aggregation.group_keys(frame), *(["policy"] if "policy" in columns else [])]
    sums = []
    if "propensity" in columns:
        frame = aggregation.with_weights(frame)
        sums = ["weight", "clicked", "good"]
    has_sessions = "session" in columns and not log.is_aggregated
    if has_sessions:
        frame = frame.with_columns(session_policies=_session_policies(log, is_mixed=is_mixed))
        by.append("session_policies")
    rows = aggregation.group(frame, by, *sums)
    if has_sessions:
        possible = frame.filter(aggregation.is_possible(frame) & ~nw.col("session").is_null())
        visits = possible.select("query_id", "session_policies", "session").unique()
        counts = visits.group_by("query_id", "session_policies").agg(sessions=nw.len())
        rows = rows.join(counts, on=["query_id", "session_policies"], how="left")
    if sums:
        value = nw.col("value" if "value" in columns else "clicks")
        mean = aggregation.choose(nw.col("weight") > 0, value / nw.col("weight"), 1.0)
        is_known = (nw.col("clicked") > 0) & (nw.col("clicked") == nw.col("good"))
        at_most_one = aggregation.choose(mean < 1, mean, 1.0)
        rows = rows.with_columns(propensity=nw.when(is_known).then(at_most_one))
    unused = [*sums, *([] if "policy" in columns or not has_sessions else ["session_policies"])]
    return rows.drop(*unused).rename({"clicks": "click"})


def _session_policies(log: Impressions, *, is_mixed: bool) -> nw.Expr:
    """Return the policies of each row's session and query, null for rows without a session."""
    has_session = ~nw.col("session").is_null()
    if "policy" not in log.columns:
        return nw.when(has_session).then(nw.lit(""))
    policy = nw.col("policy").fill_null(NONE)
    table = log.collect(log.frame.select(policy=policy).unique())
    names = sorted(table["policy"].to_pylist())
    # A session in which only some rows have a policy does not count as mixed.
    if not is_mixed and (NONE not in names or len(names) == 1):
        return nw.when(has_session).then(policy)
    confusing = next((name for name in names if _SEPARATOR in name), None)
    if confusing is not None:
        raise DataError(
            f"{log.source}: the policy {confusing!r} has {_SEPARATOR!r} in its name, which "
            "separates the policies of a session: rename it"
        )
    parts = [
        nw.when(aggregation.mark(policy == name).max().over("query_id", "session") > 0)
        .then(nw.lit(f"{_SEPARATOR}{name}"))
        .otherwise(nw.lit(""))
        for name in names
    ]
    together = nw.concat_str(*parts).str.slice(len(_SEPARATOR))
    return nw.when(has_session).then(together)


def _check_folder(home: Path, days: Sequence[date], *, replace: bool) -> dict[date, _Version]:
    """Return the version of each day in a folder.

    A folder with other files, which would be read as a part of the log, is rejected, and so are
    days that exist unless they are replaced.
    """
    others = [path.name for path in home.glob("[!.]*") if not path.is_dir()]
    if others:
        raise ParameterError(
            f"{home} has other files than days ({others[0]}), expected a folder with days only"
        )
    for day in days:  # all of them, before one is written
        folder = _day_folder(home, day)
        if not folder.exists():
            continue
        if [path.name for path in folder.iterdir()] != [_FILE] or not is_aggregated(str(folder)):
            raise DataError(f"{folder}: exists and is no day of counts, so it is not replaced")
        if not replace:
            raise DataError(
                f"{folder}: this day was counted before, and would now count twice: replace "
                "it with replace=True (--replace)"
            )
    return {day: _find_version(_day_folder(home, day)) for day in days}


def _find_version(folder: Path) -> _Version:
    """Return what changes when a day is written again; None if the day does not exist."""
    try:
        status = (folder / _FILE).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Let other processes wait that write a day to this folder; the lock ends with the process.

    Windows has no such lock: there, a day that changed meanwhile is rejected all the same.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl  # noqa: PLC0415 (Windows has no such module)

    folder = os.open(home, os.O_RDONLY)
    try:
        with suppress(OSError):  # network file systems may have no locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _check_replaced(folder: Path, version: _Version, n_impressions: int) -> int:
    """Return the impressions that a day replaces; reject a log that has only a part of them."""
    if _find_version(folder) != version:
        raise DataError(
            f"{folder}: another process counted this day meanwhile, expected one at a time: count "
            "all rows of the day together"
        )
    if version is None:
        return 0
    n_before = int(integers(parquet.read_table(folder, columns=["impressions"])[0]).sum())
    if n_impressions < MIN_REPLACED * n_before:
        raise DataError(
            f"{folder}: this day was counted with {n_before:,} impressions, and this log has only "
            f"{n_impressions:,} of it, expected at least {MIN_REPLACED:.0%} to replace them: count "
            "all rows of the day together, or delete its folder first"
        )
    return n_before


def _split_days(
    log: Impressions, day: date | str | None, *, skip_impossible: bool
) -> list[tuple[date, Impressions]]:
    """Return the days of a log, or the whole log under its day."""
    has_times = "timestamp" in log.columns
    if day is not None:
        if has_times:
            raise ParameterError(
                f"day is {day}, and the log has timestamps, which have the days: leave out day= "
                "(--day)"
            )
        return [(day if isinstance(day, date) else parse_day(day, "day"), log)]
    if not has_times:
        raise DataError(
            f"{log.source}: no column 'timestamp', so its days are not known: name the column "
            "with columns={'timestamp': '…'} (--columns timestamp=…), or the day with day=… (--day)"
        )
    missing = log.collect(log.frame.filter(nw.col("timestamp").is_null()).select(n=nw.len()))
    n_missing = int(integers(missing["n"])[0])
    if n_missing and not skip_impossible:
        raise DataError(
            f"{log.source}: {n_missing:,} rows have no timestamp, so their day is not known: "
            "correct them, or leave them out (--missing skip)"
        )
    parts = []
    for each in log.days().days:
        rows = log.of_days(since=each, until=each + timedelta(days=1))
        parts.append((each, rows.with_frame(rows.frame.filter(~nw.col("timestamp").is_null()))))
    return parts


def _day_folder(home: Path, day: date) -> Path:
    return home / f"day={day.isoformat()}"


def _has_rows(day: date, log: Impressions, *, skip_impossible: bool) -> bool:
    """Return whether a day has possible rows; raise an error for the others unless skipped."""
    problems = Problems.of(log.collect(aggregation.describe_rows(log.frame)))
    sentence = problems.sentence(has_impressions=log.is_aggregated)
    if sentence is not None and not skip_impossible:
        raise DataError(
            f"{log.source}: on {day}, {sentence}; correct them, or leave those rows out "
            "(--missing skip)"
        )
    return problems.n_rows > problems.n_invalid


def _write_day(log: Impressions, home: Path, day: date, version: _Version) -> CountedDay:
    """Aggregate the rows of a day, and write its folder, which had this version."""
    sessions = describe_sessions(log)
    has_views = "session" in log.columns and not log.is_aggregated
    pages = add_up_pages(log) if has_views else PageSums()
    rows = aggregate(log, is_mixed=bool(sessions.n_mixed))
    table = _arrange(log.collect(rows), day)
    table = table.replace_schema_metadata(
        {
            TEXT_IDS: str(log.has_text_ids).lower(),
            JOINED_QUERIES: str(log.joins_queries).lower(),
            PAGE_SUMS: pages.to_json(),
        }
    )
    folder = _day_folder(home, day)
    n_impressions = int(integers(table["impressions"]).sum())
    with _locked(home):
        n_replaced = _check_replaced(folder, version, n_impressions)
        with atomic_path(folder) as temporary:
            temporary.mkdir()
            parquet.write_table(table, temporary / _FILE, compression="zstd")
    suspicious = log.left_out or sessions.suspicious
    return CountedDay(
        day=day,
        folder=str(folder),
        n_rows=len(table),
        n_impressions=n_impressions,
        n_clicks=int(integers(table["click"]).sum()),
        n_sessions=sessions.n_sessions if "sessions" in table.column_names else None,
        n_bytes=(folder / _FILE).stat().st_size,
        warnings=(
            *([f"This day replaces {n_replaced:,} impressions."] if n_replaced else []),
            *(each.sentence for each in pages.findings()),
            *(f"{text}." for text in ([] if suspicious is None else suspicious.problems())),
        ),
    )


def _arrange(table: pa.Table, day: date) -> pa.Table:
    """Return the columns in one order and with one type each, and the rows sorted."""

    def id_type(name: str) -> pa.DataType:  # days of one log may have integers of other widths
        return pa.int64() if pa.types.is_integer(table[name].type) else pa.string()

    keys = {
        "query_id": id_type("query_id"), "item_id": id_type("item_id"), "position": pa.int32(),
        "context": pa.string(), "policy": pa.string(), "session_policies": pa.string(),
    }  # fmt: skip
    types = keys | {
        "timestamp": pa.date32(), "impressions": pa.int64(), "click": pa.int64(),
        "value": pa.float64(), "propensity": pa.float64(), "sessions": pa.int64(),
    }  # fmt: skip
    table = table.append_column("timestamp", pa.repeat(pa.scalar(day, pa.date32()), len(table)))
    columns = {
        name: table[name].cast(kind) for name, kind in types.items() if name in table.column_names
    }
    order = [(name, "ascending") for name in keys if name in columns]
    return pa.table(columns).sort_by(order).combine_chunks()
