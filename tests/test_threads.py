"""Every command on 1, 2, 3 and 8 threads: the same bytes. (For studies: test_study_jobs.)"""

import hashlib
import importlib.util
import os
import subprocess
import sys

import pytest

# As on a machine of so many cores, in one process; data of several blocks of the reader.
CHILD = """
import os, sys
n_threads = int(sys.argv.pop())  # pages show the command
os.sched_getaffinity = lambda _: set(range(n_threads))
os.cpu_count = lambda: n_threads
from countersample.cli.app import main
from countersample.data import letor_reader
letor_reader.BLOCK = 5_000
import duckdb
connect = duckdb.connect
duckdb.connect = lambda *a, config=None, **k: connect(
    *a, config={**(config or {}), "threads": n_threads}, **k)

for command in sys.stdin.read().splitlines():
    print(">", command)
    main(command.split())
"""
COMMANDS = """\
data make tiny data.txt --queries 60
data info data.txt
data convert data.txt data.parquet
data convert data.txt folder
data convert data.txt codes --bits 8
simulate data.txt -o clicks.parquet --clicks 400
simulate data.txt -o raw.parquet --sessions 1000 --shuffle 10
log check clicks.parquet
train data.txt clicks.parquet -o ranker.json
train data.txt clicks.parquet -o net.json --model neural --no-evaluation
evaluate ranker.json data.txt
rank net.json data.txt -o scores.txt
rank ranker.json data.txt -o scores.parquet
log check raw.parquet
log sample raw.parquet --queries 20 -o sample.parquet
propensity raw.parquet -o propensities.json
fit raw.parquet --features data.txt -o fitted.json
compare ranker.json fitted.json --log raw.parquet --features data.txt
"""


if importlib.util.find_spec("torch") is None:  # it is optional, and so are its tests
    COMMANDS = "".join(line for line in COMMANDS.splitlines(keepends=True) if "net" not in line)


def all_bytes(folder, n_threads):
    """The hash of each file that the commands write, and what they print."""
    folder.mkdir()
    names = ("OMP", "OPENBLAS", "MKL", "NUMBA", "POLARS_MAX")
    environment = os.environ | {f"{name}_NUM_THREADS": str(n_threads) for name in names}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(n_threads)], cwd=folder, input=COMMANDS, text=True,
        capture_output=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # A header has the times of the files beside it, too.
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "header.json")
    hashes = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
    return hashes, done.stdout.split("> ")


@pytest.fixture(scope="module")
def on_one(tmp_path_factory):
    return all_bytes(tmp_path_factory.mktemp("threads") / "1", 1)


@pytest.mark.slow
@pytest.mark.parametrize("n_threads", [2, 3, 8])
def test_every_command_gives_the_same_bytes(on_one, tmp_path, n_threads):
    hashes, printed = all_bytes(tmp_path / str(n_threads), n_threads)
    assert hashes.keys() == on_one[0].keys()
    assert not [name for name in hashes if hashes[name] != on_one[0][name]], "files differ"
    for text, expected in zip(printed, on_one[1], strict=True):
        assert text == expected, f"the output differs: {text.partition(chr(10))[0]}"
