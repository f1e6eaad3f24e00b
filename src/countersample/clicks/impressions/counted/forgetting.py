"""What was counted, forgotten: a day, a query or a user."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._files import atomic_path, remove
from countersample.clicks.impressions.assembling import integers
from countersample.clicks.impressions.counted.files import (
    Part,
    parts_of,
    read_part,
    write_part,
)
from countersample.clicks.impressions.queries import join_query_ids
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date
    from os import PathLike

    import pyarrow as pa


@dataclass(frozen=True)
class Forgotten:
    """What `forget_counts` took out.

    Attributes
    ----------
    days : tuple of str
        The days, or named parts, that were removed as a whole.
    changed : tuple of str
        Those that were written anew, without some of their rows.
    n_impressions, n_clicks : int
        What was taken out, of whole days, too.
    """

    days: tuple[str, ...]
    changed: tuple[str, ...]
    n_impressions: int
    n_clicks: int


def forget_counts(
    folder: str | PathLike[str],
    *,
    days: Sequence[date | str] = (),
    queries: Sequence[int | str] = (),
    users: Sequence[int | str] = (),
) -> Forgotten:
    """Take days, queries or users out of counts: what is left is as if they were never logged.

    Each day is written anew under a temporary name and then renamed, so that one that was stopped
    half-way can be run again.

    Parameters
    ----------
    folder : path
        That `count_days` wrote, or one of its days.
    days : sequence of date or str
        Or names of parts that have no day.
    queries : sequence of ids
    users : sequence of ids
        Of the log's column ``client``; needs counts that were made with ``keep_users=True``, as
        others do not know whose they are.
    """
    parts = [read_part(path) for path in parts_of(Path(folder))]
    if not parts:
        raise DataError(f"{folder}: no counts of days in this folder")
    if not (days or queries or users):
        raise ParameterError("nothing to forget is named, expected a day, a query or a user")
    wanted = {str(day) for day in days}
    unknown = sorted(wanted - {part.label for part in parts})
    if unknown:
        raise ParameterError(
            f"{folder}: there is no day {unknown[0]!r}: it has {parts[0].label} to "
            f"{parts[-1].label}"
        )
    without = [part.label for part in parts if not part.keeps_users]
    if users and without:
        raise DataError(
            f"{folder}: the counts of {without[0]} do not know whose they are, so a user cannot be "
            "taken out: they were made without keep_users=True (--keep-users); count the day again "
            "from a log without the user, or forget the day"
        )
    gone: list[str] = []
    changed: list[str] = []
    taken = np.zeros(2, np.int64)
    for part in parts:
        before = _totals(part.read("counts"))
        tables = {} if part.label in wanted else _kept(part, queries, users)
        counts = tables.get("counts")
        after = np.zeros(2, np.int64) if counts is None else _totals(counts)
        assert part.folder is not None  # noqa: S101
        if not after[0]:
            _remove(part.folder)
            gone.append(part.label)
        elif after[0] < before[0]:
            write_part(part.folder, _header(part, tables), tables)
            changed.append(part.label)
        taken += before - after
    return Forgotten(tuple(gone), tuple(changed), int(taken[0]), int(taken[1]))


def _kept(
    part: Part, queries: Sequence[int | str], users: Sequence[int | str]
) -> dict[str, pa.Table]:
    """Return the tables of a part without some queries and users."""
    if part.settings.get("join_queries"):
        queries = np.asarray(join_query_ids([str(query) for query in queries])).tolist()
    names = {str(query) for query in queries}
    clients = {str(user) for user in users}
    tables = {}
    for name in part.tables():
        table = part.read(name)
        is_kept = ~_is_in(table["query_id"], names)
        if clients:
            is_kept &= ~_is_in(table["client"], clients)
        tables[name] = table.filter(is_kept)
    return tables


def _is_in(column: pa.ChunkedArray, names: set[str]) -> Any:  # noqa: ANN401 (a bool array)
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import compute  # noqa: PLC0415

    text = column.cast(pa.string())
    found = compute.is_in(text, value_set=pa.array(sorted(names), pa.string()))
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


def _header(part: Part, tables: dict[str, pa.Table]) -> Part:
    """Return what is to be said of a part of which something was taken out."""
    policies = part.policies
    if "policy" in part.columns:
        there = {*tables["counts"]["policy"].unique().to_pylist()}
        policies = tuple(name for name in part.policies if name in there)
    n_sessions = n_mixed = None
    if part.has_sessions:
        all_visits = int(integers(part.read("visits")["sessions"]).sum())
        visits = tables["visits"]
        old, number = integers(visits["policies"]), integers(visits["sessions"])
        mask = np.zeros(len(old), np.int64)
        for k, name in enumerate(policies):
            mask |= ((old >> part.policies.index(name)) & 1) << k
        at = visits.column_names.index("policies")
        tables["visits"] = visits.set_column(at, "policies", [mask])
        if part.n_sessions == all_visits:  # each is of one query, so the others are what is left
            n_sessions = int(number.sum())
            n_mixed = int(number[(mask & (mask - 1)) > 0].sum())
    n_rows = int(integers(tables["counts"]["rows"]).sum()) + part.problems.n_invalid
    return replace(
        part, policies=policies, n_sessions=n_sessions, n_mixed=n_mixed, warnings=(),
        problems=replace(part.problems, n_rows=n_rows),
    )  # fmt: skip


def _totals(counts: pa.Table) -> Any:  # noqa: ANN401 (an int array)
    return np.array([integers(counts[name]).sum() for name in ("impressions", "clicks")])


def _remove(folder: Path) -> None:
    """Remove a day, at once for whoever reads the folder."""
    with atomic_path(folder.with_name(f".{folder.name}.gone")) as temporary:
        folder.replace(temporary)
    remove(folder.with_name(f".{folder.name}.gone"))
