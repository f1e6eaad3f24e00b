"""``countersample log count`` and ``log forget``: a log boiled down, day by day."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path  # noqa: TC003 (typer reads it)
from typing import Annotated

import typer

from countersample.cli import _show
from countersample.cli._options import (
    Columns,
    Context,
    Engine,
    JoinQueries,
    Json,
    Master,
    MemoryLimit,
    PositionsFrom,
    Reader,
    Suspicious,
    TempDir,
    Values,
    parse_columns,
    parse_names,
    parse_values,
)


def count(
    path: Annotated[str, typer.Argument(help="The log: of a day, or of several.")],
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder of counts; a day is a folder in it.")
    ],
    name: Annotated[
        str | None,
        typer.Option(help="Count the log as one part of this name, where it has no timestamps."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace days that were counted before.")
    ] = False,
    keep_users: Annotated[
        bool,
        typer.Option(
            "--keep-users",
            help="Keep counts of each client, so that one can be forgotten: personal data.",
        ),
    ] = False,
    missing: Annotated[
        str,
        typer.Option(help="error or skip: refuse, or leave out, rows that are impossible."),
    ] = "error",
    reader: Reader = None,
    columns: Columns = None,
    context: Context = None,
    values: Values = None,
    join_queries: JoinQueries = False,
    positions_from: PositionsFrom = 1,
    suspicious: Suspicious = "keep",
    engine: Engine = None,
    master: Master = None,
    memory_limit: MemoryLimit = None,
    temp_dir: TempDir = None,
    json: Json = False,
) -> None:
    """Boil a log down to counts by day, which fit, compare and others take as a log."""
    from countersample._params import choice
    from countersample.cli.logs import open_log
    from countersample.clicks.impressions import count_days

    choice("--missing", missing, ("error", "skip"))
    settings = {
        "reader": reader, "columns": parse_columns(columns), "context": parse_names(context),
        "values": parse_values(values), "join_queries": join_queries,
        "positions_from": positions_from, "suspicious": suspicious,
    }  # fmt: skip
    with open_log(
        path, reader=reader, columns=columns, context=context, values=values,
        join_queries=join_queries, positions_from=positions_from, suspicious=suspicious,
        engine=engine, master=master, memory_limit=memory_limit, temp_dir=temp_dir,
    ) as log:  # fmt: skip
        days = count_days(
            log, out, name=name, replace=replace, keep_users=keep_users,
            skip_impossible=missing == "skip", settings=settings,
        )  # fmt: skip
    if json:
        _show.as_json({"out": str(out), "days": [asdict(day) for day in days]})
        return
    _show.table(
        ("day", "impressions", "clicks", "sessions", "size"),
        [
            (
                day.label,
                f"{day.n_impressions:,}",
                f"{day.n_clicks:,}",
                "not logged" if day.n_sessions is None else f"{day.n_sessions:,}",
                _show.size(day.n_bytes),
            )
            for day in days
        ],
    )
    for day in days:
        for warning in day.warnings:
            _show.paragraph(f"Warning: {day.label}: {warning}")
    _show.line(f"The counts are in {out}")


def forget(
    counts: Annotated[Path, typer.Argument(help="The folder of counts.")],
    *,
    day: Annotated[
        list[str] | None, typer.Option(help="A day to forget: 2026-03-31. Can be repeated.")
    ] = None,
    query: Annotated[
        list[str] | None, typer.Option(help="The id of a query to forget. Can be repeated.")
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option(
            help="The id of a client to forget, in counts made with --keep-users. Can be repeated."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Take days, queries or users out of counts, as if they were never logged."""
    from countersample.clicks.impressions import forget_counts

    found = forget_counts(counts, days=day or (), queries=query or (), users=user or ())
    if json:
        _show.as_json({"counts": str(counts), **asdict(found)})
        return
    _show.line(
        f"{found.n_impressions:,} impressions and {found.n_clicks:,} clicks are forgotten: "
        f"{len(found.days):,} days were removed, {len(found.changed):,} written anew"
    )
