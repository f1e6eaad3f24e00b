"""The command line as a user meets it: what it prints, and its exit code."""

import gzip
import json
import re
from datetime import date

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from countersample import (
    ClickLog,
    RankingDataset,
    load_letor,
    save_letor,
    synthetic,
)

SMALL = "2 qid:1 1:0.5 3:1\n0 qid:1 2:0.25\n1 qid:2 1:-1e-2\n"


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.txt"
    path.write_text(SMALL)
    return path


def test_version(run):
    assert run("--version").startswith("countersample 0.")


class TestInfo:
    def test_json(self, run, small):
        figures = json.loads(run("data", "info", small, "--json"))["small.txt"]
        assert (figures["n_queries"], figures["n_items"], figures["n_features"]) == (2, 3, 3)
        assert figures["grades"] == {"0": 1, "1": 1, "2": 1}
        assert figures["fingerprint"] == load_letor(small).fingerprint

    def test_features_by_query_and_item(self, run, tmp_path):
        table = pa.table(
            {"query_id": ["a"] * 20 + ["b"] * 20, "item_id": range(40),
             "price": [None, *range(39)], "brand": ["x", "y"] * 20,
             "seen": [date(2026, 3, 1)] * 40, "title": [f"t{i}" for i in range(40)]}
        )  # fmt: skip
        csv.write_csv(table, tmp_path / "table.csv")
        printed = run("data", "info", "table.csv")
        for expected in (
            r"queries +2$", r"missing +0\.6 %", r"labels +none$", r"price +a number$",
            r"brand +a category, 2 indicators$", r"seen +a date, days before 2026-03-01$",
        ):  # fmt: skip
            assert re.search(expected, printed, re.MULTILINE), expected
        figures = json.loads(run("data", "info", "table.csv", "--json"))["table.csv"]
        assert (figures["n_features"], figures["has_labels"]) == (4, False)
        assert "title" in figures["warnings"][0]

    def test_a_log_is_not_a_table_of_features(self, run, tmp_path):
        log = pa.table({"query_id": [1], "item_id": [1], "position": [1], "click": [0]})
        parquet.write_table(log, tmp_path / "log.parquet")
        message = run("data", "info", "log.parquet", fails=True)
        assert message.endswith("as a log of impressions has: countersample log check log.parquet")

    def test_errors(self, run, tmp_path):
        assert "none.txt: no such file or folder" in run("data", "info", "none.txt", fails=True)
        (tmp_path / "bad.txt").write_text("1 qid:1 12;0.5\n")
        error = run("data", "info", "bad.txt", fails=True)
        assert error == "countersample: bad.txt:1:9: expected index:value, found '12;0.5'"

    def test_verify(self, run, tmp_path):
        error = run("data", "info", tmp_path, "--verify", fails=True)
        assert "cannot be identified by its files" in error
        folder = tmp_path / "mq2008" / "Fold1"
        folder.mkdir(parents=True)
        (folder / "train.txt").write_text(SMALL)
        assert not json.loads(run("data", "info", "mq2008", "--verify", "--json", code=1))["ok"]


class TestConvert:
    @pytest.mark.parametrize("name", ["folder", "x.txt", "x.txt.gz", "x.txt.zst", "x.parquet"])
    def test_there_and_back(self, run, small, tmp_path, name):
        run("data", "convert", small, name)
        run("data", "convert", name, "back.txt")
        back = load_letor(tmp_path / "back.txt")
        assert back == load_letor(small)

    @pytest.mark.parametrize(
        ("source", "target", "message"),
        [
            ("none.txt", "out", "none.txt: no such file"),
            ("small.txt", "out.xlsx", "unknown form '.xlsx'"),
            ("small.txt", "no/such/out", "the folder no/such does not exist"),
            (".", "out", "no files named train, vali or test"),
        ],
    )
    def test_errors(self, run, small, source, target, message):
        assert small.exists()
        assert message in run("data", "convert", source, target, fails=True)

    def test_an_error_leaves_what_was_there(self, run, small, tmp_path):
        run("data", "convert", small, "out")
        (tmp_path / "bad.txt.gz").write_bytes(gzip.compress(SMALL.encode())[:-9])
        assert "cut off" in run("data", "convert", "bad.txt.gz", "out", fails=True)
        assert RankingDataset.open(tmp_path / "out") == load_letor(small)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.txt.gz", "out", "small.txt"]


def test_make(run, tmp_path):
    run("data", "make", "tiny", "tiny.txt", "--queries", 12, "--seed", 3)
    expected = synthetic("tiny", n_queries=12, rng=3)
    assert load_letor(tmp_path / "tiny.txt").features.tolist() == expected.features.tolist()


