"""Kinds of study: one suite over the registry, and grids that cannot be of their kind."""

import json

import numpy as np
import pytest

from countersample.errors import ParameterError
from countersample.study import grids
from countersample.study.claims import verdicts_of
from countersample.study.experiment import KINDS, load_grid, plan
from countersample.study.grids import load_published
from countersample.study.jobs import WorkList
from countersample.study.kinds import shapes_table, weights_findings


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


# -- weights by γ

GAMMAS = (0.5, 0.75, 1.0, 1.25, 1.5)


def flat(ratios):
    """Weights with M̄ = 2 and these M/M̄ by γ, under both curves."""
    return {
        ("tiny", offset, gamma): np.array([(2.0, 2.0 * ratio)] * 2)
        for offset in (0, 1)
        for gamma, ratio in zip(GAMMAS, ratios, strict=True)
    }


@pytest.mark.parametrize(
    ("ratios", "outcome"),
    [
        ((2, 3, 4, 5, 6), "confirmed"),
        ((2, 3, 2, 5, 6), "in part"),
        ((0.9, 0.8, 0.7, 0.6, 0.5), "not confirmed"),
    ],
)
def test_weights_grow_with_the_position_bias(ratios, outcome):
    findings = weights_findings(flat(ratios), "tiny")
    (growth,) = verdicts_of(load_grid(grids.path_of("propensities")), "tiny", findings)
    assert growth.outcome == outcome
    assert f"from {ratios[0]} at γ = 0.5 to {ratios[-1]} at γ = 1.5" in growth.evidence


# -- sizes of datasets


def test_sizes_of_datasets_stand_below_the_papers():
    shapes = {
        "yahoo-like": {
            "queries": 200,
            "items": 4600,
            "longest": 139,
            "features": 700,
            "irrelevant": 1150,
        },
        "mine": {"queries": 2, "items": 5, "longest": 3, "features": 4, "irrelevant": 5},
    }
    table = shapes_table(shapes, load_published())
    paper, here = table.groups
    yahoo, mine = (row.entries for row in here.rows)
    assert [entry.value for entry in yahoo] == [200, 4600 / 200, 100 * 1150 / 4600, 139, 700]
    assert [entry.number for entry in mine] == ["2", "2.5", "100.0", "3", "4"]
    assert [row.label for row in paper.rows] == ["yahoo", "istella-s"]
    assert [entry.number for entry in paper.rows[0].entries] == ["36,251", "23", "26", "–", "–"]
