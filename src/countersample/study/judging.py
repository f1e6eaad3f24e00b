"""Verdicts on the rows of studies that were run before, here or elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countersample.errors import DataError
from countersample.study.design import grids
from countersample.study.design.published import load_published
from countersample.study.findings.write_tables import write_table
from countersample.study.kinds import load_grid
from countersample.study.kinds.regret import draw, tables_of, verdicts_on
from countersample.study.running.read_results import read_results, results_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from countersample.study.design.grids import Grid
    from countersample.study.findings.claims import Verdict
    from countersample.study.findings.tables import Table
    from countersample.study.results import StudyResult


@dataclass(frozen=True)
class Judged:
    """What the rows say: the tables of each study, and a verdict a claim and dataset."""

    tables: tuple[Table, ...]
    verdicts: tuple[Verdict, ...]
    left_out: tuple[str, ...]  # what is in the file and was not judged: a sentence each


def judge_file(path: Path, datasets: Sequence[str] = (), out: Path | None = None) -> Judged:
    """Hold the rows of a results file against the claims of the studies they are of.

    Each study is that of the package at the scale whose values are in the file.

    Parameters
    ----------
    path : Path
    datasets : sequence of str
        Those that are looked at, by default all.
    out : Path, optional
        A folder that tables and figures are written into.
    """
    rows = read_results(path)
    of_dataset = rows["dataset"].to_pylist()
    if datasets:
        rows = rows.filter([each in datasets for each in of_dataset])
    if not len(rows):
        known = ", ".join(dict.fromkeys(of_dataset)) or "none"
        raise DataError(f"{path} has no rows of {' or '.join(datasets) or 'runs'}: it has {known}")
    results, left_out = _studies(rows)
    if not results:
        raise DataError(f"{path} has no study of the package: see countersample reproduce --list")
    published = load_published(grids.folder() / "published.toml")
    tables = [table for result in results for table in tables_of(result, published)]
    verdicts = [verdict for result in results for verdict in verdicts_on(result)]
    if out is not None:
        (out / "tables").mkdir(parents=True, exist_ok=True)
        (out / "figures").mkdir(exist_ok=True)
        for table in tables:
            write_table(table, out / "tables")
        for result in results:
            draw(result, out / "figures")
    return Judged(tuple(tables), tuple(verdicts), tuple(left_out))


def _studies(rows: pa.Table) -> tuple[list[StudyResult], list[str]]:
    """Return what there is of studies of the package, and in sentences what else there is."""
    of_study = rows["study"].to_pylist()
    results: list[StudyResult] = []
    left_out: list[str] = []
    for name in dict.fromkeys(of_study):
        if name not in grids.names():
            left_out.append(f"{name} is left out: it is no study of the package")
            continue
        own = rows.filter([each == name for each in of_study])
        results.append(results_of(own, _grid(name, own)))
        values = dict.fromkeys(own["value"].to_pylist())
        judged = {str(value) for value in results[-1].grid.values}
        if missing := [value for value in values if value not in judged]:
            left_out.append(
                f"{name} at {', '.join(missing)} is left out: it lacks runs of a method or dataset"
            )
    return results, left_out


def _grid(name: str, rows: pa.Table) -> Grid:
    """Return the grid of a study at the largest scale that has the most of the values."""
    values = {*rows["value"].to_pylist()}
    at_scales = [load_grid(grids.path_of(name), scale) for scale in reversed(grids.SCALES)]
    return max(at_scales, key=lambda grid: len(values & {str(value) for value in grid.values}))
