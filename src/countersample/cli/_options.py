"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]

# of commands that read a raw log
Columns = Annotated[
    str | None,
    typer.Option(help="The log's own names of columns: query_id=q,item_id=doc,position=rank."),
]
Engine = Annotated[str | None, typer.Option(help="duckdb (the default), polars, pandas or spark.")]
Randomized = Annotated[
    str | None, typer.Option(help="The policy whose rankings were shuffled at random.")
]
Master = Annotated[str | None, typer.Option(help="The Spark master: spark://host:7077.")]
