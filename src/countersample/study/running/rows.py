"""Results of studies: from the results of jobs to memory and to one Parquet file, and back.

`gather` reads the results of jobs; `write_results` writes one row per evaluation point;
`read_results` and `results_of` make of such rows what `gather` returns, to test claims again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._files import atomic_path
from countersample.errors import DataError, ParameterError
from countersample.study.design.config import metric_title
from countersample.study.results import Cell, RateFlag, StudyResult
from countersample.training.optimizers import OF_OPTIMIZERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from countersample.study.design.grids import Claim, Grid, Value
    from countersample.study.design.sources import Study
    from countersample.study.running.jobs import Job, RunOf, WorkList
    from countersample.study.running.store import Store

    CellName = tuple[str, str, Value]  # dataset (and combination), method, value
    RunRows = dict[str, Any]  # a run of a file: its columns, those that do not vary with one value


def warnings_of(jobs: Iterable[Job], store: Store) -> list[str]:
    """Return the warnings about the datasets of jobs that are done, each once."""
    warnings = (store.read(job)["warnings"] for job in jobs if job.stage == "relevance")
    return list(dict.fromkeys(text for texts in warnings for text in texts))


def gather(study: Study, work: WorkList, store: Store) -> StudyResult:
    """Return the results of a study of regret, all of whose jobs are done."""
    grid = study.grid
    runs = {name: of_cell for name, of_cell in work.cells.items() if name[0] == study.name}
    places = tuple(
        grid.where(source.name, block) for source in study.sources for block in grid.blocks()
    )

    def mean(place: str, name: str) -> float:
        jobs = {
            run.levels.key: run.levels
            for (_, where, *_), of_cell in runs.items() if where == place
            for run in of_cell
        }  # fmt: skip
        return float(np.mean([store.read(job)[name] for job in jobs.values()]))

    metrics = {config.metric for config in grid.configs(study.config)}
    return StudyResult(
        grid,
        places,
        {name[1:]: _cell_of_jobs(of_cell, store) for name, of_cell in runs.items()},
        {place: mean(place, "best") for place in places},
        {place: mean(place, "policy") for place in places},
        _title_of(metrics),
        {
            name[1:]: np.concatenate([store.read(job)["ndcg"] for job in jobs])
            for name, jobs in work.rankers.items()
            if name[0] == study.name
        },
    )


def _title_of(metrics: set[str]) -> str:
    return metric_title(metrics.pop()) if len(metrics) == 1 else "the metric"


def _cell_of_jobs(runs: Sequence[RunOf], store: Store) -> Cell:
    results = [store.read(run.job) for run in runs]
    rates = {run.fold: result["learning_rate"] for run, result in zip(runs, results, strict=True)}
    tunings = {run.fold: run.tuning for run in runs}
    return Cell(
        learning_rates=tuple(rates.values()),
        drawn=np.array(results[0]["step"]) * runs[0].job.config["batch_size"],
        ndcg=np.array([result["ndcg"] for result in results]),
        best=np.array([store.read(run.levels)["best"] for run in runs]),
        runs=tuple((run.fold, run.seed) for run in runs),
        n_diverged=sum(result["diverged_at"] is not None for result in results),
        seconds=np.array([result["seconds"] for result in results]),
        rate_flags=tuple(
            RateFlag.of(store.read(tuning)) if tuning else RateFlag() for tuning in tunings.values()
        ),
    )


def write_results(studies: Sequence[Study], work: WorkList, store: Store, path: Path) -> None:
    """Write one row per evaluation point: configuration, seed, versions, fingerprints, results.

    The columns are documented in docs/study.md.
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy)
    from pyarrow import parquet  # noqa: PLC0415

    tables = [
        pa.table(_columns(study, name, run, store))
        for study in studies
        for name, runs in work.cells.items()
        if name[0] == study.name
        for run in runs
    ]
    if not tables:
        return
    table = pa.concat_tables(tables)
    with atomic_path(path) as temporary:
        parquet.write_table(table, temporary, compression="zstd")


