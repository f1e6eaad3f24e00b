"""Kinds of study: one suite over the registry, and a new one that is two functions and a line."""

import json

import pytest

from countersample.errors import ParameterError
from countersample.study import grids
from countersample.study.experiment import KINDS, Kind, load_grid, plan
from countersample.study.jobs import Job, WorkList
from countersample.study.reproduction import write_artifacts
from countersample.study.runner import run
from countersample.study.store import Store
from countersample.study.tables import Entry, Group, Row, Table


def grid_of(kind):
    all_grids = [load_grid(grids.path_of(name), "smoke") for name in grids.names()]
    return next(grid for grid in all_grids if grid.kind == kind)


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKind:
    def test_plans_jobs_that_carry_their_work(self, kind):
        (study,) = plan([grid_of(kind).name], scale="smoke").studies
        work = WorkList()
        KINDS[kind].plan(study, work)
        assert bool(work.jobs) == bool(study.sources) == KINDS[kind].takes_data
        assert all(callable(job.work) for job in work.jobs.values())
        json.dumps([job.config for job in work.jobs.values()])
        jobs_by_name = [job for jobs in work.others.values() for job in jobs]
        assert all(work.jobs[job.key] is job for job in jobs_by_name)
        assert all(name[0] == study.name for name in (*work.others, *work.cells))


@pytest.mark.parametrize(
    ("kind", "message"),
    [("regret", "needs methods and a setting"), ("propensities", "needs values of gamma")],
)
def test_a_grid_that_cannot_be_of_its_kind_is_refused(tmp_path, kind, message):
    path = tmp_path / "mine.toml"
    path.write_text(f'title = "Mine"\nabout = ""\nkind = "{kind}"\n[vary]\nclip = [0.1]\n')
    with pytest.raises(ParameterError, match=rf"mine\.toml: .*{message}"):
        load_grid(path)


def plan_queries(study, work):
    for source in study.sources:
        data = work.data(source.folds[0], study.config)
        job = Job("queries", f"queries of {source.name}", {}, count_queries, (data,))
        work.keep((study.name, source.name), job)


def count_queries(bench, job, progress):
    progress.update(0.5)
    return {"n_queries": bench.data(job.needs[0])[0].n_queries}


def write_queries(study, done):
    rows = [
        Row(source.name, (Entry(done.read(study.name, source.name)[0]["n_queries"], 0),))
        for source in study.sources
    ]
    table = Table(study.name, "Queries", "Dataset", ("queries",), (Group("", tuple(rows)),))
    return done.section(study, [table])


def test_a_new_kind_is_two_functions_and_a_line(tmp_path, monkeypatch):
    for module in ("experiment", "reproduction"):
        registry = {**KINDS, "queries": Kind(plan_queries, write_queries)}
        monkeypatch.setattr(f"countersample.study.{module}.KINDS", registry)
    path = tmp_path / "mine.toml"
    path.write_text(
        'title = "Mine"\nabout = "It counts."\nkind = "queries"\ndatasets = ["tiny"]\n'
        "[settings]\nqueries = 20\n"
    )
    experiment = plan([path], scale="paper")
    store, work = Store(tmp_path / "out"), experiment.work()
    store.claim(experiment.identity())
    run(work.jobs.values(), store, workers=2)
    artifacts = write_artifacts(experiment, work, store, commands=("make it so",))
    (table,) = artifacts.tables
    assert table.groups[0].rows[0].entries[0].value == 14  # 70 % of 20
    assert "It counts." in artifacts.report.read_text(encoding="utf-8")
