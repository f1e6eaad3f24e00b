"""Studies of regret: every method at every setting, at its best learning rate."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from countersample.clicks import Diagnosis
from countersample.errors import ParameterError
from countersample.study.design.config import PAPER, metric_title
from countersample.study.findings.claims import evaluate_claims
from countersample.study.findings.figures import draw_leads, draw_panels, draw_versus
from countersample.study.findings.statistics import has_leads
from countersample.study.findings.tables import (
    final_table,
    leads_table,
    nothing_set_table,
    rates_table,
    regret_table,
    significance_table,
)
from countersample.study.kinds.kind import Done, Drawing, Kind
from countersample.study.report import LogDiagnosis, Section
from countersample.study.running.rows import gather

if TYPE_CHECKING:
    from pathlib import Path

    from countersample.study.design.grids import Grid, Published
    from countersample.study.design.sources import Study
    from countersample.study.findings.claims import Verdict
    from countersample.study.findings.tables import Table
    from countersample.study.results import StudyResult
    from countersample.study.running.jobs import WorkList

PAPER_METRIC = metric_title(PAPER.metric)
_LOGS_SHOWN = ("gamma", "optimizer")  # settings whose studies show the weights of their logs


class RegretStudy(Kind):
    """The paper's comparison: tuned, run and evaluated, in a table, figures and verdicts."""

    name = "regret"

    def check(self, grid: Grid) -> None:
        """Raise a `ParameterError` for a grid without methods or a setting."""
        if not grid.methods or not grid.axis:
            raise ParameterError("a study of regret needs methods and a setting in [vary]")

    def plan(self, study: Study, work: WorkList) -> None:
        """Plan a tuning for each method and setting, and a run for each of its click logs."""
        grid = study.grid
        for source, block, value in product(study.sources, grid.blocks(), grid.values):
            config = study.config.with_settings(block | {grid.axis: value})
            place = grid.where(source.name, block)
            for fold in source.folds:
                log = work.diagnosis(fold, config, 0)
                work.keep((grid.name, source.name, config.gamma), log)
                for method in grid.methods:
                    name = (grid.name, place, method.name, value)
                    work.cells.setdefault(name, []).extend(work.runs(fold, config, method))
                if grid.nothing_set:
                    rankers = work.rankers.setdefault((grid.name, place, value), [])
                    rankers.append(work.ranker(fold, config))

    def write_up(self, study: Study, done: Done) -> Section:
        """Draw learning curves; make the tables of regret, leads, the end, rates and tests."""
        grid = study.grid
        result = gather(study, done.work, done.store)
        return done.section(
            study,
            tables=tables_of(result, done.published),
            verdicts=verdicts_on(result),
            drawings=draw(result, done.figures),
            logs=_logs(study, done) if {*grid.varied} & {*_LOGS_SHOWN} else (),
            notes=(*_network_notes(study), *_rate_notes(result)),
        )


def tables_of(result: StudyResult, published: Published) -> tuple[Table, ...]:
    """Make the tables of regret, leads, where runs end, learning rates and tests."""
    return (
        regret_table(result, published),
        *((leads_table(result),) if has_leads(result) else ()),
        final_table(result),
        *((nothing_set_table(result),) if result.nothing_set else ()),
        rates_table(result),
        significance_table(result),
    )


def draw(result: StudyResult, folder: Path) -> tuple[Drawing, ...]:
    """Draw learning curves, the lead, and regret against a setting that is a number."""
    name, metric = result.grid.name, result.metric
    draw_panels(result, folder / name)
    draw_panels(result, folder / f"{name}-log", log_x=True)
    drawings = [
        Drawing(
            name,
            f"Learning curves: {metric} on test data against clicks drawn, by method",
            "Learning curves: means over runs, in 95 % intervals.",
        ),
        Drawing(f"{name}-log"),
    ]
    if not isinstance(result.grid.values[0], str):
        draw_versus(result, folder / f"{name}-regret")
        title = f"Average regret ×100 against {result.grid.axis_title}"
        drawings.append(Drawing(f"{name}-regret", f"{title}, by method", f"{title}."))
    if has_leads(result):
        draw_leads(result, folder / f"{name}-lead")
        title = "Lead of CounterSample over IPS-SGD in the course of training"
        drawings.append(Drawing(f"{name}-lead", title, f"{title}; below 0 IPS-SGD is ahead."))
    return tuple(drawings)


def verdicts_on(result: StudyResult) -> tuple[Verdict, ...]:
    """Test every claim; the evidence names the metric of the study."""
    return tuple(
        replace(verdict, evidence=verdict.evidence.replace(PAPER_METRIC, result.metric))
        for verdict in evaluate_claims(result)
    )


def _network_notes(study: Study) -> tuple[str, ...]:
    """Say what is evaluated if networks are trained, and what their regret is against."""
    if all(config.scorer == "linear" for config in study.grid.configs(study.config)):
        return ()
    sentence = (
        "What is evaluated of a network is its last iterate, not the average: a network is not "
        "convex in its weights, and the mean of two good ones need not be one. Regret is against "
        "w*, which is linear: a network may be above it."
    )
    return (sentence,)


def _rate_notes(result: StudyResult) -> tuple[str, ...]:
    """Say how many of the learning rates are not determined by the tuning."""
    flags = [flag for cell in result.cells.values() for flag in cell.rate_flags if flag.n_alike]
    at_edge = sum(bool(flag.edge) for flag in flags)
    on_plateau = sum(flag.is_plateau for flag in flags)
    if not at_edge + on_plateau:
        return ()
    sentence = (
        f"Of {len(flags)} learning rates that were chosen, {at_edge} are at an end of those tried, "
        f"and {on_plateau} on a plateau: three or more rates are no worse on validation data but "
        "for its noise (a standard error). The table of learning rates has them."
    )
    return (sentence,)


def _logs(study: Study, done: Done) -> tuple[LogDiagnosis, ...]:
    """Return the diagnosis of one log of each dataset and γ."""
    gammas = study.grid.varied.get("gamma", (study.config.gamma,))
    logs = []
    for source in study.sources:
        for gamma in gammas:
            values, *_ = done.read(study.name, source.name, gamma)
            values["histogram"] = tuple(map(tuple, values["histogram"]))
            logs.append(LogDiagnosis(f"{source.name}, γ = {gamma:g}", Diagnosis(**values)))
    return tuple(logs)
