"""``countersample demo``: why draw by weight, in a minute, on data made on the spot."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from countersample.cli import _show
from countersample.cli._first_use import compile_ahead
from countersample.cli._options import Json  # noqa: TC001 (typer reads it)
from countersample.cli.study import OneFold, Set, Workers, settings_of


def demo(
    *,
    data: Annotated[
        Path | None,
        typer.Option(help="Your own labelled data: LETOR text, Parquet, or a folder of splits."),
    ] = None,
    fold: OneFold = None,
    out: Annotated[Path, typer.Option(help="The folder for what the demo writes.")] = Path("demo"),
    settings: Set = None,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Compare naive, IPS-weighted and CounterSample training on simulated clicks."""
    compile_ahead()
    from countersample._cores import available_cores
    from countersample._progress import share_progress
    from countersample.study.demo import HEADER, NOTES, run_demo, write_demo

    with share_progress("CounterSample demo") as progress:
        result = run_demo(
            str(data) if data else None,
            settings_of(settings),
            fold=fold,
            workers=workers or available_cores(),
            progress=progress,
        )
    for text in (*result.notes, *result.warnings):
        _show.note(f"countersample: {text}")
    write_demo(result, out, command=shlex.join(["countersample", *sys.argv[1:]]))
    if json:
        _show.as_json({"page": str(out / "index.html"), **result.to_dict()})
        return
    for text in result.story():
        _show.paragraph(text)
        _show.line()
    _show.table(HEADER, result.rows())
    _show.line()
    for note in NOTES:
        _show.paragraph(note)
    _show.line()
    _show.line(f"Learning curves: {out / 'curves.png'}, their numbers: {out / 'curves.csv'}")
    _show.line(f"Results are in {out / 'index.html'}")
