"""The results of studies of regret: rows of one Parquet file, and cells in memory.

`write_results` writes one row per evaluation point. `results_of` turns such rows into a
`StudyResult`, and so does `gather` for the jobs of a study that was just run. So claims are tested
in the same way on a run and on a published file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from math import isnan, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._files import atomic_path
from countersample.errors import DataError, ParameterError
from countersample.study.settings import metric_title
from countersample.training.optimizers import OPTIMIZER_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from countersample._arrays import Floats, Ints
    from countersample.study.grids import Claim, Grid, Value
    from countersample.study.jobs import Job, RunJobs, WorkList
    from countersample.study.sources import Study
    from countersample.study.store import Store

_MIN_PLATEAU = 3  # the fewest similar learning rates that are reported as a plateau


@dataclass(frozen=True)
class Cell:
    """One method at one setting on one dataset: its runs over folds and click logs."""

    # The learning rate of each fold; None if the optimizer needs none.
    learning_rates: tuple[float | None, ...]
    drawn: Ints  # (n_points,): clicks drawn at each evaluation point, steps times batch size
    # (n_runs, n_points): nDCG@10 of the averaged iterate on test data; 0 after a run diverged.
    ndcg: Floats
    best: Floats  # (n_runs,): nDCG@10 of w*, trained on all labels, on the same test data
    # Fold and seed of each; cells of a study have the same runs in the same order.
    runs: tuple[tuple[str, int], ...]
    n_diverged: int  # runs whose weights exploded: they count, with nDCG 0 from there on
    seconds: Floats  # (n_runs,): training time of each run, on one core
    # Why the choice of a learning rate is not clear, one text per fold; empty if it is.
    rate_flags: tuple[str, ...] = ()

    @property
    def regrets(self) -> Floats:
        """The mean over evaluation points of nDCG@10(w*) − nDCG@10(w̄_t), by run, (n_runs,)."""
        regrets: Floats = self.best - self.ndcg.mean(axis=1)
        return regrets

    @property
    def final(self) -> Floats:
        """nDCG@10 at the last evaluation point, by run, (n_runs,)."""
        return self.ndcg[:, -1]

    @property
    def divergence(self) -> str:
        """How many runs diverged, in words; empty if none did."""
        return f"{self.n_diverged} of {len(self.runs)} runs diverged" if self.n_diverged else ""


@dataclass(frozen=True)
class StudyResult:
    """A study of regret: every method at every setting on every dataset."""

    grid: Grid
    datasets: tuple[str, ...]  # their names in tables
    cells: Mapping[tuple[str, str, Value], Cell]  # by dataset, name of a method, and value
    # nDCG@10 on test data of w* and of the logging policy, by dataset, mean over folds.
    best: Mapping[str, float]
    policy: Mapping[str, float]
    metric: str = "nDCG@10"  # the title of the metric of the study
    # The metric of a `CounterSampleRanker` with its defaults on test data, by dataset and value,
    # (n_runs,) in the order of the runs of a cell; empty if the grid has no such ranker.
    nothing_set: Mapping[tuple[str, Value], Floats] = field(default_factory=dict)


def gather(study: Study, work: WorkList, store: Store) -> StudyResult:
    """Return the results of a study of regret, all of whose jobs are done."""
    result = results_of(_make_rows([study], work, store), study.grid)
    defaults = {}
    if study.grid.nothing_set:
        for dataset, value in product(result.datasets, result.grid.values):
            jobs = work.others[study.name, "ranker", dataset, value]
            defaults[dataset, value] = np.concatenate([store.read(job)["ndcg"] for job in jobs])
    return replace(result, nothing_set=defaults)


def gather_warnings(jobs: Iterable[Job], store: Store) -> list[str]:
    """Return the warnings about the datasets of jobs that are done, each once."""
    warnings = (store.read(job)["warnings"] for job in jobs if job.stage == "relevance")
    return list(dict.fromkeys(text for texts in warnings for text in texts))


# -- to rows -------------------------------------------------------------------------------------


def write_results(studies: Sequence[Study], work: WorkList, store: Store, path: Path) -> None:
    """Write one row per evaluation point: configuration, seed, versions, fingerprints, results.

    The columns are documented in docs/study.md. Without a study of regret no file is written.
    """
    from pyarrow import parquet  # noqa: PLC0415 (heavy)

    if not any(study.grid.kind == "regret" for study in studies):
        return
    with atomic_path(path) as temporary:
        parquet.write_table(_make_rows(studies, work, store), temporary, compression="zstd")


def _make_rows(studies: Sequence[Study], work: WorkList, store: Store) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415 (heavy)

    return pa.concat_tables(
        pa.table(_make_columns(study, cell, run, store))
        for study in studies
        for cell, runs in work.cells.items()
        if cell[0] == study.name
        for run in runs
    )


def _make_columns(
    study: Study, cell: tuple[str, str, str, Value], run: RunJobs, store: Store
) -> dict[str, Any]:
    """Return the columns of a run: first those that are the same in all of its rows."""
    result, levels = store.read(run.job), store.read(run.levels)
    fingerprints = store.read(run.references)["fingerprints"]
    tuning = store.read(run.tuning) if run.tuning else {}
    rates, (low, high) = tuning.get("learning_rates", [nan]), tuning.get("alike", (nan, nan))
    rate, is_tuned = result["learning_rate"], bool(tuning)
    steps, ndcg = np.array(result["step"]), np.array(result["ndcg"])
    constants = {
        "study": study.name, "dataset": cell[1], "fold": run.fold, "method": cell[2],
        "axis": study.grid.axis, "value": str(cell[3]),
        **dict.fromkeys(OPTIMIZER_SETTINGS, nan), "scorer": "linear", "hidden": 0,
        **run.job.config, **run.clicks.config,
        "policy_fraction": run.references.config["policy_fraction"],
        **{name: run.references.needs[0].config[name] for name in ("normalization", "bits")},
        "rates_tried": len(rates) if is_tuned else 0, "rates_from": rates[0], "rates_to": rates[-1],
        "learning_rate": nan if rate is None else rate,
        "rates_alike_from": low, "rates_alike_to": high,
        "rates_alike": rates.index(high) - rates.index(low) + 1 if is_tuned else 0,
        "rate_at_edge": len(rates) > 1 and rate in (rates[0], rates[-1]),
        **{name: float(result[name]) for name in ("seconds", "max_weight", "mean_weight")},
        "best_ndcg": levels["best"], "policy_ndcg": levels["policy"],
        **{f"{part}_fingerprint": value for part, value in fingerprints.items()},
        "version_torch": "",
        **{f"version_{name}": version for name, version in result["versions"].items()},
        "key": run.job.key, "seed": run.seed,
    }  # fmt: skip
    diverged_at = result["diverged_at"]
    return {column: [value] * len(steps) for column, value in constants.items()} | {
        "step": steps,
        "drawn": steps * run.job.config["batch_size"],
        "ndcg": ndcg,
        "regret": levels["best"] - ndcg,
        "diverged": steps >= (np.inf if diverged_at is None else diverged_at),
    }


# -- from rows -----------------------------------------------------------------------------------

_RUN = ("dataset", "method", "value", "fold", "seed")  # the columns that identify a run of a study
_CURVE = ("drawn", "ndcg", "diverged")  # the columns that differ within a run
_NUMBERS = ("learning_rate", "ndcg", "best_ndcg", "policy_ndcg", "seconds", "rates_from",
            "rates_to", "rates_alike_from", "rates_alike_to")  # fmt: skip
_TYPES = (
    dict.fromkeys(("study", "dataset", "fold", "method", "axis", "value", "metric"), "string")
    | dict.fromkeys(_NUMBERS, "float64")
    | dict.fromkeys(("rates_tried", "rates_alike", "drawn", "seed"), "int64")
    | {"diverged": "bool"}
)


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
        raise DataError(f"{path} has no rows of a study ({reason}): {expected}") from error
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
    from pyarrow import compute  # noqa: PLC0415 (heavy)

    in_study = compute.and_(
        compute.equal(rows["study"], grid.name), compute.equal(rows["axis"], grid.axis)
    )
    others = [name for name in _TYPES if name not in {*_RUN, *_CURVE}]
    runs = (
        rows.filter(in_study)
        .group_by(_RUN, use_threads=False)  # lists in the order of the rows
        .aggregate([(name, "list") for name in _CURVE] + [(name, "first") for name in others])
    )
    by_text, methods = {str(value): value for value in grid.values}, {m.name for m in grid.methods}
    cells: dict[tuple[str, str, Value], list[dict[str, Any]]] = {}
    for row in sorted(runs.to_pylist(), key=lambda row: (row["fold"], row["seed"])):
        run = {name.removesuffix("_list").removesuffix("_first"): row[name] for name in row}
        if run["value"] in by_text and run["method"] in methods:
            name = (run["dataset"], run["method"], by_text[run["value"]])
            cells.setdefault(name, []).append(run)
    in_cells = {dataset for dataset, _, _ in cells}
    datasets = tuple(each for each in rows["dataset"].unique().to_pylist() if each in in_cells)
    pairs = [(dataset, method.name) for dataset in datasets for method in grid.methods]
    values = tuple(v for v in grid.values if all((*pair, v) in cells for pair in pairs))
    if not datasets or not values:
        where = ", ".join(datasets) or "any dataset"
        raise DataError(f"{grid.name}: no value of {grid.axis} has runs of every method on {where}")
    cells = {name: cell_runs for name, cell_runs in cells.items() if name[2] in values}
    by_fold = {(run["dataset"], run["fold"]): run for each in cells.values() for run in each}

    def mean(dataset: str, column: str) -> float:
        return float(np.mean([run[column] for key, run in by_fold.items() if key[0] == dataset]))

    metrics = {run["metric"] for each in cells.values() for run in each}
    return StudyResult(
        replace(grid, values=values, claims=_select_claims(grid, values)),
        datasets,
        {name: _make_cell(cell_runs) for name, cell_runs in cells.items()},
        {dataset: mean(dataset, "best_ndcg") for dataset in datasets},
        {dataset: mean(dataset, "policy_ndcg") for dataset in datasets},
        metric_title(metrics.pop()) if len(metrics) == 1 else "the metric",
    )


def _make_cell(runs: Sequence[dict[str, Any]]) -> Cell:
    first = runs[0]
    if any(run["drawn"] != first["drawn"] for run in runs):
        raise DataError(
            f"runs of {first['method']} on {first['dataset']} at {first['value']} are evaluated at "
            "different points: expected whole runs"
        )
    by_fold = {run["fold"]: run for run in runs}.values()  # its runs share a learning rate
    rates = (run["learning_rate"] for run in by_fold)
    return Cell(
        learning_rates=tuple(None if isnan(rate) else rate for rate in rates),
        drawn=np.array(first["drawn"]),
        ndcg=np.array([run["ndcg"] for run in runs]),
        best=np.array([run["best_ndcg"] for run in runs]),
        runs=tuple((run["fold"], run["seed"]) for run in runs),
        n_diverged=sum(any(run["diverged"]) for run in runs),
        seconds=np.array([run["seconds"] for run in runs]),
        rate_flags=tuple(map(describe_choice, by_fold)),
    )


def describe_choice(run: Mapping[str, Any]) -> str:
    """Return whether a learning rate is at an end of those tried, or on a plateau."""
    ends = {run["rates_from"]: "the smallest tried", run["rates_to"]: "the largest tried"}
    parts = [ends.get(run["learning_rate"], "")] if run["rates_tried"] > 1 else []
    if run["rates_alike"] >= _MIN_PLATEAU:
        parts.append(f"{run['rates_alike_from']:g} to {run['rates_alike_to']:g} alike")
    return ", ".join(filter(None, parts))


def _select_claims(grid: Grid, values: Sequence[Value]) -> tuple[Claim, ...]:
    """Return the claims of a grid that can be tested with these of its values."""
    claims = []
    for claim in grid.claims:
        try:
            claim.check([method.name for method in grid.methods], values)
        except ParameterError:
            continue
        claims.append(claim)
    return tuple(claims)
