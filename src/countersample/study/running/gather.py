"""From the results of jobs to the results of studies: in memory, and as one Parquet file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample._files import atomic_path
from countersample.study.results import Cell, StudyResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from countersample.study.design.grids import Grid, Method, Value
    from countersample.study.running.jobs import Job, WorkList
    from countersample.study.running.store import Store


def gather(grid: Grid, datasets: Sequence[str], work: WorkList, store: Store) -> StudyResult:
    """Return the results of a study of regret.

    Parameters
    ----------
    grid : Grid
    datasets : sequence of str
        Their names as they are shown.
    work : WorkList
        All of its jobs are done.
    store : Store
    """
    reference = {place: store.read(job) for place, job in work.references.items()}
    cells = {
        (dataset, method, value): _cell(runs, dataset, reference, store)
        for (study, dataset, method, value), runs in work.cells.items()
        if study == grid.name
    }
    return StudyResult(
        grid,
        tuple(datasets),
        cells,
        {name: _mean(reference, name, "best_ndcg") for name in datasets},
        {name: _mean(reference, name, "policy_ndcg") for name in datasets},
    )


def _mean(reference: Mapping[tuple[str, str], Mapping[str, Any]], name: str, what: str) -> float:
    return float(np.mean([found[what] for (dataset, _), found in reference.items()
                          if dataset == name]))  # fmt: skip


def _cell(
    jobs: list[tuple[str, int, Job, Job]],
    dataset: str,
    reference: Mapping[tuple[str, str], Mapping[str, Any]],
    store: Store,
) -> Cell:
    found = [(fold, seed, store.read(run)) for fold, seed, _, run in jobs]
    batch_size = jobs[0][3].config["batch_size"]
    rates = {fold: result["learning_rate"] for fold, _, result in found}
    return Cell(
        learning_rates=tuple(rates.values()),
        drawn=np.array(found[0][2]["step"]) * batch_size,
        ndcg=np.array([result["ndcg"] for _, _, result in found]),
        best=np.array([reference[dataset, fold]["best_ndcg"] for fold, _, _ in found]),
        runs=tuple((fold, seed) for fold, seed, _ in found),
        n_diverged=sum(result["diverged_at"] is not None for _, _, result in found),
        seconds=np.array([result["seconds"] for _, _, result in found]),
    )


def write_results(
    grids: Sequence[Grid], work: WorkList, store: Store, versions: Mapping[str, str], path: Path
) -> None:
    """Write one row an evaluation point: configuration, seed, versions, fingerprints, results.

    The columns are documented in docs/study.md.
    """
    import pyarrow as pa  # noqa: PLC0415 (heavy)
    from pyarrow import parquet  # noqa: PLC0415

    tables = [
        _rows(grid, place, run, work, store)
        for grid in grids
        for place, runs in work.cells.items()
        if place[0] == grid.name
        for run in runs
    ]
    if not tables:
        return
    table = pa.concat_tables(tables)
    table = table.replace_schema_metadata({"countersample.versions": json.dumps(dict(versions))})
    for name, version in versions.items():
        table = table.append_column(f"version_{name}", pa.array([version] * len(table)))
    with atomic_path(path) as temporary:
        parquet.write_table(table, temporary, compression="zstd")


def _rows(
    grid: Grid,
    place: tuple[str, str, str, Value],
    run: tuple[str, int, Job, Job],
    work: WorkList,
    store: Store,
) -> Any:  # noqa: ANN401 (a pyarrow Table)
    import pyarrow as pa  # noqa: PLC0415 (heavy)

    _, dataset, name, value = place
    fold, seed, tuning, job = run
    method = next(method for method in grid.methods if method.name == name)
    found = store.read(job)
    reference = store.read(work.references[dataset, fold])
    steps = np.array(found["step"])
    ndcg = np.array(found["ndcg"])
    n = len(steps)
    constants = dict(_constants(grid, dataset, fold, method, value, tuning, job, found, reference))
    columns: dict[str, Any] = {name: [constant] * n for name, constant in constants.items()}
    diverged_at = found["diverged_at"]
    columns |= {
        "seed": np.full(n, seed),
        "step": steps,
        "drawn": steps * job.config["batch_size"],
        "ndcg": ndcg,
        "regret": reference["best_ndcg"] - ndcg,
        "diverged": steps >= (np.inf if diverged_at is None else diverged_at),
    }
    return pa.table(columns)


def _constants(
    grid: Grid,
    dataset: str,
    fold: str,
    method: Method,
    value: Value,
    tuning: Job,
    job: Job,
    found: Mapping[str, Any],
    reference: Mapping[str, Any],
) -> Iterator[tuple[str, Any]]:
    (_, clicks) = job.needs
    yield from {
        "study": grid.name, "dataset": dataset, "fold": fold, "method": method.name,
        "axis": grid.axis, "value": str(value),
    }.items()  # fmt: skip
    yield from ((name, setting) for name, setting in job.config.items() if name != "seed")
    yield from ((name, setting) for name, setting in clicks.config.items() if name != "seed")
    yield "policy_fraction", clicks.needs[0].config["policy_fraction"]
    yield "normalization", clicks.needs[0].needs[0].config["normalization"]
    yield "rates_tried", len(tuning.config["learning_rates"])
    for name in ("learning_rate", "seconds", "max_weight", "mean_weight"):
        yield name, float(found[name])
    yield "best_ndcg", reference["best_ndcg"]
    yield "policy_ndcg", reference["policy_ndcg"]
    for part, fingerprint in reference["fingerprints"].items():
        yield f"{part}_fingerprint", fingerprint
    yield "key", job.key
