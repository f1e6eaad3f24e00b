"""``countersample fit``: files, summary, exit codes, and one sentence per error."""

import json
import re
import socket
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import SEED
from pyarrow import parquet
from requirements import need
from shops import make, with_column

from countersample import fitting
from countersample.errors import CounterSampleError
from countersample.rankers import CounterSampleRanker, load_ranker

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.slow]
FIT = ("fit", "log.parquet", "--features", "features.parquet", "-o", "ranker.json")


@pytest.fixture(scope="module")
def shop():
    return make(SEED, queries=40, sessions=1500)


@pytest.fixture
def folder(shop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parquet.write_table(shop[0], "log.parquet")
    parquet.write_table(shop[1], "features.parquet")
    return tmp_path


class TestResult:
    def test_summary_and_files(self, run, folder):
        printed = run(*FIT, "--transform", "log")
        first, *_, closing = printed.splitlines()
        assert first.startswith("The ranker is better than your current ranker: +")
        assert closing == "The ranker is in ranker.json; the report is in ranker.html"
        for part in ("about queries like those", "Next step: Export the ", "new ranker"):
            assert part in printed
        page = (folder / "ranker.html").read_text("utf-8")
        assert f"countersample {' '.join(FIT)} --transform log" in page
        assert "log, then minmax" in page
        ranker = load_ranker("ranker.json")
        assert (ranker.n_features_in_, ranker.feature_transform_) == (5, "log")
        names = {"log.parquet", "features.parquet", "ranker.json", "ranker.html"}
        assert {path.name for path in folder.iterdir()} == names

    def test_json_has_no_ids(self, run, folder):
        printed = run(*FIT, "--gamma", "1", "--report", "page.html", "--json")
        figures = json.loads(printed)
        assert figures["propensities"]["source"] == "given"
        assert figures["gain"]["new"]["metric"] == "dcg@10"
        for text in (printed, *(path.read_text("utf-8") for path in
                                (folder / "ranker.json", folder / "page.html"))):  # fmt: skip
            assert "item-0" not in text
            assert "q000" not in text

    def test_contexts_values_and_joined_queries(self, run, shop, rng):
        log, _ = shop
        is_upper = pa.array(rng.random(len(log)) < 0.5)
        upper = pc.if_else(is_upper, pc.utf8_upper(log["query_id"]), log["query_id"])
        device = np.where(log["session"].to_numpy() % 2, "phone", "desktop")
        event = np.where(log["click"].to_numpy() == 1, "buy", "view")
        log = with_column(log, "query_id", upper).append_column("device", pa.array(device))
        parquet.write_table(log.append_column("event", pa.array(event)), "log.parquet")
        figures = json.loads(run(*FIT, "--context", "device", "--values", "buy=2",
                                 "--join-queries", "--json"))  # fmt: skip
        assert figures["join"]["n_clicks"] == pc.sum(log["click"]).as_py()
        assert set(figures["propensities"]["contexts"]["curves"]) == {"desktop", "phone"}
        assert figures["propensities"]["source"].endswith("in each of 2 contexts")

    @pytest.mark.parametrize(("low", "high", "code"), [(0.1, 0.2, 0), (-0.1, 0.2, 3), (-2, -1, 4)])
    def test_exit_codes(self, run, monkeypatch, low, high, code):
        whole = fitting.fit_from_impressions

        def change_gain(*arguments, **settings):
            fit = whole(*arguments, **settings)
            return replace(fit, gain=replace(fit.gain, relative_low=low, relative_high=high))

        monkeypatch.setattr(fitting, "fit_from_impressions", change_gain)
        printed = run(*FIT, "--gamma", "1", "--fail-unless-better", code=code)
        assert {0: "is better", 3: "is not shown to", 4: "is worse"}[code] in printed


class TestNothingHalfWritten:
    @pytest.mark.parametrize("broken", ["page", "ranker"])
    def test_no_ranker_when_something_fails(self, run, folder, monkeypatch, broken):
        def fail(*_, **__):
            raise CounterSampleError("the disk is full")

        if broken == "page":
            monkeypatch.setattr("countersample.fitting.write_page", fail)
            assert "the disk is full" in run(*FIT, "--gamma", "1", fails=True)
        else:
            monkeypatch.setattr(CounterSampleRanker, "save", fail)
            run(*FIT, "--gamma", "1", fails=True, leaves=["ranker.html"])
        assert not (folder / "ranker.json").exists()

    def test_an_old_ranker_stays_when_the_new_fails(self, run, folder, shop):
        (folder / "ranker.json").write_text("old")
        no_click = with_column(shop[0], "click", np.zeros(len(shop[0]), int))
        parquet.write_table(no_click, "log.parquet")
        assert "no click, so there is nothing to learn" in run(*FIT, fails=True)
        assert (folder / "ranker.json").read_text() == "old"

    def test_wrong_options_fail_first(self, run):
        for words, error in {
            "--report nowhere/page.html": "the folder nowhere does not exist: create it first",
            "--report ranker.json": "are both ranker.json, expected two files",
            "--report .": ". is a folder, expected the name of a file",
            "--gamma 1 --propensities x.json": "both given, expected one of them",
            "--propensities x.json": "x.json: no such file",
            "--gamma -1": "gamma is -1.0, expected a number of at least 0",
            "--propensity-method guess": "-method is 'guess', expected one of auto",
            "--model svm": "--model is 'svm', expected one of linear, neural, lightgbm",
            "--transform square": "--transform is 'square', expected one of log, root, q",
            "--missing drop": "--missing is 'drop', expected one of error, skip",
            "--columns q": "--columns has 'q', expected pairs such as query_id=q",
            "--engine abacus": "abacus",
            "--exclude pricy": "no feature 'pricy'",
            "--exclude a --include b": "both given, expected one of them",
        }.items():
            assert error in run(*FIT, *words.split(), fails=True)


def number_queries(table):
    return with_column(table, "query_id", np.repeat(np.arange(len(table) // 10), 10))


SPOILED = [  # a table, how it is spoiled, and parts of the error
    ("log", lambda log: log.drop_columns("position"),
     ["no column 'position': the columns are session, policy", "--columns"]),
    ("log", lambda log: with_column(log, "position", log["position"].to_numpy() - 1),
     ["position", "(such as 0)", "--missing skip"]),
    ("log", lambda log: log.append_column("impressions", [np.arange(len(log)) // 5]),
     ["no impression", "--missing skip"]),
    ("log", lambda log: log.filter(pc.equal(log["position"], 1)),
     ["position 1 only, expected at least two", "--gamma", "shuffle"]),
    ("log", lambda log: log.append_column("propensity", [np.zeros(len(log))]),
     ["propensity is missing, 0 or beyond 1", "--propensity-method"]),
    ("features", lambda table: with_column(table, "item_id", pc.utf8_upper(table["item_id"])),
     ["no click has both features and a propensity", "ids"]),
    ("features", number_queries, ["query_id is text in the log", "integers", "convert one of"]),
    ("features", lambda table: table.drop_columns("item_id"),
     ["no column 'item_id'", "the columns are query_id"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "spoil", "parts"), SPOILED)
def test_a_bad_input_is_one_sentence(run, name, spoil, parts):
    parquet.write_table(spoil(parquet.read_table(f"{name}.parquet")), f"{name}.parquet")
    sentence = run(*FIT, fails=True)
    for part in parts:
        assert part in sentence


def test_mixed_types_of_ids(run, folder, shop):
    log = shop[0]
    (folder / "logs").mkdir()
    parquet.write_table(log, "logs/a.parquet")
    parquet.write_table(with_column(log, "item_id", np.arange(len(log))), "logs/b.parquet")
    line = run("fit", "logs", *FIT[2:], fails=True)
    assert re.search(r"logs/b.parquet does not fit .* item_id has .* types: string vs int64", line)


def test_an_unreachable_spark_master(run):
    need("spark")
    with socket.socket() as port:  # bound but not listening, so nobody can connect
        port.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{port.getsockname()[1]}"
        line = run(*FIT, "--engine", "spark", "--master", master, fails=True)
    assert f"Spark did not start on {master}" in line
    assert "check that the master runs, and that Java 17 or later is installed" in line
