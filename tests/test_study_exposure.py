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


def run_exposures(folder, second_share):
    """Jobs, store, and the curves of the runs of each kind of weights."""
    experiment, store = plan([write_exposures(folder, second_share)], scale="paper"), Store(folder)
    work = finish(experiment, store)
    curves = [
        [
            store.read(job)["ndcg"]
            for job in work.jobs.values()
            if job.stage == "run" and job.config["exposure"] == exposure
        ]
        for exposure in ("policy-aware", "position-only")
    ]
    return work, store, curves


def test_one_policy_has_one_kind_of_weights(tmp_path):
    """Where every session shows an item in the same place, ρ is θ."""
    _, _, (policy_aware, position_only) = run_exposures(tmp_path, 0.0)
    assert policy_aware == position_only


def test_two_policies_have_two_kinds_in_the_same_logs(tmp_path):
    work, store, (policy_aware, position_only) = run_exposures(tmp_path, 0.5)
    assert policy_aware != position_only
    logs = [job for job in work.jobs.values() if job.stage == "clicks"]
    assert (len(logs), len(policy_aware)) == (2 * 2, 2 * 2)
    for job in logs:
        log = store.clicks(job)
        assert len(np.unique(log.examination)) <= job.config["top"]
        np.testing.assert_allclose(1 / log.examination, np.rint(1 / log.examination))
        assert (log.propensity < log.examination).any()


def test_a_wrong_gamma_needs_one_policy(tmp_path):
    path = write_exposures(tmp_path, 0.5)
    experiment = plan([path], scale="paper", settings={"trained_gamma": 0.5})
    with pytest.raises(DataError, match=r"trained_gamma is 0.5 where two policies"):
        finish(experiment, Store(tmp_path / "out"))
