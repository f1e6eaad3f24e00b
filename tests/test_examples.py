"""The examples run as their README says, and find what was put into the log."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from conftest import ROOT, SEED
from requirements import need
from shops import load_example
from small_spark import SUBMIT

from countersample.rankers import load_ranker

EXAMPLES = ROOT / "examples"
SMALL = ["--queries", "120", "--sessions", "5000"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples") / "shop"
    load_example("make_shop_log").write_shop(folder, queries=120, sessions=5000, seed=SEED)
    return folder


def test_the_same_seed_makes_the_same_log(shop, tmp_path):
    load_example("make_shop_log").write_shop(tmp_path, queries=120, sessions=5000, seed=SEED)
    for name in ("impressions.parquet", "features.parquet"):
        assert pq.read_table(tmp_path / name).equals(pq.read_table(shop / name))


@pytest.mark.slow
def test_the_readme(run, tmp_path):
    """All commands but Spark's, in order, in one folder; the log is made smaller."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    text = (EXAMPLES / "README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if "spark" not in line]
    assert len(lines) == 4
    for line in lines:
        words = shlex.split(line)
        if words[0] == "python":
            extra = SMALL if "make_shop_log" in line else []
            subprocess.run([sys.executable, *words[1:], *extra], check=True, capture_output=True)
            continue
        run(*words[1:])
    assert (tmp_path / "shop" / "ranker.html").is_file()


def test_every_example_is_in_the_readme():
    told = set(re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text()))
    assert told == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.slow
def test_spark(shop, tmp_path):
    """Real Spark: the same counts, so the same ranker to the bit."""
    need("spark")
    folder = tmp_path / "shop"
    shutil.copytree(shop, folder)
    command = [sys.executable, str(EXAMPLES / "log_to_ranker_spark.py"), str(folder)]
    done = subprocess.run(
        [*command, "--master", "local[2]", "--seed", str(SEED)],
        capture_output=True, text=True, check=False,
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": SUBMIT},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "better than your current ranker" in done.stdout
    fit = load_example("log_to_ranker").fit_shop(shop, seed=SEED)
    assert (load_ranker(folder / "ranker.json").weights_ == fit.ranker.weights_).all()
