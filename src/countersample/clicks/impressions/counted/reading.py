"""Counts of days, read as a log is: `CountedImpressions`."""

from __future__ import annotations

import glob
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from countersample._files import is_folder
from countersample.clicks.impressions.aggregation import Problems
from countersample.clicks.impressions.assembling import encode, integers, rows_of
from countersample.clicks.impressions.counted.files import (
    BUCKETS,
    Part,
    parts_of,
    read_part,
)
from countersample.clicks.impressions.engines import DuckDB, make_engine
from countersample.clicks.impressions.handle import Impressions, Opened
from countersample.clicks.impressions.suspicion import Sessions
from countersample.clicks.impressions.visits import Visits
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date
    from os import PathLike

    import pyarrow as pa

    from countersample.clicks.impressions.counts import PositionCounts

_NO_ROWS = "have no rows to draw from or to write: sample the log, then count the sample"
_COUNTED = "was said when the days were counted, and cannot be changed here: leave it out"


@dataclass(frozen=True, eq=False, repr=False)
class CountedImpressions(Impressions):
    """Days that were counted by `count_days`, which answer as their log would.

    What a log tells row by row is kept as far as it is asked: sessions are drawn for intervals in
    256 buckets a day. What looks suspicious was said, or left out, when a day was counted.

    Attributes
    ----------
    parts : tuple of Part
        The days, sorted.
    policies : tuple of str, optional
        The policies whose rows these are; None for all.
    """

    parts: tuple[Part, ...] = ()
    policies: tuple[str, ...] | None = None
    made: Any = None  # the engine, DuckDB

    @property
    def columns(self) -> tuple[str, ...]:
        """The canonical columns that the log had."""
        return self.parts[0].columns if self.parts else ()

    @property
    def row_count(self) -> nw.Expr:
        """How rows of the log are counted in a group of rows of the frame."""
        return nw.col("rows").sum()

    def without_suspicious(self) -> Impressions:
        """Refuse: rows that look wrong are told apart only while a day is counted."""
        raise DataError(
            f"{self.source}: counts do not tell which rows look wrong: leave them out when a day "
            "is counted (countersample log count --suspicious skip)"
        )

    def sample_queries(self, n: int, *, seed: int = 0) -> Impressions:  # noqa: ARG002 (as a log)
        """Refuse: what is kept of sessions is not kept by query."""
        raise DataError(f"{self.source}: counts {_NO_ROWS}")

    def write(self, path: str | PathLike[str]) -> int:  # noqa: ARG002 (as a log)
        """Refuse: rows are what counts have not."""
        raise DataError(f"{self.source}: counts {_NO_ROWS}")

    def of_policy(self, *policies: str) -> CountedImpressions:
        """Return the rows that one policy, or one of several, served."""
        super().of_policy(*policies)  # which says what is missing
        return self._of(self.parts, policies)

    def of_days(
        self, *, since: date | None = None, until: date | None = None
    ) -> CountedImpressions:
        """Return the counts from the day `since` on, and before the day `until`."""
        if "timestamp" not in self.columns:
            raise DataError(f"{self.source}: parts that are no days, so days cannot be told")
        kept = tuple(
            part
            for part in self.parts
            if part.day is not None
            and (since is None or part.day >= since)
            and (until is None or part.day < until)
        )
        return self._of(kept, self.policies)

    def _of(self, parts: tuple[Part, ...], policies: tuple[str, ...] | None) -> CountedImpressions:
        if not parts:
            raise DataError(f"{self.source}: no day of the counts is among those asked for")
        frame = _frame(self.made, parts)
        if policies is not None:
            frame = frame.filter(nw.col("policy").is_in([*policies]))
        return replace(self, frame=frame, parts=parts, policies=policies)

    def problems(self, groups: nw.LazyFrame[Any]) -> Problems:  # noqa: ARG002 (as a log)
        """Return how many rows were left out when the days were counted, and why."""
        rows = self.collect(self.frame.select(nw.col("rows").sum()))
        kept = int(integers(rows["rows"].fill_null(0))[0])
        told = [part.problems for part in self.parts] if self.policies is None else []
        sums: dict[str, Any] = {
            each.name: sum(int(getattr(found, each.name)) for found in told)
            for each in fields(Problems)
            if each.name not in {"position_found", "is_from_zero"}
        }
        return Problems(**sums | {"n_rows": kept + sums["n_invalid"]})

    def sessions_of_queries(self) -> nw.LazyFrame[Any] | None:
        """Return S_q, the sessions of each query."""
        if not self.parts[0].has_sessions:
            return None
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

        table = pa.concat_tables([self._visits(part) for part in self.parts])
        sums = ["sessions", "unnamed_rows", "unnamed_top"]
        found = table.group_by("query_id").aggregate([(name, "sum") for name in sums])
        named, rows, top = (integers(found[f"{name}_sum"]) for name in sums)
        sessions = named + np.where(rows > 0, np.maximum(top, 1), 0)
        made = pa.table({"query_id": found["query_id"], "sessions": pa.array(sessions)})
        frame: nw.LazyFrame[Any] = nw.from_native(self.made.from_arrow(made)).lazy()
        return frame

    def describe_sessions(self) -> Sessions | None:
        """Return how many sessions there are."""
        if "session" not in self.columns:
            return None
        named = rows = 0
        if self.parts[0].has_sessions:
            tables = [self._visits(part) for part in self.parts]
            named = sum(int(integers(table["sessions"]).sum()) for table in tables)
            rows = sum(int(integers(table["unnamed_rows"]).sum()) for table in tables)
        totals = [
            None if None in numbers else sum(number or 0 for number in numbers)
            for numbers in (
                [part.n_sessions for part in self.parts], [part.n_mixed for part in self.parts],
            )
        ]  # fmt: skip
        if self.policies is not None and totals[0] is not None:
            is_single = self.parts[0].has_sessions and all(map(has_single_queries, self.parts))
            totals = [named if is_single else None, None]
        return Sessions(totals[0], rows, totals[1], None)

    def visits(self, counts: PositionCounts) -> Visits | None:
        """Return sessions, in buckets: see `Visits`. None where some rows have none."""
        if not self.parts[0].has_sessions:
            return None
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

        seen = [self._visits(part) for part in self.parts]
        if any(integers(table["unnamed_rows"]).sum() for table in seen):
            return None
        clicks = [self._of_policies(part.read("clicks")) for part in self.parts]
        visits, clicked = pa.concat_tables(seen), pa.concat_tables(clicks)
        code, own = encode(
            visits["query_id"],
            has_text_ids=self.has_text_ids and counts.query_ids.dtype.kind == "i",
        )
        unit, n_seen = _units(seen, clicks), len(visits)
        distinct, unit = np.unique(unit, return_inverse=True)
        return Visits(
            n_sessions=len(distinct),
            session=unit[:n_seen].astype(np.int64),
            query=np.searchsorted(counts.query_ids, own)[code],
            clicking=unit[n_seen:].astype(np.int64),
            row=rows_of(clicked, counts, has_text_ids=self.has_text_ids),
            value=clicked["value"].to_numpy().astype(np.float64),
            times=integers(visits["sessions"]).astype(np.float64),
        )

    def pages(self) -> pa.Table:
        """Return impressions and clicks by query, context, policy, bucket and position."""
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

        return pa.concat_tables(self._of_policies(part.read("pages")) for part in self.parts)

    def weights_of_rows(self) -> pa.Table:
        """Return Σ value/propensity of each query, item, position and context."""
        import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

        sums = ("weight", "clicked", "good")
        tables = [self._of_policies(part.read("weights")) for part in self.parts]
        table = pa.concat_tables(tables)
        by = [n for n in table.column_names if n not in {*sums, "policy", "client"}]
        found = table.group_by(by).aggregate([(name, "sum") for name in sums])
        return found.select([*by, *(f"{name}_sum" for name in sums)]).rename_columns([*by, *sums])

    def _visits(self, part: Part) -> pa.Table:
        """Return the visits of a part, those that saw one of the policies."""
        table = part.read("visits")
        if self.policies is None:
            return table
        bits = sum(1 << k for k, name in enumerate(part.policies) if name in self.policies)
        return table.filter((integers(table["policies"]) & bits) > 0)

    def _of_policies(self, table: pa.Table) -> pa.Table:
        if self.policies is None:
            return table
        wanted = {*self.policies}
        return table.filter([name in wanted for name in table["policy"].to_pylist()])


