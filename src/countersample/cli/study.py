"""``countersample reproduce``, ``demo`` and ``study``: the paper's studies, and your own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from countersample.cli import console
from countersample.cli import parameters as p
from countersample.cli.app import command_line

OneFold = Annotated[
    int | None,
    Parameter(validator=Number(gte=1), help="One fold of sets with Fold1 … or S1 …; all of them."),
]
Workers = Annotated[
    int | None, Parameter(validator=Number(gte=1), help="The number of threads; all cores.")
]
Settings = Annotated[
    tuple[str, ...],
    Parameter(name="--set", help="A setting of the study: name=value; may be repeated."),
]


def reproduce(
    *studies: str,
    scale: Literal["smoke", "small", "medium", "paper"] | None = None,
    data: tuple[str, ...] = (),
    fold: OneFold = None,
    data_dir: p.DataDir = None,
    out: p.OptionalOut = None,
    workers: Workers = None,
    settings: Settings = (),
    list_studies: Annotated[bool, Parameter(name="--list")] = False,
    dry_run: bool = False,
    json: p.Json = False,
) -> None:
    """Repeat the paper's studies, or run a study of your own.

    Parameters
    ----------
    studies
        Names of studies (see --list), or the TOML file of one of your own; all by default.
    scale
        smoke (does it run?), small (minutes), medium (for verdicts) or paper. By default medium,
        and paper for a study of your own.
    data
        A dataset by name or path, instead of those of the study; may be repeated.
    out
        The results folder; reproduction-SCALE by default, or the name of your study.
    list_studies
        List the studies that come with the package, and stop.
    dry_run
        Report what would be done and how long it takes, and stop.
    """
    from countersample._environment import available_cores
    from countersample.study import reproduction

    if list_studies:
        grids = reproduction.packaged_grids()
        if json:
            names = ("name", "title", "paper", "about")
            console.show_json([{name: getattr(grid, name) for name in names} for grid in grids])
        else:
            console.show(reproduction.summarize_grids(grids))
        return
    plan = reproduction.Reproduction.plan(
        studies, scale=scale, out=out, note=console.note, datasets=data, data_dir=data_dir,
        settings=reproduction.parse_settings(settings), fold=fold,
    )  # fmt: skip
    n_workers = workers or available_cores()
    if dry_run:
        console.show_result(plan.dry_run(command_line(), workers=n_workers), json=json)
        return
    artifacts = plan.run(command_line(), workers=n_workers, note=console.note)
    folder = plan.store.folder
    if json:
        plain = asdict(artifacts) | {"report": str(artifacts.report)}
        console.show_json({"folder": str(folder), **plain})
        return
    console.show(
        reproduction.summarize_findings(artifacts.tables, artifacts.verdicts, artifacts.remarks),
        "",
        f"Tables: {folder / 'tables'}, figures: {folder / 'figures'}",
    )
    if (folder / "results.parquet").exists():
        console.show(f"Learning curves, one row per point: {folder / 'results.parquet'}")
    console.show(f"Results are in {artifacts.report}")


def demo(
    *,
    data: Path | None = None,
    fold: OneFold = None,
    out: p.Out = Path("demo"),
    settings: Settings = (),
    workers: Workers = None,
    json: p.Json = False,
) -> None:
    """Compare naive, IPS-weighted and CounterSample training on simulated clicks.

    Parameters
    ----------
    data
        Your own labelled data: LETOR text, Parquet, or a folder of splits.
    out
        The folder for what the demo writes.
    """
    from countersample._environment import available_cores
    from countersample._progress import share_progress
    from countersample.study.demo import run_demo, write_demo
    from countersample.study.reproduction import parse_settings

    with share_progress("CounterSample demo") as progress:
        result = run_demo(
            str(data) if data else None,
            parse_settings(settings),
            fold=fold,
            workers=workers or available_cores(),
            progress=progress,
        )
    for text in (*result.notes, *result.warnings):
        console.note(f"countersample: {text}")
    write_demo(result, out, command=command_line())
    closing = (
        f"\nLearning curves: {out / 'curves.png'}, their numbers: {out / 'curves.csv'}\n"
        f"Results are in {out / 'index.html'}"
    )
    console.show_result(result, closing, json=json, page=str(out / "index.html"))


def status(folder: Path, /, *, json: p.Json = False) -> None:
    """Report how far the study in a results folder is.

    Parameters
    ----------
    folder
        The results folder.
    """
    from countersample.study.reproduction import Reproduction

    console.show_result(Reproduction.open(folder), json=json)


def claims(
    results: Path,
    /,
    *,
    data: tuple[str, ...] = (),
    out: p.OptionalOut = None,
    json: p.Json = False,
) -> None:
    """Test the claims of studies again on a file of results; nothing is run.

    Parameters
    ----------
    results
        The rows of studies (results.parquet).
    data
        Only this dataset; may be repeated.
    out
        A folder for the tables and figures; none by default.
    """
    from countersample.study.artifacts import evaluate_file
    from countersample.study.reproduction import summarize_findings

    evaluation = evaluate_file(results, data, out)
    for text in evaluation.left_out:
        console.note(text)
    if json:
        console.show_json(asdict(evaluation))
        return
    tables = (each for each in evaluation.tables if not each.name.endswith("-significance"))
    console.show(summarize_findings(tables, evaluation.verdicts))
    if out is not None:
        console.show(f"Tables and figures are in {out}")