def _columns(
    study: Study, cell: tuple[str, str, str, Value], run: RunOf, store: Store
) -> dict[str, Any]:
    """Return the columns of a run: first those that are the same in all of its rows."""
    dataset, block = _split_place(study, cell[1])
    result, levels = store.read(run.job), store.read(run.levels)
    fingerprints = store.read(run.references)["fingerprints"]
    tuning = store.read(run.tuning) if run.tuning else None
    flag = RateFlag.of(tuning) if tuning else RateFlag()
    rates = tuning["learning_rates"] if tuning else [np.nan]
    rate = result["learning_rate"]
    steps, ndcg = np.array(result["step"]), np.array(result["ndcg"])
    same = {
        "study": study.name, "dataset": dataset, "fold": run.fold, "method": cell[2],
        "axis": study.grid.axis, "value": str(cell[3]), "beside": block,
        **dict.fromkeys(OF_OPTIMIZERS, np.nan), "scorer": "linear", "hidden": 0,
        **run.job.config, **run.clicks.config,
        "policy_fraction": run.references.config["policy_fraction"],
        **{name: run.references.needs[0].config[name] for name in ("normalization", "bits")},
        "rates_tried": len(rates) if tuning else 0, "rates_from": rates[0], "rates_to": rates[-1],
        "learning_rate": np.nan if rate is None else rate,
        "rates_alike_from": flag.alike[0], "rates_alike_to": flag.alike[1],
        "rates_alike": flag.n_alike, "rate_at_edge": bool(flag.edge),
        **{name: float(result[name]) for name in ("seconds", "max_weight", "mean_weight")},
        "best_ndcg": levels["best"], "policy_ndcg": levels["policy"],
        **{f"{part}_fingerprint": value for part, value in fingerprints.items()},
        "version_torch": "",
        **{f"version_{name}": version for name, version in result["versions"].items()},
        "key": run.job.key, "seed": run.seed,
    }  # fmt: skip
    diverged_at = result["diverged_at"]
    return {column: [value] * len(steps) for column, value in same.items()} | {
        "step": steps,
        "drawn": steps * run.job.config["batch_size"],
        "ndcg": ndcg,
        "regret": levels["best"] - ndcg,
        "diverged": steps >= (np.inf if diverged_at is None else diverged_at),
    }


def _split_place(study: Study, place: str) -> tuple[str, str]:
    """Return the dataset of a row of tables, and the settings that are varied beside the axis."""
    grid = study.grid
    for source in study.sources:
        for block in grid.blocks():
            if grid.where(source.name, block) == place:
                return source.name, ", ".join(f"{name}={value}" for name, value in block.items())
    raise KeyError(place)


# -- back from rows ------------------------------------------------------------------------------

_TYPES = dict.fromkeys(
    ("study", "dataset", "fold", "method", "axis", "value", "beside", "metric"), "string"
)
_TYPES |= dict.fromkeys(("learning_rate", "ndcg", "best_ndcg", "policy_ndcg", "seconds"), "float64")
_RATES = ("rates_from", "rates_to", "rates_alike_from", "rates_alike_to")
_TYPES |= dict.fromkeys(_RATES, "float64") | dict.fromkeys(("rates_tried", "rates_alike"), "int64")
_TYPES |= {"drawn": "int64", "seed": "int64", "diverged": "bool"}


