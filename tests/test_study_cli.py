"""``countersample reproduce`` and ``countersample study`` as a user meets them."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest
from conftest import ROOT
from pyarrow import parquet

from countersample.errors import DataError
from countersample.study.reproduction import evaluate_file

GRID = """
title = "Wrong beliefs"
about = "What if γ is wrong?"
kind = "regret"
datasets = ["tiny"]
methods = ["IPS-SGD", "CounterSample", "CounterSample by query"]

[vary]
trained_gamma = [0.5, 1.0]

[settings]
queries = 60
clicks = 600
epochs = 1.0
seeds = 3
evaluate_every = 50
learning_rates = [1e-3, 1e-2, 1e-1]

[[claims]]
text = "By query has lower regret."
test = "lower"
method = "CounterSample by query"
than = "CounterSample"
source = "beyond"
"""


@pytest.fixture(autouse=True)
def _mine(tmp_path):
    (tmp_path / "mine.toml").write_text(GRID)


# One of every kind; of those of regret, one over names and one over numbers.
OF_REGRET = ("optimizers", "clicks")
STUDIES = ("datasets", "propensities", "toy", "bounds", *OF_REGRET)
PUBLISHED = ROOT / "docs" / "results" / "medium.parquet"


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Studies at the smallest scale, as a user would run them."""
    folder = tmp_path_factory.mktemp("smoke")
    words = [sys.executable, "-m", "countersample", "reproduce", *STUDIES, "--scale", "smoke",
             "--data", "tiny"]  # fmt: skip
    done = subprocess.run(
        words, cwd=folder, capture_output=True, encoding="utf-8", check=False,
        env=os.environ | {"PYTHONUTF8": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    again = subprocess.run([*words, "--json"], cwd=folder, capture_output=True, check=True)
    (folder / "run.json").write_bytes(again.stdout)
    return folder / "reproduction-smoke", done


@pytest.mark.slow
class TestReproduce:
    def test_writes_tables_figures_and_rows(self, smoke):
        folder, _ = smoke
        names = {path.name for path in folder.glob("*/*")}
        tables = {f"{study}-regret.{end}" for study in OF_REGRET for end in ("md", "csv", "tex")}
        figures = {f"{study}.{end}" for study in OF_REGRET for end in ("png", "svg", "pdf", "csv")}
        assert tables | figures | {"toy.svg", "bounds.md", "propensities.md"} <= names
        assert not list(folder.rglob("*.tmp"))
        rows = parquet.read_table(folder / "results.parquet")
        assert set(rows["dataset"].to_pylist()) == {"tiny"}
        for path in (folder / "report.html", folder / "study.json", *folder.glob("tables/*")):
            assert str(folder.parent) not in path.read_text(encoding="utf-8")  # no machine's path


@pytest.mark.slow
class TestOwnGrid:
    @staticmethod
    def files_in(folder):
        results = (folder / "mine" / "work").rglob("*.json")
        return {path: path.stat().st_mtime_ns for path in results}

    def test_runs_like_the_package_s_own(self, run, tmp_path):
        printed = run("reproduce", "mine.toml", "--workers", 2)
        assert "Wrong beliefs: average regret ×100" in printed
        assert "By query has lower regret." in printed
        assert re.search(
            r"A run draws [\d,]+ clicks, the paper's 5,000,000", " ".join(printed.split())
        )
        assert printed.endswith("Results are in mine/report.html\n")
        work = self.files_in(tmp_path)
        output = json.loads(run("reproduce", "mine.toml", "--json"))
        assert self.files_in(tmp_path) == work  # a second call does nothing but write up
        assert output["verdicts"][0]["study"] == "mine"
        assert (tmp_path / "mine" / "results.parquet").exists()

    def test_dry_run_leaves_nothing(self, run, tmp_path):
        printed = run("reproduce", "mine.toml", "--dry-run")
        assert re.search(r"run +0 +18", printed)  # 3 methods × 2 values × 3 seeds
        assert re.search(r"\d+ jobs, about \d+ s on \d+ cores?, at 150,000 draws", printed)
        output = json.loads(run("reproduce", "mine.toml", "--dry-run", "--json", "--workers", 2))
        assert output["stages"]["run"] == {"done": 0, "total": 18}
        assert output["seconds"] > 0
        assert output["workers"] == 2
        assert not (tmp_path / "mine").exists()
        printed = run("reproduce", "mine.toml", "--dry-run", "--set", "seeds=2")
        assert re.search(r"run +0 +12", printed)

    def test_a_study_that_was_killed_goes_on(self, tmp_path, run):
        """Ctrl-C in the middle: one sentence, exit code 130, and the rest is done later."""
        grid = GRID.replace("seeds = 3", "seeds = 100").replace("600", "20000")
        (tmp_path / "long.toml").write_text(grid)
        words = [sys.executable, "-m", "countersample", "reproduce", "long.toml"]
        process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, encoding="utf-8")
        runs = tmp_path / "long" / "work" / "run"
        give_up = time.monotonic() + 300
        while not (runs.is_dir() and len(list(runs.glob("*.json"))) > 2):
            assert process.poll() is None
            assert time.monotonic() < give_up
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=300)
        assert process.returncode == 130, messages
        stopped = messages.splitlines()[-1]
        assert re.fullmatch(
            r"Stopped: \d+ of \d+ jobs are done and kept\. "
            r"To go on: countersample reproduce long\.toml",
            stopped,
        )
        output = json.loads(run("study", "status", "long", "--json"))
        assert output["missing"] > 0
        assert output["stages"]["run"]["done"] >= 2
        assert "To go on" in run("study", "status", "long")


