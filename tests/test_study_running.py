"""The work list of a study: shared, resumed, independent of workers and order, never lost."""

import json
import shutil
import signal
import threading
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from study_runs import GRID, finish
from threadpoolctl import threadpool_info, threadpool_limits

from countersample import evaluate, save_letor, synthetic
from countersample._progress import Progress
from countersample.data.hashing import kept_arrays
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.study.design.config import SETTINGS
from countersample.study.design.sources import find_source
from countersample.study.experiment import no_longer_shown, plan, read_experiment
from countersample.study.results import RateFlag
from countersample.study.running import estimate, references, stages
from countersample.study.running.jobs import Job
from countersample.study.running.rows import gather, write_results
from countersample.study.running.runner import Tally, Workbench, run, state_of
from countersample.study.running.stages import versions
from countersample.study.running.store import Store
from countersample.training import train_many


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GRID)
    return plan([path], scale="paper")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "mine.toml").write_text(GRID)
    experiment = plan([folder / "mine.toml"], scale="paper")
    store = Store(folder / "out")
    store.claim(experiment.identity())
    return experiment, store, finish(experiment, store)


def copy_of(store, folder):
    shutil.copytree(store.folder, folder / "copy")
    return Store(folder / "copy")


def run_study(folder, grid, **settings):
    """Run a grid to its end; return its jobs, where its results are, what was found, its rows."""
    (folder / "mine.toml").write_text(grid)
    experiment, store = (
        plan([folder / "mine.toml"], scale="paper", settings=settings),
        Store(folder),
    )
    work = finish(experiment, store)
    write_results(experiment.studies, work, store, folder / "results.parquet")
    table = pq.read_table(folder / "results.parquet").to_pandas()
    return work, store, gather(experiment.studies[0], work, store), table


def results(work, store):
    """Everything a study found, without how long it took."""
    found = {}
    for key, job in work.jobs.items():
        if job.stage not in {"data", "clicks"}:
            found[key] = {k: v for k, v in store.read(job).items() if k != "seconds"}
    return found