class TestSimulateAndInspect:
    @pytest.fixture
    def data(self, tmp_path):
        save_letor(synthetic("tiny", n_queries=60, rng=0), tmp_path / "data.txt")
        return tmp_path / "data.txt"

    def test_check_of_a_click_log(self, run, data):
        made = run("simulate", data, "-o", "log.parquet", "--clicks", 500, "--json")
        figures = json.loads(run("log", "check", "log.parquet", "--json"))
        assert figures["n_clicks"] == 500
        assert json.loads(made)["max_weight"] == figures["max_weight"]
        assert figures["predicted_gain"] == pytest.approx(
            (figures["max_weight"] / figures["mean_weight"]) ** 2
        )
        printed = run("log", "check", "log.parquet")
        for expected in ("effective clicks", "clicks by weight", "largest weight"):
            assert expected in printed

    @pytest.mark.parametrize(
        ("options", "columns"),
        [
            ("--shuffle 0 --top 3", []),
            ("--swap first --swap-rate 1 --top 3", []),
            ("--policy-fraction 0.1 --policy-fraction 0.5 --shares 0.9,0.1 --top 3", ["policy"]),
            ("--policy-fraction 0.1 --policy-fraction 0.5 --interleave --top 3", ["policy"]),
            ("--contexts phone=0.6:1.5,desktop=0.4:0.5 --top 3", ["context"]),
        ],
    )
    def test_logs_as_they_are(self, run, data, tmp_path, options, columns):
        words = options.split()
        run("simulate", data, "-o", "shown.parquet", "--sessions", 200, *words)
        table = parquet.read_table(tmp_path / "shown.parquet")
        assert table.column_names[:5] == ["session", "query_id", "item_id", "position", "click"]
        assert table.column_names[5:] == columns
        assert set(table["position"].to_pylist()) == {1, 2, 3}
        for column in columns:
            assert len(set(table[column].to_pylist())) == 2
        run("simulate", data, "-o", "log.parquet", "--clicks", 500, *words)
        assert ClickLog.load(tmp_path / "log.parquet", load_letor(data)).n_clicks == 500

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ("--shuffle 3 --swap first", "expected one of shuffle, swap and interleave"),
            ("--swap all", "pairs is 'all', expected one of adjacent, first"),
            ("--interleave", "interleave has 1 policies, expected two"),
            ("--contexts phone", "--contexts has 'phone', expected pairs such as"),
            ("--contexts a=1:1,b=1:1,a=2:1", "each name once"),
            ("--policy-fraction 0.1 --policy-fraction 0.10", "two policies are called trained-0.1"),
            ("--shares half", "--shares is 'half', expected numbers"),
            ("--shares 1", "shares are given for one policy"),
            ("--click-model martian", "martian"),
            ("--gamma -1", "gamma is -1.0, expected a number of at least 0"),
        ],
    )
    def test_options_that_do_not_go_together(self, run, data, options, message):
        assert message in run("simulate", data, "-o", "x", *options.split(), fails=True)


class TestTrainEvaluateRank:
    @pytest.fixture
    def data(self, tmp_path):
        save_letor(synthetic("tiny", n_queries=80, rng=0), tmp_path / "data.txt")
        return "data.txt"

    @pytest.fixture
    def log(self, run, data):
        run("simulate", data, "-o", "log.parquet", "--clicks", 800)
        return "log.parquet"

    def test_the_whole_way(self, run, data, log, tmp_path):
        made = json.loads(run("train", data, log, "-o", "ranker", "--steps", 2000, "--json"))
        assert 0 < made["steps"] <= 2000
        assert 0 <= made["path"]["kept"] <= 1
        means = json.loads(run("evaluate", "ranker", data, "--metrics", "ndcg@5,mrr", "--json"))
        assert list(means["data.txt"]) == ["ndcg@5", "mrr"]
        run("rank", "ranker", data, "-o", "scores.tsv")
        rows = [line.split("\t") for line in (tmp_path / "scores.tsv").read_text().splitlines()]
        assert rows[0] == ['"query"', '"item"', '"score"', '"rank"']
        assert len(rows) == 1 + load_letor(tmp_path / data).n_items
        run("rank", "ranker", data, "-o", "scores.parquet")
        assert (tmp_path / "scores.parquet").is_file()

    def test_a_model_that_is_not_known_and_options_it_does_not_have(self, run, data, log):
        error = run("train", data, log, "-o", "x", "--model", "svm", fails=True)
        assert "--model is 'svm', expected one of linear, neural, lightgbm, xgboost" in error
        error = run("train", data, log, "-o", "x", "--model", "xgboost", "--steps", 5, fails=True)
        assert "steps is not an option of the model xgboost: leave it out" in error

    def test_places_are_checked_before_the_work(self, run, data, log):
        for command in (["train", data, log], ["rank", "ranker", data]):
            error = run(*command, "-o", "nowhere/x", fails=True)
            assert "nowhere/x: the folder nowhere does not exist: create it first" in error
            error = run(*command, "-o", f"{data}/x", fails=True)
            assert f"the folder {data} does not exist" in error

    def test_errors(self, run, data, log, tmp_path):
        save_letor(synthetic("tiny", n_queries=80, rng=1), tmp_path / "other.txt")
        error = run("train", "other.txt", log, "-o", "x", fails=True)
        assert "the click log is of another dataset" in error
        assert "method" in run("train", data, log, "-o", "x", "--method", "magic", fails=True)
        assert "x" in run("evaluate", "x", data, fails=True)
        error = run(
            "train", data, log, "-o", "x", "--learning-rate", 1e30, "--steps", 10, fails=True
        )
        assert "training diverged at step" in error
