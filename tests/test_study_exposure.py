"""Studies of weights: by item, over what policies show, or by position alone."""

import numpy as np
import pytest
from study_runs import GRID, finish

from countersample.errors import DataError
from countersample.study.experiment import plan
from countersample.study.running.store import Store


def write_exposures(folder, second_share):
    """The grid with both kinds of weights, of pages that show 2 or 3 items."""
    methods = (
        '["CounterSample", {name = "position only", plan = "countersample", unit = "click", '
        'exposure = "position-only"}]'
    )
    text = GRID.replace('["IPS-SGD", "CounterSample"]', methods)
    text = text.replace("gamma = [0.5, 1.0]", "top = [2, 3]")
    path = folder / f"share{second_share:g}.toml"
    path.write_text(f"{text}second_share = {second_share}\n")
    return path


def ndcg_by_exposure(folder, second_share):
    """What the runs of each kind of weights come to."""
    experiment, store = plan([write_exposures(folder, second_share)], scale="paper"), Store(folder)
    work = finish(experiment, store)
    return [
        [
            store.read(job)["ndcg"]
            for job in work.jobs.values()
            if job.stage == "run" and job.config["exposure"] == exposure
        ]
        for exposure in ("policy-aware", "position-only")
    ]


def test_other_weights_are_another_run_on_the_same_logs(tmp_path):
    work = plan([write_exposures(tmp_path, 0.5)], scale="paper").work()
    stages = [job.stage for job in work.jobs.values()]
    assert (stages.count("clicks"), stages.count("run")) == (2 * 2, 2 * 2 * 2)


def test_one_policy_has_one_kind_of_weights(tmp_path):
    """Where every session shows an item in the same place, ρ is θ."""
    for one, other in zip(*ndcg_by_exposure(tmp_path, 0.0), strict=True):
        assert one == other


def test_two_policies_have_two(tmp_path):
    policy_aware, position_only = ndcg_by_exposure(tmp_path, 0.5)
    assert policy_aware != position_only


def test_logs_have_both(tmp_path):
    experiment = plan([write_exposures(tmp_path, 0.5)], scale="paper")
    store = Store(tmp_path / "out")
    work = finish(experiment, store)
    for job in work.jobs.values():
        if job.stage == "clicks":
            log, top = store.clicks(job), job.config["top"]
            assert len(np.unique(log.examination)) <= top
            np.testing.assert_allclose(1 / log.examination, np.rint(1 / log.examination))
            assert (log.propensity < log.examination).any()


def test_a_wrong_gamma_needs_one_policy(tmp_path):
    path = write_exposures(tmp_path, 0.5)
    experiment = plan([path], scale="paper", settings={"trained_gamma": 0.5})
    with pytest.raises(DataError, match=r"trained_gamma is 0.5 where two policies"):
        finish(experiment, Store(tmp_path / "out"))
