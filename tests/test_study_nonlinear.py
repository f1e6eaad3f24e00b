"""What is said of networks before any is trained: settings, and where PyTorch is missing."""

import json
import sys

import pytest
from study_runs import GRID

from countersample._extras import MissingExtraError
from countersample.errors import ParameterError
from countersample.study.design import grids
from countersample.study.design.config import PAPER
from countersample.study.experiment import left_out, plan, read_experiment
from countersample.study.kinds import load_grid


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.mark.usefixtures("no_torch")
class TestWithoutTorch:
    def test_the_study_is_refused_with_the_line_that_installs_it(self, run):
        said = run("reproduce", "nonlinear", "--scale", "smoke", "--data", "tiny", fails=True)
        assert "this needs torch, which is not installed" in said
        assert 'pip install "countersample[torch]"' in said

    def test_all_studies_are_all_others(self, run, monkeypatch):
        notes = []
        monkeypatch.setattr("countersample.cli._show.note", notes.append)
        words = ("--scale", "smoke", "--data", "tiny", "--set", "seeds=1", "--dry-run", "--json")
        found = json.loads(run("reproduce", *words))
        assert notes[0].startswith("nonlinear is left out: this needs torch")
        assert found["studies"] == [name for name in grids.names() if name != "nonlinear"]

    def test_it_can_be_listed(self, run):
        assert "nonlinear" in run("reproduce", "--list")

    def test_a_setting_that_asks_for_networks_is_refused(self, tmp_path):
        (tmp_path / "mine.toml").write_text(GRID)
        with pytest.raises(MissingExtraError, match="needs torch"):
            plan([tmp_path / "mine.toml"], scale="smoke", settings={"scorer": "network"})

    def test_what_was_begun_with_it_is_known_again(self, monkeypatch):
        with monkeypatch.context() as there:
            there.setitem(sys.modules, "torch", sys)
            begun = plan(["nonlinear"], scale="smoke", datasets=["tiny"])
        known = read_experiment(json.loads(json.dumps(begun.identity())))
        assert known.work().jobs.keys() == begun.work().jobs.keys()


def test_with_torch_nothing_is_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", sys)
    assert left_out("smoke") == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": 3}, "hidden is 3, but the scorer is linear: set scorer to network"),
        ({"scorer": "network", "optimizer": "adam"}, "optimizer is adam where the scorer is a net"),
        ({"scorer": "network", "momentum": 0.9}, "optimizer is sgd, momentum where the scorer"),
        (
            {"scorer": "network", "variance": 1},
            "variance is 1 where the scorer is a network, expected 0",
        ),
    ],
)
def test_settings_that_do_not_go_together(settings, message):
    with pytest.raises(ParameterError, match=message):
        PAPER.with_settings(settings).check()


def test_an_unknown_scorer():
    with pytest.raises(ParameterError, match="scorer is 'tree', expected one of"):
        PAPER.with_settings({"scorer": "tree"})


def test_a_plan_with_bounds_of_linear_scorers_is_refused_at_its_line(tmp_path):
    path = tmp_path / "mine.toml"
    method = '{ name = "mine", plan = "bounded", unit = "click" }'
    text = GRID.replace('"CounterSample"', method).replace(
        "[settings]", '[settings]\nscorer = "network"'
    )
    path.write_text(text)
    with pytest.raises(ParameterError, match=r"mine\.toml:12: scorer is network, but .* bounded"):
        load_grid(path)


def test_linear_runs_are_known_by_what_they_were_before_there_were_networks():
    work = plan(["position-bias"], scale="smoke", datasets=["tiny"]).work()
    runs = [job for job in work.jobs.values() if job.stage in {"run", "tuning"}]
    assert not any({"scorer", "hidden"} & set(job.config) for job in runs)
