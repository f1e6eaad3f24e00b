"""``countersample reproduce``, ``demo`` and ``study``: the paper's studies, and your own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from countersample.cli import console
from countersample.cli import parameters as p
from countersample.cli.console import Output, command_line

_fold = "One fold of sets with Fold1 … or S1 …; all by default."
OneFold = Annotated[int | None, p.WHOLE, Parameter(validator=Number(gte=1), help=_fold)]
_workers = Parameter(validator=Number(gte=1), help="The number of threads; all cores by default.")
Workers = Annotated[int | None, p.WHOLE, _workers]
_set = Parameter(name="--set", help="A setting of the study: name=value; may be repeated.")
Settings = Annotated[tuple[str, ...], _set]


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
) -> Output:
    """Repeat the paper's studies, or run a study of your own.

    :param studies: Names of studies (see --list), or the TOML file of your own. All by default.
    :param scale: smoke (does it run?), small (minutes), medium (for verdicts) or paper. By default
        medium, and paper for a study of your own.
    :param data: A dataset by name or path, instead of the study's datasets; may be repeated.
    :param out: The results folder; reproduction-SCALE by default, or the name of your study.
    :param list_studies: List the studies of the package, and stop.
    :param dry_run: Report the jobs and how long they take, and stop.
    """
    from countersample._environment import available_cores
    from countersample.study import reproduction

    if list_studies:
        grids = reproduction.packaged_grids()
        names = ("name", "title", "paper", "about")
        rows = [{name: getattr(grid, name) for name in names} for grid in grids]
        return Output(reproduction.summarize_grids(grids), rows)
    plan = reproduction.Reproduction.plan(
        studies, scale=scale, out=out, note=console.note, datasets=data, data_dir=data_dir,
        settings=reproduction.parse_settings(settings), fold=fold,
    )  # fmt: skip
    n_workers = workers or available_cores()
    if dry_run:
        return Output.of(plan.dry_run(command_line(), workers=n_workers))
    artifacts = plan.run(command_line(), workers=n_workers, note=console.note)
    folder = plan.store.folder
    texts = [
        reproduction.summarize_findings(artifacts.tables, artifacts.verdicts, artifacts.remarks),
        "",
        f"Tables: {folder / 'tables'}, figures: {folder / 'figures'}",
    ]
    if (folder / "results.parquet").exists():
        texts.append(f"Learning curves, one row per point: {folder / 'results.parquet'}")
    texts.append(f"Results are in {artifacts.report}")
    values = {"folder": str(folder), **asdict(artifacts), "report": str(artifacts.report)}
    return Output("\n".join(texts), values)


def demo(
    *,
    data: Path | None = None,
    fold: OneFold = None,
    out: p.Out = Path("demo"),
    settings: Settings = (),
    workers: Workers = None,
) -> Output:
    """Fit the log of a synthetic shop, and compare the methods of the paper on simulated clicks.

    :param data: Your own labelled data, to compare the methods on it: LETOR text, Parquet, or a
        folder of splits. The shop is left out.
    :param out: The folder of the results.
    """
    from countersample._environment import available_cores
    from countersample._progress import share_progress
    from countersample.study.demo import run_demo, write_demo
    from countersample.study.reproduction import parse_settings

    with share_progress("CounterSample demo") as progress:
        result = run_demo(
            str(data) if data else None, parse_settings(settings), fold=fold,
            workers=workers or available_cores(), progress=progress,
        )  # fmt: skip
    for text in (*result.notes, *result.warnings):
        console.note(f"countersample: {text}")
    write_demo(result, out, command=command_line())
    page = out / "index.html"
    return Output.of(result, f"\nThe page with charts and explanations: {page}", page=str(page))


def status(folder: Path, /) -> Output:
    """Report how far the study in a results folder is.

    :param folder: The results folder.
    """
    from countersample.study.reproduction import Reproduction

    return Output.of(Reproduction.open(folder))


def claims(results: Path, /, *, data: tuple[str, ...] = (), out: p.OptionalOut = None) -> Output:
    """Test the claims of studies on a file of results.

    :param results: The results of studies (results.parquet).
    :param data: Only this dataset; may be repeated.
    :param out: A folder for the tables and figures; none by default.
    """
    from countersample.study.reproduction import evaluate_file, summarize_findings

    evaluation = evaluate_file(results, data, out)
    for text in evaluation.left_out:
        console.note(text)
    tables = (each for each in evaluation.tables if not each.name.endswith("-significance"))
    text = summarize_findings(tables, evaluation.verdicts)
    closing = "" if out is None else f"\nTables and figures are in {out}"
    return Output(text + closing, asdict(evaluation))
