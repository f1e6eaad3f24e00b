"""What a user gets with nothing set: a study trains it on the logs of its methods."""

from study_runs import GRID, finish

from countersample import CounterSampleRanker, evaluate
from countersample.study.experiment import plan
from countersample.study.running.rows import gather
from countersample.study.running.store import Store


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
