"""Stages of a study: tuning, runs, weights, default rankers, networks; and their results."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from study_runs import GRID, finish, jobs_of, plan_grid, run_study

from countersample import CounterSampleRanker, evaluate
from countersample._environment import MissingExtraError
from countersample._progress import Progress
from countersample.errors import DataError, ParameterError
from countersample.study import stages
from countersample.study.experiment import load_grid, missing_libraries
from countersample.study.references import choose
from countersample.study.results import describe_choice
from countersample.study.settings import PAPER
from countersample.study.stages import versions
from countersample.study.store import Store
from countersample.training import train_many

ONE_GAMMA = GRID.replace("[0.5, 1.0]", "[1.0]")


# -- learning rates ------------------------------------------------------------------------------


def test_the_middle_of_equal_rates_is_chosen():
    values = np.array([[0.5, 0.7]] * 5 + [[0.1, 0.2]])  # by rate and query
    assert choose(values, np.ones(6, bool)) == (2, 0, 4)
    first_diverged = np.array([False, *[True] * 5])
    assert choose(values, first_diverged) == (2, 1, 4)


def test_a_plateau_reaches_as_far_as_noise(rng):
    """Differences of 0.001 in noise of 0.1 (its error is 0.003), and one of 0.05."""
    noise = 0.1 * rng.standard_normal((4, 1000))
    noise -= noise.mean(axis=1, keepdims=True)
    values = 0.5 + noise + np.array([[0.001], [0.002], [0.0], [-0.05]])
    assert choose(values, np.ones(4, bool)) == (1, 0, 2)


@pytest.mark.parametrize(
    ("rate", "alike", "n_alike", "words"),
    [
        (1e-2, (1e-2, 1e-2), 1, ""),
        (1e-3, (1e-3, 1e-3), 1, "the smallest tried"),
        (1.0, (1e-2, 1.0), 3, "the largest tried, 0.01 to 1 alike"),
        (1e-1, (1e-2, 1e-1), 2, ""),
    ],
)
def test_rates_are_flagged(rate, alike, n_alike, words):
    rates = {"rates_from": 1e-3, "rates_to": 1.0, "rates_tried": 4}
    similar = {"rates_alike": n_alike, "rates_alike_from": alike[0], "rates_alike_to": alike[1]}
    run = {"learning_rate": rate, **rates, **similar}
    assert describe_choice(run) == words


def test_an_optimizer_without_learning_rate_is_not_tuned(tmp_path):
    grid = GRID.replace("gamma = [0.5, 1.0]", 'optimizer = ["dog", "sgd"]')
    work, _, result, table = run_study(tmp_path, grid, seeds=1)
    assert {job.config["optimizer"] for job in jobs_of(work, "tuning")} == {"sgd"}
    for (_, _, optimizer), cell in result.cells.items():
        assert (cell.learning_rates == (None,)) == (optimizer == "dog")
        assert cell.ndcg[:, -1].min() > 0
    assert table[table.value == "dog"].learning_rate.isna().all()
    assert table.groupby("value").rates_tried.max().to_dict() == {"dog": 0, "sgd": 3}


# -- results -------------------------------------------------------------------------------------


def test_cells_and_rows_have_every_run(tmp_path):
    _, _, result, table = run_study(tmp_path)
    assert len(result.cells) == 2 * 2
    for cell in result.cells.values():
        assert cell.runs == (("", 0), ("", 1))
        assert cell.ndcg.shape == (2, 20)
        assert cell.drawn.tolist() == list(range(20, 401, 20))
        assert cell.regrets == pytest.approx((cell.best[:, None] - cell.ndcg).mean(axis=1))
    assert len(table) == 2 * 2 * 2 * 20
    assert set(table.gamma) == {0.5, 1.0}
    np.testing.assert_allclose(table.best_ndcg - table.ndcg, table.regret, rtol=1e-12)
    assert set(table.version_countersample) == {versions()["countersample"]}


def test_settings_reach_training_clicks_and_evaluation(tmp_path, monkeypatch):
    method = '{ name = "bounded", plan = "bounded", unit = "click" }'
    grid = ONE_GAMMA.replace('"CounterSample"', method)
    settings = {"metric": "mrr@5", "policy": "shuffled", "click_model": "cascade", "seeds": 1,
                "optimizer": "adam", "beta1": 0.5, "top": 4}  # fmt: skip
    calls = set()

    def spy(*args, options, **more):
        calls.add((options.method, options.beta1, options.bounds is not None))
        return train_many(*args, options=options, **more)

    monkeypatch.setattr("countersample.study.stages.train_many", spy)
    work, store, result, _ = run_study(tmp_path, grid, **settings)
    assert calls == {("ips", 0.5, False), ("bounded", 0.5, True)}
    assert result.metric == "MRR@5"
    log = store.clicks(jobs_of(work, "clicks")[0])
    assert log.examination is not None  # sessions of a query differ
    _, _, test = store.data(jobs_of(work, "data")[0])
    scores = test.features @ np.array(store.read(jobs_of(work, "references")[0])["best"])
    expected = evaluate(scores, test, "mrr@5", no_relevant="skip")["mrr@5"]
    assert result.best["tiny"] == pytest.approx(expected, abs=1e-3)


def test_a_run_that_diverges_counts_with_ndcg_0(tmp_path, monkeypatch):
    def explode(*args, **options):
        """Return runs whose weights explode at step 200."""
        runs = []
        for run in train_many(*args, **options):
            average = np.ones_like(run.history.average_coef)
            average[run.history.steps >= 200] = np.nan
            history = replace(run.history, average_coef=average)
            runs.append(replace(run, diverged_at=200, history=history))
        return runs

    monkeypatch.setattr("countersample.study.stages.train_many", explode)
    _, _, result, _ = run_study(tmp_path, ONE_GAMMA, seeds=1)
    for cell in result.cells.values():
        assert cell.n_diverged == 1
        assert (cell.ndcg[:, :9] > 0).all()  # up to 180 clicks
        assert (cell.ndcg[:, 9:] == 0).all()


@pytest.mark.slow
def test_the_default_ranker_is_trained_on_each_log(tmp_path):
    grid = GRID.replace("[vary]", "nothing_set = true\n\n[vary]")
    work, store, result, _ = run_study(tmp_path, grid)
    assert list(result.nothing_set) == [("tiny", 0.5), ("tiny", 1.0)]
    run, _ = work.cells["mine", "tiny", "IPS-SGD", 1.0]  # of two logs
    train_set, _, test = store.data(run.references.needs[0])
    ranker = CounterSampleRanker(random_state=0).fit_log(train_set, store.clicks(run.clicks))
    expected = evaluate(ranker, test, "ndcg@10", no_relevant="skip")["ndcg@10"]
    assert result.nothing_set["tiny", 1.0][0] == expected
    assert len(result.nothing_set["tiny", 1.0]) == 2


@pytest.mark.slow
def test_a_wrong_gamma_needs_one_policy(tmp_path):
    experiment = plan_grid(tmp_path, ONE_GAMMA, top=2, second_share=0.5, trained_gamma=0.5)
    with pytest.raises(DataError, match=r"trained_gamma is 0\.5 and two policies"):
        finish(experiment, Store(tmp_path / "out"))


# -- networks, without PyTorch -------------------------------------------------------------------


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.mark.usefixtures("no_torch")
def test_networks_without_torch_are_rejected_with_the_remedy(run, tmp_path):
    message = run("reproduce", "nonlinear", "--scale", "smoke", "--data", "tiny", fails=True)
    assert 'pip install "countersample[torch]"' in message
    with pytest.raises(MissingExtraError, match="needs torch"):
        plan_grid(tmp_path, scorer="network")
    assert list(missing_libraries("smoke")) == ["nonlinear"]
    assert "nonlinear" in run("reproduce", "--list")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": 3}, "hidden is 3, but the scorer is linear: set scorer to network"),
        ({"scorer": "network", "optimizer": "adam"}, "optimizer is adam and the scorer is a net"),
        ({"scorer": "network", "momentum": 0.9}, "optimizer is sgd, momentum and the scorer"),
        ({"scorer": "network", "variance": 1}, "variance is 1 and the scorer is a network"),
        ({"scorer": "tree"}, "scorer is 'tree', expected one of"),
    ],
)
def test_settings_of_networks_that_do_not_go_together(settings, message):
    with pytest.raises(ParameterError, match=message):
        PAPER.with_settings(settings).check()


def test_a_plan_with_bounds_of_linear_scorers_takes_no_networks(tmp_path):
    method = '{ name = "mine", plan = "bounded", unit = "click" }'
    text = GRID.replace('"CounterSample"', method)
    text = text.replace("[settings]", '[settings]\nscorer = "network"')
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ParameterError, match=r"mine\.toml: scorer is network, but .* bounded"):
        load_grid(tmp_path / "mine.toml")


def test_several_logs_choose_together(tmp_path):
    """The mean over two logs is the mean of each alone."""
    values = {}
    for logs in (1, 2):
        work, store, _, _ = run_study(tmp_path, ONE_GAMMA, seeds=logs, tuning_logs=logs)
        tunings = jobs_of(work, "tuning")
        assert all(len(job.needs) == logs for job in tunings)
        values[logs] = np.array([store.read(job)["ndcg"] for job in tunings])
    second = [
        stages.tune(store, replace(job, needs=job.needs[1:]), Progress.of(None))["ndcg"]
        for job in tunings
    ]
    np.testing.assert_allclose(values[2], (values[1] + second) / 2, rtol=1e-9)
