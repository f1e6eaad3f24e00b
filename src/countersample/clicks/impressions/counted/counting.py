"""A log boiled down, day by day: `count_days`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from dataclasses import replace as replaced
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw

from countersample._files import is_file, is_folder, is_other
from countersample.clicks.impressions import aggregation
from countersample.clicks.impressions.assembling import integers
from countersample.clicks.impressions.counted.files import (
    MOST_POLICIES,
    Part,
    is_part,
    write_part,
)
from countersample.clicks.impressions.counted.tables import tables_of
from countersample.clicks.impressions.suspicion import describe_sessions
from countersample.clicks.impressions.tallying import check_total
from countersample.errors import CounterSampleError, DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from countersample.clicks.impressions.aggregation import Problems
    from countersample.clicks.impressions.handle import Impressions

_NAME = re.compile(r"[\w][\w.\-]*")
_ISO = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class CountedDay:
    """A day that was counted, as `count_days` says.

    Attributes
    ----------
    label : str
        The day, or the name that was given.
    folder : str
        Where its counts are.
    n_rows, n_impressions, n_clicks : int
    n_sessions : int, optional
    n_bytes : int
        What they take on disk.
    warnings : tuple of str
        What looks wrong about the day.
    """

    label: str
    folder: str
    n_rows: int
    n_impressions: int
    n_clicks: int
    n_sessions: int | None
    n_bytes: int
    warnings: tuple[str, ...]


def count_days(
    log: Impressions,
    folder: str | PathLike[str],
    *,
    name: str | None = None,
    replace: bool = False,
    keep_users: bool = False,
    skip_impossible: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> list[CountedDay]:
    """Boil a log down to counts: a folder for each of its days, beside those that are there.

    Days that are there are not read, so adding one takes the same time whatever their number.
    `read_impressions` takes the folder as it takes a log.

    Parameters
    ----------
    log : Impressions
        See `read_impressions`.
    folder : path
        Made where it is not there.
    name : str, optional
        Count the log as one part of this name, instead of by day: for a log without timestamps.
    replace : bool
        Whether a day that is there is replaced; else it is an error.
    keep_users : bool
        Whether counts are kept for each of the log's clients, so that one can be forgotten. They
        are then personal data, as the log is.
    skip_impossible : bool
        Whether rows that are impossible, or have no timestamp, are left out instead of refused.
    settings : mapping, optional
        How the log was read, for the header: plain values.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow
    >>> from countersample.clicks.impressions import count_days, read_impressions
    >>> log = pyarrow.table({
    ...     "query_id": ["a", "a", "b"], "item_id": [7, 9, 7], "position": [1, 2, 1],
    ...     "click": [0, 1, 1], "session": ["s", "s", "t"],
    ...     "timestamp": ["2026-03-01T10:00", "2026-03-01T10:00", "2026-03-02T09:30"],
    ... })
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [day.label for day in count_days(read_impressions(log), folder)]
    ...     read_impressions(folder).counts().clicks
    ['2026-03-01', '2026-03-02']
    array([0, 1, 1])
    """
    home = Path(folder)
    _check_home(home)
    if hasattr(log, "parts"):
        raise ParameterError(f"{log.source}: these are counts already, expected a raw log")
    if keep_users and "client" not in log.columns:
        raise DataError(
            f"{log.source}: no column 'client', so there are no users to keep: name it with "
            "columns={'client': '…'} (--columns client=…)"
        )
    parts = _split(log, name, skip_impossible=skip_impossible)
    for label, _, _ in parts:
        _check_free(home / label, replace=replace)
    problems = [  # of all days, before one is written
        _problems(part, label, skip_impossible=skip_impossible) for label, _, part in parts
    ]
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CounterSampleError(f"{home}: cannot be written: {error.strerror}") from error
    told = {
        "suspicious": "keep" if log.left_out is None else "drop",
        "join_queries": log.joins_queries,
        **(settings or {}),
    }
    return [
        _count(part, home / label, label, day, told, found, keep_users)
        for (label, day, part), found in zip(parts, problems, strict=True)
    ]


def _check_home(home: Path) -> None:
    """Refuse a place that is not for counts alone: a log in it would be read no more."""
    if is_other(home):
        raise ParameterError(f"{home} is a file, expected a folder for counts")
    if is_folder(home):
        others = [path.name for path in home.iterdir() if path.name[0] != "." and is_file(path)]
        if others:
            raise ParameterError(
                f"{home} has files that are no counts ({others[0]}), expected a folder of its own"
            )


def _split(
    log: Impressions, name: str | None, *, skip_impossible: bool
) -> list[tuple[str, date | None, Impressions]]:
    """Return the days of a log, or the log itself under its name."""
    if name is not None:
        if not _NAME.fullmatch(name) or _ISO.fullmatch(name):
            raise ParameterError(
                f"name is {name!r}, expected letters, digits, '-', '_' and '.', and no day: days "
                "are told by timestamps"
            )
        timeless = [column for column in log.columns if column != "timestamp"]
        return [(name, None, replaced(log, frame=log.frame.select(*timeless)))]
    if "timestamp" not in log.columns:
        raise DataError(
            f"{log.source}: no column 'timestamp', so its days cannot be told: name the column "
            "with columns={'timestamp': '…'} (--columns timestamp=…), or the part with --name"
        )
    none = log.collect(log.frame.filter(nw.col("timestamp").is_null()).select(n=nw.len()))
    n_none = int(integers(none["n"])[0])
    if n_none and not skip_impossible:
        raise DataError(
            f"{log.source}: {n_none:,} rows have no timestamp, so their day is not known: correct "
            "them, or leave them out (--missing skip)"
        )
    one = timedelta(days=1)
    days = log.days().days
    return [(day.isoformat(), day, log.of_days(since=day, until=day + one)) for day in days]


def _check_free(folder: Path, *, replace: bool) -> None:
    if not folder.exists():
        return
    if not is_folder(folder) or not is_part(folder):
        raise DataError(f"{folder}: is there and is no day of counts, so it is not replaced")
    if not replace:
        raise DataError(
            f"{folder}: this day was counted before, and twice it would count double: replace it "
            "with replace=True (--replace)"
        )


def _problems(log: Impressions, label: str, *, skip_impossible: bool) -> Problems:
    """Return what is wrong with the rows of a day; refuse it where that is not to be left out."""
    check_total(log)
    problems = aggregation.problems_of(log.collect(aggregation.describe_rows(log.frame)))
    said = problems.sentence(has_impressions="impressions" in log.columns)
    if said is not None and not skip_impossible:
        raise DataError(
            f"{log.source}: of {label}, {said}; correct them, or leave those rows out "
            "(--missing skip)"
        )
    if problems.n_rows == problems.n_invalid:
        raise DataError(f"{log.source}: {label} has no row that is possible")
    return problems


def _count(
    log: Impressions,
    folder: Path,
    label: str,
    day: date | None,
    settings: dict[str, Any],
    problems: Problems,
    keep_users: bool,
) -> CountedDay:
    sessions = None
    if "session" in log.columns:
        sessions = describe_sessions(log.frame, log.collect)
    schema = log.frame.collect_schema()
    part = Part(
        label=label,
        day=day,
        columns=log.columns,
        settings=settings,
        id_types={
            name: "text" if schema[name] == nw.String else "int64"
            for name in ("query_id", "item_id")
        },
        has_text_ids=log.has_text_ids,
        has_events=log.has_events,
        keeps_users=keep_users,
        policies=_policies(log, label),
        problems=problems,
        n_sessions=None if sessions is None else sessions.n_sessions,
        n_mixed=None if sessions is None else sessions.n_mixed,
        warnings=() if sessions is None else tuple(_warned(log, sessions.suspicious)),
    )
    tables = tables_of(log, part)
    written = write_part(folder, part, tables)
    totals = tables["counts"]
    return CountedDay(
        label=label,
        folder=str(folder),
        n_rows=problems.n_rows,
        n_impressions=int(integers(totals["impressions"]).sum()),
        n_clicks=int(integers(totals["clicks"]).sum()),
        n_sessions=written.n_sessions,
        n_bytes=sum(path.stat().st_size for path in folder.iterdir()),
        warnings=written.warnings,
    )


def _warned(log: Impressions, found: Any) -> list[str]:  # noqa: ANN401 (Suspicious)
    sentences: list[str] = (log.left_out or found).sentences()
    return sentences


def _policies(log: Impressions, label: str) -> tuple[str, ...]:
    if "policy" not in log.columns:
        return ()
    table = log.collect(log.frame.select("policy").unique())
    found = sorted(name for name in table["policy"].to_pylist() if name is not None)
    if len(found) > MOST_POLICIES:
        raise DataError(
            f"{log.source}: {label} has {len(found):,} policies, and counts tell at most "
            f"{MOST_POLICIES} of a day apart: name a column with fewer (--columns policy=…)"
        )
    return tuple(found)
