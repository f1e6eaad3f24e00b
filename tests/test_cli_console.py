"""The log of the package: off by default; counts and seconds, and never an id."""

import json
import logging
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from conftest import SEED
from every_ranker import make, tiny
from pyarrow import parquet
from shops import make as make_shop

from countersample.cli import console
from countersample.rankers import load_ranker

FIT = ("fit", "log.parquet", "--features", "features.parquet", "-o", "ranker.json", "--gamma", "1")
JSON = ("--log-format", "json")


@pytest.fixture(autouse=True)
def quiet_again():
    yield
    console.configure_log(None, None)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log, features = make_shop(SEED, queries=30, sessions=600)
    parquet.write_table(log, "log.parquet")
    parquet.write_table(features, "features.parquet")


def command(*arguments):
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "countersample", *arguments], capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


# -- the library


def test_it_is_quiet_by_default(capfd):
    root = logging.getLogger("countersample")
    assert [type(each) for each in root.handlers] == [logging.NullHandler]
    make("linear").fit_log(*tiny())
    logging.getLogger("countersample.fitting").error("this goes nowhere")
    assert capfd.readouterr() == ("", "")


# -- the command line


@pytest.mark.slow
@pytest.mark.usefixtures("shop")
def test_json_lines_and_nothing_else():
    done = command(*JSON, "--log-level", "debug", *FIT, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["out"] == "ranker.json"  # standard output is the result
    lines = objects(done.stderr)
    for line in lines:
        assert list(line)[:4] == ["time", "level", "logger", "message"]
        at = datetime.fromisoformat(line["time"])
        assert at.tzinfo == UTC
        assert abs((datetime.now(UTC) - at).total_seconds()) < 3600
        assert line["level"] in {"debug", "info", "warning"}
        assert line["logger"].startswith("countersample.")
    told = {line["logger"]: line for line in lines}
    log = parquet.read_table("log.parquet")
    counted = next(line for line in lines if line["message"].startswith("log counted"))
    assert counted["n_impressions"] == log.num_rows
    assert "countersample.rankers.base" in told
    features = parquet.read_table("features.parquet")
    ids = {*log["session"].to_pylist(), *log["query_id"].to_pylist(),
           *features["item_id"].to_pylist()}  # fmt: skip
    assert not [each for each in ids if isinstance(each, str) and each in done.stderr]
    assert load_ranker("ranker.json").n_features_in_ == 5


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("evaluate", "nothing.json", "data.txt"), 1, "nothing.json: cannot be read"),
        (("evaluate", "--wrong"), 2, "unknown option: --wrong"),
        (("evaluate",), 2, "evaluate needs RANKER: "),
        (("fly",), 2, 'unknown command "fly"'),
    ],
)
def test_errors_are_json_lines(arguments, code, message):
    done = command(*JSON, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = objects(done.stderr)
    assert (line["level"], line["logger"]) == ("error", "countersample.cli")
    assert message in line["message"]
