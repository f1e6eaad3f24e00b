"""From the results of jobs to the results of studies: in memory, and as one Parquet file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._files import atomic_path
from countersample.study.design.config import metric_title
from countersample.study.results import Cell, RateFlag, StudyResult
from countersample.training.optimizers import OF_OPTIMIZERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from countersample.study.design.claims import Value
    from countersample.study.design.sources import Study
    from countersample.study.running.jobs import Job, RunOf, WorkList
    from countersample.study.running.store import Store


def warnings_of(jobs: Iterable[Job], store: Store) -> list[str]:
    """Return what the datasets of jobs that are done warn of: each text once."""
    found = (store.read(job)["warnings"] for job in jobs if job.stage == "relevance")
    return list(dict.fromkeys(text for texts in found for text in texts))


def gather(study: Study, work: WorkList, store: Store) -> StudyResult:
    """Return the results of a study of regret, all of whose jobs are done."""
    grid = study.grid
    runs = {name: of_cell for name, of_cell in work.cells.items() if name[0] == study.name}
    places = tuple(
        grid.where(source.name, block) for source in study.sources for block in grid.blocks()
    )

    def mean(place: str, what: str) -> float:
        jobs = {
            run.levels.key: run.levels
            for name, of_cell in runs.items() if name[1] == place
            for run in of_cell
        }  # fmt: skip
        return float(np.mean([store.read(job)[what] for job in jobs.values()]))

    metrics = {config.metric for config in grid.configs(study.config)}
    return StudyResult(
        grid,
        places,
        {name[1:]: _cell(of_cell, store) for name, of_cell in runs.items()},
        {place: mean(place, "best") for place in places},
        {place: mean(place, "policy") for place in places},
        metric_title(metrics.pop()) if len(metrics) == 1 else "the metric",
        {
            name[1:]: np.concatenate([store.read(job)["ndcg"] for job in jobs])
            for name, jobs in work.rankers.items()
            if name[0] == study.name
        },
    )


def _cell(runs: Sequence[RunOf], store: Store) -> Cell:
    found = [store.read(run.job) for run in runs]
    rates = {run.fold: result["learning_rate"] for run, result in zip(runs, found, strict=True)}
    tunings = {run.fold: run.tuning for run in runs}
    return Cell(
        learning_rates=tuple(rates.values()),
        drawn=np.array(found[0]["step"]) * runs[0].job.config["batch_size"],
        ndcg=np.array([result["ndcg"] for result in found]),
        best=np.array([store.read(run.levels)["best"] for run in runs]),
        runs=tuple((run.fold, run.seed) for run in runs),
        n_diverged=sum(result["diverged_at"] is not None for result in found),
        seconds=np.array([result["seconds"] for result in found]),
        rate_flags=tuple(
            RateFlag.of(store.read(tuning)) if tuning else RateFlag() for tuning in tunings.values()
        ),
    )


def write_results(studies: Sequence[Study], work: WorkList, store: Store, path: Path) -> None:
    """Write one row an evaluation point: configuration, seed, versions, fingerprints, results.

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
    study: Study, name: tuple[str, str, str, Value], run: RunOf, store: Store
) -> dict[str, Any]:
    """Return the rows of a run: what is the same in all of them, then what is not."""
    dataset, block = _place(study, name[1])
    found, levels = store.read(run.job), store.read(run.levels)
    fingerprints = store.read(run.references)["fingerprints"]
    tuned = store.read(run.tuning) if run.tuning else None
    flag = RateFlag.of(tuned) if tuned else RateFlag()
    steps, ndcg = np.array(found["step"]), np.array(found["ndcg"])
    same = {
        "study": study.name, "dataset": dataset, "fold": run.fold, "method": name[2],
        "axis": study.grid.axis, "value": str(name[3]), "beside": block,
        **dict.fromkeys(OF_OPTIMIZERS, np.nan), "scorer": "linear", "hidden": 0,
        **run.job.config, **run.clicks.config,
        "policy_fraction": run.references.config["policy_fraction"],
        **{what: run.references.needs[0].config[what] for what in ("normalization", "bits")},
        **_tried(tuned["learning_rates"] if tuned else []),
        "learning_rate": np.nan if found["learning_rate"] is None else found["learning_rate"],
        "rates_alike_from": flag.alike[0], "rates_alike_to": flag.alike[1],
        "rates_alike": flag.n_alike, "rate_at_edge": bool(flag.edge),
        **{what: float(found[what]) for what in ("seconds", "max_weight", "mean_weight")},
        "best_ndcg": levels["best"], "policy_ndcg": levels["policy"],
        **{f"{part}_fingerprint": value for part, value in fingerprints.items()},
        "version_torch": "",
        **{f"version_{what}": version for what, version in found["versions"].items()},
        "key": run.job.key, "seed": run.seed,
    }  # fmt: skip
    diverged_at = found["diverged_at"]
    return {column: [value] * len(steps) for column, value in same.items()} | {
        "step": steps,
        "drawn": steps * run.job.config["batch_size"],
        "ndcg": ndcg,
        "regret": levels["best"] - ndcg,
        "diverged": steps >= (np.inf if diverged_at is None else diverged_at),
    }


def _tried(rates: Sequence[float]) -> dict[str, float]:
    ends = (rates[0], rates[-1]) if rates else (np.nan, np.nan)
    return {"rates_tried": len(rates), "rates_from": ends[0], "rates_to": ends[1]}


def _place(study: Study, place: str) -> tuple[str, str]:
    """Return the dataset of a place, and in words what is varied beside the axis."""
    grid = study.grid
    for source in study.sources:
        for block in grid.blocks():
            if grid.where(source.name, block) == place:
                return source.name, ", ".join(f"{name}={value}" for name, value in block.items())
    raise KeyError(place)
