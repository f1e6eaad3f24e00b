"""The results of studies of regret: in memory, and as one Parquet file.

`gather` reads the results of jobs, and `write_results` writes one row per evaluation point;
`read_results` and `results_of` return from such rows what `gather` returns, to test claims again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple

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

    CellName = tuple[str, str, Value]  # dataset (and combination), method, value

_MIN_PLATEAU = 3  # the fewest similar learning rates that are reported as a plateau


class RateFlag(NamedTuple):
    """Whether the choice of a learning rate is clear."""

    alike: tuple[float, float] = (nan, nan)  # rates between these are as good, up to noise
    n_alike: int = 0
    edge: str = ""  # "smallest" or "largest" if it is at an end of the rates tried

    @classmethod
    def of(cls, tuning: Mapping[str, Any]) -> RateFlag:
        """Return the flag of the result of a tuning."""
        rates, (low, high) = tuning["learning_rates"], tuning["alike"]
        ends = {rates[0]: "smallest", rates[-1]: "largest"} if len(rates) > 1 else {}
        n_alike = rates.index(high) - rates.index(low) + 1
        return cls((low, high), n_alike, ends.get(tuning["learning_rate"], ""))

    @property
    def is_plateau(self) -> bool:
        """Whether several rates are alike."""
        return self.n_alike >= _MIN_PLATEAU

    @property
    def words(self) -> str:
        """The flag in words; empty if the choice is clear."""
        parts = [f"the {self.edge} tried"] if self.edge else []
        if self.is_plateau:
            parts.append(f"{self.alike[0]:g} to {self.alike[1]:g} alike")
        return ", ".join(parts)


class Run(NamedTuple):
    """One run: of a method at a setting, on one fold and click log."""

    fold: str
    seed: int
    learning_rate: float | None  # None if the optimizer needs none
    drawn: Ints  # (n_points,): clicks drawn at each evaluation point
    ndcg: Floats  # (n_points,): the metric on test data
    best: float  # the metric of w*
    diverged: bool
    seconds: float
    flag: RateFlag


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
    rate_flags: tuple[RateFlag, ...] = ()  # one per fold

    @classmethod
    def of_runs(cls, runs: Sequence[Run]) -> Cell:
        """Return the cell of some runs, which have the same evaluation points."""
        folds = {run.fold: run for run in runs}.values()  # runs of a fold share a learning rate
        return cls(
            learning_rates=tuple(run.learning_rate for run in folds),
            drawn=runs[0].drawn,
            ndcg=np.array([run.ndcg for run in runs]),
            best=np.array([run.best for run in runs]),
            runs=tuple((run.fold, run.seed) for run in runs),
            n_diverged=sum(run.diverged for run in runs),
            seconds=np.array([run.seconds for run in runs]),
            rate_flags=tuple(run.flag for run in folds),
        )

    @property
    def regrets(self) -> Floats:
        """The mean over evaluation points of nDCG@10(w*) − nDCG@10(w̄_t), by run, (n_runs,)."""
        regrets: Floats = self.best - self.ndcg.mean(axis=1)
        return regrets

    @property
    def mean_curve(self) -> Floats:
        """The mean of nDCG@10 over runs, (n_points,)."""
        mean: Floats = self.ndcg.mean(axis=0)
        return mean

    @property
    def divergence(self) -> str:
        """How many runs diverged, in words; empty if none did."""
        return f"{self.n_diverged} of {len(self.runs)} runs diverged" if self.n_diverged else ""

    @property
    def final(self) -> Floats:
        """nDCG@10 at the last evaluation point, by run, (n_runs,)."""
        return self.ndcg[:, -1]


@dataclass(frozen=True)
class StudyResult:
    """A study of regret: every method at every setting on every dataset."""

    grid: Grid
    datasets: tuple[str, ...]  # their names in tables
    # By dataset (and combination, see `Grid.where`), name of a method, and value of the grid.
    cells: Mapping[tuple[str, str, Value], Cell]
    # nDCG@10 on test data of w* and of the logging policy, by dataset, mean over folds.
    best: Mapping[str, float]
    policy: Mapping[str, float]
    metric: str = "nDCG@10"  # the title of the metric of the study
    # The metric of a `CounterSampleRanker` with its defaults on test data, by dataset and value,
    # (n_runs,) in the order of the runs of a cell; empty if the grid has no such ranker.
    nothing_set: Mapping[tuple[str, Value], Floats] = field(default_factory=dict)


# -- from jobs -----------------------------------------------------------------------------------


def gather_warnings(jobs: Iterable[Job], store: Store) -> list[str]:
    """Return the warnings about the datasets of jobs that are done, each once."""
    warnings = (store.read(job)["warnings"] for job in jobs if job.stage == "relevance")
    return list(dict.fromkeys(text for texts in warnings for text in texts))


def gather(study: Study, work: WorkList, store: Store) -> StudyResult:
    """Return the results of a study of regret, all of whose jobs are done."""
    grid = study.grid
    cells = {name[1:]: runs for name, runs in work.cells.items() if name[0] == study.name}
    places = tuple(study.places)

    def mean(place: str, name: str) -> float:
        runs = [run for (where, *_), of_cell in cells.items() if where == place for run in of_cell]
        levels = {run.levels.key: run.levels for run in runs}
        return float(np.mean([store.read(job)[name] for job in levels.values()]))

    metrics = {config.metric for config in grid.configs(study.config)}
    rankers = {name[1:]: jobs for name, jobs in work.rankers.items() if name[0] == study.name}
    return StudyResult(
        grid,
        places,
        {name: Cell.of_runs([_read_run(run, store) for run in runs])
         for name, runs in cells.items()},
        {place: mean(place, "best") for place in places},
        {place: mean(place, "policy") for place in places},
        _join_titles(metrics),
        {name: np.concatenate([store.read(job)["ndcg"] for job in jobs])
         for name, jobs in rankers.items()},
    )  # fmt: skip


def _join_titles(metrics: set[str]) -> str:
    return metric_title(metrics.pop()) if len(metrics) == 1 else "the metric"


def _read_run(run: RunJobs, store: Store) -> Run:
    result = store.read(run.job)
    return Run(
        run.fold, run.seed, result["learning_rate"],
        np.array(result["step"]) * run.job.config["batch_size"], result["ndcg"],
        store.read(run.levels)["best"], result["diverged_at"] is not None, result["seconds"],
        RateFlag.of(store.read(run.tuning)) if run.tuning else RateFlag(),
    )  # fmt: skip


# -- to rows -------------------------------------------------------------------------------------


def write_results(studies: Sequence[Study], work: WorkList, store: Store, path: Path) -> None:
    """Write one row per evaluation point: configuration, seed, versions, fingerprints, results.

    The columns are documented in docs/study.md.
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy)
    from pyarrow import parquet  # noqa: PLC0415

    tables = [
        pa.table(_make_columns(study, name, run, store))
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


def _make_columns(
    study: Study, cell: tuple[str, str, str, Value], run: RunJobs, store: Store
) -> dict[str, Any]:
    """Return the columns of a run: first those that are the same in all of its rows."""
    source, block = study.places[cell[1]]
    result, levels = store.read(run.job), store.read(run.levels)
    fingerprints = store.read(run.references)["fingerprints"]
    tuning = store.read(run.tuning) if run.tuning else None
    flag = RateFlag.of(tuning) if tuning else RateFlag()
    rates = tuning["learning_rates"] if tuning else [np.nan]
    rate = result["learning_rate"]
    steps, ndcg = np.array(result["step"]), np.array(result["ndcg"])
    constants = {
        "study": study.name, "dataset": source.name, "fold": run.fold, "method": cell[2],
        "axis": study.grid.axis, "value": str(cell[3]),
        "beside": ", ".join(f"{name}={value}" for name, value in block.items()),
        **dict.fromkeys(OPTIMIZER_SETTINGS, np.nan), "scorer": "linear", "hidden": 0,
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
    return {column: [value] * len(steps) for column, value in constants.items()} | {
        "step": steps,
        "drawn": steps * run.job.config["batch_size"],
        "ndcg": ndcg,
        "regret": levels["best"] - ndcg,
        "diverged": steps >= (np.inf if diverged_at is None else diverged_at),
    }


# -- from rows -----------------------------------------------------------------------------------

_TEXTS = ("study", "dataset", "fold", "method", "axis", "value", "beside", "metric")
_NUMBERS = ("learning_rate", "ndcg", "best_ndcg", "policy_ndcg", "seconds", "rates_from",
            "rates_to", "rates_alike_from", "rates_alike_to")  # fmt: skip
_COUNTS = ("rates_tried", "rates_alike", "drawn", "seed")
_TYPES = (
    dict.fromkeys(_TEXTS, "string") | dict.fromkeys(_NUMBERS, "float64")
    | dict.fromkeys(_COUNTS, "int64") | {"diverged": "bool"}
)  # fmt: skip


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
    cells = _split_runs(rows, grid)
    datasets = tuple(dict.fromkeys(dataset for dataset, _, _ in cells))
    pairs = [(dataset, method.name) for dataset in datasets for method in grid.methods]
    values = tuple(v for v in grid.values if all((*pair, v) in cells for pair in pairs))
    if not datasets or not values:
        where = ", ".join(datasets) or "any dataset"
        raise DataError(f"{grid.name}: no value of {grid.axis} has runs of every method on {where}")
    claims = tuple(claim for claim in grid.claims if _can_be_tested(claim, grid, values))
    complete = {name: runs for name, runs in cells.items() if name[2] in values}

    def mean(dataset: str, column: str) -> float:
        runs = [run for name, of_cell in complete.items() if name[0] == dataset for run in of_cell]
        return float(np.mean([*{run["fold"]: run[column] for run in runs}.values()]))

    metrics = {run["metric"] for runs in complete.values() for run in runs}
    return StudyResult(
        replace(grid, values=values, claims=claims),
        datasets,
        {name: Cell.of_runs(_parse_runs(runs)) for name, runs in complete.items()},
        {dataset: mean(dataset, "best_ndcg") for dataset in datasets},
        {dataset: mean(dataset, "policy_ndcg") for dataset in datasets},
        _join_titles(metrics),
    )


def _split_runs(rows: pa.Table, grid: Grid) -> dict[CellName, list[dict[str, Any]]]:
    """Return the runs of each cell as their columns, in the order of the file.

    A column that is the same in all rows of a run has one value.
    """
    columns = {name: rows[name].to_numpy() for name in _TYPES}
    values = {str(value): value for value in grid.values}
    methods = {method.name for method in grid.methods}
    ends = np.flatnonzero(np.diff(columns["drawn"], append=0) <= 0) + 1
    cells: dict[CellName, list[dict[str, Any]]] = {}
    for begin, end in pairwise([0, *ends]):
        run = {name: column[begin] for name, column in columns.items()}
        is_in_grid = (run["study"], run["axis"], run["beside"]) == (grid.name, grid.axis, "")
        if not is_in_grid or run["value"] not in values or run["method"] not in methods:
            continue
        curve = {name: columns[name][begin:end] for name in ("drawn", "ndcg", "diverged")}
        name = (run["dataset"], run["method"], values[run["value"]])
        cells.setdefault(name, []).append(run | curve)
    return cells


def _parse_runs(runs: Sequence[dict[str, Any]]) -> list[Run]:
    first = runs[0]
    if any(not np.array_equal(run["drawn"], first["drawn"]) for run in runs):
        raise DataError(
            f"runs of {first['method']} on {first['dataset']} at {first['value']} are evaluated at "
            "different points: expected whole runs"
        )
    parsed = []
    for run in runs:
        rate = float(run["learning_rate"])
        ends = {run["rates_from"]: "smallest", run["rates_to"]: "largest"}
        flag = RateFlag(
            (float(run["rates_alike_from"]), float(run["rates_alike_to"])),
            int(run["rates_alike"]),
            ends.get(rate, "") if run["rates_tried"] > 1 else "",
        )
        parsed.append(
            Run(
                run["fold"], int(run["seed"]), None if np.isnan(rate) else rate, run["drawn"],
                run["ndcg"], run["best_ndcg"], bool(run["diverged"].any()), run["seconds"], flag,
            )
        )  # fmt: skip
    return parsed


def _can_be_tested(claim: Claim, grid: Grid, values: Sequence[Value]) -> bool:
    """Whether a claim of a grid can be tested with these of its values."""
    try:
        claim.check([method.name for method in grid.methods], values)
    except ParameterError:
        return False
    return True
