"""Studies of regret, of datasets and of propensities: the jobs they plan, the sections they write.

`toy.py` and `bounds.py` have the other kinds; the registry is `experiment.KINDS`.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from countersample.study import stages
from countersample.study.claims import Findings, State, evaluate_claims, verdicts_of
from countersample.study.figures import draw_leads, draw_panels
from countersample.study.grids import PAPER_DATASETS, Published
from countersample.study.jobs import Job, WorkList
from countersample.study.results import StudyResult, gather
from countersample.study.statistics import INTERVAL, has_leads
from countersample.study.tables import (
    Entry,
    Group,
    Row,
    Table,
    column_title,
    final_table,
    leads_table,
    nothing_set_table,
    rates_table,
    regret_table,
    show_number,
    significance_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.study.grids import Value
    from countersample.study.report import Done, Section
    from countersample.study.sources import Source, Study
    from countersample.study.store import Store

    # (n_logs, 2): M̄ and M of each click log, by dataset, offset and γ
    Weights = Mapping[tuple[str, int, float], Floats]

# -- regret --------------------------------------------------------------------------------------


def plan_regret(study: Study, work: WorkList) -> None:
    """Plan a tuning for each method and setting, and a run for each of its click logs."""
    grid = study.grid
    for source in study.sources:
        for value, config in zip(grid.values, grid.configs(study.config), strict=True):
            for fold in source.folds:
                for method in grid.methods:
                    name = (grid.name, source.name, method.name, value)
                    work.cells.setdefault(name, []).extend(work.runs(fold, config, method))
                if grid.nothing_set:
                    job = work.ranker(fold, config)
                    work.keep((grid.name, "ranker", source.name, value), job)


def write_regret(study: Study, done: Done) -> Section:
    """Draw learning curves; write the tables of regret, leads, the end, rates and tests."""
    result = gather(study, done.work, done.store)
    notes = []
    if any(config.scorer == "network" for config in study.grid.configs(study.config)):
        notes.append(
            "A network is evaluated at its last iterate, not at the average: it is not convex in "
            "its weights, and the mean of two good networks need not be good. Regret is against "
            "w*, which is linear: a network may be above it."
        )
    flags = [flag for cell in result.cells.values() for flag in cell.rate_flags]
    if n_flagged := sum(bool(flag) for flag in flags):
        notes.append(
            f"{n_flagged} of {len(flags)} learning rates are at an end of those tried, or on a "
            "plateau: three or more rates are within a standard error of each other on validation "
            "data. The table of learning rates lists them."
        )
    return done.section(
        study, make_tables(result, done.published), draw_figures(result, done.figures),
        verdicts=tuple(evaluate_claims(result)), notes=tuple(notes),
    )  # fmt: skip


def make_tables(result: StudyResult, published: Published) -> list[Table]:
    """Return the tables of regret, leads, where runs end, learning rates and tests."""
    tables = [regret_table(result, published), final_table(result)]
    if has_leads(result):
        tables.insert(1, leads_table(result))
    if result.nothing_set:
        tables.append(nothing_set_table(result))
    return [*tables, rates_table(result), significance_table(result)]


def draw_figures(result: StudyResult, folder: Path) -> list[tuple[str, str, str]]:
    """Draw learning curves and the lead; return name, description and caption of each figure."""
    name = result.grid.name
    draw_panels(result, folder / name)
    draw_panels(result, folder / f"{name}-log", log_x=True)
    title = f"Learning curves: {result.metric} on test data against clicks drawn, by method"
    caption = f"Learning curves: means over runs, in {INTERVAL}s."
    pictures = [(name, title, caption), (f"{name}-log", "", "")]
    if has_leads(result):
        draw_leads(result, folder / f"{name}-lead")
        title = "Lead of CounterSample over IPS-SGD during training"
        pictures.append((f"{name}-lead", title, f"{title}; below 0 IPS-SGD is ahead."))
    return pictures


# -- datasets ------------------------------------------------------------------------------------

_COUNT_NOTE = (
    "The paper's 36,251 queries of Yahoo are those of sets 1 and 2 together; its code reads set 1, "
    "with 29,921 queries. Its 33,118 queries of Istella-s are 33,018 in the published files."
)


def plan_datasets(study: Study, work: WorkList) -> None:
    """Plan to count the queries and items of each fold."""
    for source in study.sources:
        for fold in source.folds:
            data = work.data(fold, study.config)
            job = Job("shape", f"shape of {fold.title}", {}, stages.shape, (data,))
            work.keep((study.name, source.name), job)


def write_datasets(study: Study, done: Done) -> Section:
    """Write the table; folds of a set have the same queries, so the first stands for all."""
    shapes = {source.name: done.read(study.name, source.name)[0] for source in study.sources}
    return done.section(study, [shapes_table(shapes, done.published)])


def shapes_table(shapes: Mapping[str, Mapping[str, int]], published: Published) -> Table:
    """Return the paper's table of datasets, and below it ours, with list length and features.

    Parameters
    ----------
    shapes : mapping of dataset to the counts of `stages.shape`
    published : Published

    >>> from countersample.study.grids import Published
    >>> shape = {"queries": 2, "items": 30, "longest": 20, "features": 5, "irrelevant": 12}
    >>> table = shapes_table({"mine": shape}, Published({}))
    >>> [entry.number for entry in table.groups[-1].rows[0].entries]
    ['2', '15.0', '40.0', '20', '5']
    """
    columns = ("queries", "items a query", "grade 0, %", "longest list", "features")
    rows = []
    for dataset, shape in shapes.items():
        per_query = shape["items"] / shape["queries"]
        irrelevant = 100 * shape["irrelevant"] / shape["items"]
        numbers = [(shape["queries"], 0), (per_query, 1), (irrelevant, 1), (shape["longest"], 0),
                   (shape["features"], 0)]  # fmt: skip
        rows.append(Row(dataset, tuple(Entry(*number) for number in numbers)))
    groups = [Group("Here", tuple(rows))]
    paper_rows = []
    for name, ours in {name: ours for ours, name in PAPER_DATASETS.items()}.items():
        entries = [published.number("datasets", ours, "", column) for column in columns]
        if entries[0]:
            row = (Entry(entry.value if entry else None, 0) for entry in entries)
            paper_rows.append(Row(name, tuple(row)))
    if paper_rows:
        groups.insert(0, Group("In the paper", tuple(paper_rows)))
    notes = (_COUNT_NOTE,) if paper_rows else ()
    return Table("datasets", "Datasets", "Dataset", columns, tuple(groups), notes)


# -- propensities --------------------------------------------------------------------------------

# The paper's equation is (1/rank)^γ; its authors' code has (1/(rank + 1))^γ. A weight is 1 over
# that, so M^(1/γ) is the rank of the largest one, or that rank plus 1. The paper's M on Yahoo at
# γ = 0.75 is 40.70 = 140^0.75, and Yahoo's longest list has 139 items: its table has the curve of
# the code.
TESTS_OF_WEIGHTS = ("outgrows",)
CURVES = ("(1/rank)^γ", "(1/(rank + 1))^γ")  # by offset: the paper's equation, its authors' code
QUANTITIES = ("M̄", "M")  # the columns of `Weights`


def plan_propensities(study: Study, work: WorkList) -> None:
    """Plan the click logs of every γ, under both curves."""
    for source, offset, gamma in _iterate_settings(study):
        config = study.config.with_settings({"gamma": gamma, "bias_offset": offset})
        for fold, seed in product(source.folds, range(config.seeds)):
            log = work.clicks(fold, config, seed)
            job = Job("diagnosis", f"weights of {log.title}", {}, measure_weights, (log,))
            work.keep((study.name, source.name, offset, gamma), job)


def measure_weights(store: Store, job: Job, _: Progress) -> dict[str, float]:
    """Return M̄ and M of a click log: a job of the study."""
    log = store.clicks(job.needs[0])
    return {"mean_weight": log.mean_weight, "max_weight": log.max_weight}


def write_propensities(study: Study, done: Done) -> Section:
    """Write the table and the verdicts."""
    weights = {}
    for source, offset, gamma in _iterate_settings(study):
        logs = done.read(study.name, source.name, offset, gamma)
        pairs = [(log["mean_weight"], log["max_weight"]) for log in logs]
        weights[source.name, offset, float(gamma)] = np.array(pairs)
    verdicts = [
        verdict
        for dataset in _datasets(weights)
        for verdict in verdicts_of(study.grid, dataset, weights_findings(weights, dataset))
    ]
    table = weights_table(weights, done.published)
    return done.section(study, [table], verdicts=tuple(verdicts))


def _iterate_settings(study: Study) -> Iterator[tuple[Source, int, Value]]:
    return product(study.sources, range(len(CURVES)), study.grid.values)


def weights_table(weights: Weights, published: Published) -> Table:
    """Return the paper's table of M̄ and M: one row for each under each curve, one column per γ."""
    gammas = _gammas(weights)
    groups = []
    for dataset in _datasets(weights):
        rows = []
        for (offset, curve), (k, name) in product(enumerate(CURVES), enumerate(QUANTITIES)):
            entries = []
            for gamma in gammas:
                number = published.number("propensities", dataset, name, gamma)
                sample = weights[dataset, offset, gamma][:, k]
                entries.append(Entry.of_sample(sample, published=number.value if number else None))
            rows.append(Row(f"{name}, {curve}", tuple(entries)))
        groups.append(Group(dataset, tuple(rows)))
    curves = f"{CURVES[0]} is the paper's equation, {CURVES[1]} the curve of its authors' code."
    notes = (f"±: half the width of the {INTERVAL} of the mean over click logs.", curves)
    return Table(
        "propensities", "Mean weight M̄ and largest weight M", "Position bias (γ)",
        tuple(map(column_title, gammas)), tuple(groups), notes,
    )  # fmt: skip


def _datasets(weights: Weights) -> list[str]:
    return list(dict.fromkeys(dataset for dataset, _, _ in weights))


def _gammas(weights: Weights) -> list[float]:
    return sorted({gamma for _, _, gamma in weights})


def weights_findings(weights: Weights, dataset: str) -> Findings:
    """Test on a dataset whether M outgrows M̄."""
    gammas, states, parts = _gammas(weights), [], []
    for offset, curve in enumerate(CURVES):
        means = np.array([weights[dataset, offset, gamma].mean(axis=0) for gamma in gammas])
        ratios = means[:, 1] / means[:, 0]
        grows = [ratios[0] > 1, *(np.diff(ratios) > 0)]
        states += [State.HOLDS if one else State.ABSENT for one in grows]
        parts.append(
            f"from {show_number(float(ratios[0]))} at γ = {gammas[0]:g} to "
            f"{show_number(float(ratios[-1]))} at γ = {gammas[-1]:g} under {curve}"
        )
    evidence = f"M/M̄ {'grows' if min(states) > 0 else 'changes'} {' and '.join(parts)}."
    return dict.fromkeys(TESTS_OF_WEIGHTS, (states, evidence))
