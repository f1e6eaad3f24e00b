"""Jobs, the results folder and the runner: shared, resumed, independent of workers, never lost."""

import _thread
import json
import shutil
import signal
import threading

import pytest
from study_runs import GRID, finish, jobs_of, plan_grid
from threadpoolctl import threadpool_info, threadpool_limits

from countersample import save_letor, synthetic
from countersample.errors import DataError
from countersample.study import stages
from countersample.study.experiment import plan, read_experiment
from countersample.study.jobs import Job, run, state_of
from countersample.study.results import gather
from countersample.study.settings import SETTINGS
from countersample.study.sources import find_source, load_fold
from countersample.study.store import Store


@pytest.fixture
def experiment(tmp_path):
    return plan_grid(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    experiment, store = plan_grid(folder), Store(folder / "out")
    store.claim(experiment.identity())
    return experiment, store, finish(experiment, store)


def copy_of(store, folder):
    shutil.copytree(store.folder, folder / "copy")
    return Store(folder / "copy")


def results(work, store):
    """The results of all jobs, without seconds."""
    return {
        key: {k: v for k, v in store.read(job).items() if k != "seconds"}
        for key, job in work.jobs.items()
        if job.stage not in {"data", "clicks"}
    }


# -- jobs ----------------------------------------------------------------------------------------


def test_every_job_is_listed_once_after_its_needs(experiment):
    work = experiment.work()
    counts = {job.stage: len(jobs_of(work, job.stage)) for job in work.jobs.values()}
    assert counts == {
        "data": 1, "relevance": 1, "references": 1, "levels": 1,
        "clicks": 2 * 2,  # values × seeds
        "tuning": 2 * 2,  # values × methods
        "run": 2 * 2 * 2,
    }  # fmt: skip
    earlier = set()
    for key, job in work.jobs.items():
        assert all(need.key in earlier for need in job.needs)
        earlier.add(key)


def test_any_other_setting_is_another_run(tmp_path, experiment):
    others = {
        "clicks": 401, "noise": 0.2, "epochs": 2.0, "batch_size": 2, "clip": 0.1,
        "variance": 3.0, "trained_gamma": 0.5, "optimizer": "adam", "objective": "dcg",
        "bias_offset": 1, "policy_fraction": 0.5, "normalization": "minmax", "queries": 61,
        "learning_rates": [1e-3], "evaluate_every": 10, "relevant": 2, "tuning_logs": 2,
        "no_relevant": "zero", "bits": 8, "top": 3, "second_share": 0.5, "metric": "mrr",
        "click_model": "dbn", "policy": "swapped", "momentum": 0.9,
    }  # fmt: skip
    optimizer_settings = {"beta1", "beta2", "epsilon", "first_distance"}
    elsewhere = {"gamma", "seeds", "scorer", "hidden"}  # varied, not of a run, of networks
    assert {*others} == {*SETTINGS} - optimizer_settings - elsewhere
    before = {job.content for job in jobs_of(experiment.work(), "run")}
    for name, value in others.items():
        other = plan_grid(tmp_path, **{name: value}).work()
        assert not {job.content for job in jobs_of(other, "run")} & before, name


# -- the runner ----------------------------------------------------------------------------------


def test_results_depend_neither_on_workers_nor_on_order(finished, tmp_path):
    experiment, store, work = finished
    other = Store(tmp_path / "other")
    finish(experiment, other, workers=3, reverse=True)
    assert results(work, other) == results(work, store)
    assert not state_of(experiment.work(), other).missing


def test_data_and_logs_may_be_removed_if_no_job_needs_them(finished, tmp_path):
    _, store, work = finished
    copy = copy_of(store, tmp_path)
    shutil.rmtree(copy.folder / "work" / "data")
    shutil.rmtree(copy.folder / "work" / "clicks")
    assert not state_of(work, copy).missing
    copy.path(jobs_of(work, "run")[0]).unlink()
    stages_needed = {job.stage for job in state_of(work, copy).missing.values()}
    assert stages_needed == {"run", "clicks", "data"}


def test_damaged_results_are_computed_again(finished, tmp_path):
    """A folder, a Parquet file and a text file that are cut in half."""
    experiment, store, work = finished
    copy = copy_of(store, tmp_path)
    run_job = jobs_of(work, "run")[0]
    tuning, clicks = run_job.needs
    damaged = [*jobs_of(work, "data"), clicks, tuning]
    for job in damaged:
        path = copy.path(job)
        files = path.rglob("*") if path.is_dir() else [path]
        victim = max(files, key=lambda file: file.stat().st_size)
        victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    copy.path(run_job).unlink()  # which needs data and clicks: else they are not read
    missing = state_of(work, copy).missing
    assert {job.key for job in (*damaged, run_job)} <= {*missing}
    finish(experiment, copy)
    assert results(work, copy) == results(work, store)


def test_a_result_that_lacks_a_value_is_an_error(finished, tmp_path):
    _, store, work = finished
    copy, job = copy_of(store, tmp_path), jobs_of(work, "run")[0]
    copy.path(job).write_text("{}")
    with pytest.raises(DataError, match="is damaged, it has no 'regret': delete it"):
        copy.read(job)["regret"]


# -- the results folder --------------------------------------------------------------------------


def test_a_folder_grows_and_only_new_jobs_are_run(finished, tmp_path):
    _, store, _ = finished
    copy = copy_of(store, tmp_path)
    # A method and a γ: 3 γ × 2 seeds of the new method, 2 × 2 of the others.
    more = GRID.replace('SGD", "', 'SGD", "Biased-SGD", "').replace("0.5, ", "0.5, 0.7, ")
    experiment = plan_grid(tmp_path, more)
    identity = copy.claim(experiment.identity())
    missing = state_of(read_experiment(identity).work(), copy).missing.values()
    assert sum(job.stage == "run" for job in missing) == 3 * 2 + 2 * 2
    finish(experiment, copy)
    identity = copy.claim(plan_grid(tmp_path).identity())  # nothing is removed from the folder
    assert not state_of(read_experiment(identity).work(), copy).missing
    assert not state_of(experiment.work(), copy).missing


def test_a_folder_of_another_scale_or_format_is_rejected_and_kept(experiment, tmp_path):
    store = Store(tmp_path / "out")
    store.claim(experiment.identity())
    path = store.folder / "study.json"
    before = path.read_text()
    with pytest.raises(DataError, match="has results at scale paper, now small"):
        store.claim(plan([tmp_path / "mine.toml"], scale="small").identity())
    assert path.read_text() == before
    path.write_text(json.dumps(json.loads(before) | {"format": 3}))
    with pytest.raises(DataError, match="has results in format 3"):
        store.claim(experiment.identity())


def test_a_folder_of_something_else_is_left_alone(experiment, tmp_path):
    (tmp_path / "out").mkdir()
    letter = tmp_path / "out" / "letter.txt"
    letter.write_text("dear")
    with pytest.raises(DataError, match=r"has files but no study\.json"):
        Store(tmp_path / "out").claim(experiment.identity())
    with pytest.raises(DataError, match="is a file, expected a folder"):
        Store(letter).claim(experiment.identity())
    assert letter.read_text() == "dear"


# -- data ----------------------------------------------------------------------------------------


def test_files_that_have_changed_are_rejected(tmp_path):
    path = tmp_path / "all.txt"
    save_letor(synthetic("tiny", n_queries=50, rng=0), path)
    (fold,) = find_source(str(path)).folds
    assert [part.n_queries for part in load_fold(fold.config)] == [35, 5, 10]  # one file is split
    save_letor(synthetic("tiny", n_queries=60, rng=0), path)
    with pytest.raises(DataError, match=r"all\.txt has changed"):
        load_fold(fold.config)


def test_every_fold_is_run(tmp_path):
    data = synthetic("tiny", n_queries=60, rng=0)
    for fold in ("Fold1", "Fold2"):
        (tmp_path / "set" / fold).mkdir(parents=True)
        parts = data.split(0.5, 0.2, 0.3, rng=0)
        for part, name in zip(parts, ("train", "vali", "test"), strict=True):
            save_letor(part, tmp_path / "set" / fold / f"{name}.txt")
    (tmp_path / "mine.toml").write_text(GRID.replace("[0.5, 1.0]", "[1.0]"))
    experiment = plan(
        [tmp_path / "mine.toml"], scale="paper", datasets=[str(tmp_path / "set")],
        settings={"learning_rates": [1e-2]},
    )  # fmt: skip
    store = Store(tmp_path / "out")
    work = finish(experiment, store)
    cell = gather(experiment.studies[0], work, store).cells["set", "IPS-SGD", 1.0]
    assert cell.runs == (("Fold1", 0), ("Fold1", 1), ("Fold2", 0), ("Fold2", 1))
    assert len(cell.learning_rates) == 2


# -- errors and Ctrl-C ---------------------------------------------------------------------------


def _count_blas_threads(_bench, _job, _progress):
    return {"threads": [t["num_threads"] for t in threadpool_info() if t["user_api"] == "blas"]}


def test_a_job_has_one_thread_of_blas(tmp_path):
    store, job = Store(tmp_path), Job("run", "", {}, _count_blas_threads)
    with threadpool_limits(2, "blas"):
        run([job], store, workers=2)
        after = _count_blas_threads(None, None, None)
    assert set(store.read(job)["threads"]) == {1}
    assert set(after["threads"]) == {2}


def test_an_error_ends_the_run_and_keeps_finished_results(experiment, tmp_path, monkeypatch):
    def fail(*_):
        raise DataError("no luck")

    monkeypatch.setattr(stages, "tune", fail)
    store = Store(tmp_path / "out")
    with pytest.raises(DataError, match="no luck"):
        finish(experiment, store, workers=2)
    done = {job.stage for job in state_of(experiment.work(), store).done.values()}
    assert {"data", "references"} <= done


@pytest.fixture
def interruptible():
    """Handle Ctrl-C, whatever started the tests: jobs in the background of a script ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_stops_running_jobs(experiment, tmp_path, monkeypatch):
    """Ctrl-C while two jobs are at work: both end, neither leaves a result."""
    store = Store(tmp_path / "out")
    at_work = threading.Barrier(3)

    def endless(_bench, _job, progress):
        at_work.wait(60)
        while True:
            progress.update(0.5)

    def interrupt():
        at_work.wait(60)
        _thread.interrupt_main()

    monkeypatch.setattr(stages, "run", endless)
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        finish(experiment, store, workers=2)
    done = {job.stage for job in state_of(experiment.work(), store).done.values()}
    assert "run" not in done
    assert "tuning" in done