class TestTheWorkList:
    def test_has_every_job_once_and_needs_first(self, experiment):
        work = experiment.work()
        stages = [job.stage for job in work.jobs.values()]
        assert {stage: stages.count(stage) for stage in set(stages)} == {
            "data": 1, "relevance": 1, "references": 1, "levels": 1,
            "clicks": 2 * 2,  # values × seeds
            "diagnosis": 2,
            "tuning": 2 * 2,  # values × methods
            "run": 2 * 2 * 2,
        }  # fmt: skip
        seen = set()
        for key, job in work.jobs.items():
            assert all(need.key in seen for need in job.needs)
            seen.add(key)

    def test_studies_share_what_is_the_same(self):
        apart = [plan([name], scale="smoke").work() for name in ("optimizers", "position-bias")]
        together = plan(["optimizers", "position-bias"], scale="smoke").work()
        shared = set(apart[0].jobs) & set(apart[1].jobs)
        # γ = 1 with SGD is in both: three methods, tuned and run for three seeds of two sets.
        assert sum(apart[0].jobs[key].stage == "run" for key in shared) == 3 * 3 * 2
        assert set(together.jobs) == set(apart[0].jobs) | set(apart[1].jobs)

    def test_any_other_setting_is_another_run(self, tmp_path, experiment):
        others = {
            "clicks": 401, "noise": 0.2, "epochs": 2.0, "batch_size": 2, "clip": 0.1,
            "variance": 3.0, "trained_gamma": 0.5, "optimizer": "adam", "objective": "dcg",
            "bias_offset": 1, "policy_fraction": 0.5, "normalization": "minmax", "queries": 61,
            "learning_rates": [1e-3], "evaluate_every": 10, "relevant": 2, "tuning_logs": 2,
            "no_relevant": "zero", "bits": 8, "top": 3, "second_share": 0.5, "metric": "mrr",
            "click_model": "dbn", "policy": "swapped", "momentum": 0.9,
        }  # fmt: skip
        of_optimizers = {"beta1", "beta2", "epsilon", "first_distance"}
        elsewhere = {"gamma", "seeds", "scorer", "hidden"}  # varied, not of a run, of networks
        assert {*others} == {*SETTINGS} - of_optimizers - elsewhere
        before = {job.content for job in experiment.work().jobs.values() if job.stage == "run"}
        for name, value in others.items():
            other = plan([tmp_path / "mine.toml"], scale="paper", settings={name: value})
            runs = {job.content for job in other.work().jobs.values() if job.stage == "run"}
            assert not runs & before, name

    @pytest.mark.usefixtures("experiment")
    def test_features_are_codes_where_asked(self, tmp_path):
        for bits, expected in ((8, 8), (32, None)):
            asked = plan([tmp_path / "mine.toml"], scale="paper", settings={"bits": bits})
            job = next(each for each in asked.work().jobs.values() if each.stage == "data")
            parts = stages.prepare_data(None, job, None)
            assert [part.bits for part in parts] == [expected] * 3
            store = Store(tmp_path / "results")
            store.write(job, parts)
            for part, kept in zip(parts, store.data(job), strict=True):
                assert kept == part
                assert kept.fingerprint == part.fingerprint
                assert isinstance(kept_arrays(kept.features)[0], np.memmap)
        with pytest.raises(ParameterError, match="bits is 9, expected one of 8, 16, 32"):
            plan([tmp_path / "mine.toml"], scale="paper", settings={"bits": 9})

    def test_results_of_another_version_are_stale(self, finished, monkeypatch):
        experiment, store, work = finished
        monkeypatch.setattr("countersample.study.running.jobs.RESULTS_VERSION", "next")
        state = state_of(experiment.work(), store)
        contents = {job.content for job in work.jobs.values()}
        assert {job.content for job in state.stale} == contents
        assert [stale for stage, *_, stale in state.by_stage() if stage == "run"] == [8]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("gamma = [0.5, 1.0]", "gamma = [0.5, 1.0, 1.5]", []),
        ('methods = ["IPS-SGD"', 'methods = ["Biased-SGD", "IPS-SGD"', []),
        ("seeds = 2", "seeds = 3", []),
        ('title = "Mine"', 'title = "Ours"', []),
        ("gamma = [0.5, 1.0]", "gamma = [0.5, 1.5]", ["mine"]),
        ("clicks = 400", "clicks = 500", ["mine"]),
        ("1e-1]", "1e-1, 1.0]", ["mine"]),
    ],
)
def test_a_grid_that_only_grew_has_all_that_it_had(tmp_path, old, new, expected):
    identities = []
    for text in (GRID, GRID.replace(old, new)):
        (tmp_path / "mine.toml").write_text(text)
        identity = plan([tmp_path / "mine.toml"], scale="paper").identity()
        identities.append(json.loads(json.dumps(identity)))
    assert identities[0] != identities[1]
    assert no_longer_shown(*identities) == expected


def _threads_of_blas(_bench, _job, _progress):
    found = [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]
    return {"threads": found}


