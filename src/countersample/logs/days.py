"""The days of a log, and a half-life: recent days count more.

A day that is `age` days old counts 2^(−age/half-life): its impressions, clicks, their value and its
sessions, so that rates and estimates are weighted means over days. Weighted numbers are no counts:
their noise corresponds to Σ w²·n impressions, not to Σ w·n. Intervals are computed by drawing
queries with all of their weighted clicks, so they need no correction. The evaluation counts a
click once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals as nw
import numpy as np

from countersample.defaults import HOLDOUT
from countersample.errors import DataError, ParameterError
from countersample.logs.aggregation import group, impressions_of
from countersample.logs.counts import first_position
from countersample.logs.files import quote_name
from countersample.logs.tally import find_codes, find_rows, find_sessions, integers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countersample.logs.counts import PositionCounts
    from countersample.logs.impressions import Impressions
    from countersample.options import EvaluationOptions

_EPOCH = date(1970, 1, 1)
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER = re.compile(r"\d+(\.\d*)?")
_DURATION = re.compile(r"([1-9]\d{0,4})\s*([dw])", re.IGNORECASE)
# The least number of each unit since 1970: times are after March 1973 and before the year 5000.
_UNITS = {"seconds": 1e8, "milliseconds": 1e11, "microseconds": 1e14, "nanoseconds": 1e17}
_NO_UNIT = "no unit since 1970"
# Times that are written as the digits of a number, by the number of digits.
_DIGIT_FORMATS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_DIGIT_YEARS = range(1990, 2100)
_SECONDS_PER_DAY = 86_400
_DUCKDB_TYPES_WITH_ZONE = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
_CUT_SHARES = (0.1, 0.5)  # the held-out share may be anything between, as a day is not cut


@dataclass(frozen=True)
class Days:
    """The days that a log has rows of, in UTC if its timestamps have a time zone.

    Timestamps that are text are cut to their day, so text with an offset (``+05:00``) belongs to
    the local day.

    Attributes
    ----------
    days : tuple of date
    rows : tuple of int
        The rows of each day, or the impressions in an aggregated log.
    """

    days: tuple[date, ...]
    rows: tuple[int, ...]

    def usual_cut(self, share: float = HOLDOUT) -> date | None:
        """Return the day from which on the log has about this share of its rows.

        None if no day leaves a tenth to a half.
        """
        total = sum(self.rows)
        if not total:
            return None
        after = [sum(self.rows[k:]) / total for k in range(len(self.rows))]
        allowed = [k for k, part in enumerate(after) if _CUT_SHARES[0] <= part <= _CUT_SHARES[1]]
        if not allowed:
            return None
        return self.days[min(allowed, key=lambda k: abs(after[k] - share))]

    def cut(self, options: EvaluationOptions) -> date | None:
        """Return the first day that evaluates; None if no day leaves enough on both sides."""
        last = options.holdout_last
        if options.holdout_from is not None:
            first = parse_day(options.holdout_from, "holdout_from")
        elif last is not None:
            first = self.days[-1] - (parse_days(last, "holdout_last") - timedelta(days=1))
        else:
            return self.usual_cut(options.holdout)
        if not self.days[0] < first <= self.days[-1]:
            raise ParameterError(
                f"the first held-out day is {first}, expected a day of the log after its first: "
                f"the log covers {self.days[0]} to {self.days[-1]}"
            )
        return first


def parse_day(text: str, name: str) -> date:
    """Read a day such as 2026-03-31."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ParameterError(f"{name} is {text!r}, expected a day such as '2026-03-31'") from None


def parse_days(text: str, name: str) -> timedelta:
    """Read a number of days or weeks: 7d, 2w."""
    match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ParameterError(f"{name} is {text!r}, expected days or weeks: '7d' or '2w'")
    return timedelta(days=int(match[1]) * {"d": 1, "w": 7}[match[2].lower()])


