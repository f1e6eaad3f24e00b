"""From the results of jobs to the results of studies: in memory, and as one Parquet file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._files import atomic_path
from countersample.study.results import Cell, StudyResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from countersample.study.design.claims import Value
    from countersample.study.design.sources import Study
    from countersample.study.running.jobs import Job, RunOf, WorkList
    from countersample.study.running.store import Store


def reference_of(run: RunOf) -> Job:
    """Return the job of w* and of the logging policy behind a run."""
    (reference,) = run.job.needs[1].needs
    return reference


def warnings_of(jobs: Iterable[Job], store: Store) -> list[str]:
    """Return what the datasets of jobs that are done warn of: each text once."""
    found = (store.read(job)["warnings"] for job in jobs if job.stage == "relevance")
    return list(dict.fromkeys(text for texts in found for text in texts))


def gather(study: Study, work: WorkList, store: Store) -> StudyResult:
    """Return the results of a study of regret, all of whose jobs are done."""
    runs = {name: of_cell for name, of_cell in work.cells.items() if name[0] == study.name}
    datasets = tuple(source.name for source in study.sources)

    def mean(dataset: str, what: str) -> float:
        jobs = {
            reference_of(run).key: reference_of(run)
            for name, of_cell in runs.items() if name[1] == dataset
            for run in of_cell
        }  # fmt: skip
        return float(np.mean([store.read(job)[what] for job in jobs.values()]))

    return StudyResult(
        study.grid,
        datasets,
        {name[1:]: _cell(of_cell, store) for name, of_cell in runs.items()},
        {dataset: mean(dataset, "best_ndcg") for dataset in datasets},
        {dataset: mean(dataset, "policy_ndcg") for dataset in datasets},
    )


def _cell(runs: Sequence[RunOf], store: Store) -> Cell:
    found = [store.read(run.job) for run in runs]
    rates = {run.fold: result["learning_rate"] for run, result in zip(runs, found, strict=True)}
    return Cell(
        learning_rates=tuple(rates.values()),
        drawn=np.array(found[0]["step"]) * runs[0].job.config["batch_size"],
        ndcg=np.array([result["ndcg"] for result in found]),
        best=np.array([store.read(reference_of(run))["best_ndcg"] for run in runs]),
        runs=tuple((run.fold, run.seed) for run in runs),
        n_diverged=sum(result["diverged_at"] is not None for result in found),
        seconds=np.array([result["seconds"] for result in found]),
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
    tuning, clicks = run.job.needs
    reference_job = reference_of(run)
    found, reference = store.read(run.job), store.read(reference_job)
    steps, ndcg = np.array(found["step"]), np.array(found["ndcg"])
    same = {
        "study": study.name, "dataset": name[1], "fold": run.fold, "method": name[2],
        "axis": study.grid.axis, "value": str(name[3]),
        **run.job.config, **clicks.config,
        "policy_fraction": reference_job.config["policy_fraction"],
        **{what: reference_job.needs[0].config[what] for what in ("normalization", "bits")},
        "rates_tried": len(tuning.config["learning_rates"]),
        "learning_rate": np.nan if found["learning_rate"] is None else found["learning_rate"],
        **{what: float(found[what]) for what in ("seconds", "max_weight", "mean_weight")},
        "best_ndcg": reference["best_ndcg"], "policy_ndcg": reference["policy_ndcg"],
        **{f"{part}_fingerprint": value for part, value in reference["fingerprints"].items()},
        **{f"version_{what}": version for what, version in found["versions"].items()},
        "key": run.job.key, "seed": run.seed,
    }  # fmt: skip
    diverged_at = found["diverged_at"]
    return {column: [value] * len(steps) for column, value in same.items()} | {
        "step": steps,
        "drawn": steps * run.job.config["batch_size"],
        "ndcg": ndcg,
        "regret": reference["best_ndcg"] - ndcg,
        "diverged": steps >= (np.inf if diverged_at is None else diverged_at),
    }
