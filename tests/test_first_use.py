"""The cost of a first use: what a command compiles and imports."""

import json
import subprocess
import sys

import pytest

# Run every command on tiny data in one process; then print the signatures of each kernel.
EVERY_COMMAND = """
import json, pkgutil, sys
from importlib import import_module
from countersample import _kernels
from countersample.cli.app import main

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
        ("data info data.txt", HEAVY),
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