def find_days(log: Impressions) -> Days:
    """Count the rows of each day; rows without a timestamp are left out.

    Raises
    ------
    DataError
        If the log has no timestamps, or they are not times.
    """
    days = log.frame.with_columns(day=log.clock().day)
    rows = days.select("day", rows=impressions_of(log.frame)).group_by("day")
    table = log.collect(rows.agg(nw.col("rows").sum()).filter(~nw.col("day").is_null()))
    n_rows: dict[date, int] = {}
    for value, n in zip(table["day"].to_pylist(), integers(table["rows"]).tolist(), strict=True):
        day = _as_day(value)
        if day is None:
            raise DataError(
                f"{log.source}: the timestamp {value!r} is no time, expected dates and times, text "
                "such as 2026-03-31T12:00:00, or seconds since 1970"
            )
        n_rows[day] = n_rows.get(day, 0) + n
    if not n_rows:
        raise DataError(f"{log.source}: no row has a timestamp")
    return Days(tuple(sorted(n_rows)), tuple(n_rows[day] for day in sorted(n_rows)))


def convert_to_utc(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return a log whose timestamps with a time zone are timestamps without one, in UTC.

    DuckDB computes with them in the zone of its connection, which is the zone of the machine in
    a relation of the user. Spark's timestamps become seconds since 1970 when a day is computed.
    """
    if frame.implementation is not nw.Implementation.DUCKDB:
        return frame
    relation = frame.to_native()
    types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    if types.get("timestamp") not in _DUCKDB_TYPES_WITH_ZONE or "sessions" in types:
        return frame  # an aggregated log with such times is rejected
    in_utc = "timezone('UTC', timestamp::timestamptz) as timestamp"
    columns = [in_utc if name == "timestamp" else quote_name(name) for name in types]
    rows: nw.LazyFrame[Any] = nw.from_native(relation.project(", ".join(columns))).lazy()
    return rows


class Clock(NamedTuple):
    """How the day of a row is computed.

    ``day`` is a date, text such as 2026-03-31, or a number of days since 1970; ``literal`` writes a
    date in the same way.
    """

    day: nw.Expr
    literal: Callable[[date], nw.Expr]


def find_clock(log: Impressions) -> Clock:
    """Return the clock of a log; numbers are in the unit that makes the largest a recent time."""
    if "timestamp" not in log.columns:
        raise DataError(
            f"{log.source}: no column 'timestamp', so its days are not known: name the column with "
            "columns={'timestamp': '…'} (--columns timestamp=…)"
        )
    kind, stamp = log.frame.collect_schema()["timestamp"], nw.col("timestamp")
    if kind == nw.Date:
        return Clock(stamp, nw.lit)
    if isinstance(kind, nw.Datetime):
        if kind.time_zone is None:
            return Clock(stamp.cast(nw.Date), nw.lit)
        # Spark, see `convert_to_utc`: a cast to a date would use the zone of its session.
        return Clock((stamp.cast(nw.Int64) / _SECONDS_PER_DAY).floor(), _days_since_1970)
    if not (kind == nw.String or kind.is_numeric()):
        raise DataError(f"{log.source}: the timestamp is {kind}, expected times, text or numbers")
    if kind == nw.String:
        largest = log.collect(log.frame.select(stamp.max()))["timestamp"][0].as_py()
        if largest is None or not _NUMBER.fullmatch(largest):
            return Clock(stamp.str.slice(0, 10), lambda day: nw.lit(day.isoformat()))
        stamp = stamp.cast(nw.Float64)
    per_second = _UNITS[_find_unit(log, stamp)] / _UNITS["seconds"]
    return Clock((stamp / (per_second * _SECONDS_PER_DAY)).floor(), _days_since_1970)


def _find_unit(log: Impressions, stamp: nw.Expr) -> str:
    """Return the unit of timestamps that are numbers since 1970; reject several units."""
    unit = nw.lit(_NO_UNIT)
    for name, least in _UNITS.items():
        unit = nw.when(stamp >= least).then(nw.lit(name)).otherwise(unit)
    rows = log.frame.filter(~nw.col("timestamp").is_null()).select(unit=unit, number=stamp)
    number = nw.col("number")
    units = rows.group_by("unit").agg(n=nw.len(), least=number.min(), largest=number.max())
    groups = sorted(log.collect(units).to_pylist(), key=lambda group: group["least"])
    if not groups:
        return "seconds"
    least, largest = groups[0]["least"], groups[-1]["largest"]
    if _is_written_time(least) and _is_written_time(largest):
        raise DataError(
            f"{log.source}: the timestamp {largest:.0f} is a date written as a number, expected "
            "text such as 2026-03-31T12:00:00, or seconds since 1970: convert it"
        )
    if len(groups) > 1:
        parts = [f"{row['n']:,} in {row['unit']} (such as {row['least']:.0f})" for row in groups]
        raise DataError(
            f"{log.source}: the timestamps are in several units: {', '.join(parts)}, expected one "
            "unit: convert them"
        )
    if groups[0]["unit"] == _NO_UNIT:
        raise DataError(
            f"{log.source}: the timestamps are numbers up to {largest:g}, too small for seconds "
            "since 1970, so its days are not known"
        )
    unit_of_all: str = groups[0]["unit"]
    return unit_of_all


def _is_written_time(number: float) -> bool:
    """Return whether the digits of a number are a time, such as 20260331120000."""
    text = f"{number:.0f}"
    try:
        year = datetime.strptime(text, _DIGIT_FORMATS[len(text)]).year  # noqa: DTZ007 (only a check)
    except (KeyError, ValueError):
        return False
    return year in _DIGIT_YEARS


def _days_since_1970(day: date) -> nw.Expr:
    return nw.lit((day - _EPOCH).days)


def _as_day(value: Any) -> date | None:  # noqa: ANN401 (as an engine returns it)
    if isinstance(value, date):
        return value if type(value) is date else value.date()  # type: ignore[attr-defined]
    if isinstance(value, str):
        try:
            return date.fromisoformat(value) if _ISO_DAY.match(value) else None
        except ValueError:
            return None
    return _EPOCH + timedelta(days=int(value)) if abs(value) < 4e6 else None


# -- half-life


def weighted_days(log: Impressions) -> Iterator[tuple[float, Impressions]]:
    """Yield the days of a log with their weights, or the whole log if it has no half-life.

    Rows without a timestamp are as old as the first day.
    """
    if log.half_life is None:
        yield 1.0, log
        return
    days, whole = log.days().days, replace(log, half_life=None)
    for day in days:
        since = None if day == days[0] else day
        part = whole.of_days(since=since, until=day + timedelta(days=1))
        yield 0.5 ** ((days[-1] - day).days / log.half_life), part


def weighted(log: Impressions, counts: PositionCounts) -> PositionCounts:
    """Return the counts of a log with its days weighted by their age.

    Rows and ids stay the same. Numbers become floats, and `PositionCounts.logged` has the
    unweighted impressions.
    """
    if log.half_life is None:
        return counts
    sums = {name: np.zeros(len(counts)) for name in ("impressions", "clicks", "value")}
    sessions = np.zeros(len(counts.query_ids))
    for weight, part in weighted_days(log):
        groups, per_query = part.collect(group(part.frame)), find_sessions(part)
        rows = find_rows(groups, counts, has_text_ids=log.has_text_ids)
        for name in sums:
            column = groups[name if name in groups.column_names else "clicks"]
            of_day = np.zeros(len(counts))  # whole numbers are exact in any order
            np.add.at(of_day, rows, column.to_numpy())
            sums[name] += weight * of_day
        if per_query is not None:
            table = part.collect(per_query)
            query = find_codes(table["query_id"], counts.query_ids, has_text_ids=log.has_text_ids)
            sessions[query] += weight * integers(table["sessions"])
    if counts.sessions_from == "first position":
        n_queries = len(counts.query_ids)
        sessions = first_position(counts.query, counts.position, sums["impressions"], n_queries)
    n_sessions = float(sessions.sum()) if counts.n_sessions is not None else None
    numbers: dict[str, Any] = {**sums, "sessions": sessions, "n_sessions": n_sessions}
    return replace(counts, logged=counts.impressions, **numbers)


def effective_impressions(log: Impressions) -> float:
    """Return (Σ w·n)² / Σ w²·n over the days of a log: as many impressions of equal weight."""
    assert log.half_life is not None  # noqa: S101 (otherwise it is their number)
    days = log.days()
    n = np.array(days.rows, np.float64)
    age = np.array([(days.days[-1] - day).days for day in days.days])
    w = 0.5 ** (age / log.half_life)
    return float((w @ n) ** 2 / (w**2 @ n))