def read_results(path: Path) -> pa.Table:
    """Read a file of `write_results`: the columns that `results_of` needs."""
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
    """Return the results of a study from its rows.

    Values of its setting that some dataset or method lacks are left out, and so are claims about
    them.

    Raises
    ------
    DataError
        If no value has runs of every method on every dataset.
    """
    cells = _cells(rows, grid)
    datasets = tuple(dict.fromkeys(dataset for dataset, _, _ in cells))
    every = [(dataset, method.name) for dataset in datasets for method in grid.methods]
    values = tuple(v for v in grid.values if all((*each, v) in cells for each in every))
    if not datasets or not values:
        where = ", ".join(datasets) or "any dataset"
        raise DataError(f"{grid.name}: no value of {grid.axis} has runs of every method on {where}")
    claims = tuple(claim for claim in grid.claims if _can_be_tested(claim, grid, values))
    complete = {name: runs for name, runs in cells.items() if name[2] in values}
    metrics = {run["metric"] for runs in complete.values() for run in runs}
    return StudyResult(
        replace(grid, values=values, claims=claims),
        datasets,
        {name: _cell_of_rows(runs) for name, runs in complete.items()},
        {dataset: _mean(complete, dataset, "best_ndcg") for dataset in datasets},
        {dataset: _mean(complete, dataset, "policy_ndcg") for dataset in datasets},
        _title_of(metrics),
    )


def _cells(rows: pa.Table, grid: Grid) -> dict[CellName, list[RunRows]]:
    """Return the runs of each cell, in the order of the file."""
    columns = {name: rows[name].to_numpy() for name in _TYPES}
    values = {str(value): value for value in grid.values}
    methods = {method.name for method in grid.methods}
    ends = np.flatnonzero(np.diff(columns["drawn"], append=0) <= 0) + 1
    cells: dict[CellName, list[RunRows]] = {}
    for begin, end in pairwise([0, *ends]):
        run = {name: column[begin] for name, column in columns.items()}
        is_of_grid = (run["study"], run["axis"], run["beside"]) == (grid.name, grid.axis, "")
        if not is_of_grid or run["value"] not in values or run["method"] not in methods:
            continue
        curve = {name: columns[name][begin:end] for name in ("drawn", "ndcg", "diverged")}
        name = (run["dataset"], run["method"], values[run["value"]])
        cells.setdefault(name, []).append(run | curve)
    return cells


def _cell_of_rows(runs: Sequence[RunRows]) -> Cell:
    first = runs[0]
    if any(not np.array_equal(run["drawn"], first["drawn"]) for run in runs):
        raise DataError(
            f"runs of {first['method']} on {first['dataset']} at {first['value']} are evaluated at "
            "different points: expected whole runs"
        )
    of_folds = {run["fold"]: run for run in runs}.values()
    rates = [float(run["learning_rate"]) for run in of_folds]
    return Cell(
        learning_rates=tuple(None if np.isnan(rate) else rate for rate in rates),
        drawn=first["drawn"],
        ndcg=np.array([run["ndcg"] for run in runs]),
        best=np.array([run["best_ndcg"] for run in runs]),
        runs=tuple((run["fold"], int(run["seed"])) for run in runs),
        n_diverged=sum(bool(run["diverged"].any()) for run in runs),
        seconds=np.array([run["seconds"] for run in runs]),
        rate_flags=tuple(map(_flag, of_folds)),
    )


def _flag(run: RunRows) -> RateFlag:
    ends = {run["rates_from"]: "smallest", run["rates_to"]: "largest"}
    return RateFlag(
        (float(run["rates_alike_from"]), float(run["rates_alike_to"])), int(run["rates_alike"]),
        ends.get(run["learning_rate"], "") if run["rates_tried"] > 1 else "",
    )  # fmt: skip


def _mean(cells: Mapping[CellName, Sequence[RunRows]], dataset: str, column: str) -> float:
    of_folds = {
        run["fold"]: run[column]
        for name, runs in cells.items()
        if name[0] == dataset
        for run in runs
    }
    return float(np.mean([*of_folds.values()]))


def _can_be_tested(claim: Claim, grid: Grid, values: Sequence[Value]) -> bool:
    """Whether a claim of a grid can be tested with these of its values."""
    try:
        claim.check([method.name for method in grid.methods], values)
    except ParameterError:
        return False
    return True