class TestRunning:
    def test_a_job_has_one_thread_and_none_of_blas_beside_it(self, tmp_path):
        store, job = Store(tmp_path), Job("run", "", {}, _threads_of_blas)
        with threadpool_limits(2, "blas"):
            run([job], store, workers=2)
            after = _threads_of_blas(None, None, None)
        assert set(store.read(job)["threads"]) == {1}
        assert set(after["threads"]) == {2}

    def test_results_do_not_depend_on_workers_or_order(self, finished, tmp_path):
        experiment, store, work = finished
        other = Store(tmp_path / "other")
        finish(experiment, other, workers=3, reverse=True)
        assert results(work, other) == results(work, store)
        assert not state_of(experiment.work(), other).missing  # a second call does nothing

    def test_data_and_logs_may_go_once_nothing_needs_them(self, finished, tmp_path):
        _, store, work = finished
        copy = copy_of(store, tmp_path)
        shutil.rmtree(copy.folder / "work" / "data")
        shutil.rmtree(copy.folder / "work" / "clicks")
        assert not state_of(work, copy).missing
        run_job = next(job for job in work.jobs.values() if job.stage == "run")
        copy.path(run_job).unlink()
        needed = {job.stage for job in state_of(work, copy).missing.values()}
        assert needed == {"run", "clicks", "data"}

    def test_damaged_results_are_found_and_made_again(self, finished, tmp_path):
        """A folder, a Parquet file and a text file that are cut in half."""
        experiment, store, work = finished
        copy = copy_of(store, tmp_path)
        jobs = list(work.jobs.values())
        run_job = next(job for job in jobs if job.stage == "run")
        tuning, clicks = run_job.needs
        damaged = [jobs[0], clicks, tuning]
        for job in damaged:
            path = copy.path(job)
            files = path.rglob("*") if path.is_dir() else [path]
            victim = max(files, key=lambda file: file.stat().st_size)
            victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
        copy.path(run_job).unlink()  # which needs data and clicks: else they are not looked at
        state = state_of(work, copy)
        assert {job.key for job in state.damaged} == {job.key for job in damaged}
        finish(experiment, copy)
        assert results(work, copy) == results(work, store)

    def test_an_error_ends_the_run_and_keeps_what_is_done(self, experiment, tmp_path, monkeypatch):
        store = Store(tmp_path / "out")

        def fail(*_):
            raise DataError("no luck")

        monkeypatch.setattr(stages, "tune", fail)
        with pytest.raises(DataError, match="no luck"):
            finish(experiment, store, workers=2)
        kept = {job.stage for job in state_of(experiment.work(), store).done.values()}
        assert {"data", "references"} <= kept

    @pytest.mark.usefixtures("interruptible")
    def test_an_interrupt_stops_work_in_flight(self, experiment, tmp_path, monkeypatch):
        """Ctrl-C while two jobs are at work: both end, neither leaves a result."""
        store = Store(tmp_path / "out")
        at_work = threading.Barrier(3)

        def endless(_bench, _job, progress):
            at_work.wait(60)
            while True:
                progress.update(0.5)

        monkeypatch.setattr(stages, "run", endless)
        threading.Thread(target=lambda: (at_work.wait(60), _interrupt()), daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            finish(experiment, store, workers=2)
        kept = [job.stage for job in state_of(experiment.work(), store).done.values()]
        assert "run" not in kept
        assert "tuning" in kept

    def test_is_measured_in_the_seconds_that_are_expected(self, finished):
        """A job that draws nothing may take long: what is left is told by seconds, not by draws."""
        _, _, work = finished
        jobs = list(work.jobs.values())[:2]
        told = []
        show = Progress(lambda what, share: told.append((what, share)))
        tally = Tally(jobs, show, {jobs[0].key: 90.0, jobs[1].key: 30.0})
        assert jobs[0].draws == 0
        tally.begin(jobs[0]).update(0.5)
        assert told[-1] == (f"0 of 2 jobs; {jobs[0].stage}: {jobs[0].title}", 45 / 120)
        tally.end(jobs[0])
        assert told[-1] == ("1 of 2 jobs", 90 / 120)


@pytest.fixture
def interruptible():
    """Hear Ctrl-C, whatever started the tests: jobs in the background of a script ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _interrupt():
    import _thread

    _thread.interrupt_main()


class TestTheEstimate:
    def test_is_of_all_work_on_the_data_there_is(self, finished):
        _, store, work = finished
        jobs = list(work.jobs.values())
        speed = estimate.Speed(estimate.sample_of(jobs[0], store), 1)
        for job in jobs:
            needs_time = job.stage in {"references", "clicks", "tuning", "run"}
            assert (speed.of(job) > 0) == needs_time, job.stage
        found = estimate.estimate(jobs, store, workers=2)
        assert found.seconds == max(sum(found.each.values()) / 2, *found.each.values()) > 0
        assert found.each.keys() == work.jobs.keys()

    def test_is_measured_on_a_part_of_data_that_is_not_made(self, tmp_path):
        work = plan(["optimizers"], scale="small", datasets=["tiny"], settings={"queries": 6000})
        data = next(iter(work.work().jobs.values()))
        sample = estimate.sample_of(data, Store(tmp_path / "none"))
        assert sum(part.n_queries for part in sample.parts) == 2000
        assert sample.scale == 3.0
        assert not (tmp_path / "none").exists()


class TestTheRateThatIsChosen:
    """Values by query: three learning rates and more, two queries."""

    def test_is_the_middle_of_equal_ones(self):
        values = np.array([[0.5, 0.7]] * 5 + [[0.1, 0.2]])
        assert references.choose(values, np.ones(6, bool)) == (2, 0, 4)
        first_diverged = np.array([False, *[True] * 5])
        assert references.choose(values, first_diverged) == (2, 1, 4)

    def test_has_a_plateau_as_far_as_noise(self, rng):
        """Differences of 0.001 in noise of 0.1 (its error is 0.003), and one of 0.05."""
        noise = 0.1 * rng.standard_normal((4, 1000))
        noise -= noise.mean(axis=1, keepdims=True)
        values = 0.5 + noise + np.array([[0.001], [0.002], [0.0], [-0.05]])
        assert references.choose(values, np.ones(4, bool)) == (1, 0, 2)

    @pytest.mark.parametrize(
        ("chosen", "alike", "words"),
        [
            (1e-2, (1e-2, 1e-2), ""),
            (1e-3, (1e-3, 1e-3), "the smallest tried"),
            (1.0, (1e-2, 1.0), "the largest tried, 0.01 to 1 alike"),
            (1e-1, (1e-2, 1e-1), ""),
        ],
    )
    def test_is_flagged(self, chosen, alike, words):
        tried = [1e-3, 1e-2, 1e-1, 1.0]
        tuned = {"learning_rate": chosen, "alike": list(alike), "learning_rates": tried}
        assert RateFlag.of(tuned).words == words


class TestGathering:
    def test_a_cell_has_its_runs_and_regret(self, finished):
        experiment, store, work = finished
        result = gather(experiment.studies[0], work, store)
        assert len(result.cells) == 2 * 2
        for cell in result.cells.values():
            assert cell.runs == (("", 0), ("", 1))
            assert cell.ndcg.shape == (2, 20)
            assert cell.drawn.tolist() == list(range(20, 401, 20))
            assert cell.n_diverged == 0
            expected = [
                np.mean([b - x for x in row]) for b, row in zip(cell.best, cell.ndcg, strict=True)
            ]
            assert cell.regrets == pytest.approx(expected)

    def test_several_logs_choose_together(self, tmp_path):
        """The mean over two logs is that of each alone."""
        grid, values = GRID.replace("[0.5, 1.0]", "[1.0]"), {}
        for logs in (1, 2):
            work, store, _, _ = run_study(tmp_path, grid, seeds=logs, tuning_logs=logs)
            tunings = [job for job in work.jobs.values() if job.stage == "tuning"]
            assert all(len(job.needs) == logs for job in tunings)
            values[logs] = np.array([store.read(job)["ndcg"] for job in tunings])
        # The second log alone, as a study of it would tune.
        bench = Workbench(store, threading.Event())
        second = [
            stages.tune(bench, replace(job, needs=job.needs[1:]), Progress.of(None))["ndcg"]
            for job in tunings
        ]
        np.testing.assert_allclose(values[2], (values[1] + second) / 2, rtol=1e-9)

    def test_several_settings_have_their_rows_each(self, tmp_path):
        grid = GRID.replace("[vary]", "[vary]\ntop = [2, 0]")
        _, _, result, table = run_study(tmp_path, grid, seeds=1)
        assert result.datasets == ("tiny, Items shown: 2", "tiny, Items shown: 0")
        assert len(result.cells) == 2 * 2 * 2
        assert set(table.dataset) == {"tiny"}
        assert set(zip(table.beside, table.top, strict=True)) == {("top=2", 2), ("top=0", 0)}
        assert set(table.value) == {"0.5", "1.0"}

    def test_metric_policy_plan_and_optimizer_settings_reach_what_they_name(
        self, tmp_path, monkeypatch
    ):
        method = '{ name = "bounded", plan = "bounded", unit = "click" }'
        grid = GRID.replace('"CounterSample"', method).replace("[0.5, 1.0]", "[1.0]")
        settings = {"metric": "mrr@5", "policy": "shuffled", "click_model": "cascade", "seeds": 1,
                    "optimizer": "adam", "beta1": 0.5, "top": 4}  # fmt: skip
        trained = []

        def noted(*args, **options):
            trained.append((options["methods"], options["beta1"], "bounds" in options))
            return train_many(*args, **options)

        monkeypatch.setattr("countersample.study.running.stages.train_many", noted)
        work, store, result, _ = run_study(tmp_path, grid, **settings)
        assert set(map(repr, trained)) == {"(['ips'], 0.5, False)", "(['bounded'], 0.5, True)"}
        assert result.metric == "MRR@5"
        log = store.clicks(next(job for job in work.jobs.values() if job.stage == "clicks"))
        assert log.examination is not None  # sessions of a query differ
        test = store.data(next(iter(work.jobs.values())))[2]
        known = store.read(next(job for job in work.jobs.values() if job.stage == "references"))
        scores = test.features @ np.array(known["best"])
        expected = evaluate(scores, test, "mrr@5", no_relevant="skip")["mrr@5"]
        assert result.best["tiny"] == pytest.approx(expected, abs=1e-3)

    def test_an_optimizer_without_learning_rate_has_nothing_to_tune(self, tmp_path, monkeypatch):
        grid = GRID.replace("gamma = [0.5, 1.0]", 'optimizer = ["dog", "sgd"]')
        trained = []

        def counted(*args, **options):
            trained.append((options["optimizer"], options["learning_rates"]))
            return train_many(*args, **options)

        monkeypatch.setattr("countersample.study.running.stages.train_many", counted)
        work, _, result, table = run_study(tmp_path, grid, seeds=1)
        of_dog = [rates for optimizer, rates in trained if optimizer == "dog"]
        assert of_dog == [None] * 2  # one per method: runs only
        for (_, _, optimizer), cell in result.cells.items():
            assert (cell.learning_rates == (None,)) == (optimizer == "dog")
            assert cell.ndcg[:, -1].min() > 0
        assert {job.config["optimizer"] for job in work.jobs.values() if job.stage == "tuning"} == {
            "sgd"
        }
        assert table[table.value == "dog"].learning_rate.isna().all()
        assert set(table[table.value == "dog"].rates_tried) == {0}
        assert set(table[table.value == "sgd"].rates_tried) == {3}

    def test_parquet_has_a_row_an_evaluation_point(self, finished, tmp_path):
        experiment, store, work = finished
        write_results(experiment.studies, work, store, tmp_path / "results.parquet")
        table = pq.read_table(tmp_path / "results.parquet").to_pydict()
        assert len(table["ndcg"]) == 2 * 2 * 2 * 20
        assert set(table["method"]) == {"IPS-SGD", "CounterSample"}
        assert set(table["gamma"]) == {0.5, 1.0}
        assert set(table["clicks"]) == {400}
        np.testing.assert_allclose(
            np.array(table["best_ndcg"]) - table["ndcg"], table["regret"], rtol=1e-12
        )
        assert set(table["version_countersample"]) == {versions()["countersample"]}
        assert all(len(set(table[name])) == 1 for name in ("train_fingerprint", "axis"))

    def test_a_run_that_diverges_counts_with_ndcg_0(self, tmp_path, monkeypatch):
        grid = GRID.replace("[1e-3, 1e-2, 1e-1]", "[1e300]").replace("[0.5, 1.0]", "[1.0]")

        def exploding(*args, **options):
            return [_exploded(run) for run in train_many(*args, **options)]

        monkeypatch.setattr("countersample.study.running.stages.train_many", exploding)
        _, _, result, _ = run_study(tmp_path, grid, optimizer="adagrad", seeds=1)
        for cell in result.cells.values():
            assert cell.n_diverged == 1
            assert (cell.ndcg[:, :9] > 0).all()  # up to 180 clicks
            assert (cell.ndcg[:, 9:] == 0).all()


def _exploded(run):
    """The run as it comes out when its weights explode at step 200."""
    average = run.history.average_coef.copy()
    average[:] = np.linspace(1, 2, average.size).reshape(average.shape)
    average[run.history.steps >= 200] = np.nan
    return replace(run, diverged_at=200, history=replace(run.history, average_coef=average))


class TestTheFolder:
    def test_grows_and_only_what_is_new_is_done(self, finished, tmp_path):
        _, store, _ = finished
        copy = copy_of(store, tmp_path)
        path = tmp_path / "mine.toml"
        # A method and a γ: 3 γ × 2 seeds of the new method, 2 × 2 of the others.
        grown = GRID.replace('SGD", "', 'SGD", "Biased-SGD", "').replace("0.5, ", "0.5, 0.7, ")
        path.write_text(grown)
        before, experiment = copy.identity(), plan([path], scale="paper")
        identity = copy.claim(experiment.identity())
        assert not no_longer_shown(before, identity)
        missing = state_of(read_experiment(identity).work(), copy).missing.values()
        assert sum(job.stage == "run" for job in missing) == 3 * 2 + 2 * 2
        finish(experiment, copy)
        path.write_text(GRID)  # nothing is removed from the folder
        before = copy.identity()
        identity = copy.claim(plan([path], scale="paper").identity())
        assert no_longer_shown(before, identity) == ["mine"]
        assert not state_of(read_experiment(identity).work(), copy).missing
        assert not state_of(experiment.work(), copy).missing

    def test_of_another_scale_or_format_is_refused_and_kept(self, experiment, tmp_path):
        store = Store(tmp_path / "out")
        store.claim(experiment.identity())
        path = store.folder / "study.json"
        before = path.read_text()
        small = plan([tmp_path / "mine.toml"], scale="small")
        with pytest.raises(DataError, match="has results at scale paper, now small"):
            store.claim(small.identity())
        assert path.read_text() == before
        path.write_text(json.dumps(json.loads(before) | {"format": 3}))
        with pytest.raises(DataError, match=r"has results in format 3, and this version reads"):
            store.claim(experiment.identity())

    def test_that_is_something_else_is_left_alone(self, experiment, tmp_path):
        (tmp_path / "out").mkdir()
        letter = tmp_path / "out" / "letter.txt"
        letter.write_text("dear")
        with pytest.raises(DataError, match=r"has files but no study\.json"):
            Store(tmp_path / "out").claim(experiment.identity())
        with pytest.raises(DataError, match="is a file, expected a folder"):
            Store(letter).claim(experiment.identity())
        assert letter.read_text() == "dear"

    def test_takes_one_run_at_a_time(self, experiment, tmp_path):
        store = Store(tmp_path / "out")
        store.claim(experiment.identity())
        assert read_experiment(store.identity()) == experiment
        with store.lock():
            assert Store(store.folder).is_locked()
            with (
                pytest.raises(CounterSampleError, match="another run is at work"),
                Store(store.folder).lock(),
            ):
                pass
        assert not store.is_locked()
        with store.lock():
            pass

    def test_that_cannot_be_written_is_told(self, experiment, tmp_path, monkeypatch):
        store = Store(tmp_path / "out")
        store.claim(experiment.identity())

        def full(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("pathlib.Path.write_text", full)
        job = next(iter(experiment.work().jobs.values()))
        with pytest.raises(CounterSampleError, match=r"cannot be written: No space left on device"):
            store.write(Job("run", "", job.config, stages.run), {"a": 1})


class TestSources:
    def test_files_that_have_changed_since_are_not_read(self, tmp_path):
        path = tmp_path / "all.txt"
        save_letor(synthetic("tiny", n_queries=50, rng=0), path)
        (fold,) = find_source(str(path)).folds
        assert [part.n_queries for part in fold.load()] == [35, 5, 10]  # one file is split
        save_letor(synthetic("tiny", n_queries=60, rng=0), path)
        with pytest.raises(DataError, match=r"all\.txt is not the file that this study was"):
            fold.load()

    def test_folds_are_found(self, tmp_path):
        data = synthetic("tiny", n_queries=60, rng=0)
        for fold in ("Fold1", "Fold2"):
            (tmp_path / "set" / fold).mkdir(parents=True)
            for part, name in zip(
                data.split(0.5, 0.2, 0.3, rng=0), ("train", "vali", "test"), strict=True
            ):
                save_letor(part, tmp_path / "set" / fold / f"{name}.txt")
        path = tmp_path / "mine.toml"
        path.write_text(GRID.replace("[0.5, 1.0]", "[1.0]"))
        settings = {"learning_rates": [1e-2]}
        experiment = plan(
            [path], scale="paper", datasets=[str(tmp_path / "set")], settings=settings
        )
        (source,) = experiment.studies[0].sources
        assert [fold.name for fold in source.folds] == ["Fold1", "Fold2"]
        store = Store(tmp_path / "out")
        work = finish(experiment, store)
        cell = gather(experiment.studies[0], work, store).cells["set", "IPS-SGD", 1.0]
        assert cell.runs == (("Fold1", 0), ("Fold1", 1), ("Fold2", 0), ("Fold2", 1))
        assert len(cell.learning_rates) == 2

    def test_data_without_relevant_items_is_refused(self, tmp_path):
        path = tmp_path / "all.txt"
        path.write_text("".join(f"0 qid:{q} 1:0.{q}\n0 qid:{q} 1:0.5\n" for q in range(10, 40)))
        grid = tmp_path / "mine.toml"
        grid.write_text(GRID)
        experiment = plan([grid], scale="paper", datasets=[str(path)])
        with pytest.raises(DataError, match="the training data has no relevant item"):
            finish(experiment, Store(tmp_path / "out"))
