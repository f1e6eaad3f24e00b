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


class TestOutput:
    ROWS = [{"how": "ours", "draws": 1000}]  # noqa: RUF012

    def test_text_ends_with_the_machine(self, bench, capsys):  # noqa: ARG002
        from output import output, table

        output(self.ROWS, table)
        *lines, last = capsys.readouterr().out.splitlines()
        assert lines == [" how  draws", "ours  1,000", ""]
        assert last.startswith("Machine: ")
        assert all(
            word in last for word in (" core", "Python 3.", "NumPy", "numba", "countersample")
        )

    def test_json_has_machine_and_results(self, bench, capsys, tmp_path):  # noqa: ARG002
        from output import make_parser, output

        output(self.ROWS, print, as_json=make_parser("").parse_args(["--json"]).json)
        told = json.loads(capsys.readouterr().out)
        assert set(told) == {"machine", "commit", "results"}
        assert told["results"] == self.ROWS
        assert {"CPU", "cores", "memory GB", "countersample"} <= set(told["machine"])

        file = tmp_path / "told.json"
        output(self.ROWS, lambda _: "a table", as_json=str(file))
        assert json.loads(file.read_text()) == told
        assert capsys.readouterr().out.startswith("a table\n")


class TestRuns:
    def test_the_first_run_is_kept_and_the_next_is_compared(self, go):
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

    def test_options_are_handed_on_and_only_like_is_compared_with_like(self, go):
        go(bench_a=(2.0, 4.0))
        _, other = go("bench_a", "--", "--size", "7", bench_a=(9.0, 9.0))
        assert "nothing: the first run" in other
        assert go.records()[-1]["arguments"] == ["--size", "7"]
        assert "+350 %" in go(bench_a=(9.0, 4.0))[1]  # 9 / 2 − 1

    def test_another_machine_is_compared_by_ratios(self, go):
        go(bench_a=(2.0, 4.0))
        record = go.records()[0]
        record["machine"]["CPU"] = "another"
        go.kept.write_text(json.dumps(record) + "\n")
        _, said = go(bench_a=(20.0, 8.0))
        assert "another machine: only ratios" in said
        assert "· ratio" in said
        assert "· seconds" not in said
        _, here = go(bench_a=(20.0, 8.0))  # now there is a run on this one
        assert "another machine" not in here

    def test_a_failure_is_a_line_and_the_others_go_on(self, go, tmp_path):
        (tmp_path / "bench_a.py").write_text("import a_peer_that_is_missing")
        (tmp_path / "bench_b.py").write_text("print('torch is not installed')")
        bar = GOOD + "sys.exit('missed the bar: 1, expected 2')"
        (tmp_path / "bench_c.py").write_text(bar)
        code, said = go(bench_c=(1.0, 1.0), bench_d=(1.0, 1.0))
        assert code == 1
        (line,) = (line for line in said.splitlines() if line.startswith("bench_a failed"))
        assert "No module named 'a_peer_that_is_missing' (python " in line
        assert "Traceback" not in said
        assert "bench_b failed: it gave no results" in said
        assert "bench_c failed: missed the bar: 1, expected 2" in said
        assert "3 of 4 failed: bench_a, bench_b, bench_c" in said
        assert [record["benchmark"] for record in go.records()] == ["bench_c", "bench_d"]

    @pytest.mark.parametrize("damage", [b"{", b"[]", b'{"format": 1}', b"\xff\xfe"])
    def test_a_damaged_file_is_set_aside(self, go, damage):
        go(bench_a=(2.0, 4.0))
        whole = go.kept.read_bytes() + damage + b"\n"
        go.kept.write_bytes(whole)
        code, said = go(bench_a=(2.0, 4.0))
        assert code == 0
        assert "history.jsonl, line 2: expected a record of format 1" in said
        (aside,) = go.kept.parent.glob("history-damaged-*.jsonl")
        assert aside.read_bytes() == whole
        assert len(go.records()) == 1

    def test_a_file_that_cannot_be_written_stops_before_the_work(self, bench, tmp_path, capfd):
        (tmp_path / "bench_a.py").write_text(GOOD)
        from countersample.errors import CounterSampleError

        with pytest.raises(CounterSampleError, match="--results"):
            bench.main(["--results", str(tmp_path)])
        assert "== bench_a" not in capfd.readouterr().out

    def test_a_name_that_is_unknown(self, go, capfd):
        with pytest.raises(SystemExit):
            go("bench_x", bench_a=(1.0, 1.0))
        assert "no benchmark bench_x, expected some of: bench_a" in capfd.readouterr().err


def test_figures_are_found_by_keys_and_by_what_rows_are_of(bench):  # noqa: ARG001
    from history import figures

    results = {
        "steps/s": {"ours": 5.0, "missing": None},
        "ratios": [{"shape": "a", "of": "ours / theirs", "found": 2.5}],
        "sizes": [{"n": 1000, "s": 0.5, "× faster": 3}, {"n": 1000, "s": 0.6, "× faster": 4}],
        "curve": [1.0, 2.0],
        "is small": True,
    }
    assert list(figures(results)) == [
        (("steps/s", "ours"), 5.0, False),
        (("ratios", "a ours / theirs", "found"), 2.5, True),
        (("sizes", "1,000", "s"), 0.5, False),
        (("sizes", "1,000", "× faster"), 3, True),
        (("sizes", "1,000 (2)", "s"), 0.6, False),
        (("sizes", "1,000 (2)", "× faster"), 4, True),
        (("curve", "row"), 1.0, False),
        (("curve", "row (2)"), 2.0, False),
    ]
