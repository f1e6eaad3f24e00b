"""Options of the commands that train a ranker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str | None,
    typer.Option(help="linear (the default, or as --warm-start), neural, lightgbm or xgboost."),
]
WarmStart = Annotated[
    Path | None,
    typer.Option(
        help="A saved ranker to continue from, with its settings; the log has clicks that are new "
        "to it."
    ),
]
