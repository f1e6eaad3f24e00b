"""``countersample log sample``: the rows of some of the queries."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (typer reads it)
from typing import Annotated

import typer

from countersample._files import check_writable
from countersample.cli import _show
from countersample.cli._options import (
    Columns,
    Context,
    Engine,
    JoinQueries,
    Master,
    MemoryLimit,
    PositionsFrom,
    Reader,
    Seed,
    Suspicious,
    TempDir,
    Values,
)
from countersample.cli.logs import LOG_HELP, open_log


def sample(
    path: Annotated[str, typer.Argument(help=LOG_HELP)],
    *,
    queries: Annotated[int, typer.Option(help="How many queries.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The log to write (.parquet).")],
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
    seed: Seed = 0,
) -> None:
    """Write all rows of some queries, drawn at random: click weights stay as they are."""
    from countersample.errors import ParameterError

    if out.suffix != ".parquet":
        raise ParameterError(f"--out is {out}, expected a name that ends with .parquet")
    check_writable(out)
    with open_log(
        path, reader=reader, columns=columns, context=context, values=values,
        join_queries=join_queries, positions_from=positions_from, suspicious=suspicious,
        engine=engine, master=master, memory_limit=memory_limit, temp_dir=temp_dir,
    ) as log:  # fmt: skip
        n_rows = log.sample_queries(queries, seed=seed).write(out)
    _show.line(f"{n_rows:,} rows, all of at most {queries:,} queries, are in {out}")
