"""Studies of regret: every method at every setting, at its best learning rate."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from countersample.clicks import Diagnosis
from countersample.errors import ParameterError
from countersample.study.design.config import PAPER, metric_title
from countersample.study.findings.claims import judge
from countersample.study.findings.figures import draw_panels, draw_versus
from countersample.study.findings.leads import draw_leads, has_leads, leads_table
from countersample.study.findings.nothing_set import nothing_set_table
from countersample.study.findings.tables import (
    final_table,
    rates_table,
    regret_table,
    significance_table,
)
from countersample.study.kinds.kind import Done, Kind
from countersample.study.report.page import LogDiagnosis, Section
from countersample.study.running.gather import gather

if TYPE_CHECKING:
    from pathlib import Path

    from countersample.study.design.grids import Grid
    from countersample.study.design.published import Published
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
        """Refuse a grid without methods or a setting."""
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
                    of_users = work.rankers.setdefault((grid.name, place, value), [])
                    of_users.append(work.ranker(fold, config))

    def write_up(self, study: Study, done: Done) -> Section:
        """Draw learning curves; make the tables of regret, leads, the end, rates and tests."""
        grid = study.grid
        result = gather(study, done.work, done.store)
        return done.section(
            study,
            tables=tables_of(result, done.published),
            verdicts=verdicts_on(result),
            drawn=draw(result, done.figures),
            curves=result,
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


def draw(result: StudyResult, folder: Path) -> tuple[str, ...]:
    """Draw learning curves, regret against a setting that is a number, and leads: their names."""
    name = result.grid.name
    drawn = [name, f"{name}-log"]
    draw_panels(result, folder / name)
    draw_panels(result, folder / f"{name}-log", log_x=True)
    if not isinstance(result.grid.values[0], str):
        drawn.append(f"{name}-regret")
        draw_versus(result, folder / drawn[-1])
    if has_leads(result):
        drawn.append(f"{name}-lead")
        draw_leads(result, folder / drawn[-1])
    return tuple(drawn)


def verdicts_on(result: StudyResult) -> tuple[Verdict, ...]:
    """Judge every claim, in the words of the metric."""
    return tuple(
        replace(verdict, evidence=verdict.evidence.replace(PAPER_METRIC, result.metric))
        for verdict in judge(result)
    )


def _network_notes(study: Study) -> tuple[str, ...]:
    """Say what is evaluated where networks are trained, and what their regret is against."""
    if all(config.scorer == "linear" for config in study.grid.configs(study.config)):
        return ()
    sentence = (
        "What is evaluated of a network is its last iterate, not the average: a network is not "
        "convex in its weights, and the mean of two good ones need not be one. Regret is against "
        "w*, which is linear: a network may be above it."
    )
    return (sentence,)


def _rate_notes(result: StudyResult) -> tuple[str, ...]:
    """Say how many of the chosen learning rates the tuning does not determine."""
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
    shown = []
    for source in study.sources:
        for gamma in gammas:
            known, *_ = done.read(study.name, source.name, gamma)
            known["histogram"] = tuple(map(tuple, known["histogram"]))
            shown.append(LogDiagnosis(f"{source.name}, γ = {gamma:g}", Diagnosis(**known)))
    return tuple(shown)