def has_single_queries(part: Part) -> bool:
    """Whether each session of a part is of one query."""
    return part.n_sessions == int(integers(part.read("visits")["sessions"]).sum())


def _units(seen: list[pa.Table], clicks: list[pa.Table]) -> Any:  # noqa: ANN401 (an int array)
    """Return a number for the day and bucket of each row of all tables."""
    return np.concatenate([
        integers(table["bucket"]) + BUCKETS * k
        for tables in (seen, clicks) for k, table in enumerate(tables)
    ])  # fmt: skip


def counts_at(source: str) -> list[Path]:
    """Return the folders of counts that a path, or a pattern, means; none where it is no counts."""
    found = [Path(source)]
    if not is_folder(found[0]) and glob.has_magic(source):
        found = [Path(path) for path in sorted(glob.glob(source))]  # noqa: PTH207 (may be absolute)
    parts = [part for folder in found for part in parts_of(folder)]
    return parts if all(parts_of(folder) for folder in found) else []


def read_counts(
    source: str,
    folders: list[Path],
    *,
    given: Mapping[str, Any],
    join_queries: bool,
    settings: Mapping[str, str | None],
) -> CountedImpressions:
    """Open counts; `given` are settings of `read_impressions` that are for raw logs."""
    for name, value in given.items():
        if value is not None:
            raise ParameterError(f"{source}: {name} {_COUNTED}")
    parts = tuple(sorted(map(read_part, folders), key=lambda part: part.label))
    _check_alike(parts, source)
    if bool(parts[0].settings.get("join_queries", False)) != join_queries:
        raise ParameterError(
            f"{source}: join_queries (--join-queries) is {join_queries}, and was "
            f"{not join_queries} when the days were counted: give it as it was"
        )
    with ExitStack() as cleanup:
        made = make_engine(DuckDB, cleanup, settings)
        for part in parts:
            part.read("counts")  # checked: an engine would take what it finds
        frame = _frame(made, parts)
        return CountedImpressions(
            frame, made.name, source, has_text_ids=parts[0].has_text_ids,
            has_events=parts[0].has_events, joins_queries=join_queries, parts=parts, made=made,
            _opened=Opened(cleanup.pop_all()),
        )  # fmt: skip


