"""A log that is open: `Impressions`."""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from countersample._files import atomic_path
from countersample._params import whole_number
from countersample.clicks.impressions import aggregation
from countersample.clicks.impressions.assembling import integers, rows_of
from countersample.clicks.impressions.checking import LogCheck, check
from countersample.clicks.impressions.columns import FEATURE
from countersample.clicks.impressions.days import days_of, length, rows_of_days
from countersample.clicks.impressions.engines import (
    find_engine,
)
from countersample.clicks.impressions.joining import RowPropensities
from countersample.clicks.impressions.suspicion import (
    Sessions,
    Suspicious,
    describe_session_counts,
    describe_sessions,
    find_suspicious,
    left_out,
    without,
)
from countersample.clicks.impressions.tallying import (
    MOST_GROUPS,
    check_total,
    tally,
)
from countersample.clicks.impressions.visits import visits_of
from countersample.clicks.impressions.weighting import weighted_days
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from datetime import date
    from os import PathLike

    import pyarrow as pa

    from countersample.clicks.impressions.counts import PositionCounts
    from countersample.clicks.impressions.days import Days
    from countersample.clicks.impressions.visits import Visits


class Opened:
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
        The canonical columns: ``query_id``, ``item_id``, ``position``, ``click``, and those of
        ``session``, ``client``, ``timestamp``, ``policy``, ``impressions``, ``propensity``,
        ``context``, ``value``, ``sessions``, ``session_policies`` that it has.
    engine : str
        The engine that counts it: duckdb or spark.
    source : str
        The path, or the kind of frame.
    has_text_ids : bool
        Whether ids came as text of a CSV file, so that "7" may mean the number.
    has_events : bool
        Whether events, by their values, tell what is a click.
    joins_queries : bool
        Whether queries that differ in case and blanks only are one.
    left_out : Suspicious, optional
        The sessions, clients and rows that `without_suspicious` left out.
    features : tuple of str
        The log's own columns that are features of what was shown.
    half_life : float, optional
        In how many days a day comes to count half, in what is learned from the log; see
        `with_half_life`.
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
    _opened: Opened = field(default_factory=lambda: Opened(ExitStack()))

    @property
    def columns(self) -> tuple[str, ...]:
        """The canonical columns that the log has."""
        names = self.frame.collect_schema().names()
        return tuple(name for name in names if not name.startswith(FEATURE))

    def counts(self, *, most_groups: int = MOST_GROUPS) -> PositionCounts:
        """Count impressions and clicks of each query, item, position and context.

        Parameters
        ----------
        most_groups : int
            Where there are more of them, items that were never clicked are counted together by
            query, as `PositionCounts.rest`: what clicks say stays as it was.

        Raises
        ------
        DataError
            Where rows are impossible (no id, a position of 0, a click of 2): with their number.
            ``check().counts`` leaves such rows out.
        """
        problems, counts, _ = tally(self, most_groups=most_groups)
        reason = problems.sentence(has_impressions="impressions" in self.columns)
        if reason is not None:
            raise DataError(
                f"{self.source}: {reason}; correct them, or count the others with check().counts"
            )
        if counts is None:
            raise DataError(f"{self.source}: the log has no rows, expected at least one impression")
        return counts

    def check(self, *, randomized: str | None = None, most_groups: int = MOST_GROUPS) -> LogCheck:
        """Validate and describe the log; see `LogCheck`.

        Parameters
        ----------
        randomized : str, optional
            The policy whose rankings were shuffled at random; by default one whose name says so.
        most_groups : int
            As in `counts`.
        """
        return check(self, randomized=randomized, most_groups=most_groups)

    def without_suspicious(self) -> Impressions:
        """Return the log without sessions that look wrong, and with repeated rows counted once.

        Left out are sessions that clicked everything they showed, clients with very many sessions
        and rows that are there before; see `Suspicious`, which `LogCheck` has. The log is read once
        to find them.
        """
        if "session" not in self.columns:
            remedy = (
                ": this log is aggregated, so leave them out when you count a day "
                "(countersample log count --suspicious skip)"
            )
            raise DataError(
                f"{self.source}: no column 'session', so sessions that look wrong cannot be told"
                + (remedy if "impressions" in self.columns else "")
            )
        check_total(self)
        suspicious = find_suspicious(self.frame, self.collect)
        return replace(self, frame=without(self.frame, suspicious), left_out=left_out(suspicious))

    def of_policy(self, *policies: str) -> Impressions:
        """Return the rows that one policy, or one of several, served: the randomized traffic."""
        if "policy" not in self.columns:
            raise DataError(f"{self.source}: no column 'policy', so its rows cannot be told apart")
        chosen = nw.col("policy").is_in([*policies])  # a list: narwhals 2.10 hands it on to Spark
        return replace(self, frame=self.frame.filter(chosen))

    def sample_queries(self, n: int, *, seed: int = 0) -> Impressions:
        """Return all rows of n queries, drawn without replacement; the same in every engine.

        A query has all of its sessions or none, so an item's propensity, (1/S_q) Σ θ, and with it
        the weight of its clicks, is that of the whole log. Rows drawn one by one would not have
        it: a session stays where one of its rows does, and seems not to have shown the others.
        A smaller sample with the same seed is a part of a larger.
        """
        whole_number("n", n, least=1)
        prefix = f"{whole_number('seed', seed, least=0)}:"
        ids = self.frame.filter(~nw.col("query_id").is_null()).select("query_id").unique()
        first = find_engine(self.engine).first_by_digest(ids, n, prefix, self.source)
        return replace(self, frame=self.frame.join(first, on="query_id", how="semi"))

    def write(self, path: str | PathLike[str]) -> int:
        """Write the log as one Parquet file with the canonical columns, sorted; return its rows."""
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
        from pyarrow import parquet  # noqa: PLC0415

        n_rows, writer = 0, None
        rows = self.frame.sort(*self.columns)  # engines have no order, and the same log is one file
        with atomic_path(path) as temporary, ExitStack() as opened:
            for batch in find_engine(self.engine).batches(rows, self.source):
                if writer is None:
                    writer = opened.enter_context(parquet.ParquetWriter(temporary, batch.schema))
                writer.write_table(pa.Table.from_batches([batch]))
                n_rows += batch.num_rows
            if not n_rows:
                raise DataError(f"{self.source}: the log has no rows, expected at least one")
        return n_rows

    def days(self) -> Days:
        """Return the days of the log, by its timestamps, and the rows of each."""
        return days_of(self)

    def of_days(self, *, since: date | None = None, until: date | None = None) -> Impressions:
        """Return the rows from the day `since` on, and before the day `until`.

        Rows without a timestamp are before every day.
        """
        return replace(self, frame=rows_of_days(self, since=since, until=until))

    def with_half_life(self, half_life: str) -> Impressions:
        """Return the log with recent days counting more in what is learned from it.

        A day counts 2^(−age/half-life): its impressions, clicks and sessions, in propensities and
        in training. Judging takes each click as one, and so do `counts` and `check`.

        Parameters
        ----------
        half_life : str
            After which time a day counts half: ``"14d"``, ``"2w"``.
        """
        days = length(half_life, "half_life").days
        self.days()  # which says why there are none
        return replace(self, half_life=float(days))

    def logged_propensities(self, counts: PositionCounts) -> RowPropensities:
        """Return the log's own propensity of each row of `counts`: Σ value / Σ value/propensity.

        It is the (harmonic) mean over the clicks of the row, by what they are worth, so that the
        row's weight is the sum of theirs; 1 where they are worth nothing, NaN where nothing was
        clicked.
        """
        if "propensity" not in self.columns:
            raise DataError(f"{self.source}: no column 'propensity'")
        weight = np.zeros(len(counts))
        for share, part in weighted_days(self):
            table = part.collect(aggregation.group_weights(part.frame))
            bad = (integers(table["clicked"]).sum() - integers(table["good"]).sum()).item()
            if bad:
                raise DataError(
                    f"{self.source}: the propensity is missing, 0 or beyond 1 in {bad:,} of the "
                    "rows with a click, expected within (0, 1]: correct them, or estimate "
                    "propensities from the log"
                )
            rows = rows_of(table, counts, has_text_ids=self.has_text_ids)
            weight[rows] += share * table["weight"].to_numpy()
        if not np.isfinite(weight).all():
            raise DataError(
                f"{self.source}: a propensity is so small that clicks weigh more than a number can "
                "say: correct it, or estimate propensities from the log"
            )
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = counts.value / weight
        mean[(counts.clicks > 0) & (counts.value == 0)] = 1.0
        return RowPropensities(np.minimum(mean, 1.0))  # NaN stays

    def check_no_half_life(self, what: str) -> None:
        """Reject a half-life if all days count alike."""
        if self.half_life is not None:
            raise ParameterError(
                f"{self.source}: the log has a half-life, expected none for {what}, in which every "
                "day counts alike"
            )

    def sessions_of_queries(self) -> nw.LazyFrame[Any] | None:
        """Return S_q, the sessions of each query, lazily; None if the log has none."""
        has_ids = "session" in self.columns and "impressions" not in self.columns
        if not has_ids and "sessions" not in self.columns:
            return None
        return aggregation.group_sessions(self.frame)

    def describe_sessions(self) -> Sessions | None:
        """Count sessions, and what looks wrong about them; None if the log has none."""
        if "sessions" in self.columns:
            return describe_session_counts(self.frame, self.collect)
        if "session" not in self.columns:
            return None
        return describe_sessions(self.frame, self.collect)

    def visits(self, counts: PositionCounts) -> Visits | None:
        """Return the sessions one by one, for intervals; None without ids of sessions."""
        return visits_of(self, counts)

    def collect(self, frame: nw.LazyFrame[Any]) -> pa.Table:
        """Compute what was derived from `frame` where the log is; return it as an Arrow table."""
        return find_engine(self.engine).collect(frame, self.source)

    def close(self) -> None:
        """Release what was opened: temporary files, a Spark session that was started here."""
        self._opened.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Impressions({self.source!r}, engine={self.engine!r}, columns={self.columns})"
