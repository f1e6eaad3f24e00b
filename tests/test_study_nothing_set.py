"""What a user gets with nothing set, beside methods at their best learning rate."""

from dataclasses import replace

import numpy as np
import pytest
from study_results import make_cell, make_result
from study_runs import GRID, finish

from countersample import CounterSampleRanker, evaluate
from countersample.study.experiment import plan
from countersample.study.findings.tables import DEFAULT_RANKER, nothing_set_table
from countersample.study.running.rows import gather
from countersample.study.running.store import Store


def rows_of(table):
    (group,) = table.groups
    return {row.label: row.entries for row in group.rows}


def test_differences_are_paired_by_run():
    cells = {
        ("tiny", "IPS-SGD", "sgd"): make_cell([0, 0, 0], [0.70, 0.72, 0.74]),
        ("tiny", "CounterSample", "sgd"): make_cell([0, 0, 0], [0.71, 0.73, 0.75]),
    }
    users = {("tiny", "sgd"): np.array([0.71, 0.74, 0.77])}
    rows = rows_of(nothing_set_table(replace(make_result(cells), nothing_set=users)))
    assert list(rows) == [DEFAULT_RANKER, "less IPS-SGD", "less CounterSample"]
    (own,), (ips,), (sampled,) = rows.values()
    assert own.value == pytest.approx((0.71 + 0.74 + 0.77) / 3)
    assert ips.value == pytest.approx((0.01 + 0.02 + 0.03) / 3)
    assert ips.half_width == pytest.approx(4.302653 * 0.01 / np.sqrt(3))  # t of 2 degrees
    assert sampled.value == pytest.approx((0.00 + 0.01 + 0.02) / 3)


def test_folds_are_the_pairs_where_there_are_several():
    folds = ("Fold1", "Fold2")
    cells = {("tiny", "IPS-SGD", "sgd"): make_cell([0] * 4, [0.5, 0.5, 0.6, 0.6], folds=folds)}
    users = {("tiny", "sgd"): np.array([0.4, 0.8, 0.6, 0.8])}  # means 0.6 and 0.7
    rows = rows_of(nothing_set_table(replace(make_result(cells), nothing_set=users)))
    (entry,) = rows["less IPS-SGD"]
    assert (entry.value, entry.half_width) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-12))


def test_one_run_has_no_interval():
    cells = {("tiny", "IPS-SGD", "sgd"): make_cell([0], [0.5])}
    result = replace(make_result(cells), nothing_set={("tiny", "sgd"): np.array([0.6])})
    (entry,) = rows_of(nothing_set_table(result))["less IPS-SGD"]
    assert (entry.value, entry.half_width) == (pytest.approx(0.1), None)


def test_a_study_trains_it_on_each_log_of_each_setting(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GRID.replace("[vary]", "nothing_set = true\n\n[vary]"), "utf-8")
    experiment = plan([path], scale="paper")
    store = Store(tmp_path / "out")
    work = finish(experiment, store)
    (study,) = experiment.studies
    result = gather(study, work, store)
    assert list(result.nothing_set) == [("tiny", 0.5), ("tiny", 1.0)]
    ((run, _),) = [work.cells["mine", "tiny", "IPS-SGD", 1.0]]  # of two logs
    train_set, _, test = store.data(run.references.needs[0])
    fitted = CounterSampleRanker(random_state=0).fit_log(train_set, store.clicks(run.clicks))
    wanted = evaluate(fitted, test, "ndcg@10", no_relevant="skip")["ndcg@10"]
    assert result.nothing_set["tiny", 1.0][0] == wanted
    assert len(result.nothing_set["tiny", 1.0]) == 2


def test_without_being_asked_for_nothing_is_trained(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GRID, "utf-8")
    work = plan([path], scale="paper").work()
    assert "ranker" not in {job.stage for job in work.jobs.values()}