def _frame(made: DuckDB, parts: tuple[Part, ...]) -> nw.LazyFrame[Any]:
    paths = [glob.escape(f"{part.folder}/counts.parquet") for part in parts]
    with DuckDB.explained(str(parts[0].folder)):
        found = made.connection.read_parquet(paths, hive_partitioning=False)
        frame: nw.LazyFrame[Any] = nw.from_native(found).lazy()
        return frame.rename({"clicks": "click"})


def _check_alike(parts: tuple[Part, ...], source: str) -> None:
    """Refuse days that cannot be put together."""
    first = parts[0]
    labels: dict[str, Part] = {}
    for part in parts:
        other = labels.setdefault(part.label, part)
        if other is not part:
            raise DataError(
                f"{source}: {part.label} is there twice, in {other.folder} and {part.folder}: "
                "leave one out"
            )
        for what, mine, its in (
            ("columns", {*first.columns} - {"client"}, {*part.columns} - {"client"}),
            ("types of ids", first.id_types, part.id_types),
            ("ids as text", first.has_text_ids, part.has_text_ids),
            ("settings", first.settings, part.settings),
            ("users kept", first.keeps_users, part.keeps_users),
        ):
            if mine != its:
                raise DataError(
                    f"{source}: {first.label} and {part.label} differ in {what} ({_told(mine)} and "
                    f"{_told(its)}), expected the same in all days: count one of them again"
                )


def _told(value: object) -> str:
    return ", ".join(sorted(map(str, value))) if isinstance(value, set) else str(value)
