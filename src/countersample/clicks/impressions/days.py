"""The days of a log: how many rows each has, and the rows of some days."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals as nw

from countersample.clicks.impressions.aggregation import impressions_of
from countersample.clicks.impressions.assembling import integers
from countersample.errors import DataError, ParameterError
from countersample.options import HOLDOUT, EvaluationOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from countersample.clicks.impressions.handle import Impressions

_EPOCH = date(1970, 1, 1)
_ISO = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER = re.compile(r"\d+(\.\d*)?")
_LAST = re.compile(r"([1-9]\d*)\s*([dw])", re.IGNORECASE)
#: Numbers below it are no times since 1970 in seconds; each further unit is a thousandth.
_FIRST_SECOND = 1e8
_SECONDS = 86_400

_SHARES = (0.1, 0.5)  # that it may be, as a day is not cut


@dataclass(frozen=True)
class Days:
    """The days that a log has rows of, in UTC where its timestamps have a time zone.

    Text is read to its day, so that with an offset (``+05:00``) is of the local day.

    Attributes
    ----------
    days : tuple of date
    rows : tuple of int
        The rows of each; of an aggregated log, the impressions.
    """

    days: tuple[date, ...]
    rows: tuple[int, ...]

    def usual_cut(self, share: float = HOLDOUT) -> date | None:
        """Return the day that leaves a share of the rows to itself and later days, about.

        None if no day leaves a tenth to a half.
        """
        total = sum(self.rows)
        if not total:
            return None
        after = [sum(self.rows[k:]) / total for k in range(len(self.rows))]
        allowed = [k for k, share in enumerate(after) if _SHARES[0] <= share <= _SHARES[1]]
        if not allowed:
            return None
        return self.days[min(allowed, key=lambda k: abs(after[k] - share))]

    def cut(self, options: EvaluationOptions) -> date | None:
        """Return the first day that evaluates; None if no day leaves enough on both sides."""
        last = options.holdout_last
        if options.holdout_from is not None:
            first = _as_date(options.holdout_from)
        elif last is not None:
            try:
                first = self.days[-1] - (length(last, "holdout_last") - timedelta(days=1))
            except OverflowError:  # before the year 1
                raise ParameterError(
                    f"holdout_last is {last!r}, expected less than the log has: it is of "
                    f"{self.days[0]} to {self.days[-1]}"
                ) from None
        else:
            return self.usual_cut(options.holdout)
        if not self.days[0] < first <= self.days[-1]:
            raise ParameterError(
                f"the days from {first} on leave nothing to learn from, or nothing to evaluate "
                f"on: the log is of {self.days[0]} to {self.days[-1]}"
            )
        return first


def _as_date(day: str) -> date:
    try:
        return date.fromisoformat(day)
    except ValueError:
        raise ParameterError(
            f"holdout_from is {day!r}, expected a day such as '2026-03-31'"
        ) from None


def length(text: str, name: str) -> timedelta:
    """Read a number of days or weeks."""
    match = _LAST.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ParameterError(f"{name} is {text!r}, expected days or weeks: '7d' or '2w'")
    return timedelta(days=int(match[1]) * {"d": 1, "w": 7}[match[2].lower()])


def days_of(log: Impressions) -> Days:
    """Count the rows of each day; rows without a timestamp are left out.

    Raises
    ------
    DataError
        Where the log has no timestamps, or they are not times.
    """
    days = log.frame.with_columns(day=_clock(log).day)
    rows = days.select("day", rows=impressions_of(log.frame)).group_by("day")
    table = log.collect(rows.agg(nw.col("rows").sum()).filter(~nw.col("day").is_null()))
    n_rows: dict[date, int] = {}
    for value, n in zip(table["day"].to_pylist(), integers(table["rows"]).tolist(), strict=True):
        when = _as_day(value)
        if when is None:
            raise DataError(
                f"{log.source}: the timestamp {value!r} is no time, expected dates and times, text "
                "such as 2026-03-31T12:00:00, or seconds since 1970"
            )
        n_rows[when] = n_rows.get(when, 0) + n
    if not n_rows:
        raise DataError(f"{log.source}: no row has a timestamp")
    return Days(tuple(sorted(n_rows)), tuple(n_rows[each] for each in sorted(n_rows)))


def rows_of_days(log: Impressions, *, since: date | None, until: date | None) -> nw.LazyFrame[Any]:
    """Return the rows from a day on, or before one; those without a timestamp are before."""
    clock, frame = _clock(log), log.frame
    if since is not None:
        frame = frame.filter(clock.day >= clock.literal(since))
    if until is not None:
        is_before = clock.day < clock.literal(until)
        frame = frame.filter(is_before | nw.col("timestamp").is_null())
    return frame


class _Clock(NamedTuple):
    """How the day of a row is computed."""

    day: nw.Expr  # of each row: a date, text as 2026-03-31, or a number since 1970
    literal: Callable[[date], nw.Expr]  # a day like them


def _clock(log: Impressions) -> _Clock:
    if "timestamp" not in log.columns:
        raise DataError(f"{log.source}: no column 'timestamp', so its days cannot be told")
    kind, stamp = log.frame.collect_schema()["timestamp"], nw.col("timestamp")
    if kind == nw.Date:
        return _Clock(stamp, nw.lit)
    if isinstance(kind, nw.Datetime):
        if kind.time_zone is None:
            return _Clock(stamp.cast(nw.Date), nw.lit)
        return _Clock((_seconds(log, stamp) / _SECONDS).floor(), _number)
    if not (kind == nw.String or kind.is_numeric()):
        raise DataError(f"{log.source}: the timestamp is {kind}, expected times, text or numbers")
    largest = log.collect(log.frame.select(stamp.max()))["timestamp"][0].as_py()
    if kind == nw.String:
        if largest is None or not _NUMBER.fullmatch(largest):
            return _Clock(stamp.str.slice(0, 10), lambda when: nw.lit(when.isoformat()))
        largest, stamp = float(largest), stamp.cast(nw.Float64)
    unit = 1.0
    while largest is not None and largest / unit >= 1000 * _FIRST_SECOND:
        unit *= 1000
    if largest is not None and largest < _FIRST_SECOND:
        raise DataError(
            f"{log.source}: the timestamps are numbers up to {largest:g}, too small for seconds "
            "since 1970, so its days cannot be told"
        )
    return _Clock((stamp / (unit * _SECONDS)).floor(), _number)


def _seconds(log: Impressions, stamp: nw.Expr) -> nw.Expr:
    """Return the seconds since 1970 of times with a zone, of whatever zone the engine shows them.

    A cast to a date would take the day of the zone of DuckDB's connection or of Spark's session.
    """
    if log.engine == "spark":
        return stamp.cast(nw.Int64)
    return (stamp - nw.lit(datetime.combine(_EPOCH, time(), UTC))).dt.total_seconds()


def _number(when: date) -> nw.Expr:
    return nw.lit((when - _EPOCH).days)


def _as_day(value: Any) -> date | None:  # noqa: ANN401 (as an engine gives it)
    if isinstance(value, date):
        return value if type(value) is date else value.date()  # type: ignore[attr-defined]
    if isinstance(value, str):
        try:
            return date.fromisoformat(value) if _ISO.match(value) else None
        except ValueError:
            return None
    return _EPOCH + timedelta(days=int(value)) if abs(value) < 4e6 else None