class TestBadInput:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["reproduce", "optimiser"], "no study 'optimiser' (did you mean optimizers?)"),
            (["reproduce", "--scale", "big"], "--scale is 'big', expected one of smoke"),
            (["reproduce", "--data", "nowhere"], "no dataset 'nowhere'"),
            (["reproduce", "--data", "istella-s"], "to get it, go to"),
            (["reproduce", "--set", "gama=1"], "no setting 'gama' (did you mean gamma?)"),
            (["reproduce", "--set", "gamma"], "expected name=value"),
            (["reproduce", "--set", "optimizer=lion"], "optimizer is 'lion'"),
            (["reproduce", "no.toml"], "no.toml: cannot be read"),
            (["study", "status", "."], "has no study.json"),
        ],
    )
    def test_is_one_sentence(self, run, words, sentence, tmp_path, monkeypatch):
        monkeypatch.setenv("COUNTERSAMPLE_DATA", str(tmp_path))
        assert sentence in run(*words, fails=True)


# -- rows of a results file ----------------------------------------------------------------------


@pytest.fixture
def rows():
    """Rows of one study on one dataset."""
    table = parquet.read_table(PUBLISHED)
    return table.filter(
        [
            study == "optimizers" and dataset == "yahoo-like"
            for study, dataset in zip(
                table["study"].to_pylist(), table["dataset"].to_pylist(), strict=True
            )
        ]
    )


@pytest.mark.slow
def test_verdicts_tables_and_figures_of_rows_are_those_of_the_run(smoke, run, tmp_path):
    folder, _ = smoke
    path = folder / "results.parquet"
    of_run = json.loads((folder.parent / "run.json").read_text("utf-8"))
    output = json.loads(run("study", "claims", path, "--json"))
    assert output["verdicts"] == [v for v in of_run["verdicts"] if v["study"] in OF_REGRET]
    assert len(output["verdicts"]) > 10
    assert output["left_out"] == []
    tables = {table["name"]: table for table in output["tables"]}
    for table in of_run["tables"]:
        assert tables.get(table["name"], table) == table
    printed = run("study", "claims", path, "--out", tmp_path / "again")
    assert printed.splitlines()[-1] == f"Tables and figures are in {tmp_path / 'again'}"
    for each in ("optimizers.csv", "optimizers-log.csv", "clicks-lead.csv"):
        again = (tmp_path / "again" / "figures" / each).read_bytes()
        assert again == (folder / "figures" / each).read_bytes()
    for each in ("regret", "learning-rates", "significance"):
        again = (tmp_path / "again" / "tables" / f"clicks-{each}.md").read_bytes()
        assert again == (folder / "tables" / f"clicks-{each}.md").read_bytes()


def with_column(rows, name, values):
    return rows.set_column(rows.column_names.index(name), name, values)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "datasets", "message"),
    [
        (lambda rows: rows.drop_columns(["regret", "drawn"]), (), "has no rows of a study"),
        (lambda rows: with_column(rows, "drawn", pa.nulls(len(rows), pa.int64())), (),
         "has rows without drawn"),
        (lambda rows: rows, ["mq2008"], "has no rows of mq2008: it has yahoo-like"),
        (lambda rows: rows.slice(7), (), "different points: expected whole runs"),
        (lambda rows: rows.slice(0, 300), (), "no value of optimizer has runs of every"),
        (lambda rows: with_column(rows, "study", pa.array(["mine"] * len(rows))), (),
         "has no study of the package"),
        (lambda rows: rows.slice(0, 0), (), "has no rows of runs: it has none"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_evaluated(spoil, datasets, message, rows, tmp_path):
    parquet.write_table(spoil(rows), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=message):
        evaluate_file(tmp_path / "rows.parquet", datasets)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"no file .*: expected the results\.parquet of a study"):
        evaluate_file(tmp_path / "none.parquet")
