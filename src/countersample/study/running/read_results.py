"""From the rows of a results file back to results in memory: to judge them again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample.errors import DataError, ParameterError
from countersample.study.design.config import metric_title
from countersample.study.results import Cell, RateFlag, StudyResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from countersample.study.design.claims import Claim, Value
    from countersample.study.design.grids import Grid

_TYPES = dict.fromkeys(
    ("study", "dataset", "fold", "method", "axis", "value", "beside", "metric"), "string"
)
_TYPES |= dict.fromkeys(("learning_rate", "ndcg", "best_ndcg", "policy_ndcg", "seconds"), "float64")
_RATES = ("rates_from", "rates_to", "rates_alike_from", "rates_alike_to")
_TYPES |= dict.fromkeys(_RATES, "float64") | dict.fromkeys(("rates_tried", "rates_alike"), "int64")
_TYPES |= {"drawn": "int64", "seed": "int64", "diverged": "bool"}


def read_results(path: Path) -> pa.Table:
    """Read what `write_results` wrote: the columns that results in memory are made of."""
    import pyarrow as pa  # noqa: PLC0415 (heavy)
    from pyarrow import parquet  # noqa: PLC0415

    expected = "expected the results.parquet of a study"
    try:
        table = parquet.read_table(path)
        schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in _TYPES.items()])
        rows = table.select(list(_TYPES)).cast(schema)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}: {expected}") from error
    except (pa.ArrowException, KeyError, OSError) as error:
        (reason, *_) = str(error).strip("'\"").splitlines()
        raise DataError(f"{path} has not the rows of a study ({reason}): {expected}") from error
    for name in _TYPES:
        if rows[name].null_count:
            raise DataError(f"{path} has rows without {name}: {expected}")
    return rows


def results_of(rows: pa.Table, grid: Grid) -> StudyResult:
    """Return the results of a study: all that is there of it.

    Values of its setting that some dataset or method lacks are left out, and so are claims that
    speak of them.

    Raises
    ------
    DataError
        Where no value has runs of every method on every dataset.
    """
    cells = _cells(rows, grid)
    datasets = tuple(dict.fromkeys(dataset for dataset, _, _ in cells))
    every = [(dataset, method.name) for dataset in datasets for method in grid.methods]
    whole = tuple(v for v in grid.values if all((*each, v) in cells for each in every))
    if not datasets or not whole:
        where = ", ".join(datasets) or "any dataset"
        raise DataError(f"{grid.name}: no value of {grid.axis} has runs of every method on {where}")
    claims = tuple(claim for claim in grid.claims if _can_be_judged(claim, grid, whole))
    kept = {name: runs for name, runs in cells.items() if name[2] in whole}
    metrics = {run["metric"] for runs in kept.values() for run in runs}
    return StudyResult(
        replace(grid, values=whole, claims=claims),
        datasets,
        {name: _cell(runs) for name, runs in kept.items()},
        {dataset: _mean(kept, dataset, "best_ndcg") for dataset in datasets},
        {dataset: _mean(kept, dataset, "policy_ndcg") for dataset in datasets},
        metric_title(metrics.pop()) if len(metrics) == 1 else "the metric",
    )


Runs = list[dict[str, Any]]  # of a cell: a column a name, with one value where it is the same


def _cells(rows: pa.Table, grid: Grid) -> dict[tuple[str, str, Value], Runs]:
    """Return the runs of each cell, in the order of the file."""
    columns = {name: rows[name].to_numpy() for name in _TYPES}
    values = {str(value): value for value in grid.values}
    methods = {method.name for method in grid.methods}
    ends = np.flatnonzero(np.diff(columns["drawn"], append=0) <= 0) + 1
    cells: dict[tuple[str, str, Value], Runs] = {}
    for begin, end in pairwise([0, *ends]):
        run = {name: column[begin] for name, column in columns.items()}
        known = run["value"] in values and not run["beside"] and run["method"] in methods
        if not known or run["study"] != grid.name or run["axis"] != grid.axis:
            continue
        curve = {name: columns[name][begin:end] for name in ("drawn", "ndcg", "diverged")}
        name = (run["dataset"], run["method"], values[run["value"]])
        cells.setdefault(name, []).append(run | curve)
    return cells


def _cell(runs: Runs) -> Cell:
    first = runs[0]
    if any(not np.array_equal(run["drawn"], first["drawn"]) for run in runs):
        raise DataError(
            f"runs of {first['method']} on {first['dataset']} at {first['value']} are evaluated at "
            "different points: expected whole runs"
        )
    tuned = {run["fold"]: run for run in runs}.values()
    rates = [float(run["learning_rate"]) for run in tuned]
    return Cell(
        learning_rates=tuple(None if np.isnan(rate) else rate for rate in rates),
        drawn=first["drawn"],
        ndcg=np.array([run["ndcg"] for run in runs]),
        best=np.array([run["best_ndcg"] for run in runs]),
        runs=tuple((run["fold"], int(run["seed"])) for run in runs),
        n_diverged=sum(bool(run["diverged"].any()) for run in runs),
        seconds=np.array([run["seconds"] for run in runs]),
        rate_flags=tuple(map(_flag, tuned)),
    )


def _flag(run: dict[str, Any]) -> RateFlag:
    ends = {run["rates_from"]: "smallest", run["rates_to"]: "largest"}
    return RateFlag(
        (float(run["rates_alike_from"]), float(run["rates_alike_to"])), int(run["rates_alike"]),
        ends.get(run["learning_rate"], "") if run["rates_tried"] > 1 else "",
    )  # fmt: skip


def _mean(cells: Mapping[tuple[str, str, Value], Runs], dataset: str, what: str) -> float:
    of_folds = {
        run["fold"]: run[what] for name, runs in cells.items() if name[0] == dataset for run in runs
    }
    return float(np.mean([*of_folds.values()]))


def _can_be_judged(claim: Claim, grid: Grid, values: Sequence[Value]) -> bool:
    """Whether a claim speaks of these values, as it would of all."""
    try:
        claim.check([method.name for method in grid.methods], values)
    except ParameterError:
        return False
    return True
