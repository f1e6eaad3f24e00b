"""Benchmarks say where they ran; their results are kept, and the next run is compared with them."""

import json
import os

import pytest
from conftest import ROOT

BENCHMARKS = ROOT / "benchmarks"
SCRIPT = """
import sys
from pathlib import Path
from output import make_parser, output, table
parser = make_parser("made up")
parser.add_argument("--size", type=int, default=1)
options = parser.parse_args()
seconds, ratio = map(float, Path(__file__).with_suffix(".txt").read_text().split())
rows = [{"size": options.size, "how": "ours", "seconds": seconds, "ratio": ratio}]
"""
GOOD = SCRIPT + "output(rows, table, as_json=options.json)\n"


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """Give `run.py`, with a folder of scripts of its own."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    paths = [str(BENCHMARKS), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    import run

    monkeypatch.setattr(run, "FOLDER", tmp_path)
    return run


@pytest.fixture
def go(bench, tmp_path, capfd):
    """Run scripts, by the figures they give, and return the exit code and what was printed."""
    kept = tmp_path / "kept" / "history.jsonl"

    def call(*given, **figures):
        for name, (seconds, ratio) in figures.items():
            (tmp_path / f"{name}.txt").write_text(f"{seconds} {ratio}")
            if not (tmp_path / f"{name}.py").exists():
                (tmp_path / f"{name}.py").write_text(GOOD)
        code = bench.main(["--results", str(kept), *given])
        return code, capfd.readouterr().out

    call.kept = kept
    call.records = lambda: [json.loads(line) for line in kept.read_text().splitlines()]
    return call


def test_every_benchmark_goes_through_output():
    for script in BENCHMARKS.glob("bench_*.py"):
        text = script.read_text()
        assert "make_parser(__doc__)" in text, script.name
        assert "output(" in text, script.name


def test_the_first_run_is_kept_and_the_next_is_compared(go):
    code, first = go(bench_a=(2.0, 4.0), bench_b=(1.0, 1.0))
    assert code == 0
    assert first.index("== bench_a") < first.index("seconds") < first.index("== bench_b")
    assert first.count("nothing: the first run") == 2
    assert "hanged by more than" not in first
    assert first.splitlines()[-1].endswith("history.jsonl")

    _, same = go(bench_a=(2.4, 4.3), bench_b=(1.2, 0.95))  # by 20 and 8 %, 20 and 5 %
    assert "Nothing changed by more than 10 % (ratios) or 25 % (other figures)" in same

    code, third = go("bench_a", bench_a=(3.6, 3.01))
    assert code == 0
    changed = third.index("Changed by more than 10 % (ratios) or 25 % (other figures)")
    assert third[changed:].splitlines()[1:4] == [
        "benchmark  figure            before   now  change",
        "bench_a    1 ours · seconds     2.4   3.6   +50 %",
        "bench_a    1 ours · ratio       4.3  3.01   -30 %",
    ]
    assert [record["benchmark"] for record in go.records()] == [
        "bench_a", "bench_b", "bench_a", "bench_b", "bench_a"
    ]  # fmt: skip
