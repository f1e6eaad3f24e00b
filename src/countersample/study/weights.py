"""The paper's table of weights: M̄ and M by γ, under both position-bias curves.

The paper's equation is (1/rank)^γ; its authors' code has (1/(rank + 1))^γ. A weight is 1 over that,
so M^(1/γ) is the rank of the largest one, or that rank plus 1. The paper's M on Yahoo at γ = 0.75
is 40.70 = 140^0.75, and Yahoo's longest list has 139 items: its table has the curve of the code.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from countersample.study.claims import State, Verdict
from countersample.study.jobs import Job, WorkList
from countersample.study.statistics import INTERVAL
from countersample.study.tables import Entry, Group, Row, Table, column_title, show_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from countersample._arrays import Floats
    from countersample._progress import Progress
    from countersample.study.grids import Published, Value
    from countersample.study.report import Done, Section
    from countersample.study.runner import Workbench
    from countersample.study.sources import Source, Study

    # (n_logs, 2): M̄ and M of each click log, by dataset, offset and γ
    Weights = Mapping[tuple[str, int, float], Floats]

STUDY = "propensities"
CURVES = ("(1/rank)^γ", "(1/(rank + 1))^γ")  # by offset: the paper's equation, its authors' code
QUANTITIES = ("M̄", "M")  # the columns of `Weights`


def plan(study: Study, work: WorkList) -> None:
    """Plan the click logs of every γ, under both curves."""
    for source, offset, gamma in _iterate_settings(study):
        config = study.config.with_settings({"gamma": gamma, "bias_offset": offset})
        for fold, seed in product(source.folds, range(config.seeds)):
            log = work.clicks(fold, config, seed)
            job = Job("diagnosis", f"weights of {log.title}", {}, measure, (log,))
            work.keep((study.name, source.name, offset, gamma), job)


def measure(bench: Workbench, job: Job, _: Progress) -> dict[str, float]:
    """Return M̄ and M of a click log: a job of the study."""
    log = bench.clicks(job.needs[0])
    return {"mean_weight": log.mean_weight, "max_weight": log.max_weight}


def write_up(study: Study, done: Done) -> Section:
    """Write the table and the verdicts."""
    weights = {}
    for source, offset, gamma in _iterate_settings(study):
        logs = done.read(study.name, source.name, offset, gamma)
        pairs = [(log["mean_weight"], log["max_weight"]) for log in logs]
        weights[source.name, offset, float(gamma)] = np.array(pairs)
    verdicts = tuple(weights_verdicts(weights))
    return done.section(study, [weights_table(weights, done.published)], verdicts=verdicts)


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
                number = published.number(STUDY, dataset, name, gamma)
                sample = weights[dataset, offset, gamma][:, k]
                entries.append(Entry.of_sample(sample, published=number.value if number else None))
            rows.append(Row(f"{name}, {curve}", tuple(entries)))
        groups.append(Group(dataset, tuple(rows)))
    curves = f"{CURVES[0]} is the paper's equation, {CURVES[1]} the curve of its authors' code."
    notes = (f"±: half the width of the {INTERVAL} of the mean over click logs.", curves)
    return Table(
        STUDY, "Mean weight M̄ and largest weight M", "Position bias (γ)",
        tuple(map(column_title, gammas)), tuple(groups), notes,
    )  # fmt: skip


def _datasets(weights: Weights) -> list[str]:
    return list(dict.fromkeys(dataset for dataset, _, _ in weights))


def _gammas(weights: Weights) -> list[float]:
    return sorted({gamma for _, _, gamma in weights})


def weights_verdicts(weights: Weights) -> list[Verdict]:
    """Test on each dataset whether M outgrows M̄."""
    gammas, verdicts = _gammas(weights), []
    for dataset in _datasets(weights):
        states, parts = [], []
        for offset, curve in enumerate(CURVES):
            means = np.array([weights[dataset, offset, gamma].mean(axis=0) for gamma in gammas])
            ratios = means[:, 1] / means[:, 0]
            grows = [ratios[0] > 1, *(np.diff(ratios) > 0)]
            states += [State.HOLDS if one else State.ABSENT for one in grows]
            parts.append(
                f"from {show_number(float(ratios[0]))} at γ = {gammas[0]:g} to "
                f"{show_number(float(ratios[-1]))} at γ = {gammas[-1]:g} under {curve}"
            )
        claim = "The largest weight M is above the mean weight M̄, and the more so the larger γ."
        evidence = f"M/M̄ {'grows' if min(states) > 0 else 'changes'} {' and '.join(parts)}."
        verdicts.append(Verdict.of((STUDY, dataset), claim, "paper", states, evidence))
    return verdicts
