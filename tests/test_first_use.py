"""The cost of a first use: what a command compiles and imports."""

import json
import os
import subprocess
import sys
from pathlib import Path

import every_ranker
import numpy as np
import pytest

from countersample._kernels import ahead, cache
from countersample.errors import DataError
from countersample.rankers.files import load_scorer, write_ranker

# Run every command on tiny data in one process; then print the signatures of each kernel.
EVERY_COMMAND = """
import json, pkgutil, sys
from importlib import import_module
from countersample import _kernels
from countersample._kernels import ahead
from countersample.cli.app import main
from countersample.cli.app import compile_small_kernels

def run(command):
    main(command.split())

run("data make tiny data.txt --queries 12")
run("data info data.txt")
run("data convert data.txt data.parquet")
run("simulate data.txt -o clicks.parquet --clicks 300")
run("simulate data.txt -o raw.parquet --sessions 400 --shuffle 5")
run("train data.txt clicks.parquet -o ranker.json --no-evaluation")
run("evaluate ranker.json data.txt")
run("rank ranker.json data.txt -o scores.txt")
run("fit raw.parquet --features data.txt -o fitted.json")
ahead._compile()
compile_small_kernels()
signatures = {}
for module in pkgutil.iter_modules(_kernels.__path__):
    for name, value in vars(import_module(f"countersample._kernels.{module.name}")).items():
        if hasattr(value, "signatures"):
            signatures[f"{module.name}.{name}"] = [str(types) for types in value.signatures]
print(json.dumps(signatures))
"""


def last_line(code, folder):
    """Run code in another process; return the last line that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_each_kernel_is_compiled_for_one_type_of_each_argument(tmp_path):
    signatures = json.loads(last_line(EVERY_COMMAND, tmp_path))
    assert len(signatures["training.take_steps"]) == len(signatures["metrics.rank"]) == 1
    assert {name: types for name, types in signatures.items() if len(types) > 1} == {}


HEAVY = {"sklearn", "pandas", "scipy.stats", "scipy.optimize", "matplotlib", "duckdb", "torch"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "not_imported"),
    [
        ("data list", HEAVY | {"numba", "pyarrow"}),
        ("data info data.txt", HEAVY | {"pyarrow"}),
        ("evaluate ranker.json data.txt", HEAVY),
        ("rank ranker.json data.txt -o scores.txt", HEAVY),
    ],
)
def test_a_command_imports_what_it_needs(command, not_imported, tmp_path):
    from countersample import CounterSampleRanker, save_letor, synthetic

    dataset = synthetic("tiny", n_queries=4, rng=0)
    save_letor(dataset, tmp_path / "data.txt")
    ranker = CounterSampleRanker(learning_rate=0.1, steps=10, random_state=0)
    queries = [q for q, size in enumerate(dataset.query_sizes) for _ in range(size)]
    ranker.fit(dataset.features, dataset.labels > 0, qid=queries).save(tmp_path / "ranker.json")
    code = (
        "import sys; from countersample.cli.app import main; "
        f"main({command.split()!r}); "
        f"print(sorted({not_imported!r} & set(sys.modules)))"
    )
    assert last_line(code, tmp_path) == "[]"


@every_ranker.every
def test_a_loaded_scorer_scores_like_its_ranker(kind, tmp_path):
    dataset, clicks = every_ranker.tiny()
    ranker = every_ranker.make(kind, normalize="query-minmax").fit_log(dataset, clicks)
    ranker.save(tmp_path / "ranker.json")
    served = load_scorer(tmp_path / "ranker.json")
    np.testing.assert_array_equal(served.predict(dataset), ranker.predict(dataset))
    np.testing.assert_array_equal(served.rank(dataset), ranker.rank(dataset))


def test_a_file_without_a_scorer(tmp_path):
    path = tmp_path / "ranker.json"
    write_ranker(path, {"kind": "linear", "feature_names": None, "normalizer": None})
    with pytest.raises(DataError, match=r"ranker.json: not a ranker that this release can read"):
        load_scorer(path)
    write_ranker(path, {"kind": "odd"})
    with pytest.raises(DataError, match="of the kind 'odd', expected one of linear"):
        load_scorer(path)


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(ahead, "available_cores", lambda: 2)
    monkeypatch.setattr(ahead, "MAX_SECONDS", 600.0)  # however busy the cores are
    yield tmp_path
    ahead._meanwhile.clear()
    ahead.wait()


def stored_files(folder):
    return list(folder.rglob("training.take_steps-*.nbc"))


@pytest.mark.slow
def test_the_largest_kernel_is_compiled_beside_this_process(empty_cache, monkeypatch):
    calls = []
    ahead.compile_ahead([lambda: calls.append(1)])
    ahead.wait()
    assert calls == [1]
    assert len(stored_files(empty_cache)) == 1
    ahead.compile_ahead([lambda: calls.append(2)])  # it is on disk
    assert not ahead._processes
    assert calls == [1]
    monkeypatch.setattr(cache, "FILES_HASH", "0" * 20)  # of another release
    assert not cache.has_compiled("training.take_steps")


def test_no_process_is_started_without_a_folder_for_its_code(empty_cache, monkeypatch):
    (empty_cache / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(empty_cache / "file"))
    ahead.compile_ahead([])
    assert not ahead._processes


@pytest.mark.parametrize("executable", ["/does/not/exist", "false"])
def test_this_process_goes_on_if_no_other_can_compile(executable, empty_cache, monkeypatch):
    monkeypatch.setattr(sys, "executable", executable)
    ahead.compile_ahead([])
    ahead.wait()
    assert not ahead._processes
    assert stored_files(empty_cache) == []


def test_no_code_of_the_current_folder_runs(empty_cache, monkeypatch):
    for place in ("installed", "here"):  # each would end the other process at its first import
        (empty_cache / place).mkdir()
        code = f"open({str(empty_cache / 'ran')!r}, 'a').write('{place}'); raise SystemExit"
        (empty_cache / place / "numpy.py").write_text(code)
    paths = [str(empty_cache / "installed"), str(Path(ahead.__file__).parents[2])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.chdir(empty_cache / "here")
    ahead.compile_ahead([])
    ahead.wait()
    assert (empty_cache / "ran").read_text() == "installed"


@pytest.mark.usefixtures("empty_cache")
def test_no_process_is_started_on_one_core(monkeypatch):
    monkeypatch.setattr(ahead, "available_cores", lambda: 1)
    ahead.compile_ahead([])
    assert not ahead._processes
